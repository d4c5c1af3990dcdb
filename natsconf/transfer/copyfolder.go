package transfer

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"github.com/rs/zerolog"

	"verifyd/natsconf"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/storefile"
)

const (
	copyManifest = "verifyd-copy"
	copyPrefix   = copyManifest + "."
	copyLock     = copyPrefix + "lock"
	// maxManifest bounds what is read as one.
	maxManifest = 1 << 20
)

// copyState is what a copy's writer knows about it: sealed, since it decides what counts.
type copyState struct {
	Generation string    `json:"generation"` // random, names the file
	Began      time.Time `json:"began"`      // when the generation was
	Bytes      int64     `json:"bytes"`      // of the file that count
	Frames     int       `json:"frames"`
	// bytes that the generation began with: everything that was stored then
	First int64               `json:"first"`
	At    map[string]copyMark `json:"at"` // how far each stream was copied
	// a message left the store before it was copied: one that it had replaced may still be in this generation
	Missed bool `json:"missed,omitempty"`
}

// copyMark is the last message of a stream that was copied.
type copyMark struct {
	Sequence uint64 `json:"n"`
	Time     int64  `json:"at,omitempty"` // its own, as the store keeps it; 0: not known
}

// CopyRefusal reports why a folder is not written to: its content or its place would have to change.
type CopyRefusal struct{ Dir, Why, Instead string }

func (e *CopyRefusal) Error() string { return e.Dir + " " + e.Why + "; " + e.Instead }

// CopierConfig is what a Copier needs.
type CopierConfig struct {
	Conn    *natsconf.Conn
	DataDir string // of the embedded store
	Dir     string // where the copy is kept
	Assets  []Asset
	Store   string // names the store (storestate.Record)
	Key     secretbox.Key
	Rekeyed bool   // the store had another master key before, which may have sealed the copy in the folder
	Build   string // of verifyd, for people
	// Skip returns what a new generation leaves out, as a backup does.
	Skip func(context.Context) (Skip, error)
	// Removals are the subjects, with wildcards, of the notes in the bucket of the store that something was
	// removed: a new generation begins without it.
	Removals string
	Log      zerolog.Logger

	// RenewAfter is the age at which a generation is replaced by a new one, 24 h when zero; MinRenew is the
	// minimum time between two, 10 min when zero.
	RenewAfter, MinRenew time.Duration
}

// copyFolder is a folder that only this process writes a copy to.
type copyFolder struct {
	dir    string
	lock   *flock.Flock
	box    *secretbox.Box
	header Header
	state  copyState // Generation is empty if there is no copy yet
	// the existing state cannot be read: the files that it may be about stay until there is another state
	keep bool
}

// openCopyFolder opens a folder for the copy of a store. Its errors are a *CopyRefusal, and those of the
// filesystem.
func openCopyFolder(c CopierConfig) (_ *copyFolder, err error) {
	dir, key := c.Dir, c.Key
	if err := CheckCopyDir(dir, c.DataDir); err != nil {
		return nil, fmt.Errorf("the folder of the copy: %w", err)
	}
	f := &copyFolder{
		dir: dir, box: key.Box(copyUse),
		lock: flock.New(filepath.Join(dir, copyLock), flock.SetPermissions(0o600)),
	}
	got, err := f.lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock the folder of the copy: %w", err)
	}
	if !got {
		return nil, &CopyRefusal{
			dir, "is being written by another service", "give each service a folder of its own",
		}
	}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	f.header = Header{
		Format: copyFormat, ID: rand.Text(), Store: c.Store, Build: c.Build, KeyCheck: key.NewCheck(),
		Running: true, Rekeyed: c.Rekeyed,
	}
	f.header.Version = f.header.version()
	if err := f.read(key); err != nil {
		return nil, err
	}
	if f.keep {
		return f, nil
	}
	return f, f.sweep()
}

// CheckCopyDir returns why a copy cannot be kept in a folder, as far as that can be seen without reading its
// content. Its errors are a *CopyRefusal, and those of the filesystem.
func CheckCopyDir(dir, dataDir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err // it is not made: if its disk is not mounted, that would be a folder on another one
	}
	if !info.IsDir() {
		return &CopyRefusal{dir, "is not a folder", "name a folder on another disk"}
	}
	within, err := isWithin(dir, dataDir)
	if err != nil {
		return err
	}
	if within {
		return &CopyRefusal{
			dir, "is in the data directory " + dataDir,
			"a copy there would be lost with it: name a folder on another disk",
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if name := e.Name(); name != copyManifest && !strings.HasPrefix(name, copyPrefix) &&
			name != "lost+found" {
			return &CopyRefusal{
				dir, fmt.Sprintf("holds something else (%s)", name), "name an empty folder for the copy",
			}
		}
	}
	return nil
}

