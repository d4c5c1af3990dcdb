package embedded

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// probe is a file that tests whether the filesystem under the store still writes.
//
// ext4 does not report at once that it could not write its journal. If another file's changes were in that
// journal transaction, a sync of that file after the transaction was given up returns success
// (jbd2_complete_transaction, Linux 6). Until a change of metadata begins, nothing shows that the filesystem
// accepts none any more: no flag of statfs, no read, and no write to pages in memory.
type probe struct {
	file *os.File
}

const (
	probeFile = "probe"
	probeMode = 0o600
)

// openProbe makes the file again, so that it is this process's own.
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

// fault returns why the filesystem writes no more, or nil. It sets the file's mode to the mode that it has,
// which begins a change of metadata: the first makes the filesystem notice that its journal is given up, and
// the second is refused for that reason. Both take less than four microseconds.
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
