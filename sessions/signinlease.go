package sessions

import (
	"time"
)

// LeaseDuration is how long the browser that began a sign-in excludes others, counted from its last press of
// Continue: a user who has not come back from a provider by then is seldom still there, and the session
// lasts ten minutes in all.
const LeaseDuration = 2 * time.Minute

// SignInLease records which browser signs in for a session. It is not a fact of the session and does not
// affect its outcome: it keeps two browsers from signing in at the same time, on however many edges, and ends
// with the session.
type SignInLease struct {
	// its holder, as the caller names browsers; empty: it was never held
	Browser  string    `json:"browser"`
	At       time.Time `json:"at"`            // of the browser's last press
	Released bool      `json:"free,omitzero"` // its browser released it
}

// Until is when another browser may take over.
func (s SignInLease) Until() time.Time {
	if s.Released || s.Browser == "" {
		return s.At
	}
	return s.At.Add(LeaseDuration)
}

// HeldByOther reports whether another browser holds the lease at an instant.
func (s SignInLease) HeldByOther(browser string, now time.Time) bool {
	return s.Browser != "" && s.Browser != browser && now.Before(s.Until())
}

// TakenOverFrom reports whether another browser has taken the lease over from this one.
func (s SignInLease) TakenOverFrom(browser string) bool {
	return s.Browser != "" && s.Browser != browser && !s.Released
}