// CheckCopy is CheckCopyDir, but also reads whose copy is in the folder, and tries to write there; the
// content stays as it is. An empty store name means that the store is not known.
func CheckCopy(c CopierConfig) error {
	if err := CheckCopyDir(c.Dir, c.DataDir); err != nil {
		return err
	}
	f := &copyFolder{dir: c.Dir, box: c.Key.Box(copyUse), header: Header{Store: c.Store, Rekeyed: c.Rekeyed}}
	if err := f.read(c.Key); err != nil {
		return err
	}
	// one that stays behind is removed with everything that is unfinished
	tried, err := os.CreateTemp(c.Dir, copyPrefix+"check-")
	if err != nil {
		return err
	}
	return errors.Join(tried.Close(), os.Remove(tried.Name()))
}

// isWithin reports whether a folder is another one or is below it, with links resolved.
func isWithin(dir, of string) (bool, error) {
	var err error
	paths := []string{dir, of}
	for i, p := range paths {
		if p, err = filepath.EvalSymlinks(p); errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if paths[i], err = filepath.Abs(p); err != nil {
			return false, err
		}
	}
	rel, err := filepath.Rel(paths[1], paths[0])
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator)), nil
}

// read finds out how far the existing copy has come.
func (f *copyFolder) read(key secretbox.Key) error {
	h, first, sealed, err := readCopyManifest(f.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	another := &CopyRefusal{f.dir, "", "name an empty folder, or move what is there to another place"}
	switch newer := (*VersionError)(nil); {
	case errors.As(err, &newer):
		another.Why = "holds a copy by a newer verifyd"
		return another
	case errors.Is(err, ErrNoBackup): // it has our name, and is damaged
		f.keep = true
		return nil
	case err == nil && f.header.Store != "" && h.Store != f.header.Store:
		another.Why = "holds the copy of another store, as of " + h.CreatedAt.Format(time.RFC3339)
		return another
	case err != nil:
		return err
	case !key.Checks(h.KeyCheck) && f.header.Rekeyed: // the key before sealed it
		f.keep = true
		return nil
	case !key.Checks(h.KeyCheck):
		another.Why = "holds a copy that was sealed with another master key"
		return another
	}
	f.header.ID, f.header.CreatedAt = h.ID, h.CreatedAt
	if plain, err := f.box.Open(sealed, nameOf(first)); err != nil || json.Unmarshal(plain, &f.state) != nil {
		f.state, f.keep = copyState{}, true
	}
	return nil
}

// sweep removes what an earlier run has left unfinished.
func (f *copyFolder) sweep() error {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		switch name := e.Name(); {
		case !strings.HasPrefix(name, copyPrefix), name == copyLock, name == copyPrefix+f.state.Generation:
		default:
			if err := os.Remove(filepath.Join(f.dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// commit makes a state the one that counts. The bytes that it names are on the disk already.
func (f *copyFolder) commit(s copyState, at time.Time) error {
	h := f.header
	h.CreatedAt = at.UTC()
	first, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("encode the copy's header: %w", err)
	}
	plain, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode the copy's state: %w", err)
	}
	path := filepath.Join(f.dir, copyManifest)
	text := append(append(first, '\n'), f.box.Seal(plain, nameOf(first))...)
	if err := storefile.Replace(path, text); err != nil {
		return err
	}
	before := f.state.Generation
	f.header, f.state = h, s
	if before == s.Generation {
		return nil
	}
	f.keep = false
	return f.sweep()
}

func (f *copyFolder) path(generation string) string {
	return filepath.Join(f.dir, copyPrefix+generation)
}

func (f *copyFolder) close() { _ = f.lock.Close() }

// readCopyManifest reads what a copy is. Its errors are ErrNoBackup, a *VersionError, and those of the
// filesystem: fs.ErrNotExist if there is none.
func readCopyManifest(dir string) (h Header, first, sealed []byte, err error) {
	path := filepath.Join(dir, copyManifest)
	info, err := os.Stat(path)
	if err != nil {
		return h, nil, nil, err
	}
	if info.Size() > maxManifest {
		return h, nil, nil, ErrNoBackup
	}
	text, err := os.ReadFile(path) //nolint:gosec // the operator's own folder
	if err != nil {
		return h, nil, nil, err
	}
	first, sealed, ok := bytes.Cut(text, []byte("\n"))
	if !ok || json.Unmarshal(first, &h) != nil || h.Format != copyFormat {
		return h, nil, nil, ErrNoBackup
	}
	if !h.isRead() {
		return h, nil, nil, &VersionError{h.Version, h.Build}
	}
	return h, first, sealed, nil
}
