package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"verifyd/cmd/verifyd/alarm"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/store"
	"verifyd/cmd/verifyd/version"
	"verifyd/edge/web"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/fleet"
	"verifyd/natsconf/storestate"
	"verifyd/natsconf/transfer"
	"verifyd/sessions/records"
)

const (
	// CheckCopy is the check of whether the copy of the store is up to date.
	CheckCopy = "copy"
	// copyLate is how far the copy is behind when operators are notified: a slow disk is not an event.
	copyLate = 15 * time.Second
)

// addCopier adds the actor that keeps the copy. A folder that is not for a copy ends the start; a disk that
// fails, or is not there, does not.
func (p *Program) addCopier(ctx context.Context) error {
	if p.Config.CopyTo == "" {
		return nil
	}
	standing, err := storestate.Read(ctx, p.Store.Conn)
	if err != nil {
		return err
	}
	p.copier = transfer.NewCopier(transfer.CopierConfig{
		Conn: p.Store.Conn, DataDir: p.Config.Store.DataDir, Dir: p.Config.CopyTo, Assets: store.Assets(),
		Store: standing.Store, Key: p.Store.Key, Rekeyed: p.Store.Ring.Changed(),
		Build: version.Text(), Skip: p.Store.StaysBehind, Log: p.Config.Log,
		Removals: records.ErasedSubject("*"),
	})
	if err := p.copier.Check(); err != nil {
		var f config.Faults
		f.Add("copy-to", err.Error(), "or leave it out, and there is no copy")
		return config.Usage(f.Err())
	}
	if same, err := embedded.SameFilesystem(p.Config.Store.DataDir, p.Config.CopyTo); err == nil && same {
		p.Config.Log.Warn().Str("dir", p.Config.CopyTo).
			Msg("VERIFYD_COPY_TO is on the filesystem of the store: the copy is lost with that disk")
	}
	if st := p.Config.Store; st.Key == nil && st.KeyFile == "" {
		p.Config.Log.Warn().Msg("the master key is in the data directory: keep a copy of " +
			config.SecretFile + " elsewhere, without it the copy of the store opens for nobody")
	}
	measureCopy(p.Registry, p.copier)
	p.add("copier", p.copier)
	return nil
}

func measureCopy(r prometheus.Registerer, k *transfer.Copier) {
	gauge := func(name, help string, value func(transfer.CopyState) float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			return value(k.State())
		}))
	}
	gauge("verifyd_copy_lag_seconds",
		"How far the copy of the store is behind; without one, for how long this process has tried to "+
			"make it.",
		func(s transfer.CopyState) float64 { return s.Lag(time.Now()).Seconds() })
	gauge("verifyd_copy_bytes", "Bytes of the copy of the store.", func(s transfer.CopyState) float64 {
		return float64(s.Bytes)
	})
	r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "verifyd_copy_failures_total", Help: "How often the copy of the store could not go on.",
	}, func() float64 { return float64(k.State().Failures) }))
}

// copyCheck reports the state of the copy.
func (p *Program) copyCheck() web.Check {
	return web.Check{Name: CheckCopy, Advisory: true, Check: func() (string, error) {
		c := copyState(p)
		if c.Failure != "" {
			return c.String(), errors.New(c.Failure)
		}
		return c.String(), nil
	}}
}

// copyFailure returns what is wrong with the copy, or nil: it is further behind than limit, or cannot be
// replaced.
func copyFailure(s transfer.CopyState, now time.Time, limit time.Duration) error {
	late := s.Lag(now) > limit
	behind := "the copy of the store is " + s.Lag(now).Round(time.Second).String() + " behind"
	switch {
	case late && s.At.IsZero() && s.Err == nil:
		return errors.New("the copy of the store is being made for the first time; there is none yet")
	case late && s.At.IsZero():
		return fmt.Errorf("there is no copy of the store: %w", s.Err)
	case late && s.Err != nil:
		return fmt.Errorf("%s: %w", behind, s.Err)
	case late:
		return errors.New(behind + ": its disk, or this machine, does not keep up")
	case s.Stale != nil:
		return fmt.Errorf("what has aged out or was erased does not leave the copy of the store: %w", s.Stale)
	default:
		return nil
	}
}

// CopyState returns the state of the store's copy; the zero value if none is kept.
func (p *Program) CopyState() transfer.CopyState {
	if p.copier == nil {
		return transfer.CopyState{}
	}
	return p.copier.State()
}

// copyWatch reports a copy that is behind.
func (p *Program) copyWatch(context.Context) []alarm.Condition {
	if p.copier == nil {
		return nil
	}
	s, now := p.copier.State(), time.Now()
	err := copyFailure(s, now, copyLate)
	if err == nil {
		return nil
	}
	data := map[string]any{"lag_seconds": int64(s.Lag(now).Seconds()), "dir": s.Dir}
	if !s.At.IsZero() {
		data["copied_until"] = s.At.UTC().Truncate(time.Millisecond)
	}
	return []alarm.Condition{{Type: alarm.CopyBehind, Detail: err.Error(), Data: data}}
}

// copyState is what this process reports about its copy; nil: it keeps none.
func copyState(p *Program) *fleet.Copy {
	if p.copier == nil {
		return nil
	}
	s, now := p.copier.State(), time.Now()
	c := &fleet.Copy{
		Dir: s.Dir, At: s.At.UTC().Truncate(time.Millisecond), Lag: s.Lag(now).Seconds(), Bytes: s.Bytes,
		SameDisk: s.SameDisk,
	}
	if err := copyFailure(s, now, transfer.MaxCopyLag); err != nil {
		c.Failure = err.Error()
	}
	return c
}
