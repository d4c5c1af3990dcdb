package embedded

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"verifyd/natsconf"
	"verifyd/natsconf/storefile"
	"verifyd/natsconf/topology"
)

// Recovery is what a recovery of a damaged store found, from its beginning until its end.
type Recovery struct {
	Version int       `json:"v"`
	Begun   time.Time `json:"begun"`
	Kept    string    `json:"kept"` // where the damaged files are, inside the data directory
	Damages []Damage  `json:"damages"`
}

const recoveryVersion = 1

// Lost returns what a stream has lost, as one span of time: from the first instant at which a lost message
// may have been stored to the last; zero if that is not known. ok reports whether it has lost anything.
func (r *Recovery) Lost(stream string) (from, to time.Time, ok bool) {
	for _, d := range r.Damages {
		switch {
		case d.Stream != stream:
		case !ok:
			from, to, ok = d.From, d.To, true
		default: // zero is before all others, and after
			if d.From.Before(from) {
				from = d.From
			}
			if d.To.IsZero() || !to.IsZero() && d.To.After(to) {
				to = d.To
			}
		}
	}
	return from, to, ok
}

// BeginRecovery puts the damaged files of a store aside, and rewrites those blocks with the intact messages.
// Until EndRecovery the store can be opened only for the recovery, which may be repeated after a crash. It
// returns nil if nothing is damaged. The server must not run.
func (e *Server) BeginRecovery() (*Recovery, error) {
	e.recovering = true
	r, err := e.readRecovery()
	if err != nil {
		return nil, err
	}
	_, err = e.inspect()
	damage, damaged := errors.AsType[*DamageError](err)
	if err != nil && !damaged {
		return nil, err
	}
	if r == nil && !damaged {
		e.recovering = false
		return nil, nil //nolint:nilnil // there is nothing to recover
	}
	if r == nil {
		now := time.Now().UTC()
		r = &Recovery{
			Version: recoveryVersion, Begun: now,
			Kept: filepath.Join(keptFolder, now.Format("20060102T150405Z")),
		}
	}
	if damaged {
		for _, d := range damage.Damages {
			if !slices.Contains(r.Damages, d) {
				r.Damages = append(r.Damages, d)
			}
		}
	}
	if err := e.writeRecovery(r); err != nil {
		return nil, err
	}
	if err := e.putBack(r); err != nil {
		return nil, err
	}
	for _, name := range topology.StreamNames() {
		if _, _, lost := r.Lost(name); !lost {
			continue
		}
		if err := storefile.Repair(e.streamFolder(name), name,
			filepath.Join(e.dataDir, r.Kept, name)); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// putBack replaces the blocks that the server cut off at a damaged record with the copies from before: of
// those, only the damaged records are lost. What the server stored afterwards was not acknowledged.
func (f *files) putBack(r *Recovery) error {
	for _, d := range r.Damages {
		if d.Kept == "" {
			continue
		}
		err := storefile.Copy(filepath.Join(f.dataDir, d.Kept), filepath.Join(f.dataDir, d.File))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // without it, what is left is what there is
			return fmt.Errorf("put back %s: %w", d.File, err)
		}
	}
	return nil
}

// EndRecovery lets the store be served again. What it holds now is what it must have.
func (e *Server) EndRecovery() error {
	ns, err := e.current()
	if err != nil {
		return err
	}
	marks, err := marksOf(ns)
	if err != nil {
		return err
	}
	w := &witness{Version: witnessVersion, At: time.Now().UTC(), Streams: e.withBlocks(marks)}
	if err := e.writeWitness(w); err != nil {
		return err
	}
	if err := os.Remove(e.recoveryPath()); err != nil {
		return fmt.Errorf("end the recovery: %w", err)
	}
	return storefile.SyncFolder(e.dataDir)
}

func (f *files) recoveryPath() string { return filepath.Join(f.dataDir, recoveryFile) }

func (f *files) readRecovery() (*Recovery, error) {
	b, err := os.ReadFile(f.recoveryPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // none has begun
	}
	if err != nil {
		return nil, fmt.Errorf("read the recovery: %w", err)
	}
	var r Recovery
	if err := natsconf.DecodeRecord(b, &r, &r.Version, recoveryVersion); err != nil {
		return nil, fmt.Errorf("%s: %w", recoveryFile, err)
	}
	return &r, nil
}

func (f *files) writeRecovery(r *Recovery) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the recovery: %w", err)
	}
	if err := storefile.Replace(f.recoveryPath(), b); err != nil {
		return fmt.Errorf("write the recovery: %w", err)
	}
	return nil
}
