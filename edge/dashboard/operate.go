package dashboard

import (
	"context"
	"net/http"
	"slices"

	"verifyd/edge"
	"verifyd/edge/account"
	"verifyd/edge/dashboard/logins"
	"verifyd/edge/page"
)

// The operator's pages. They are for who was made an operator at the command line, whatever accounts they are a member of: what every
// account sees is told to its members, and these see all of them.
const (
	pathOperator         = "/dashboard/operator"
	pathOperatorAccounts = "/dashboard/operator/accounts"
	pathOperatorHosts    = "/dashboard/operator/hosts"
	pathPause            = "/dashboard/operator/hosts/pause"
	pathResume           = "/dashboard/operator/hosts/resume"
	pathDead             = "/dashboard/operator/undelivered"
	pathRedrive          = "/dashboard/operator/undelivered/redrive"
	pathOperatorAudit    = "/dashboard/operator/audit"
)

func (h *Handler) operatorRoutes() []edge.Route {
	return []edge.Route{
		get(pathOperator, h.operate(h.showService)),
		get(pathOperatorAccounts, h.operate(h.showAccounts)),
		get(pathOperatorHosts, h.operate(h.showHosts)),
		post(pathPause, h.operated(h.pause)),
		post(pathResume, h.operated(h.resume)),
		get(pathDead, h.operate(h.showUndelivered)),
		post(pathRedrive, h.operated(h.redrive)),
		get(pathOperatorAudit, h.operate(h.showOperatorAudit)),
	}
}

// operatorTabs is the bar of the operator's pages.
var operatorTabs = []tab{
	{Key: "operator", Name: "Service", Path: pathOperator},
	{Key: "accounts", Name: "Accounts", Path: pathOperatorAccounts},
	{Key: "hosts", Name: "Receiver hosts", Path: pathOperatorHosts},
	{Key: "dead", Name: "Not delivered", Path: pathDead},
	{Key: "operator-audit", Name: "Audit log", Path: pathOperatorAudit},
}

// isOperator asks whether somebody is an operator now. That their login said so when it began counts for nothing.
func (h *Handler) isOperator(ctx context.Context, l logins.Login) (bool, error) {
	switch {
	case l.Operator:
		return h.Accounts.IsOperatorLink(ctx, l.LinkID)
	case l.LinkID != "":
		return false, nil // a login link of an account
	}
	return h.Accounts.IsOperator(ctx, l.Network, l.Subject)
}

// operate lets operators into a page of theirs.
func (h *Handler) operate(next room) http.Handler {
	return page.Guard(h.https, func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := within(r)
		defer cancel()
		l, err := h.knock(ctx, r)
		if err != nil {
			h.turnAway(w, r, visit{}, err)
			return
		}
		v := visit{login: l}
		if v.operator, err = h.isOperator(ctx, l); err != nil {
			h.fail(w, r, nil, err)
			return
		}
		if !v.operator {
			h.Log.Info().Str("network", l.Network).Str("link", l.LinkID).Msg("somebody who is no operator asked for an operator's page")
			h.drawProblem(w, nil, problemNoOperator)
			return
		}
		next(w, r, v)
	})
}

// operated is operate for changes: a form of this site.
func (h *Handler) operated(next room) http.Handler { return h.posted(h.operate(next)) }

// asOperator is the visitor of an operator's page as the audit log names them.
func (v visit) asOperator() account.Actor {
	if v.login.LinkID != "" {
		return account.Link{ID: v.login.LinkID, Operator: true}.Actor()
	}
	return account.OperatorWith(v.login.Network, v.login.Subject, v.who())
}

// drawOperator draws a page of the operator's.
func (h *Handler) drawOperator(w http.ResponseWriter, r *http.Request, v visit, shown view) {
	shown.visit, shown.operating, shown.Flash = &v, true, h.takeFlash(w, r)
	h.draw(w, shown)
}

// Operating says whether the page is one of the operator's, and Operator whether the visitor is one.
func (d drawn) Operating() bool { return d.operating }

// Operator says whether the visitor is an operator.
func (d drawn) Operator() bool { return d.visit != nil && d.visit.operator }

// HasAccount says whether the visitor of an operator's page is a member of some account, too.
func (d drawn) HasAccount() bool {
	l := d.visit.login
	return l.Subject != "" && len(d.h.Directory.AccountsOf(l.Network, l.Subject)) > 0
}

// OperatorTabs are the entries of the operator's bar.
func (d drawn) OperatorTabs() []tab { return operatorTabs }

// showOperatorAudit answers GET /dashboard/operator/audit: what concerns the whole service, newest first.
func (h *Handler) showOperatorAudit(w http.ResponseWriter, r *http.Request, v visit) {
	d, ok := h.auditPage(w, r, account.ServiceLog, pathOperatorAudit)
	if ok {
		h.drawOperator(w, r, v, view{page: "operatoraudit", Title: "Audit log", Nav: "operator-audit", Data: d})
	}
}

// accountsLimit is a page of the accounts.
const accountsLimit = 25

type accountRow struct {
	account.Account

	Keys   int // that work
	Owners int
	Quota  int64
	Own    bool // the quota is the account's own
}

type accountsData struct {
	Rows          []accountRow
	Text          string
	Older, Newest string // the next page, and the first
}

// showAccounts answers GET /dashboard/operator/accounts: all of them by name. The directory may be a moment behind.
func (h *Handler) showAccounts(w http.ResponseWriter, r *http.Request, v visit) {
	q := r.URL.Query()
	d := accountsData{Text: page.Single(q, "q")}
	after := page.Single(q, "after")
	found, more := h.Directory.Accounts(d.Text, after, accountsLimit)
	for _, a := range found {
		d.Rows = append(d.Rows, h.accountRow(a))
	}
	if more {
		d.Older = h.prefix + pathOperatorAccounts + "?" + query("q", d.Text, "after", found[len(found)-1].Name)
	}
	if after != "" {
		d.Newest = h.prefix + pathOperatorAccounts + "?" + query("q", d.Text)
	}
	h.drawOperator(w, r, v, view{page: "accounts", Title: "Accounts", Nav: "accounts", Data: d})
}

func (h *Handler) accountRow(a account.Account) accountRow {
	row := accountRow{Account: a, Quota: a.Quota, Own: a.Quota > 0}
	if !row.Own {
		row.Quota = h.Quota
	}
	for _, k := range h.Directory.Keys(a.ID) {
		if slices.Contains([]account.KeyState{account.KeyActive, account.KeyRolled}, k.State(h.Now())) {
			row.Keys++
		}
	}
	for _, m := range a.Members {
		if m.Role == account.RoleOwner {
			row.Owners++
		}
	}
	return row
}
