package account

import (
	"errors"
	"slices"
	"time"

	"verifyd/edge/account/access"
)

// Invite is an open invitation into an account. It is stored in the account's own record, so that becoming a
// member and spending the invite are one write.
type Invite struct {
	ID        string      `json:"-"`      // "inv_" and 16 characters, from the token's digest
	Digest    string      `json:"digest"` // SHA-256 of the token's secret part, hexadecimal
	Role      access.Role `json:"role"`
	For       string      `json:"for,omitempty"` // the person it is meant for, as the inviter wrote it
	By        string      `json:"by,omitempty"`  // who invited, for people to read
	CreatedAt time.Time   `json:"created_at"`
	ExpiresAt time.Time   `json:"expires_at"`
	// who invited, as access.Actor's Maker; empty: the command line, or a build that did not record it
	Maker access.Identity `json:"-"`
}

// InviteLifetime is how long an invite can be accepted.
const InviteLifetime = 7 * 24 * time.Hour

// LinkLifetime is how long a login link can be redeemed.
const LinkLifetime = 10 * time.Minute

var (
	// ErrNoInvite is returned for an invite that was accepted or withdrawn, or never was.
	ErrNoInvite = errors.New("no such invite: it was accepted or withdrawn, or the link is incomplete")
	// ErrInviteExpired is returned for an invite that was not accepted in time.
	ErrInviteExpired = errors.New("the invite has expired; ask for a new one")
)

// OpenInvite returns the invite with a digest, if it can still be accepted. Its errors are ErrNoInvite and
// ErrInviteExpired.
func (a Account) OpenInvite(digest string, now time.Time) (Invite, error) {
	i := slices.IndexFunc(a.Invites, func(i Invite) bool { return i.Digest == digest })
	if i < 0 {
		return Invite{}, ErrNoInvite
	}
	if !now.Before(a.Invites[i].ExpiresAt) {
		return Invite{}, ErrInviteExpired
	}
	return a.Invites[i], nil
}
