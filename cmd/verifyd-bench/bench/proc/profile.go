package proc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

const (
	// maxProfile is the longest profile: the operators' server ends answers after two minutes.
	maxProfile = 100 * time.Second
	// profileLate is how much longer than the profile its answer may take.
	profileLate = 15 * time.Second
	// profileBytes is far more than a profile takes.
	profileBytes = 64 << 20
)

// Profile is a CPU profile of a service, taken while a row is measured. It costs the service one or two
// percent.
type Profile struct {
	dir, mode string
	done      chan struct{} // closed when data and err are set
	data      []byte
	err       error
}

// StartProfile begins a profile that takes as long as a measurement. admin is the address of the service's
// operators' server; dir is where the profile will be kept, and mode the sync mode of the store.
func StartProfile(admin, dir, mode string, takes time.Duration) *Profile {
	p := &Profile{dir: dir, mode: mode, done: make(chan struct{})}
	seconds := max(1, int(min(takes, maxProfile).Round(time.Second).Seconds()))
	go func() {
		defer close(p.done)
		p.data, p.err = fetchProfile("http://"+admin+"/debug/pprof/profile?seconds="+strconv.Itoa(seconds),
			time.Duration(seconds)*time.Second)
	}()
	return p
}

func fetchProfile(url string, takes time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), takes+profileLate)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return nil, errors.New(answer.Status)
	}
	return io.ReadAll(io.LimitReader(answer.Body, profileBytes))
}

// Keep waits for the profile and writes it to a file that is named after name and mode, with the first number
// that no file has yet: each run has one of its own.
func (p *Profile) Keep(name string) error {
	<-p.done
	if p.err != nil {
		return p.err
	}
	for n := 1; ; n++ {
		path := filepath.Join(p.dir, fmt.Sprintf("%s-%s-%d.pb.gz", name, p.mode, n))
		if _, err := os.Stat(path); err != nil {
			return os.WriteFile(path, p.data, 0o600)
		}
	}
}
