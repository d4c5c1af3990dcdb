package network

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"verifyd/edge/network/netsettings"
)

// failureLife is how long a failure to reach the provider is reported without news. A Keeper brings news
// within a minute or so; a network without metadata gets news only from sign-ins.
const failureLife = 2 * time.Minute

// Available returns an *Error if the provider could not be reached lately. It sends no request, and a network
// of which nothing is known yet counts as available.
func (d *discovery) Available() error {
	s := d.lastFailure.Load()
	if s == nil || d.known.Load() != nil && d.now().Sub(s.at) > failureLife {
		return nil
	}
	return s.failure
}

// note learns from the end of a sign-in whether the provider can be reached. What the browser brought shows
// nothing about that.
func (d *discovery) note(err error) {
	var t *Error
	switch {
	case err == nil:
		d.reached()
	case errors.As(err, &t) && t.Stage != StageAuthorization && t.Stage != StageDiscovery && t.unreachable():
		d.unreached(t)
	}
}

// unreachable reports whether the failure means that the provider is down. A status below 500 may be about
// one user, or about a code that somebody made up to make the network look down.
func (t *Error) unreachable() bool {
	switch t.Class {
	case ClassDNS, ClassConnect, ClassTLS, ClassTimeout, ClassReset:
		return true
	case ClassStatus:
		return t.status >= http.StatusInternalServerError
	}
	return false
}

// A Keeper keeps the metadata of networks at hand, so that no user waits for them. It fetches them at once,
// again with growing pauses while a provider is down, and again before they grow old. Networks that are known
// from their settings need none.
type Keeper struct {
	networks []*Network
	doubts   func(network string, doubts []string)
}

// NewKeeper returns the keeper of these networks. It does nothing until served, and calls doubts with a
// network's id when what Doubts returns has changed.
func NewKeeper(networks []*Network, doubts func(network string, doubts []string)) *Keeper {
	return &Keeper{networks, doubts}
}

// Serve runs until ctx ends, and returns when everything it started has stopped. A provider that is down is
// not an error.
func (k *Keeper) Serve(ctx context.Context) error {
	var all sync.WaitGroup
	for _, n := range k.networks {
		if n.protocol == netsettings.KindOIDC {
			var known []string
			all.Go(func() {
				n.keepLoop(ctx, func() {
					// a key set that cannot be fetched is reported by the sign-ins
					if doubts, err := n.Doubts(ctx); err == nil && !slices.Equal(doubts, known) {
						known = doubts
						k.doubts(n.ID(), doubts)
					}
				})
			})
		}
	}
	all.Wait()
	<-ctx.Done()
	return ctx.Err()
}

// keepLoop fetches the metadata until ctx ends, and calls kept when it has.
func (d *discovery) keepLoop(ctx context.Context, kept func()) {
	failures := 0
	for {
		pause := metadataLife * 3 / 4
		if err := d.refresh(ctx); err != nil {
			pause = backoff(failures)
			failures++
		} else {
			failures = 0
			kept()
		}
		select {
		case <-time.After(jitter(pause)):
		case <-ctx.Done():
			return
		}
	}
}

const (
	firstBackoff = time.Second
	lastBackoff  = time.Minute // a provider that is back is noticed within it
)

// backoff is the pause after the given number of failures before this one.
func backoff(failures int) time.Duration {
	if failures > 6 { // 2^6 seconds are more than a minute
		return lastBackoff
	}
	return min(firstBackoff<<failures, lastBackoff)
}

// jitter spreads pauses by a fifth, so that many processes do not ask at once.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5) //nolint:gosec // chance is enough
}
