package report

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Machine describes the machine of a measurement.
type Machine struct {
	Version    string  `json:"verifyd"`
	Go         string  `json:"go"`
	OS         string  `json:"os"`
	Arch       string  `json:"arch"`
	Cores      int     `json:"cores"`                  // shared by generator, receiver and service
	Others     float64 `json:"others_cores,omitempty"` // how many of them other programs used meanwhile
	Filesystem string  `json:"filesystem,omitempty"`   // of the stores
	Sync       float64 `json:"fsync_us,omitempty"`     // the median of a synced write of 4 KiB
	Duration   float64 `json:"duration_s"`             // of one measurement
	Runs       int     `json:"runs"`
	Scale      float64 `json:"scale,omitempty"`
}

// ThisMachine describes this machine before anything is measured. dir is where the stores are.
func ThisMachine(dir string) Machine {
	m := Machine{
		Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.GOMAXPROCS(0),
		Filesystem: filesystemOf(dir),
	}
	m.Sync, _ = syncTime(dir) // left out if it cannot be measured
	return m
}

// filesystemOf returns the type of the filesystem that holds dir, on Linux: that of the mount with the
// longest path above it.
func filesystemOf(dir string) (kind string) {
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return ""
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return ""
	}
	longest := 0
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 3 {
			continue
		}
		at := strings.TrimSuffix(f[1], "/") + "/"
		if strings.HasPrefix(dir+"/", at) && len(at) >= longest {
			longest, kind = len(at), f[2]
		}
	}
	return kind
}

// syncTime returns the median time in microseconds of a write of 4 KiB that is synced: the minimum of every
// durable write.
func syncTime(dir string) (_ float64, err error) {
	f, err := os.Create(filepath.Join(dir, "fsync")) //nolint:gosec // the bench's own folder
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close(); _ = os.Remove(f.Name()) }()
	var times []float64
	for range 50 {
		began := time.Now()
		if _, err := f.Write(make([]byte, 4<<10)); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		times = append(times, float64(time.Since(began))/float64(time.Microsecond))
	}
	return medianFloat(times), nil
}
