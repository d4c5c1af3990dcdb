package transfer

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"verifyd/natsconf/embedded"
	"verifyd/natsconf/wait"
)

const (
	// MaxCopyLag is how far a copy may be behind its store.
	MaxCopyLag = 5 * time.Second
	// copyRetry and maxCopyRetry bound the pause after a failure.
	copyRetry    = time.Second
	maxCopyRetry = 10 * time.Second
	// copyRenew is the age at which a generation is replaced by a new one, so that aged-out messages leave
	// the copy, and data that decayed there is written again.
	copyRenew = 24 * time.Hour
	// minRenew is the minimum time between two generations, whatever was erased meanwhile.
	minRenew = 10 * time.Minute
	// CopyStop is how long a stop waits for a disk that does not answer.
	CopyStop = 5 * time.Second
)

// Copier is the actor that keeps a copy of an embedded store.
//
// The law: the state that the manifest names is on the disk, and is one that the store was in, by the order
// in which its streams are read (order). A pass counts as a whole or not at all. A failure does not change
// that state, and is followed by a new try from there.
type Copier struct {
	c CopierConfig

	mu     sync.Mutex
	state  CopyState
	failed bool // it was logged

	notBefore time.Time // when a new generation is tried again; used by the goroutine that copies
}

// CopyState is the state of a copy.
type CopyState struct {
	Dir   string
	At    time.Time // the store as it was then is in the copy; zero: there is none yet
	Since time.Time // since when this process copies
	Err   error     // why copying does not go on; nil: it does
	// why no new generation could begin, though copying goes on; nil: one could, or none was due
	Stale    error
	SameDisk bool      // it is on the filesystem of the store
	Bytes    int64     // of the copy
	Renewed  time.Time // when its generation was begun; zero: none is whole
	Failures uint64    // of this process, so far
}

// Lag returns how far the copy is behind the store.
func (s CopyState) Lag(now time.Time) time.Duration {
	if s.At.IsZero() {
		return max(now.Sub(s.Since), 0)
	}
	return max(now.Sub(s.At), 0)
}

// NewCopier returns a copier. It does nothing until served.
func NewCopier(c CopierConfig) *Copier {
	c.RenewAfter, c.MinRenew = cmp.Or(c.RenewAfter, copyRenew), cmp.Or(c.MinRenew, minRenew)
	return &Copier{c: c, state: CopyState{Dir: c.Dir, Since: time.Now()}}
}

// Check returns why the copy cannot be kept in its folder, if the operator has to change that: a
// *CopyRefusal. A disk that fails or is missing is not one. Check waits only a moment for a disk that does
// not answer.
func (k *Copier) Check() error {
	done := make(chan error, 1)
	go func() {
		f, err := openCopyFolder(k.c)
		if err == nil {
			f.close()
		}
		done <- err
	}()
	select {
	case err := <-done:
		if refusal := (*CopyRefusal)(nil); errors.As(err, &refusal) {
			return err
		}
	case <-time.After(CopyStop):
	}
	return nil
}

// String names the actor in the supervisor's log.
func (k *Copier) String() string { return "copier" }

// State returns the state of the copy.
func (k *Copier) State() CopyState {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state
}

// Serve copies until ctx ends, and then once more, so that the copy of a stopped store is complete.
func (k *Copier) Serve(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.run(ctx)
	}()
	<-ctx.Done()
	select {
	case <-done:
	case <-time.After(CopyStop):
		k.c.Log.Warn().Str("dir", k.c.Dir).Msg("the disk of the copy does not answer; it is left as it is")
	}
	return ctx.Err()
}

func (k *Copier) run(ctx context.Context) {
	for pause := copyRetry; ctx.Err() == nil; {
		before := k.State().At
		err := k.keepOnce(ctx)
		if err == nil {
			continue // the store's server was restarted
		}
		if ctx.Err() == nil {
			k.fail(err)
		}
		if pause *= 2; k.State().At != before {
			pause = copyRetry
		}
		_ = wait.Pause(ctx, min(pause, maxCopyRetry))
	}
}

// fail records a failure, and logs the first of several.
func (k *Copier) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.state.Failures++; !k.failed || k.state.Err == nil || k.state.Err.Error() != err.Error() {
		k.c.Log.Error().Err(err).Str("dir", k.c.Dir).
			Msg("the copy of the store does not go on; it is tried again")
	}
	k.state.Err, k.failed = err, true
}

// copied records that everything until an instant is in the copy.
func (k *Copier) copied(at time.Time, s copyState) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.state.At, k.state.Bytes, k.state.Renewed, k.state.Err = at, s.Bytes, s.Began, nil
	if k.failed {
		k.c.Log.Info().Str("dir", k.c.Dir).Msg("the copy of the store goes on")
	}
	k.failed = false
}

// keepOnce keeps the copy until ctx ends, something fails, or the store's server was restarted, which returns
// nil.
func (k *Copier) keepOnce(ctx context.Context) error {
	back := k.c.Conn.Back()
	folder, err := openCopyFolder(k.c)
	if err != nil {
		return err
	}
	defer folder.close()
	sameDisk, err := embedded.SameFilesystem(k.c.Dir, k.c.DataDir)
	k.mu.Lock()
	k.state.SameDisk = err == nil && sameDisk
	if folder.state.Generation != "" {
		k.state.At, k.state.Bytes, k.state.Renewed = folder.header.CreatedAt, folder.state.Bytes,
			folder.state.Began
	}
	k.mu.Unlock()
	run := &copyRun{Copier: k, folder: folder, built: make(chan builtCopy, 1)}
	defer run.close()
	if err := run.begin(ctx); err != nil {
		return err
	}
	return run.keep(ctx, back)
}
