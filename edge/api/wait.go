package api

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"verifyd/edge/problem"
	"verifyd/edge/request"
	"verifyd/edge/web"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/store"
)

const (
	// maxWait bounds ?wait=, in seconds: longer than that, proxies on the way give up first.
	maxWait = 60
	// retryWaiting is the Retry-After of a request beyond the bound.
	retryWaiting = 5 * time.Second
	// waitMargin is how much longer a waiting request's connection lives than its wait and its reads, for the
	// answer to leave.
	waitMargin = 10 * time.Second
)

// Changes reports when a session may have changed; a *store.Watch. Its error is natsconf.ErrUnavailable.
type Changes interface {
	Follow(ctx context.Context, id sessions.ID) (*store.Follower, error)
}

// waitOf reads ?wait=; 0 if it is absent.
func waitOf(q url.Values) (time.Duration, *problem.Problem) {
	values, given := q["wait"]
	if !given {
		return 0, nil
	}
	n, err := strconv.ParseUint(values[0], 10, 16)
	if err != nil || len(values) > 1 || n < 1 || n > maxWait {
		return 0, badParameter("wait",
			fmt.Sprintf("it must be a whole number of seconds from 1 to %d, once", maxWait))
	}
	return time.Duration(n) * time.Second, nil
}

// badParameter is a fault of the query.
func badParameter(name, detail string) *problem.Problem {
	return request.Invalid(problem.Fault{Field: name, Code: problem.FaultParameter, Detail: detail})
}

// await returns a session's view once its state or its delivery's differs from the given one, or the wait is
// over, or the server drains. It does not wait for a session for which nothing more comes by itself.
func (a *api) await(w http.ResponseWriter, r *http.Request, first facts.View,
	wait time.Duration) (facts.View, *problem.Problem) {
	web.EventFrom(r.Context()).Name = "session_wait" // its time shows nothing about the service's
	if settled(first) {
		return first, nil
	}
	release, full := a.waiting.Acquire(ofOwner(r.Context()))
	if full != nil {
		return first, &problem.Problem{
			Code:       problem.CodeTooManyWaiting,
			Detail:     "Too many requests are already waiting; read without waiting, or try again later.",
			RetryAfter: retryWaiting,
		}
	}
	defer release()
	// The server's own write time-out is for answers that come at once. If it cannot be moved, the server may
	// cut this one off.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(wait + a.Store.Within() + waitMargin))
	over := time.NewTimer(wait)
	defer over.Stop()
	return a.follow(r.Context(), first, over.C)
}

func (a *api) follow(ctx context.Context, first facts.View, over <-chan time.Time) (facts.View,
	*problem.Problem) {
	begin, done, p := a.wait(ctx)
	if p != nil {
		return first, p
	}
	follower, err := a.Changes.Follow(begin, first.ID)
	done()
	if err != nil {
		return first, storeProblem(err)
	}
	defer follower.Close()
	var expires <-chan time.Time
	if first.State == sessions.Pending {
		t := time.NewTimer(first.ExpiresAt.Sub(a.Now()) + time.Millisecond) // no fact records an expiry
		defer t.Stop()
		expires = t.C
	}
	for last := false; ; {
		view, p := a.readView(ctx, first)
		switch {
		case p != nil:
			return view, p
		case last, view.State != first.State, view.Delivery.State != first.Delivery.State:
			return view, nil
		}
		select {
		case <-follower.Changed():
		case <-expires:
		case <-over:
			last = true
		case <-web.Draining(ctx):
			last = true
		case <-ctx.Done():
			return view, nil // nobody is there to read it
		}
	}
}

func (a *api) readView(ctx context.Context, v facts.View) (facts.View, *problem.Problem) {
	ctx, done, p := a.wait(ctx)
	if p != nil {
		return v, p
	}
	defer done()
	view, err := a.Sessions.ReadOf(ctx, v.Account, v.ID)
	if err != nil {
		return view, storeProblem(err)
	}
	a.Sessions.Explain(ctx, &view)
	return view, nil
}

// settled reports whether nothing more comes by itself: the session has ended, and so has its delivery.
func settled(v facts.View) bool {
	switch v.Delivery.State {
	case facts.DeliveryDue, facts.DeliveryClaimed:
		return false
	default:
		return v.State != sessions.Pending
	}
}
