package transfer

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"verifyd/natsconf"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/storefile"
)

// Source is a backup, or a copy, that a store is restored from.
type Source interface {
	// Head is the part that can be read without the master key.
	Head() Header
	// Check reads everything, and calls seen for each message. Its errors are ErrAnotherKey, ErrDamaged and
	// the file's.
	Check(key secretbox.Key, seen func(stream, subject string)) ([]Held, error)
	// Restore fills a store's assets with the messages of the source that the store does not have yet.
	// Messages whose life has ended are left out. A repeat is harmless. The source is one that Check has
	// found whole. Its errors are Check's and Fill's.
	Restore(ctx context.Context, c *natsconf.Conn, assets []Asset, skip Skip, key secretbox.Key) ([]Report,
		error)
	io.Closer
}

// OpenSource opens the backup, or the folder of the copy, at a path. Its errors are ErrNoBackup, a
// *VersionError, and those of the filesystem.
func OpenSource(path string) (Source, error) {
	file, err := os.Open(path) //nolint:gosec // the operator's own file
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && info.IsDir() {
		_ = file.Close()
		return openCopy(path)
	}
	var f *File
	if err == nil {
		f, err = Open(file)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return f, nil
}

// storeCopy is a copy to be read.
type storeCopy struct {
	dir  string
	head Header

	state copyState
	file  *os.File // nil until the key was there
}

func openCopy(dir string) (*storeCopy, error) {
	h, _, _, err := readCopyManifest(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrNoBackup
	}
	return &storeCopy{dir: dir, head: h}, err
}

// Head returns the header; its instant is that of the state that the copy holds.
func (s *storeCopy) Head() Header { return s.head }

// Close releases the file.
func (s *storeCopy) Close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}

// copyTries is how often a copy is looked up again if it changes to another generation meanwhile.
const copyTries = 5

// load opens the generation that counts. Everything read from then on belongs to one state, though a service
// may go on writing.
func (s *storeCopy) load(key secretbox.Key) (err error) {
	if s.file != nil {
		_, err = s.file.Seek(0, io.SeekStart)
		return err
	}
	for range copyTries {
		if s.head, s.state, err = readCopyState(s.dir, key); err != nil {
			return err
		}
		folder := copyFolder{dir: s.dir}
		if s.file, err = os.Open(folder.path(s.state.Generation)); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return &DamagedCopyError{File: copyPrefix + s.state.Generation, Of: s.state.Bytes}
}

func readCopyState(dir string, key secretbox.Key) (h Header, state copyState, err error) {
	h, first, sealed, err := readCopyManifest(dir)
	if err != nil {
		return h, state, err
	}
	if !key.Checks(h.KeyCheck) {
		return h, state, ErrAnotherKey
	}
	plain, err := key.Box(copyUse).Open(sealed, nameOf(first))
	if err != nil || json.Unmarshal(plain, &state) != nil {
		return h, state, &DamagedCopyError{File: copyManifest}
	}
	return h, state, nil
}

func (s *storeCopy) each(key secretbox.Key, v copyVisitor) error {
	if err := s.load(key); err != nil {
		return err
	}
	r := bufio.NewReaderSize(s.file, frameBytes)
	return readFrames(r, copyPrefix+s.state.Generation, s.state.Bytes, key.Box(copyUse), s.state.Generation,
		v)
}

// Check reads the whole copy; see Source. It counts everything that was written since the generation began.
func (s *storeCopy) Check(key secretbox.Key, seen func(stream, subject string)) ([]Held, error) {
	counts := map[string]uint64{}
	err := s.each(key, copyVisitor{message: func(stream string, _ time.Duration, m *storefile.Message) error {
		counts[stream]++
		seen(stream, string(m.Subject))
		return nil
	}})
	if err != nil {
		return nil, err
	}
	var held []Held
	for _, stream := range order {
		held = append(held, Held{Asset: stream, Count: counts[stream]})
	}
	return held, nil
}

// Restore fills a store; see Source.
func (s *storeCopy) Restore(ctx context.Context, c *natsconf.Conn, assets []Asset, skip Skip,
	key secretbox.Key) ([]Report, error) {
	return refillFrom(ctx, c, assets, skip, func(r *refill) error {
		return s.each(key, copyVisitor{message: func(stream string, life time.Duration,
			m *storefile.Message) error {
			one := r.wanting(stream, string(m.Subject), m.Sequence)
			if one == nil {
				return nil
			}
			it, err := itemOfStored(life, m)
			if err != nil {
				return fmt.Errorf("read from the copy of %s: %w", stream, err)
			}
			if it.over(r.now) && !one.asset.replaces() {
				return nil
			}
			return r.take(one, it)
		}})
	})
}
