// Package proof defines what a session requires to be proven before it is verified, and what is proven so
// far. It is pure: it reads nothing, and digests and instants are arguments.
//
// The law: a session is verified only by an outcome that reached the level it asked for (Level.AtLeast, which
// the store checks at the one write that is the outcome). What follows from a progress is a function of the
// progress alone: a code that was entered is stored there before it is judged. So no process that ends in
// between, and no other that judges at the same time, changes what follows.
package proof

import (
	"crypto/subtle"
	"errors"
	"slices"
	"time"
)

// Level is how tightly a session binds the platform account that it was started for to the person who signs
// in: the member "binding" of the integrators' interface.
type Level string

// The levels. The zero value, of records that know none, is Link.
const (
	Link    Level = "link"    // the person who had the link controls an identity
	Code    Level = "code"    // and the platform account's owner confirmed, on the platform, with a code
	Account Level = "account" // and the same browser signed in as that platform account
)

// Levels lists the levels, the one that asks for least first.
var Levels = []Level{Link, Code, Account}

// Or returns the level, or another if it is the zero value.
func (l Level) Or(other Level) Level {
	if l == "" {
		return other
	}
	return l
}

// Known reports whether it is one of Levels.
func (l Level) Known() bool { return slices.Contains(Levels, l) }

// AtLeast reports whether the level proves everything that another one proves.
func (l Level) AtLeast(other Level) bool {
	return slices.Index(Levels, l.Or(Link)) >= slices.Index(Levels, other.Or(Link))
}

// Step is what a session that is under way waits for; empty if it has not begun or has ended.
type Step string

// The steps.
const (
	StepIdentity Step = "identity" // the platform account is proven, the identity is not
	StepConfirm  Step = "confirm"  // the identity is proven, and the code was not entered yet
)

// MaxTries is how many codes may be entered for a session. With the last wrong one it fails.
const MaxTries = 5

// Progress is what the user of a session has proven so far, if its level asks for more than one step. It is
// not a fact: it ends with the session's lifetime.
type Progress struct {
	Browser string `json:"browser"` // the browser that proved it, as the caller names browsers
	// Platform is the id of the network that vouched for the platform account; empty: not yet.
	Platform string `json:"platform,omitempty"`
	// Network is the id of the network that vouched for the identity; empty: not yet.
	Network string    `json:"network,omitempty"`
	Code    []byte    `json:"code,omitempty"`  // the digest of the code that confirms
	Tried   [][]byte  `json:"tried,omitempty"` // the digests of the codes that were entered
	At      time.Time `json:"at"`              // of the last change
}

var (
	// ErrSignedIn is returned if somebody has signed in for the session already.
	ErrSignedIn = errors.New("somebody has signed in for the session already")
	// ErrNothingToConfirm is returned if nobody has signed in yet.
	ErrNothingToConfirm = errors.New("nobody has signed in for the session yet")
	// ErrNoTriesLeft is returned if MaxTries codes were entered already.
	ErrNoTriesLeft = errors.New("no more codes are taken for the session")
)

// Step returns what the session waits for.
func (p Progress) Step() Step {
	switch {
	case p.Network != "":
		return StepConfirm
	case p.Platform != "":
		return StepIdentity
	default:
		return ""
	}
}

// Reached returns the level that the progress proves by itself; empty: none.
func (p Progress) Reached() Level {
	if p.Network != "" {
		return Link
	}
	return ""
}

// PlatformIn reports whether a browser has proven the platform account. Another browser's proof shows nothing
// about the person at this one.
func (p Progress) PlatformIn(browser string) bool {
	return p.Platform != "" && browser != "" && p.Browser == browser
}

// WithPlatform returns the progress after a network vouched for the platform account in a browser. The
// newest browser counts.
func (p Progress) WithPlatform(browser, network string, at time.Time) Progress {
	p.Browser, p.Platform, p.At = browser, network, at
	return p
}

// WithIdentity returns the progress after a network vouched for an identity in a browser, with the digest of
// the code that is shown there. The first identity counts: the error is ErrSignedIn if there is one.
func (p Progress) WithIdentity(browser, network string, code []byte, at time.Time) (Progress, error) {
	if p.Network != "" {
		return p, ErrSignedIn
	}
	p.Browser, p.Network, p.Code, p.At = browser, network, code, at
	return p, nil
}

// Try returns the progress after a code was entered, by its digest. The same code again is the same try. Its
// errors are ErrNothingToConfirm and ErrNoTriesLeft.
func (p Progress) Try(code []byte, at time.Time) (Progress, error) {
	switch {
	case p.Network == "":
		return p, ErrNothingToConfirm
	case contains(p.Tried, code):
		return p, nil
	case len(p.Tried) >= MaxTries:
		return p, ErrNoTriesLeft
	}
	p.Tried, p.At = append(slices.Clone(p.Tried), code), at
	return p, nil
}

// Confirmed reports whether the code was entered.
func (p Progress) Confirmed() bool { return p.Network != "" && contains(p.Tried, p.Code) }

// TriesLeft returns how many more codes may be entered.
func (p Progress) TriesLeft() int { return max(MaxTries-len(p.Tried), 0) }

// contains compares all digests, each in constant time.
func contains(digests [][]byte, wanted []byte) bool {
	found := 0
	for _, d := range digests {
		found |= subtle.ConstantTimeCompare(d, wanted)
	}
	return found == 1
}
