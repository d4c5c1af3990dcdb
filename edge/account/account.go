package account

import (
	"errors"
	"time"

	"verifyd/sessions/proof"
)

var (
	// ErrNoAccount is returned where there is no account of that name.
	ErrNoAccount = errors.New("no such account")
	// ErrAccountExists is returned where the name of a new account is taken.
	ErrAccountExists = errors.New("an account of that name exists already")
)

// Account is an integrator.
type Account struct {
	ID string // "acc_" and 20 characters of base32, made from the name (IDOf)
	// as operators and end users see it, 1 to 128 bytes; the operator may change it
	Name  string
	Quota int64 // sessions per UTC month; 0 means the service's default
	// where the end user's page offers to go back to after the end; empty: nowhere. It is on one of
	// ReturnOrigins
	ReturnURL string
	// ReturnOrigins are the sites that ReturnURL may be on, as browsers write origins: https://example.com,
	// https://example.com:8443.
	ReturnOrigins []string
	// Level is what its sessions ask to be proven where they do not say; empty: the service's
	Level proof.Level
	// MaxUsers is how many platform users one identity may verify within the account, as long as it is
	// remembered; 0: any number
	MaxUsers   int
	Colour     string // of its sign there, #rrggbb; empty: it has none
	CreatedAt  time.Time
	DisabledAt time.Time // zero while it is in service
	// DeletedAt is zero unless the account was deleted. What is left of it signs the callbacks that were owed
	// by then, and nothing else.
	DeletedAt time.Time
	Secrets   []Secret // callback signing secrets, the current one first; two while one rotates out
	Members   []Member // in the order in which they came
	Invites   []Invite // open ones, and such as have expired since the last change of the account
}

// InService reports whether the account's keys are taken and its users can sign in.
func (a Account) InService() bool { return a.Exists() && a.DisabledAt.IsZero() }

// Exists reports whether this is an account, and not what is left of one that was deleted, or a name that
// leads to one.
func (a Account) Exists() bool { return a.Name != "" && a.DeletedAt.IsZero() }

// Member returns the member with an identity.
func (a Account) Member(network, subject string) (Member, bool) {
	if i := a.MemberIndex(network, subject); i >= 0 {
		return a.Members[i], true
	}
	return Member{}, false
}
