package service

import (
	"context"
	"errors"
	"net/http"

	"verifyd/cmd/verifyd/store"
	"verifyd/dispatcher/callback"
	"verifyd/docs/verify"
	"verifyd/edge/account"
	"verifyd/edge/account/notice"
	"verifyd/edge/dashboard"
	"verifyd/edge/dashboard/callbacks"
	"verifyd/edge/dashboard/callbacks/kept"
	integratorpages "verifyd/edge/dashboard/integrator"
	"verifyd/edge/dashboard/logins"
	"verifyd/edge/dashboard/signinpage"
	"verifyd/edge/limit"
	"verifyd/edge/places"
	"verifyd/edge/signin"
	"verifyd/natsconf/fleet"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/lists"
	"verifyd/sessions/pauses"
	"verifyd/sessions/urlpolicy"
)

// dashboard makes the integrator's pages.
func (p *Program) dashboard(pages *signin.Handler, attempts *limit.Attempts,
	waiting *places.Waiting) (*dashboard.Handler, error) {
	p.Store.Accounts.OwnNames(p.Config.OwnNames())
	loggedIn := logins.NewStore(p.Store.Conn, p.Store.Ring, p.Config.Now)
	paused := pauses.NewStore(p.Store.Conn, p.Config.Now)
	paused.Oldest = store.OldestOf(p.sessions)
	p.add("search", lists.NewAhead(p.sessions.Lists))
	var snippets []integratorpages.Snippet
	for _, g := range verify.Guides() {
		snippets = append(snippets, integratorpages.Snippet{
			ID: g.ID, Language: g.Language, File: g.Standard.File, Text: g.Standard.Text,
		})
	}
	return dashboard.New(dashboard.Config{
		BaseURL: p.Base, Attempts: attempts, Networks: p.nets.logIn, SignIn: p.nets.signIn(),
		Allow: p.Config.DashboardAllow, Accounts: p.Store.Accounts, Directory: p.Mirror, Logins: loggedIn,
		Sessions: p.sessions, List: p.sessions, Usage: p.sessions, Watch: p.watch, Callbacks: sender{
			p.Config.CallbackClient(p.Config.CallbackTimeout), p.Config.CallbackPolicy,
		},
		Rate: p.Config.Rate, Policy: p.Config.DefaultPolicy, Quota: p.Config.Quota,
		TestKeys: p.Config.TestKeys, Snippets: snippets, Pauses: paused, Kept: kept.New(p.Store.Conn),
		Notices: notice.NewStore(p.Store.Conn), Addresses: p.Config.CallbackPolicy,
		Fleet: func(ctx context.Context) ([]fleet.Process, error) { return fleet.Ask(ctx, p.Store.Conn) },
		Key:   p.Store.Ring, Store: waiting, Log: p.Config.Log, Now: p.Config.Now,
		Preview: signinpage.Config{
			Draw: func(w http.ResponseWriter, r *http.Request, a account.Account, state string) {
				pages.Preview(w, r, requesterOf(a), state)
			}, States: signin.Previews(),
		},
	})
}

// sender is how the dashboard drafts callbacks and sends test ones: by the guard and the client of every
// callback.
type sender struct {
	client *callback.Client
	policy *urlpolicy.Policy
}

// Draft implements callbacks.Sender.
func (s sender) Draft(c callbacks.Callback) (string, error) {
	r, _, err := s.prepare(c)
	return r.Text(), err
}

func (s sender) prepare(c callbacks.Callback) (callback.Request, urlpolicy.URL, error) {
	u, err := s.policy.Parse(c.URL)
	if err != nil {
		return callback.Request{}, u, err
	}
	r, err := s.client.Prepare(callback.Callback{
		URL: u, Session: sessions.ID(c.ID), PlatformUserID: c.PlatformUserID, GuildID: c.GuildID,
		Verified: c.Verified, Test: c.Test, Secrets: c.Secrets, At: c.At,
	})
	return r, u, err
}

// Send implements callbacks.Sender: one connection, one request.
func (s sender) Send(ctx context.Context, c callbacks.Callback) (callbacks.Exchange, error) {
	r, u, err := s.prepare(c)
	if err != nil {
		return callbacks.Exchange{}, err
	}
	e := callbacks.Exchange{Request: r.Text(), Verdict: facts.VerdictReleased}
	conn, err := s.client.Dial(ctx, u)
	if notSent, ok := errors.AsType[*callback.NotSent](err); ok {
		e.Class, e.Detail, e.Address, e.Timing = notSent.Class, notSent.Detail, notSent.Address,
			notSent.Timing
		return e, nil
	}
	if err != nil {
		return callbacks.Exchange{}, err
	}
	defer func() { _ = conn.Close() }()
	a := conn.Send(ctx, r)
	e.Verdict, e.Class, e.Status, e.Detail, e.Address, e.Answer, e.Timing = a.Verdict, a.Class, a.Status,
		a.Detail, a.Address, a.Body, a.Timing
	return e, nil
}
