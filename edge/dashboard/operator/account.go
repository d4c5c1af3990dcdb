package operator

import (
	"context"
	"errors"
	"net/http"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/input"
	"verifyd/edge/account/naming"
	"verifyd/edge/dashboard/form"
	"verifyd/edge/dashboard/paths"
	"verifyd/edge/dashboard/site"
	"verifyd/sessions/facts"
	"verifyd/sessions/lists"
	"verifyd/sessions/stats"
)

// newestSessions is how many of an account's sessions its page shows.
const newestSessions = 25

// accountPages are those about one account.
type accountPages struct{ *Handler }

type accountKey struct {
	account.Key

	State    account.KeyState
	LastUsed time.Time
}

type accountData struct {
	accountRow

	All      []accountKey
	Former   []naming.Former // that are kept
	Sessions []facts.View    // the newest
	BackTo   time.Time       // how far back the search went; zero: through everything
	Used     int64           // of the quota, this UTC month
	Started  int64           // by live keys, this month; so are the next two
	Verified int64
	Failed   int64
	DeleteAt time.Time // when it would be deleted if requested now
}

// accountOf reads the account that a path names, or what is left of it. It answers the request if there is
// none.
func (h accountPages) accountOf(ctx context.Context, w http.ResponseWriter,
	r *http.Request) (account.Account, bool) {
	id := r.PathValue("account")
	a, err := h.Accounts.Account(ctx, id)
	if errors.Is(err, account.ErrNoAccount) {
		a, err = h.Accounts.Deleted(ctx, id)
	}
	switch {
	case errors.Is(err, account.ErrNoAccount):
		h.DrawProblem(w, nil, problemNoAccount)
		return a, false
	case err != nil:
		h.Fail(w, r, nil, err)
		return a, false
	}
	return a, true
}

// showAccount answers GET /dashboard/operator/accounts/{account}.
func (h accountPages) showAccount(w http.ResponseWriter, r *http.Request, v site.Visit) {
	h.drawAccount(w, r, v, nil)
}

func (h accountPages) drawAccount(w http.ResponseWriter, r *http.Request, v site.Visit, f *form.Form) {
	ctx, cancel := context.WithTimeout(r.Context(), site.ListTimeout)
	defer cancel()
	a, ok := h.accountOf(ctx, w, r)
	if !ok {
		return
	}
	var d accountData
	err := h.InOperatorSlot(func() (err error) {
		d, err = h.accountData(ctx, a)
		return err
	})
	if err != nil {
		h.Fail(w, r, nil, err)
		return
	}
	status := http.StatusOK
	if f != nil {
		status = http.StatusUnprocessableEntity
	}
	h.drawPage(w, r, v, site.View{
		Page: "account", Title: a.Name, Nav: "accounts", Form: f, Status: status, Data: d,
	})
}

func (h accountPages) accountData(ctx context.Context, a account.Account) (accountData, error) {
	now := h.Now()
	d := accountData{accountRow: h.accountRow(a), DeleteAt: now.Add(account.DeleteGrace)}
	keys := h.Directory.Keys(a.ID)
	ids := make([]string, len(keys))
	for i, k := range keys {
		ids[i] = k.ID
	}
	used := map[string]time.Time{}
	var err error
	if len(ids) > 0 {
		if used, err = h.Accounts.LastUsed(ctx, ids...); err != nil {
			return d, err
		}
	}
	for _, k := range keys {
		d.All = append(d.All, accountKey{k, k.State(now), used[k.ID]})
	}
	for _, f := range a.Former {
		if now.Before(f.Until) {
			d.Former = append(d.Former, f)
		}
	}
	found, err := h.Sessions.List(ctx, lists.Query{Account: a.ID, Limit: newestSessions})
	if err != nil {
		return d, err
	}
	d.Sessions, d.BackTo = found.Sessions, found.Back
	u, err := h.Sessions.Usage(ctx, a.ID, now)
	totals := u.Total(false)
	d.Used, d.Started, d.Verified = u.Used, totals[stats.CountStarted], totals[stats.CountVerified]
	d.Failed = totals[stats.CountDeclined] + totals[stats.CountRefused] + totals[stats.CountUnconfirmed]
	return d, err
}

