package check

import (
	"errors"
	"strings"
	"testing"
	"time"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/store"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/provision"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	sessionstore "verifyd/sessions/store"
)

// While a callback waits, the retention of results is not made so short that its outcome would be forgotten
// before it has ended; check reports that in advance. A dispatcher does not try for longer than the store
// keeps results, whatever its own settings are.
func TestRetentionFitsWhatWaits(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	if err := store.MayShorten(t.Context(), conn, topology.StreamCompletions, time.Hour); err != nil {
		t.Errorf("nothing waits: %v", err)
	}
	kept := sessionstore.New(sessionstore.Config{
		Conn: conn, Key: secretbox.NewKey(),
		Pending:     natstest.Writer(t, conn, topology.BucketStream(topology.BucketSessions)),
		Completions: natstest.Writer(t, conn, topology.StreamCompletions),
	})
	s, _, err := kept.Create(t.Context(), sessions.Request{
		Account: "acc_a", Key: "key_k", Platform: "p", PlatformUserID: "u",
		CallbackURL: "https://bot.example.com/",
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kept.Complete(t.Context(), s, sessions.Outcome{State: sessions.Verified}); err != nil {
		t.Fatal(err)
	}
	natstest.Await(t, "the consumer counts the callback", func() bool {
		oldest, err := store.OldestOf(kept)(t.Context())
		return err == nil && !oldest.IsZero()
	})
	if err := store.MayShorten(t.Context(), conn, topology.StreamCompletions, time.Hour); !errors.As(err,
		new(config.UsageError)) || !strings.Contains(err.Error(), "VERIFYD_KEEP_RESULTS") {
		t.Errorf("a callback waits: %v", err)
	}
	for _, allowed := range []struct {
		stream string
		to     time.Duration
	}{{topology.StreamCompletions, 2 * time.Hour}, {topology.StreamEvents, time.Hour}} {
		if err := store.MayShorten(t.Context(), conn, allowed.stream, allowed.to); err != nil {
			t.Errorf("%s to %s: %v", allowed.stream, allowed.to, err)
		}
	}
	c := config.Config{Dispatcher: true, CallbackRetryFor: 4 * time.Hour}
	c.Store.Topology.KeepResults = time.Hour
	var said Survey
	checkShortening(t.Context(), &said, conn, provision.Inspection{KeptFor: 72 * time.Hour, MayUpdate: true},
		c)
	if len(said.findings) != 1 || said.Worst() != LevelError || said.findings[0].Do == "" {
		t.Errorf("check says %+v", said.findings)
	}
	for _, at := range []struct {
		in    provision.Inspection
		keep  time.Duration
		wrong bool
	}{
		// the streams are another process's to change
		{provision.Inspection{KeptFor: 2 * time.Hour}, 72 * time.Hour, true},
		{provision.Inspection{KeptFor: 2 * time.Hour, MayUpdate: true}, 72 * time.Hour, false},
		{provision.Inspection{KeptFor: 5 * time.Hour}, 2 * time.Hour, false},
		{provision.Inspection{}, 72 * time.Hour, false}, // there is no stream yet
	} {
		c.Store.Topology.KeepResults = at.keep
		var said Survey
		checkRetention(&said, at.in, c)
		if (said.Worst() == LevelError) != at.wrong {
			t.Errorf("%+v with %s: %+v", at.in, at.keep, said.findings)
		}
	}
}
