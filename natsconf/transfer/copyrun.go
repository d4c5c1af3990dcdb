package transfer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
)

const (
	// copyEvery is the pause between two passes; copyFresh is how long without anything new until the instant
	// is written again.
	copyEvery = time.Second
	copyFresh = 3 * time.Second
	// A new generation begins before its time if the file has grown to copyGrown times what it began with,
	// plus copySlack.
	copyGrown = 3
	copySlack = 64 << 20
)

// copyRun is the work on a folder from its opening to its first failure.
type copyRun struct {
	*Copier

	folder *copyFolder
	now    *copyLog // the generation that counts; nil: there is none that can go on
	renew  bool     // a new one is wanted

	built    chan builtCopy
	building context.CancelFunc // nil: none is being made
}

// builtCopy is a generation that is ready to go on, or why there is none.
type builtCopy struct {
	log *copyLog
	err error
}

// begin goes on with the existing generation, if the store is the one that it was copied from.
func (r *copyRun) begin(ctx context.Context) error {
	s := r.folder.state
	if s.Generation == "" {
		return nil
	}
	goesOn, sure, err := r.goesOn(ctx, s.At)
	if err != nil {
		return err
	}
	note, err := r.newestRemoval(ctx)
	if err != nil {
		return err
	}
	// What was removed since this generation began is in it. The clock may have been set back since.
	r.renew = !sure || s.Missed || note != nil && note.Time.After(s.Began.Add(-time.Minute))
	if !goesOn {
		r.c.Log.Warn().Str("dir", r.c.Dir).
			Msg("the store is not as it was copied; the copy stays as it is until a new one is whole")
		return nil
	}
	if r.now, err = r.openLog(s); errors.Is(err, ErrDamaged) || errors.Is(err, os.ErrNotExist) {
		r.c.Log.Warn().Err(err).Str("dir", r.c.Dir).Msg("the copy is damaged; it is created again")
		return nil
	}
	return err
}

// noted is the stream of the notes of what was removed.
var noted = topology.BucketStream(topology.BucketStore)

// newestRemoval returns the newest note that something was removed; nil: there is none.
func (k *Copier) newestRemoval(ctx context.Context) (*jetstream.RawStreamMsg, error) {
	m, err := k.c.Conn.Last(ctx, noted, k.c.Removals)
	if errors.Is(err, natsconf.ErrNotFound) {
		return nil, nil //nolint:nilnil // there is none
	}
	return m, err
}

// goesOn reports whether a store's streams go on from where they were copied to, and whether that is certain:
// a store that was killed may have lost its last messages, and have given their sequences to others.
func (r *copyRun) goesOn(ctx context.Context, at map[string]copyMark) (goesOn, sure bool, err error) {
	sure = true
	for _, a := range r.c.Assets {
		mark := at[a.Stream]
		_, last, err := r.c.Conn.Bounds(ctx, a.Stream)
		if err != nil {
			return false, false, err
		}
		// new messages on these sequences come with the next generation
		if a.loose && last < mark.Sequence {
			at[a.Stream], sure = copyMark{Sequence: last}, false
			continue
		}
		if last < mark.Sequence {
			return false, false, nil
		}
		if mark.Sequence == 0 || a.Counts() { // counters carry their total each time
			continue
		}
		m, err := r.c.Conn.Next(ctx, a.Stream, ">", mark.Sequence)
		switch {
		case errors.Is(err, natsconf.ErrNotFound):
			sure = sure && last == mark.Sequence
		case err != nil:
			return false, false, err
		case m.Sequence != mark.Sequence:
			sure = false
		case mark.Time != 0 && m.Time.UnixNano() != mark.Time && a.loose:
			sure = false
		case mark.Time != 0 && m.Time.UnixNano() != mark.Time:
			return false, false, nil
		}
	}
	return true, sure, nil
}

func (r *copyRun) close() {
	if r.building != nil {
		r.building()
		if b := <-r.built; b.log != nil {
			b.log.drop()
		}
	}
	if r.now != nil {
		r.now.close()
	}
}

// keep makes one pass after another.
func (r *copyRun) keep(ctx context.Context, back <-chan struct{}) error {
	tick := time.NewTicker(copyEvery)
	defer tick.Stop()
	for {
		if err := r.pass(); err != nil {
			return err
		}
		r.build(ctx)
		select {
		case b := <-r.built:
			r.building = nil
			if err := r.change(ctx, b); err != nil {
				return err
			}
		case <-tick.C:
		case <-back:
			return nil
		case <-ctx.Done():
			if err := r.pass(); err != nil {
				r.fail(err)
			}
			return ctx.Err()
		}
	}
}

// notRenewed records why there is no new generation. If there is another one that goes on, it does so, and
// the new one is tried again later.
func (r *copyRun) notRenewed(err error) error {
	if err != nil {
		err = fmt.Errorf("make a new generation of the copy: %w", err)
	}
	r.mu.Lock()
	r.state.Stale = err
	r.mu.Unlock()
	if r.now == nil {
		return err
	}
	if err != nil {
		r.notBefore = time.Now().Add(r.c.MinRenew)
		r.c.Log.Error().Err(err).Str("dir", r.c.Dir).Msg("the copy continues, but cannot be created again")
	}
	return nil
}

// pass brings the generation that counts up to date.
func (r *copyRun) pass() error {
	if r.now == nil {
		return nil
	}
	at := time.Now()
	s, err := r.now.pass(at, func(subject string) {
		r.renew = r.renew || natsconf.Covered(subject, []string{r.c.Removals})
	})
	if err != nil {
		return err
	}
	r.renew = r.renew || s.Missed
	if s.Frames != r.folder.state.Frames || at.Sub(r.folder.header.CreatedAt) > copyFresh {
		if err := r.folder.commit(s, at); err != nil {
			return err
		}
	}
	r.copied(at, s)
	return nil
}

// change switches to a generation that was made, and removes the one before. Another one is wanted if
// something was removed while this one was made.
func (r *copyRun) change(ctx context.Context, b builtCopy) error {
	var s copyState
	at, again := time.Now(), false
	if b.err == nil {
		var note *jetstream.RawStreamMsg
		// What left the store while it was read is no reason for another one: a large store is read for
		// longer than many messages live.
		s, b.err = b.log.pass(at, func(string) {})
		if s.Missed, b.log.state.Missed = false, false; b.err == nil {
			note, b.err = r.newestRemoval(ctx)
		}
		again = note != nil && note.Sequence > b.log.without
		if b.err != nil {
			b.log.drop()
		}
	}
	if err := r.notRenewed(b.err); err != nil || b.err != nil {
		return err
	}
	if err := r.folder.commit(s, at); err != nil {
		b.log.close() // it may be the one that counts
		return err
	}
	if r.now != nil {
		r.now.close()
	}
	r.now, r.renew = b.log, again
	r.copied(at, s)
	r.c.Log.Info().Str("dir", r.c.Dir).Int64("bytes", s.Bytes).Msg("the copy of the store was created again")
	return nil
}

// build begins a new generation if it is due.
func (r *copyRun) build(ctx context.Context) {
	if r.building != nil || r.now != nil && !r.due() {
		return
	}
	ctx, r.building = context.WithCancel(ctx)
	go func() {
		log, err := r.newLog(ctx, r.now == nil)
		r.built <- builtCopy{log, err}
	}()
}

func (r *copyRun) due() bool {
	s := r.folder.state
	age := time.Since(s.Began)
	if time.Now().Before(r.notBefore) {
		return false
	}
	return age > r.c.RenewAfter || s.Bytes > copyGrown*s.First+copySlack || r.renew && age > r.c.MinRenew
}
