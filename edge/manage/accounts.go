package manage

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"math"
	"net/http"
	"slices"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/grant"
	"verifyd/edge/problem"
	"verifyd/edge/request"
	"verifyd/edge/web"
	"verifyd/natsconf"
	"verifyd/sessions/timeline"
)

// accountCalls are the operations on accounts.
type accountCalls struct{ *Handler }

func (h accountCalls) operations() []operation {
	return []operation{
		{http.MethodPost, pathAccounts, "manage_account_create", grant.AccountsWrite, true, h.createAccount},
		{http.MethodGet, pathAccounts, "manage_accounts", grant.AccountsRead, false, h.listAccounts},
		{http.MethodGet, pathAccount, "manage_account", grant.AccountsRead, false, h.readAccount},
		{http.MethodPatch, pathAccount, "manage_account_change", grant.AccountsWrite, false, h.changeAccount},
		{http.MethodDelete, pathAccount, "manage_account_delete", grant.AccountsWrite, false,
			h.deleteAccount},
		{http.MethodPost, pathRestore, "manage_account_restore", grant.AccountsWrite, false,
			h.restoreAccount},
	}
}

// The states of an account.
const (
	stateInService = "in_service"
	stateDisabled  = "disabled"
	stateDeletion  = "deletion_asked"
)

// accountDoc is an account in an answer. A null member is not set: the service's default applies.
type accountDoc struct {
	ID             string      `json:"id"`
	Name           string      `json:"name"`
	State          string      `json:"state"`
	CreatedAt      string      `json:"created_at"`
	FormerNames    []formerDoc `json:"former_names"`
	Disabled       bool        `json:"disabled"`    // by an operator
	DisabledAt     *string     `json:"disabled_at"` // disabled since, for any reason
	DisabledReason string      `json:"disabled_reason"`
	DeletesAt      *string     `json:"deletes_at"`
	VerifiedName   *string     `json:"verified_name"`
	VerifiedAt     *string     `json:"verified_at"`
	Quota          *int64      `json:"quota"`
	Binding        *string     `json:"binding"`
	MaxUsers       *int        `json:"max_users"`
	ReturnURL      *string     `json:"return_url"`
	Colour         *string     `json:"colour"`
	Button         *string     `json:"button"`
	Accent         *string     `json:"accent"`
	AccentDark     *string     `json:"accent_dark"`
	Logo           *logoDoc    `json:"logo"`
	NoticeHost     *string     `json:"notice_host"` // where notices are posted; path and query may be secrets
	Members        int         `json:"members"`
	Keys           int         `json:"keys"`                 // active
	CreatedBy      *creatorDoc `json:"created_by,omitempty"` // the path of one account
}

// logoDoc describes the logo that users see.
type logoDoc struct {
	Width  int    `json:"width"`
	Height int    `json:"height"`
	Digest string `json:"digest"` // SHA-256 of the PNG, hexadecimal
}

// formerDoc is a former name of the account, and until when no other account can take it; null if that was
// not recorded.
type formerDoc struct {
	Name      string  `json:"name"`
	KeptUntil *string `json:"kept_until"`
}

// creatorDoc is the creator of an account, if the audit log reaches back to it.
type creatorDoc struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	At   string `json:"at"`
}

func (h *Handler) accountOf(a account.Account) accountDoc {
	now, keys := h.Now(), 0
	for _, k := range h.Directory.Keys(a.ID) {
		if state := k.State(now); state == account.KeyActive || state == account.KeyRolled {
			keys++
		}
	}
	doc := accountDoc{
		ID: a.ID, Name: a.Name, State: stateInService, CreatedAt: web.Timestamp(a.CreatedAt),
		Disabled: a.Barred(), DisabledAt: stampOrNull(a.DisabledAt), VerifiedAt: stampOrNull(a.VerifiedAt),
		FormerNames: []formerDoc{}, DisabledReason: a.DisabledReason, DeletesAt: stampOrNull(a.DeletesAt()),
		Quota: orNull(a.Quota), Binding: orNull(string(a.Level)), MaxUsers: orNull(a.MaxUsers),
		ReturnURL: orNull(a.ReturnURL), Colour: orNull(a.Colour), Members: len(a.Members), Keys: keys,
		Button: orNull(a.Branding.Button), Accent: orNull(a.Branding.Accent),
		AccentDark: orNull(a.Branding.AccentDark),
	}
	if l := a.Branding.Logo; l != nil {
		doc.Logo = &logoDoc{l.Width, l.Height, l.Digest}
	}
	if a.NoticeURL != "" {
		doc.NoticeHost = new(timeline.URLHost(a.NoticeURL))
	}
	for _, f := range a.Former {
		doc.FormerNames = append(doc.FormerNames, formerDoc{f.Name, stampOrNull(f.Until)})
	}
	if !a.VerifiedAt.IsZero() {
		doc.VerifiedName = &a.Name
	}
	switch {
	case !a.DeleteAskedAt.IsZero():
		doc.State = stateDeletion
	case !a.DisabledAt.IsZero():
		doc.State = stateDisabled
	}
	return doc
}

// orNull returns nil for the zero value.
func orNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func stampOrNull(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	return orNull(web.Timestamp(t))
}