// disable answers POST /dashboard/operator/accounts/{account}/disable.
func (h accountPages) disable(w http.ResponseWriter, r *http.Request, v site.Visit) {
	h.changeAccount(w, r, v, flashDisabled, func(ctx context.Context, f *form.Form, id string) error {
		_, err := h.Accounts.Disable(ctx, v.AsOperator(), id, f.Text("reason"))
		return err
	})
}

// enable answers POST /dashboard/operator/accounts/{account}/enable.
func (h accountPages) enable(w http.ResponseWriter, r *http.Request, v site.Visit) {
	h.changeAccount(w, r, v, flashEnabled, func(ctx context.Context, _ *form.Form, id string) error {
		_, err := h.Accounts.Enable(ctx, v.AsOperator(), id)
		return err
	})
}

// askDeletion answers POST /dashboard/operator/accounts/{account}/delete: the account's name was typed.
func (h accountPages) askDeletion(w http.ResponseWriter, r *http.Request, v site.Visit) {
	h.changeAccount(w, r, v, flashDeletionAsked, func(ctx context.Context, f *form.Form, id string) error {
		a, err := h.Accounts.Account(ctx, id)
		if err != nil {
			return err
		}
		if naming.Clean(f.Text("name")) != naming.Clean(a.Name) {
			f.Wrong("name", "This is not the account's name. Type it as it is shown above.")
			return nil
		}
		_, err = h.Accounts.AskDeletion(ctx, v.AsOperator(), id)
		return err
	})
}

// restore answers POST /dashboard/operator/accounts/{account}/restore.
func (h accountPages) restore(w http.ResponseWriter, r *http.Request, v site.Visit) {
	h.changeAccount(w, r, v, flashRestored, func(ctx context.Context, _ *form.Form, id string) error {
		_, err := h.Accounts.Restore(ctx, v.AsOperator(), id)
		return err
	})
}

// errRenamed is returned if the account's name is not the one on the page.
var errRenamed = errors.New("the account has been renamed in the meantime")

// setVerified answers POST /dashboard/operator/accounts/{account}/verified: the mark is set for the name in
// the form, or removed if there is none.
func (h accountPages) setVerified(w http.ResponseWriter, r *http.Request, v site.Visit) {
	h.changeAccount(w, r, v, flashMarked, func(ctx context.Context, f *form.Form, id string) error {
		name := f.Text("of")
		_, err := h.Accounts.SetVerified(ctx, v.AsOperator(), id, name, name != "")
		if _, ok := errors.AsType[*input.Error](err); ok {
			return errRenamed
		}
		return err
	})
}

// changeAccount calls do to change the account that a path names, and redirects to its page.
func (h accountPages) changeAccount(w http.ResponseWriter, r *http.Request, v site.Visit, done site.FlashCode,
	do func(ctx context.Context, f *form.Form, id string) error) {
	ctx, cancel := h.Within(r)
	defer cancel()
	f, id := form.New(r), r.PathValue("account")
	err := do(ctx, f, id)
	switch {
	case errors.Is(err, account.ErrNoAccount):
		h.DrawProblem(w, nil, problemNoAccount)
	case errors.Is(err, errRenamed):
		h.Done(w, flashOtherName, paths.Of(paths.OperatorAccount, id))
	case errors.Is(err, accountstore.ErrDeletionAsked):
		h.Done(w, flashRestoreFirst, paths.Of(paths.OperatorAccount, id))
	case !f.Take(err) && err != nil:
		h.Fail(w, r, nil, err)
	case !f.OK():
		h.drawAccount(w, r, v, f)
	default:
		h.Done(w, done, paths.Of(paths.OperatorAccount, id))
	}
}
