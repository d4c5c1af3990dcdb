package account

import (
	"errors"
	"time"

	"verifyd/edge/account/branding"
	"verifyd/edge/account/naming"
	"verifyd/sessions/proof"
)

var (
	// ErrNoAccount is returned if there is no account of that name.
	ErrNoAccount = errors.New("no such account")
	// ErrAccountExists is returned if the name of a new account is taken.
	ErrAccountExists = errors.New("an account with that name already exists")
)

// Account is an integrator. It is stored as its JSON, beside what package record seals of it, or writes in
// another form.
type Account struct {
	ID string `json:"-"` // "acc_" and 20 characters of base32, made from the name (IDOf)
	// as operators and end users see it, 1 to 128 bytes, in the form of package naming
	Name  string `json:"name"`
	Quota int64  `json:"quota,omitempty"` // sessions per UTC month; 0 means the service's default
	// the address that the end user's page offers to go back to after the end; empty: none. It is on one of
	// ReturnOrigins
	ReturnURL string `json:"return_url,omitempty"`
	// ReturnOrigins are the sites that ReturnURL may be on, as browsers write origins: https://example.com,
	// https://example.com:8443. It is missing in records of builds that knew no such list.
	ReturnOrigins []string `json:"return_origins,omitempty"`
	// NoticeURL is the address that notices are posted to; empty: none. Its path and query may be secrets.
	NoticeURL string            `json:"-"`
	Colour    string            `json:"colour,omitempty"` // of its sign there, #rrggbb; empty: it has none
	Branding  branding.Branding `json:"-"`                // how else it looks there
	// Level is the level of its sessions that do not set one; empty: the service's
	Level proof.Level `json:"binding,omitempty"`
	// MaxUsers is how many platform users one identity may verify within the account, as long as it is
	// remembered; 0: any number
	MaxUsers   int       `json:"max_users,omitempty"`
	CreatedAt  time.Time `json:"created_at"`
	DisabledAt time.Time `json:"disabled_at,omitzero"` // zero while it is in service
	// DeletedAt is zero unless the account was deleted. The rest of it signs the callbacks that were owed by
	// then, and nothing else.
	DeletedAt time.Time `json:"deleted_at,omitzero"`
	// Secrets are the callback signing secrets, the current one first; two while one rotates out.
	Secrets []Secret `json:"-"`
	Members []Member `json:"members,omitempty"` // in the order in which they came
	Invites []Invite `json:"-"`                 // open ones, and those that have expired since its last change

	// The next fields are missing in records of builds that knew no more of an account's life. Those builds
	// serve the account as if the fields were not there, so the fields must not change what they may do: an
	// account whose deletion was requested is disabled, too.

	Former []naming.Former `json:"former,omitempty"` // names that it had, the latest last
	// Granted: an operator allowed the name, though it is reserved or mixes scripts
	Granted bool `json:"name_granted,omitempty"`
	// VerifiedAt is when an operator vouched for the name; zero: none has. It ends with the name.
	VerifiedAt time.Time `json:"verified_at,omitzero"`
	// DisabledReason is the operator's message to the members; empty: none, or it is not disabled
	DisabledReason string `json:"disabled_reason,omitempty"`
	// DeleteAskedAt is when its deletion was requested; zero: it was not. It is out of service from then on
	// (DisabledAt), and can be restored until DeletesAt.
	DeleteAskedAt time.Time `json:"delete_asked_at,omitzero"`
}

// DeleteGrace is how long an account whose deletion was requested can be restored.
const DeleteGrace = 7 * 24 * time.Hour

// DeletesAt returns when the account is deleted; zero: its deletion was not requested.
func (a Account) DeletesAt() time.Time {
	if a.DeleteAskedAt.IsZero() {
		return time.Time{}
	}
	return a.DeleteAskedAt.Add(DeleteGrace)
}

// Due reports whether the account's deletion was requested and its grace is over at an instant.
func (a Account) Due(now time.Time) bool {
	return !a.DeleteAskedAt.IsZero() && !now.Before(a.DeletesAt())
}

// Barred reports whether an operator has disabled the account: then it stays out of service also if a
// deletion is taken back.
func (a Account) Barred() bool {
	return !a.DisabledAt.IsZero() && !a.DisabledAt.Equal(a.DeleteAskedAt)
}

// KeptUntil returns until when a former name of the account is kept; false: it did not have the name, or the
// time was not recorded.
func (a Account) KeptUntil(name string) (until time.Time, known bool) {
	for _, f := range a.Former {
		if f.Name == name && f.Until.After(until) {
			until, known = f.Until, true
		}
	}
	return until, known
}

// InService reports whether the account's keys are accepted and its users can sign in.
func (a Account) InService() bool { return a.Exists() && a.DisabledAt.IsZero() }

// Exists reports whether this is an account, and not the rest of one that was deleted, or a name that leads
// to one.
func (a Account) Exists() bool { return a.Name != "" && a.DeletedAt.IsZero() }

// Member returns the member with an identity.
func (a Account) Member(network, subject string) (Member, bool) {
	if i := a.MemberIndex(network, subject); i >= 0 {
		return a.Members[i], true
	}
	return Member{}, false
}
