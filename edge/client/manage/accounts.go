package manage

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Account is an integrator. What is nil is not set: the service's default counts.
type Account struct {
	ID             string     `json:"id"`
	Name           string     `json:"name"`
	State          string     `json:"state"` // in_service, disabled or deletion_asked
	CreatedAt      time.Time  `json:"created_at"`
	FormerNames    []Former   `json:"former_names"`
	Disabled       bool       `json:"disabled"`    // by an operator
	DisabledAt     *time.Time `json:"disabled_at"` // out of service since, for whatever reason
	DisabledReason string     `json:"disabled_reason"`
	DeletesAt      *time.Time `json:"deletes_at"`    // where its deletion was asked for
	VerifiedName   *string    `json:"verified_name"` // the name that an operator vouches for
	VerifiedAt     *time.Time `json:"verified_at"`
	Quota          *int64     `json:"quota"`     // sessions a UTC month
	Binding        *string    `json:"binding"`   // link, code or account
	MaxUsers       *int       `json:"max_users"` // platform users that one identity may verify
	ReturnURL      *string    `json:"return_url"`
	Colour         *string    `json:"colour"` // of its sign; all colours are #rrggbb
	Button         *string    `json:"button"`
	Accent         *string    `json:"accent"`
	AccentDark     *string    `json:"accent_dark"`
	Logo           *Logo      `json:"logo"`
	NoticeHost     *string    `json:"notice_host"` // where notices are posted, without the path
	Members        int        `json:"members"`
	Keys           int        `json:"keys"` // that work
	// CreatedBy is its creator, if the audit log reaches back to that; only Account reads it.
	CreatedBy *Creator `json:"created_by"`
}

// Logo says which logo users see.
type Logo struct {
	Width  int    `json:"width"` // in pixels
	Height int    `json:"height"`
	Digest string `json:"digest"` // SHA-256 of the PNG, hexadecimal
}

// Former is a name that an account had.
type Former struct {
	Name      string     `json:"name"`
	KeptUntil *time.Time `json:"kept_until"` // until when no other account can take it; nil: not recorded
}

// Creator is who made an account.
type Creator struct {
	Kind string    `json:"kind"` // operator, or member: somebody on the dashboard
	Name string    `json:"name"`
	At   time.Time `json:"at"`
}

// Changes are members of PATCH /manage/accounts/{account} by their names: name, grant_name, verified_name,
// quota, binding, max_users, return_url, colour, notice_url, disabled, disabled_reason. Nil sets
// nothing, so that the service's default counts.
type Changes map[string]any

func accountPath(id string) string { return "/manage/accounts/" + url.PathEscape(id) }

// CreateAccount makes an account. With grantName it gets a name that is reserved, mixes scripts, or is kept
// for another. It is tried again where no answer came; a second call is refused with
// account_exists.
func (c *Client) CreateAccount(ctx context.Context, name string, grantName bool) (a Account, err error) {
	in := map[string]any{"name": name}
	if grantName {
		in["grant_name"] = true
	}
	return a, c.service.Create(ctx, "/manage/accounts", "", in, &a)
}

// Account reads an account by its id.
func (c *Client) Account(ctx context.Context, id string) (a Account, err error) {
	return a, c.service.Call(ctx, http.MethodGet, accountPath(id), nil, &a)
}

// AccountByName finds the account with a name; nil if there is none.
func (c *Client) AccountByName(ctx context.Context, name string) (*Account, error) {
	var page struct {
		Accounts []Account `json:"accounts"`
	}
	path := "/manage/accounts?" + url.Values{"name": {name}}.Encode()
	err := c.service.Call(ctx, http.MethodGet, path, nil, &page)
	if err != nil || len(page.Accounts) == 0 {
		return nil, err
	}
	return &page.Accounts[0], nil
}

// maxPage is the most entries that a page has.
const maxPage = 500

// Accounts lists all accounts by name, page by page. It ends with the first error.
func (c *Client) Accounts(ctx context.Context) iter.Seq2[Account, error] {
	return func(yield func(Account, error) bool) {
		for query := (url.Values{"limit": {strconv.Itoa(maxPage)}}); ; {
			var page struct {
				Accounts []Account `json:"accounts"`
				Next     *string   `json:"next"`
			}
			err := c.service.Call(ctx, http.MethodGet, "/manage/accounts?"+query.Encode(), nil, &page)
			if err != nil {
				yield(Account{}, err)
				return
			}
			for _, a := range page.Accounts {
				if !yield(a, nil) {
					return
				}
			}
			if page.Next == nil {
				return
			}
			query.Set("cursor", *page.Next)
		}
	}
}

// ChangeAccount changes an account. A repeat is harmless.
func (c *Client) ChangeAccount(ctx context.Context, id string, to Changes) (a Account, err error) {
	return a, c.service.Call(ctx, http.MethodPatch, accountPath(id), to, &a)
}

// DeleteAccount takes an account out of service; it is deleted at DeletesAt, unless it is restored before. A
// repeat is harmless.
func (c *Client) DeleteAccount(ctx context.Context, id string) (a Account, err error) {
	return a, c.service.Call(ctx, http.MethodDelete, accountPath(id), nil, &a)
}

// RestoreAccount takes back that an account is to be deleted. A repeat is harmless.
func (c *Client) RestoreAccount(ctx context.Context, id string) (a Account, err error) {
	return a, c.service.Call(ctx, http.MethodPost, accountPath(id)+"/restore", nil, &a)
}

// Record is an entry of an account's audit log.
type Record struct {
	At       time.Time         `json:"at"`
	Who      string            `json:"who"`      // as people read it
	Identity *string           `json:"identity"` // of a member, as network:subject
	What     string            `json:"what"`     // such as key.created
	On       *string           `json:"on"`       // what it was done to
	Detail   map[string]string `json:"detail"`
}

// Audit reads the newest records of an account's audit log from a cursor on, as next is of the page before;
// an empty one begins at the newest, and is behind the oldest. limit is 1 to 100.
func (c *Client) Audit(ctx context.Context, id, cursor string, limit int) (records []Record, next string,
	err error) {
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	var page struct {
		Records []Record `json:"records"`
		Next    string   `json:"next"`
	}
	err = c.service.Call(ctx, http.MethodGet, accountPath(id)+"/audit?"+query.Encode(), nil, &page)
	return page.Records, page.Next, err
}
