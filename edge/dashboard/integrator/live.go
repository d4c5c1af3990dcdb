package integrator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"verifyd/edge/account/access"
	"verifyd/edge/dashboard/logins"
	"verifyd/edge/dashboard/site"
	"verifyd/edge/page"
	"verifyd/edge/places"
	"verifyd/edge/web"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/store"
)

const (
	// streamLife bounds one answer; the browser asks again by itself.
	streamLife = 5 * time.Minute
	// streamPause is the interval between reads without a change: an expiry is no fact that the watch would
	// report, nor is the end of a login.
	streamPause = 10 * time.Second
	// streamBeat keeps proxies from closing a connection on which nothing happens.
	streamBeat = 15 * time.Second
)

// live answers GET /dashboard/sessions/{session}/live: server-sent events (HTML Living Standard §9.2).
// "changed" reports that the page has changed since it was rendered, "settled" that it will not change any
// more; the script fetches the page itself.
func (h sessionPages) live(w http.ResponseWriter, r *http.Request, v site.Visit) {
	release, err := h.streams.Acquire(places.Request{Of: v.Account.Owner(), Part: v.Person()})
	if err != nil {
		w.WriteHeader(http.StatusNoContent) // tells the browser not to ask again
		return
	}
	defer release()
	ctx, cancel := context.WithTimeout(r.Context(), streamLife)
	defer cancel()
	if _, _, ok := h.session(ctx, w, r, v); !ok {
		return
	}
	id := sessions.ID(r.PathValue("session"))
	changes, err := h.Watch.Follow(ctx, id)
	if err != nil {
		h.Fail(w, r, &v, err)
		return
	}
	defer changes.Close()
	control := http.NewResponseController(w)
	if control.SetWriteDeadline(time.Now().Add(streamLife+streamBeat)) != nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx buffers answers otherwise
	send := func(text string) bool {
		_, err := fmt.Fprint(w, text)
		return err == nil && control.Flush() == nil
	}
	if !send("retry: 3000\n\n") {
		return
	}
	may := func() bool {
		now, err := h.Authorize(ctx, r)
		if errors.Is(err, logins.ErrNotLoggedIn) || errors.Is(err, site.ErrNoAccount) {
			return false
		}
		// the store may be back at the next read
		return err != nil || now.Account.ID == v.Account.ID && now.May(access.ActionView)
	}
	t := notifier{h.Sessions, id, page.Single(r.URL.Query(), "seen"), send, may, h.Poll}
	t.run(ctx, changes.Changed())
}

// notifier sends the changes to an open page.
type notifier struct {
	sessions *store.Store
	id       sessions.ID
	seen     string // a digest of what the page shows
	send     func(string) bool
	may      func() bool   // whether the listener may still see the session
	poll     time.Duration // between reads without a change
}

// run sends until nothing more is to come, or the listener is gone.
func (t *notifier) run(ctx context.Context, changed <-chan struct{}) {
	poll, beat := time.NewTicker(t.poll), time.NewTicker(streamBeat)
	defer poll.Stop()
	defer beat.Stop()
	for t.sendOnce(ctx) {
		select {
		case <-changed:
			if !t.may() {
				return
			}
		case <-poll.C:
			if !t.may() {
				return
			}
		case <-beat.C:
			if !t.send(": still here\n\n") {
				return
			}
		case <-web.Draining(ctx):
			return
		case <-ctx.Done():
			return
		}
	}
}

// sendOnce sends what has changed in the session, and reports whether more is to come.
func (t *notifier) sendOnce(ctx context.Context) bool {
	s, err := t.sessions.Read(ctx, t.id)
	if err != nil {
		return true // the store may be back at the next read
	}
	if mark := markOf(s); mark != t.seen {
		t.seen = mark
		if !t.send("event: changed\ndata: " + mark + "\n\n") {
			return false
		}
	}
	if settled(s) {
		t.send("event: settled\ndata:\n\n")
		return false
	}
	return true
}

// markOf returns a digest of what a page shows of a session.
func markOf(s facts.View) string {
	ended := 0
	for _, a := range s.Delivery.Attempts {
		if a.Result != nil {
			ended++
		}
	}
	return fmt.Sprintf("%s-%s-%d-%d", s.State, s.Delivery.State, len(s.Delivery.Attempts), ended)
}
