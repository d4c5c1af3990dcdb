package history_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"verifyd/cmd/verifyd/history"
)

// The models accept what a service may do, and nothing else.
func TestModels(t *testing.T) {
	for name, row := range map[string]struct {
		play   func(l *history.Log)
		stands bool
	}{
		"a session's way": {func(l *history.Log) {
			s := l.Session("s")
			s.Start().Saw("1")
			s.Read().Saw("pending")
			s.Start().Saw("1")
			s.End("verified").Saw("verified")
			s.End("canceled").Saw(history.Other)
			s.Read().Saw("verified")
		}, true},
		"a lost start that came later, and was found": {func(l *history.Log) {
			s := l.Session("s")
			s.Start()
			s.Read().Saw("")
			s.Read().Saw("pending")
			s.Start().Saw("1")
		}, true},
		"a lost end that never came": {func(l *history.Log) {
			s := l.Session("s")
			s.Start().Saw("1")
			s.End("canceled")
			s.Read().Saw("pending")
			s.End("verified").Saw("verified")
			s.Read().Saw("verified")
		}, true},
		"a lost end that came late": {func(l *history.Log) {
			s := l.Session("s")
			s.Start().Saw("1")
			s.End("canceled")
			s.Read().Saw("pending")
			s.End("verified").Saw("canceled")
		}, true},
		"a user who tries for long, in vain": {func(l *history.Log) {
			s := l.Session("s")
			s.Start().Saw("1")
			for range 200 {
				s.End("verified")
				s.Read()
				s.Read().Saw("pending")
			}
		}, true},
		"two sessions of one key": {func(l *history.Log) {
			s := l.Session("s")
			s.Start().Saw("1")
			s.Start().Saw("2")
		}, false},
		"a stale read": {func(l *history.Log) {
			s := l.Session("s")
			s.Start().Saw("1")
			s.End("canceled").Saw("canceled")
			s.Read().Saw("pending")
		}, false},
		"a stale read of a server that comes back": {func(l *history.Log) {
			s := l.Session("s")
			s.Start().Saw("1")
			s.End("canceled").Saw("canceled")
			over := l.Behind()
			s.Read().Saw("pending")
			s.Read().Saw("canceled")
			over()
			s.Read().Saw("canceled")
		}, true},
		"a stale read after a server has come back": {func(l *history.Log) {
			s := l.Session("s")
			s.Start().Saw("1")
			s.End("canceled").Saw("canceled")
			l.Behind()()
			s.Read().Saw("pending")
		}, false},
		"another end on a server that comes back": {func(l *history.Log) {
			s := l.Session("s")
			s.Start().Saw("1")
			s.End("canceled").Saw("canceled")
			over := l.Behind()
			s.Read().Saw("verified")
			over()
		}, false},
		"a read that goes back": {func(l *history.Log) {
			s := l.Session("s")
			s.Start().Saw("1")
			s.End("verified")
			s.Read().Saw("verified")
			s.Read().Saw("pending")
		}, false},
		"two ends": {func(l *history.Log) {
			s := l.Session("s")
			s.Start().Saw("1")
			s.End("verified").Saw("verified")
			s.End("canceled").Saw("canceled")
		}, false},
		"a lost session": {func(l *history.Log) {
			s := l.Session("s")
			s.Start().Saw("1")
			s.Read().Saw("")
		}, false},
		"an expired session is forgotten": {func(l *history.Log) {
			s := l.Session("s")
			s.Start().Saw("1")
			s.Expires(time.Now())
			s.End("verified").Saw("expired")
			s.Read().Saw("")
		}, true},
		"expired too early": {func(l *history.Log) {
			s := l.Session("s")
			s.Start().Saw("1")
			s.Expires(time.Now().Add(time.Hour))
			s.Read().Saw("expired")
		}, false},
		"a quota": {func(l *history.Log) {
			q := l.Quota("a", 2)
			q.Take().Saw(history.Taken)
			q.Count().Counted(1)
			q.Take()
			q.Take().Saw(history.Refused)
			q.Count().Counted(2)
			q.Take().Nothing()
		}, true},
		"a quota, many of whose starts are not answered": {func(l *history.Log) {
			q := l.Quota("a", 40)
			for range 39 {
				q.Take()
				q.Take().Saw(history.Taken)
				q.Count().Counted(40)
			}
			q.Take().Saw(history.Refused)
			q.Take().Saw(history.Taken)
		}, true},
		"a unit beyond the quota": {func(l *history.Log) {
			q := l.Quota("a", 1)
			q.Take().Saw(history.Taken)
			q.Take().Saw(history.Taken)
		}, false},
		"a unit that is lost": {func(l *history.Log) {
			q := l.Quota("a", 2)
			q.Take().Saw(history.Taken)
			q.Count().Counted(0)
		}, false},
		"refused below the quota": {func(l *history.Log) {
			q := l.Quota("a", 2)
			q.Take().Saw(history.Taken)
			q.Take().Saw(history.Refused)
		}, false},
		"a revocation": {func(l *history.Log) {
			k := l.Key("k", time.Hour)
			k.Use().Saw(history.Taken)
			k.Revoke().Saw(history.Taken)
			k.Use().Saw(history.Taken)
			k.Use().Saw(history.Refused)
			k.Use().Saw(history.Taken) // of another process, within the hour
		}, true},
		"a revocation that nobody acknowledged": {func(l *history.Log) {
			k := l.Key("k", 0)
			k.Revoke()
			k.Use().Saw(history.Taken)
			k.Use().Saw(history.Refused)
		}, true},
		"a revoked key that lives": {func(l *history.Log) {
			k := l.Key("k", 0)
			k.Revoke().Saw(history.Taken)
			k.Use().Saw(history.Taken)
		}, false},
		"refused though nobody revoked it": {func(l *history.Log) {
			l.Key("k", 0).Use().Saw(history.Refused)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := history.New()
			row.play(l)
			faults, of := l.Faults(t.TempDir())
			if stands := len(faults) == 0; stands != row.stands || of.Parts != 1 {
				t.Errorf("stands: %t; %q, %s", stands, faults, of)
			}
			for _, f := range faults {
				_, path, _ := strings.Cut(f, "see ")
				if b, err := os.ReadFile(path); err != nil || !strings.Contains(string(b), "<html") {
					t.Errorf("%s: no picture: %v", f, err)
				}
			}
		})
	}
}

// Calls of a nil log do nothing.
func TestNilLogDoesNothing(t *testing.T) {
	var l *history.Log
	s := l.Session("s")
	s.Start().Saw("1")
	s.Expires(time.Now())
	l.Quota("a", 1).Count().Counted(1)
	l.Key("k", 0).Revoke().Nothing()
	l.Check(t, "")
}
