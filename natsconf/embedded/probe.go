package embedded

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// probe is a file by which the filesystem under the store is asked whether it still writes.
//
// ext4 tells nobody at once that it could not write its journal. A sync of another file whose changes were in
// that journal transaction, and which asks for it after it was given up, returns success
// (jbd2_complete_transaction, Linux 6), and until somebody begins a change of metadata nothing shows that the
// filesystem takes none any more: no flag of statfs, no read, and no write to pages in memory.
type probe struct {
	file *os.File
}

const (
	probeFile = "probe"
	probeMode = 0o600
)

// openProbe makes the file anew, so that it is this process's own.
func openProbe(dataDir string) (*probe, error) {
	path := filepath.Join(dataDir, probeFile)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, probeMode) //nolint:gosec // the operator's own
	if err != nil {
		return nil, err
	}
	return &probe{file: f}, nil
}

// fault returns why the filesystem writes no more, or nil. It gives the file the mode that it has, which
// begins a change of metadata: the first has the filesystem notice that its journal is given up, the second
// is refused for it. Both take less than four microseconds.
func (p *probe) fault() error {
	for range 2 {
		err := p.file.Chmod(probeMode)
		for _, fault := range []syscall.Errno{syscall.EROFS, syscall.EIO} {
			if errors.Is(err, fault) {
				return fault
			}
		}
	}
	return nil
}

// close removes the file.
func (p *probe) close() {
	_ = p.file.Close()
	_ = os.Remove(p.file.Name())
}
