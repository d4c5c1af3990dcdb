package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"verifyd/edge"
	"verifyd/edge/account"
	"verifyd/edge/dashboard/logins"
	"verifyd/edge/page"
	"verifyd/sessions"
)

const (
	// mostStreams bounds the pages that one process keeps up to date at once; the others are as good as without a script.
	mostStreams = 200
	// mostStreamsEach bounds those of one visitor among them.
	mostStreamsEach = 10
	// streamLife bounds one answer; the browser asks again by itself.
	streamLife = 5 * time.Minute
	// streamPause is between two looks that nothing gives a reason for: an expiry is no fact that would be told, nor is the end of a
	// login.
	streamPause = 10 * time.Second
	// streamBeat keeps proxies from closing a connection on which nothing happens.
	streamBeat = 15 * time.Second
)

// seats bounds the pages that are kept up to date, in all and for each visitor.
type seats struct {
	mu    sync.Mutex
	all   int
	taken map[string]int // by visitor
}

func (s *seats) take(who string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= mostStreams || s.taken[who] >= mostStreamsEach {
		return false
	}
	s.all++
	s.taken[who]++
	return true
}

func (s *seats) leave(who string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.taken[who]--; s.taken[who] == 0 {
		delete(s.taken, who)
	}
}

// live answers GET /dashboard/sessions/{session}/live: server-sent events (HTML Living Standard §9.2). "changed" says that the page is
// no longer what it was when it was drawn, "settled" that it will not change any more; the script fetches the page itself.
func (h *Handler) live(w http.ResponseWriter, r *http.Request, v visit) {
	who := v.login.LinkID + "\x00" + v.login.Network + "\x00" + v.login.Subject
	if !h.streams.take(who) {
		w.WriteHeader(http.StatusNoContent) // tells the browser not to ask again
		return
	}
	defer h.streams.leave(who)
	ctx, cancel := context.WithTimeout(r.Context(), streamLife)
	defer cancel()
	if _, _, ok := h.session(ctx, w, r, v); !ok {
		return
	}
	id := sessions.ID(r.PathValue("session"))
	changes, err := h.Watch.Follow(ctx, id)
	if err != nil {
		h.fail(w, r, &v, err)
		return
	}
	defer changes.Close()
	control := http.NewResponseController(w)
	if control.SetWriteDeadline(time.Now().Add(streamLife+streamBeat)) != nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx holds answers back otherwise
	send := func(text string) bool {
		_, err := fmt.Fprint(w, text)
		return err == nil && control.Flush() == nil
	}
	if !send("retry: 3000\n\n") {
		return
	}
	may := func() bool {
		now, err := h.enter(ctx, r)
		if errors.Is(err, logins.ErrNobody) || errors.Is(err, errNoAccount) {
			return false
		}
		return err != nil || now.account.ID == v.account.ID && now.may(account.ActionView) // the store may be back at the next look
	}
	t := teller{h.Sessions, id, page.Single(r.URL.Query(), "seen"), send, may, h.look}
	t.tellOn(ctx, changes.Changed())
}

// teller tells an open page what is new.
type teller struct {
	sessions *sessions.Store
	id       sessions.ID
	seen     string // the mark of what the page shows
	send     func(string) bool
	may      func() bool   // whether who listens may still see the session
	look     time.Duration // between two looks that nothing gives a reason for
}

// tellOn tells until nothing more is to come, or nobody listens any more.
func (t *teller) tellOn(ctx context.Context, changed <-chan struct{}) {
	look, beat := time.NewTicker(t.look), time.NewTicker(streamBeat)
	defer look.Stop()
	defer beat.Stop()
	for t.tellOnce(ctx) {
		select {
		case <-changed:
		case <-look.C:
			if !t.may() {
				return
			}
		case <-beat.C:
			if !t.send(": still here\n\n") {
				return
			}
		case <-edge.Draining(ctx):
			return
		case <-ctx.Done():
			return
		}
	}
}

// tellOnce says what is new about the session, and gives whether more is to come.
func (t *teller) tellOnce(ctx context.Context) bool {
	s, err := t.sessions.Read(ctx, t.id)
	if err != nil {
		return true // the store may be back at the next look
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

// markOf tells one look at a session from another.
func markOf(s sessions.View) string {
	ended := 0
	for _, a := range s.Delivery.Attempts {
		if a.Result != nil {
			ended++
		}
	}
	return fmt.Sprintf("%s-%s-%d-%d", s.State, s.Delivery.State, len(s.Delivery.Attempts), ended)
}
