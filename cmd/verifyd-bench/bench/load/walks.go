package load

import (
	"context"
	"crypto/tls"
	"slices"
	"time"
)

// Walks are users who go through whole sessions repeatedly: init, sign-in, callback.
type Walks struct {
	Steps []Step // of each user; one is done when the callback has arrived

	users []*user
	waits [][]Waits // of each user's walks
}

// Site is what walks run against.
type Site struct {
	Service string // host:port
	Init    []byte // the request that starts a session
	Issuer  string // of the dev network
	TLS     *tls.Config
	Tally   *Tally // of the receiver that Init names
}

// NewWalks returns the users of a site. They connect with their first requests.
func NewWalks(users int, at Site) *Walks {
	w := &Walks{waits: make([][]Waits, users)}
	for i := range users {
		u := newUser(at.Service, at.Issuer, at.TLS)
		w.users = append(w.users, u)
		w.Steps = append(w.Steps, func(ctx context.Context) error {
			waited, err := u.walk(ctx, at)
			if err == nil {
				w.waits[i] = append(w.waits[i], waited)
			}
			return err
		})
	}
	return w
}

func (u *user) walk(ctx context.Context, at Site) (w Waits, err error) {
	token, err := u.service.StartSession(ctx, at.Init)
	if err != nil {
		return w, err
	}
	returned, err := u.signIn(ctx, token, &w)
	if err != nil {
		return w, err
	}
	received, err := at.Tally.Wait(ctx, WebhookID(token))
	w.Receipt = received.Sub(returned)
	return w, err
}

// Forget drops the waits so far, which belong to the warm-up.
func (w *Walks) Forget() { clear(w.waits) }

// Waited returns one kind of wait from all walks, sorted.
func (w *Walks) Waited(which func(Waits) time.Duration) (all []time.Duration) {
	for _, waits := range w.waits {
		for _, of := range waits {
			all = append(all, which(of))
		}
	}
	slices.Sort(all)
	return all
}

// PageBytes returns the length of a page; 0 before the first walk.
func (w *Walks) PageBytes() int {
	for _, waits := range w.waits {
		for _, of := range waits {
			return of.PageBytes
		}
	}
	return 0
}

// Close ends the users' connections.
func (w *Walks) Close() {
	for _, u := range w.users {
		u.close()
	}
}
