package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/proof"
	"verifyd/sessions/records"
	"verifyd/sessions/store"
)

// coded starts a session that requires a code, in which a browser has signed in, and returns the code.
func (h fixture) coded(t *testing.T) (sessions.Session, string) {
	t.Helper()
	s := h.asking(t, proof.Code)
	if err := h.store.AwaitCode(t.Context(), s, "browser", "cookie", "example"); err != nil {
		t.Fatal(err)
	}
	return s, h.store.CodeFor(s.ID, "cookie")
}

// asking starts a session with a level.
func (h fixture) asking(t *testing.T, level proof.Level) sessions.Session {
	t.Helper()
	r := request
	r.Level = level
	s, _, err := h.store.Create(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (h fixture) view(t *testing.T, id sessions.ID) facts.View {
	t.Helper()
	v, err := h.store.Read(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// A session keeps its level, and is verified only by what reaches it, whichever process completes it.
func TestVerifiedNeedsTheLevel(t *testing.T) {
	t.Parallel()
	h := start(t)
	for _, asked := range proof.Levels {
		for _, reached := range append([]proof.Level{""}, proof.Levels...) {
			s := h.asking(t, asked)
			o := sessions.Outcome{State: sessions.Verified, Network: "example", Reached: reached}
			_, err := h.store.Complete(t.Context(), s, o)
			if allowed := reached.AtLeast(asked); (err == nil) != allowed {
				t.Errorf("%s by %q: %v", asked, reached, err)
			}
			v := h.view(t, s.ID)
			want := sessions.Pending
			if err == nil {
				want = sessions.Verified
			}
			stored := reached.Or(proof.Link)
			if asked == proof.Link { // such a session has it implicitly, and it is not stored
				stored = proof.Link
			}
			if v.Level != asked || v.State != want || err == nil && v.Reached != stored {
				t.Errorf("%s by %q: %+v", asked, reached, v)
			}
		}
	}
}

// A build without levels refuses a session that requires more than a link, and its outcome; it reads all
// others.
func TestOlderBuildsLeaveSessionsWithALevel(t *testing.T) {
	t.Parallel()
	h := start(t)
	for level, version := range map[proof.Level]string{
		proof.Link: `"v":2`, proof.Code: `"v":3`, proof.Account: `"v":3`,
	} {
		s := h.asking(t, level)
		if _, err := h.store.Complete(t.Context(), s, sessions.Outcome{
			State: sessions.Verified, Reached: level,
		}); err != nil {
			t.Fatal(err)
		}
		for stream, subject := range map[string]string{
			topology.BucketStream(topology.BucketSessions): records.RecordSubject(s.Account, s.ID),
			topology.StreamCompletions:                     records.CompletionSubject(s.ID),
		} {
			m, err := h.conn.Last(t.Context(), stream, subject)
			if err != nil || !strings.Contains(string(m.Data), version) {
				t.Errorf("%s: %v, %s", level, err, m.Data)
			}
		}
	}
}

// A build without references, locales and names refuses a session that has one, and its outcome: it would
// consider the sealed part damaged. Both are sealed, whatever the operator has set for others.
func TestOlderBuildsLeaveSessionsWithAReference(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.store.Plain = true
	for _, r := range []sessions.Request{
		{Reference: "order 4711"}, {Locale: "pt-BR"}, {Reference: "order 4711", Level: proof.Code},
		{DisplayName: "Ahab"}, {GroupName: "Pequod"},
	} {
		asked := r
		r.Account, r.Key, r.Platform, r.PlatformUserID = "acct", "key", "discord", "sailor_42"
		r.CallbackURL = "https://bot.example.com/verified"
		s, _, err := h.store.Create(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.store.Complete(t.Context(), s, sessions.Outcome{
			State: sessions.Failed, Reason: sessions.Declined,
		}); err != nil {
			t.Fatal(err)
		}
		for stream, subject := range map[string]string{
			topology.BucketStream(topology.BucketSessions): records.RecordSubject(s.Account, s.ID),
			topology.StreamCompletions:                     records.CompletionSubject(s.ID),
		} {
			m, err := h.conn.Last(t.Context(), stream, subject)
			version := `"v":4`
			if r.DisplayName+r.GroupName != "" {
				version = `"v":5`
			}
			if err != nil || !strings.Contains(string(m.Data), version) ||
				strings.Contains(string(m.Data), "4711") || strings.Contains(string(m.Data), "pt-BR") ||
				strings.Contains(string(m.Data), "Ahab") || strings.Contains(string(m.Data), "Pequod") {
				t.Errorf("%+v: %v, %s", asked, err, m.Data)
			}
		}
		v := h.view(t, s.ID)
		if v.Reference != asked.Reference || v.Locale != asked.Locale ||
			v.DisplayName != asked.DisplayName || v.GroupName != asked.GroupName ||
			v.Level != asked.Level.Or(proof.Link) ||
			v.State != sessions.Failed {
			t.Errorf("%+v reads as %+v", asked, v)
		}
	}
}

// Not only the code confirms, but the code from the session's user; a repeat of it is harmless.
func TestConfirm(t *testing.T) {
	t.Parallel()
	h := start(t)
	s, code := h.coded(t)
	if v := h.view(t, s.ID); v.State != sessions.Pending || v.Progress.Step() != proof.StepConfirm ||
		v.Reached != proof.Link {
		t.Errorf("after the sign-in: %+v", v)
	}
	_, err := h.store.Confirm(t.Context(), s, s.PlatformUserID+"x", code)
	if wrong, ok := errors.AsType[*store.WrongCodeError](err); !ok || wrong.Left != proof.MaxTries-1 {
		t.Errorf("from somebody else: %v", err)
	}
	for range 2 {
		c, err := h.store.Confirm(t.Context(), s, s.PlatformUserID, code)
		if err != nil || c.State != sessions.Verified || c.Reached != proof.Code || c.Network != "example" {
			t.Fatalf("%+v, %v", c, err)
		}
	}
	if v := h.view(t, s.ID); v.State != sessions.Verified || v.Reached != proof.Code ||
		v.Progress.Step() != "" {
		t.Errorf("confirmed: %+v", v)
	}
	if c, err := h.store.Confirm(t.Context(), s, s.PlatformUserID, other(code)); !errors.Is(err,
		sessions.ErrCompleted) || c.State != sessions.Verified {
		t.Errorf("another code afterwards: %+v, %v", c, err)
	}
	if _, err := h.store.Confirm(t.Context(), h.asking(t, proof.Code), "u", code); !errors.Is(err,
		proof.ErrNothingToConfirm) {
		t.Errorf("before the sign-in: %v", err)
	}
}

// other returns another code.
func other(code string) string {
	if code[0] == 'A' {
		return "B" + code[1:]
	}
	return "A" + code[1:]
}

// Concurrent guesses count like sequential ones: five are judged, then the session fails, and the code is
// void.
func TestGuessesAtOnce(t *testing.T) {
	t.Parallel()
	h := start(t)
	s, code := h.coded(t)
	var wg sync.WaitGroup
	left := make(chan int, 100)
	for n := range 100 {
		wg.Go(func() {
			_, err := h.store.Confirm(t.Context(), s, s.PlatformUserID, fmt.Sprintf("%06d", n))
			for errors.Is(err, natsconf.ErrUnavailable) { // too many others came first
				_, err = h.store.Confirm(t.Context(), s, s.PlatformUserID, fmt.Sprintf("%06d", n))
			}
			if wrong, ok := errors.AsType[*store.WrongCodeError](err); ok {
				left <- wrong.Left
			} else if !errors.Is(err, sessions.ErrCompleted) { // it was not judged
				t.Errorf("guess %d: %v", n, err)
			}
		})
	}
	wg.Wait()
	close(left)
	judged := map[int]bool{}
	for n := range left {
		if judged[n] {
			t.Errorf("%d tries are left twice", n)
		}
		judged[n] = true
	}
	if len(judged) != proof.MaxTries {
		t.Errorf("tries left: %v", judged)
	}
	if p, err := h.store.ProgressOf(t.Context(), s); err != nil || len(p.Tried) != proof.MaxTries {
		t.Errorf("%d tries are stored, %v", len(p.Tried), err)
	}
	if v := h.view(t, s.ID); v.State != sessions.Failed || v.Reason != sessions.Unconfirmed ||
		v.Reached != proof.Link {
		t.Errorf("after the last: %+v", v.Outcome)
	}
	if _, err := h.store.Confirm(t.Context(), s, s.PlatformUserID, code); err == nil {
		t.Error("the code is taken after the last try")
	}
}

// Two confirmations at once have one outcome, also against what else ends a session.
func TestConfirmationsAtOnce(t *testing.T) {
	t.Parallel()
	h := start(t)
	for range 10 {
		s, code := h.coded(t)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				c, err := h.store.Confirm(t.Context(), s, s.PlatformUserID, code)
				if err != nil && !errors.Is(err, sessions.ErrCompleted) ||
					err == nil && !c.Verified() {
					t.Errorf("%+v, %v", c.Outcome, err)
				}
			})
		}
		wg.Go(func() {
			c, err := h.store.Complete(t.Context(), s, sessions.Outcome{
				State: sessions.Canceled, Reason: sessions.CanceledReason,
			})
			if err != nil && !errors.Is(err, sessions.ErrCompleted) {
				t.Errorf("%+v, %v", c.Outcome, err)
			}
		})
		wg.Wait()
		if v := h.view(t, s.ID); v.State != sessions.Verified && v.State != sessions.Canceled {
			t.Errorf("it is %s", v.State)
		}
	}
}

// An expiry beats a late confirmation.
func TestLateConfirmation(t *testing.T) {
	t.Parallel()
	h := start(t)
	s, code := h.coded(t)
	h.clock.Advance(sessions.Lifetime)
	if _, err := h.store.Confirm(t.Context(), s, s.PlatformUserID, code); !errors.Is(err,
		sessions.ErrExpired) {
		t.Errorf("after the expiry: %v", err)
	}
	if v := h.view(t, s.ID); v.State != sessions.Expired || v.Reached != proof.Link {
		t.Errorf("it is %+v", v)
	}
}

// A process that ends after a try was stored, and before its consequences, loses nothing: the same code
// continues from there, whatever else was tried since.
func TestStoredTryIsNotLost(t *testing.T) {
	t.Parallel()
	h := start(t)
	s, code := h.coded(t)
	deaf := store.New(store.Config{ // its outcomes are not stored
		Conn: h.conn, Key: h.key, Now: h.clock.Now,
		Pending:     natstest.Writer(t, h.conn, topology.BucketStream(topology.BucketSessions)),
		Completions: natsconf.NewWriter(h.conn, topology.StreamCompletions),
	})
	// the process ends when the try is stored
	ends := func(code string, tried int) {
		t.Helper()
		ctx, end := context.WithCancel(t.Context())
		defer end()
		result := make(chan error, 1)
		go func() {
			_, err := deaf.Confirm(ctx, s, s.PlatformUserID, code)
			result <- err
		}()
		natstest.AwaitValue(t, fmt.Sprint("there are stored tries: ", tried), func() int {
			p, err := h.store.ProgressOf(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			return len(p.Tried)
		}, func(n int) bool { return n == tried })
		end()
		if err := natstest.Receive(t, "the process ends", result); err == nil {
			t.Fatal("without its outcome it is well")
		}
	}
	ends(code, 1)
	for n := range proof.MaxTries - 1 {
		ends(fmt.Sprintf("%06d", n), n+2)
	}
	if c, err := h.store.Confirm(t.Context(), s, s.PlatformUserID, code); err != nil || !c.Verified() {
		t.Errorf("again: %+v, %v", c, err)
	}
	if p, err := h.store.ProgressOf(t.Context(), s); err != nil || len(p.Tried) != proof.MaxTries {
		t.Errorf("%+v, %v", p, err)
	}
}

// The first sign-in counts, and the code is nowhere in the store.
func TestCodeIsNotStored(t *testing.T) {
	t.Parallel()
	h := start(t)
	s, code := h.coded(t)
	if err := h.store.AwaitCode(t.Context(), s, "browser", "cookie", "example"); err != nil {
		t.Errorf("a repeat: %v", err)
	}
	if err := h.store.AwaitCode(t.Context(), s, "another", "thief", "example"); !errors.Is(err,
		proof.ErrSignedIn) {
		t.Errorf("another browser: %v", err)
	}
	if h.store.CodeFor(s.ID, "thief") == code {
		t.Error("another browser has the same code")
	}
	m, err := h.conn.Last(t.Context(), topology.BucketStream(topology.BucketSessions),
		topology.BucketSubject(topology.BucketSessions, "progress.proof."+string(s.ID)))
	if err != nil || strings.Contains(string(m.Data), code) || strings.Contains(string(m.Data), "cookie") {
		t.Errorf("%v: %s", err, m.Data)
	}
}