// POST /manage/accounts creates an account. A repeat is refused, since the name is in use then.
func (h accountCalls) createAccount(c call) (answer, *problem.Problem) {
	m, p := c.body("name", "grant_name")
	if p != nil {
		return answer{}, p
	}
	name, _ := m.Text("name", true)
	granted, _ := m.Flag("grant_name")
	if p := m.Problem(); p != nil {
		return answer{}, p
	}
	create := h.Accounts.CreateAccount
	if granted {
		create = func(ctx context.Context, by access.Actor, name string,
			_ ...account.Member) (account.Account, error) {
			return h.Accounts.GrantAccount(ctx, by, name)
		}
	}
	if err := h.permit(c); err != nil {
		return answer{}, refusal(err)
	}
	a, err := create(c.ctx(), c.by, name)
	if err != nil {
		return answer{}, refusal(err)
	}
	web.EventFrom(c.ctx()).Account = a.ID
	return answer{status: http.StatusCreated, doc: h.accountOf(a)}, nil
}

// permit checks the token once more, right before a change that does not check it itself, since there is no
// account yet.
func (h accountCalls) permit(c call) error { return h.Accounts.PermitOperator(c.ctx(), c.by) }

const (
	standardPage = 100
	maxPage      = 500
)

// limit reads how many entries a page has.
func (c call) limit(q *request.Parameters) int {
	limit := q.Number("limit", standardPage, maxPage)
	if c.whole {
		return math.MaxInt32
	}
	return limit
}

// accountList is a page of accounts.
type accountList struct {
	Accounts []accountDoc `json:"accounts"`
	Next     *string      `json:"next"`
}

// unlisted lets a list go on without what a newer build has written: the request's line in the log names it.
func (c call) unlisted(err error) error {
	if errors.Is(err, natsconf.ErrNewer) {
		web.EventFrom(c.ctx()).Err = err
		return nil
	}
	return err
}

// GET /manage/accounts lists accounts by name, or finds one by its exact name.
func (h accountCalls) listAccounts(c call) (answer, *problem.Problem) {
	q, p := c.query()
	if p != nil {
		return answer{}, p
	}
	name := q.Single("name")
	limit, after := c.limit(q), cursor(q)
	if p := q.Problem(); p != nil {
		return answer{}, p
	}
	doc := accountList{Accounts: []accountDoc{}}
	if name != "" {
		a, err := h.Accounts.AccountByName(c.ctx(), name)
		switch {
		case errors.Is(err, account.ErrNoAccount):
		case err != nil:
			return answer{}, refusal(err)
		default:
			doc.Accounts = append(doc.Accounts, h.accountOf(a))
		}
		return answer{status: http.StatusOK, doc: doc}, nil
	}
	all, err := h.Accounts.Accounts(c.ctx())
	if err := c.unlisted(err); err != nil {
		return answer{}, refusal(err)
	}
	from, is := slices.BinarySearchFunc(all, after, func(a account.Account, name string) int {
		return cmp.Compare(a.Name, name)
	})
	if is {
		from++
	}
	for _, a := range all[from:min(from+limit, len(all))] {
		doc.Accounts = append(doc.Accounts, h.accountOf(a))
	}
	if from+limit < len(all) {
		doc.Next = new(nextAfter(all[from+limit-1].Name))
	}
	return answer{status: http.StatusOK, doc: doc}, nil
}

// cursor reads where a page begins: after the entry that nextAfter was derived from.
func cursor(q *request.Parameters) string {
	text := q.Single("cursor")
	after, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || text != "" && len(after) == 0 {
		q.Faultf("cursor", "it must be the next of an earlier answer")
	}
	return string(after)
}

func nextAfter(name string) string { return base64.RawURLEncoding.EncodeToString([]byte(name)) }

// GET /manage/accounts/{account} reads an account.
func (h accountCalls) readAccount(c call) (answer, *problem.Problem) {
	a, err := h.Accounts.Account(c.ctx(), c.account())
	if err != nil {
		return answer{}, refusal(err)
	}
	doc := h.accountOf(a)
	by, at, known, err := h.Accounts.MadeBy(c.ctx(), a.ID)
	if err != nil {
		return answer{}, refusal(err)
	}
	if known {
		doc.CreatedBy = &creatorDoc{string(by.Kind), by.String(), web.Timestamp(at)}
	}
	return answer{status: http.StatusOK, doc: doc}, nil
}

// DELETE /manage/accounts/{account} disables an account and schedules its deletion in seven days. A repeat is
// harmless.
func (h accountCalls) deleteAccount(c call) (answer, *problem.Problem) {
	return h.changed(h.Accounts.AskDeletion(c.ctx(), c.by, c.account()))
}

// POST /manage/accounts/{account}/restore takes that back. A repeat is harmless.
func (h accountCalls) restoreAccount(c call) (answer, *problem.Problem) {
	return h.changed(h.Accounts.Restore(c.ctx(), c.by, c.account()))
}

func (h accountCalls) changed(a account.Account, err error) (answer, *problem.Problem) {
	if err != nil {
		return answer{}, refusal(err)
	}
	return answer{status: http.StatusOK, doc: h.accountOf(a)}, nil
}
