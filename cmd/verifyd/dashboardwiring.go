package main

import (
	"context"
	"errors"
	"net/http"

	"verifyd/dispatcher/callback"
	"verifyd/docs/verify"
	"verifyd/edge/account"
	"verifyd/edge/dashboard"
	"verifyd/edge/dashboard/logins"
	"verifyd/edge/network"
	"verifyd/edge/signin"
	"verifyd/sessions"
	"verifyd/sessions/pauses"
	"verifyd/sessions/roster"
	"verifyd/sessions/target"
)

// dashboard makes the integrator's pages. networks are those that are marked for it.
func (p *Program) dashboard(ctx context.Context, h hall, networks []*network.Network, pages *signin.Handler) (*dashboard.Handler, error) {
	kept, err := logins.NewStore(ctx, p.store.conn, p.store.key, p.c.now)
	if err != nil {
		return nil, err
	}
	paused, err := pauses.NewStore(ctx, p.store.conn, p.c.now)
	if err != nil {
		return nil, err
	}
	var snippets []dashboard.Snippet
	for _, g := range verify.Guides() {
		snippets = append(snippets, dashboard.Snippet{ID: g.ID, Language: g.Language, File: g.Standard.File, Text: g.Standard.Text})
	}
	return dashboard.New(dashboard.Config{
		BaseURL: p.base, Networks: networks, Allow: p.c.dashboardAllow, Accounts: p.store.accounts, Directory: h.mirror, Logins: kept,
		Sessions: h.sessions, List: h.sessions, Usage: h.sessions, Watch: h.watch, Callbacks: sender{p.c.callbackClient(), p.c.callbackPolicy},
		Rate: p.c.rate, Policy: p.c.defaultPolicy, Quota: p.c.quota, TestKeys: p.c.testKeys, Snippets: snippets, Pauses: paused,
		Fleet: func(ctx context.Context) ([]roster.Process, error) { return roster.Ask(ctx, p.store.conn) },
		Key:   p.store.key, Log: p.c.log, Now: p.c.now,
		Preview: func(w http.ResponseWriter, r *http.Request, a account.Account, ended bool) {
			pages.Preview(w, r, askerOf(a), ended)
		},
	})
}

// sender is how the dashboard drafts callbacks and sends test ones: by the guard and the client of every callback.
type sender struct {
	client *callback.Client
	policy *target.Policy
}

// Draft implements dashboard.Callbacks.
func (s sender) Draft(c dashboard.Callback) (string, error) {
	r, _, err := s.prepare(c)
	return r.Text(), err
}

func (s sender) prepare(c dashboard.Callback) (callback.Request, target.URL, error) {
	u, err := s.policy.Parse(c.URL)
	if err != nil {
		return callback.Request{}, u, err
	}
	r, err := s.client.Prepare(callback.Callback{
		URL: u, Session: sessions.ID(c.ID), PlatformUserID: c.PlatformUserID, GuildID: c.GuildID, Verified: c.Verified, Test: c.Test, Secrets: c.Secrets, At: c.At,
	})
	return r, u, err
}

// Send implements dashboard.Callbacks: one connection, one request.
func (s sender) Send(ctx context.Context, c dashboard.Callback) (dashboard.Exchange, error) {
	r, u, err := s.prepare(c)
	if err != nil {
		return dashboard.Exchange{}, err
	}
	e := dashboard.Exchange{Request: r.Text(), Verdict: sessions.VerdictReleased}
	conn, err := s.client.Dial(ctx, u)
	if notSent, ok := errors.AsType[*callback.NotSent](err); ok {
		e.Class, e.Detail, e.Address, e.Timing = notSent.Class, notSent.Detail, notSent.Address, notSent.Timing
		return e, nil
	}
	if err != nil {
		return dashboard.Exchange{}, err
	}
	defer func() { _ = conn.Close() }()
	a := conn.Send(ctx, r)
	e.Verdict, e.Class, e.Status, e.Detail, e.Address, e.Answer, e.Timing = a.Verdict, a.Class, a.Status, a.Detail, a.Address, a.Body, a.Timing
	return e, nil
}
