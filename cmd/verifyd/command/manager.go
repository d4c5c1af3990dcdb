package command

import (
	"context"
	"errors"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/grant"
	"verifyd/edge/account/signing"
	"verifyd/natsconf"
	"verifyd/sessions/urlpolicy"
)

// Manager is what commands do with accounts, on the store or on a service on another machine: they do not
// know which. An account is changed by its id. The actor is the operator at the command line, or the operator
// token.
type Manager interface {
	KeyManager
	SecretManager
	MemberManager

	// Own returns the account that a command is to change, by its name or its id; see OwnAccount.
	Own(ctx context.Context, name string) (account.Account, error)
	// Show returns everything that is shown of an account, by its name or its id.
	Show(ctx context.Context, name string) (Shown, error)
	// Audit returns the newest records of an account, by its name or its id, from a cursor on; next is empty
	// after the last one. The records of a deleted account are read by its id.
	Audit(ctx context.Context, name, cursor string, limit int) (records []Record, next string, err error)
	List(ctx context.Context) ([]Listed, error)
	Create(ctx context.Context, name string, grantName bool) (account.Account, error)
	Rename(ctx context.Context, id, name string, grantName bool) (account.Account, error)
	SetVerified(ctx context.Context, id, name string, verified bool) error
	SetQuota(ctx context.Context, id string, quota int64) error
	SetBinding(ctx context.Context, id string, to accountstore.Binding) error
	SetReturnURL(ctx context.Context, id, to string) error
	SetColour(ctx context.Context, id, colour string) error
	SetNoticeURL(ctx context.Context, id string, to urlpolicy.URL) error
	Disable(ctx context.Context, id, reason string) error
	Enable(ctx context.Context, id string) (account.Account, error)
	AskDeletion(ctx context.Context, id string) (account.Account, error)
	Restore(ctx context.Context, id string) (account.Account, error)
}

// Lists returns the errors beside which a list is not shown: all but natsconf.ErrNewer, which names what is
// left out of it. A command shows the rest, and fails in the end.
func Lists(err error) error {
	if errors.Is(err, natsconf.ErrNewer) {
		return nil
	}
	return err
}

// Listed is an account in a list.
type Listed struct {
	account.Account

	People, ActiveKeys int
}

// Shown is everything that is shown of an account, without a secret.
type Shown struct {
	account.Account // with neither its secrets nor the path of NoticeURL

	NoticeHost string
	PublicKeys []signing.PublicKey // of its signing secrets, the current one first
	Links      []grant.Grant       // login links
	Keys       []ListedKey
}

// Record is an entry of an account's audit log.
type Record struct {
	At            time.Time
	Who, What, On string
	Detail        map[string]string
}
