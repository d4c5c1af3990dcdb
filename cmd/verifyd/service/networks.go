package service

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rs/zerolog"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/store"
	"verifyd/edge/account/namespace"
	"verifyd/edge/dashboard/login"
	"verifyd/edge/devnetwork"
	"verifyd/edge/manage"
	"verifyd/edge/network"
	"verifyd/edge/network/netsettings"
	"verifyd/edge/web"
	"verifyd/natsconf"
)

// networks are the identity networks by what they are for.
type networks struct {
	live  []*network.Network // for live sessions
	test  *network.Network   // for test sessions; nil: there are none
	logIn []*network.Network // into the dashboard, with a redirect URI of their own
	// missing are those without which this edge has started, since whose their identities are cannot be read
	missing []networkState
}

// networkState is a network that users sign in with, and why it cannot be used now.
type networkState struct {
	id        string
	available func() error
}

// lack returns why nobody can sign in for live sessions; nil if somebody can.
func (ns *networks) lack() error {
	if len(ns.live) > 0 || len(ns.missing) == 0 {
		return nil
	}
	return ns.missing[0].available()
}

// states returns the networks that users sign in with, each with why it cannot be used now.
func (ns *networks) states() (all []networkState) {
	for _, n := range ns.signIn() {
		all = append(all, networkState{n.ID(), n.Available})
	}
	return append(all, ns.missing...)
}

// signIn returns the networks that complete sessions, each once.
func (ns *networks) signIn() []*network.Network {
	if ns.test == nil || slices.Contains(ns.live, ns.test) {
		return ns.live
	}
	return append(slices.Clone(ns.live), ns.test)
}

// ids are those of the networks that users sign in with.
func (ns *networks) ids() (ids []string) {
	for _, n := range ns.states() {
		if !slices.Contains(ids, n.id) {
			ids = append(ids, n.id)
		}
	}
	return ids
}

// managed are the networks as the management interface shows them, by their ids.
func (ns *networks) managed() (all []manage.Network) {
	for _, n := range slices.Concat(ns.signIn(), ns.logIn) {
		i := slices.IndexFunc(all, func(m manage.Network) bool { return m.ID == n.ID() })
		if i < 0 {
			i = len(all)
			all = append(all, manage.Network{
				ID: n.ID(), Name: n.Name(), Namespace: n.Namespace(), RedirectURI: n.RedirectURI(),
				Available: n.Available() == nil,
			})
		}
		m := &all[i]
		m.Live, m.Test = m.Live || slices.Contains(ns.live, n), m.Test || n == ns.test
		m.Dashboard = m.Dashboard || slices.Contains(ns.logIn, n)
	}
	return all
}

// keeper keeps the metadata of all networks at hand.
func (ns *networks) keeper(log zerolog.Logger) *network.Keeper {
	return network.NewKeeper(slices.Concat(ns.signIn(), ns.logIn), func(network string, doubts []string) {
		log.Warn().Str("network", network).Strs("doubts", doubts).
			Msg("an identity network publishes something odd")
	})
}

// checks report to operators which networks do not answer.
func (ns *networks) checks() []web.Check {
	var checks []web.Check
	for _, n := range ns.states() {
		checks = append(checks, web.Check{
			Name: "network " + n.id, Check: func() (string, error) { return "", n.available() },
			Advisory: true,
		})
	}
	return checks
}

// openNetworks makes the configured identity networks, and the dev network if it is wanted: for test
// sessions, for live ones, for the dashboard, or for some of these.
func openNetworks(ctx context.Context, p *Program) (networks, error) {
	var all networks
	for _, s := range p.Config.Networks {
		n, back, err := all.open(ctx, p, s)
		if err != nil {
			return networks{}, err
		}
		if n != nil {
			all.live = append(all.live, n)
		}
		if back != nil {
			all.logIn = append(all.logIn, back)
		}
	}
	if p.Config.DevNetwork == "" {
		return all, nil
	}
	dev, err := devnetwork.New(devnetwork.Config{
		Listen: p.Config.DevNetwork, Now: p.Config.Now, Logger: p.Config.Log,
	})
	if err != nil {
		return networks{}, config.Usage(err)
	}
	if err := dev.Listen(); err != nil {
		return networks{}, err
	}
	p.opened = append(p.opened, dev)
	if err := addDevNetwork(ctx, p, &all, dev); err != nil {
		return networks{}, err
	}
	p.Config.Log.Info().Str("issuer", dev.Issuer()).Msg("the dev network is up")
	p.add("dev network", dev)
	return all, nil
}

// open makes a network, and the one that leads back to the dashboard if it is for that, too. Both are nil,
// and the network is missing, if whose its identities are cannot be read.
func (ns *networks) open(ctx context.Context, p *Program, s netsettings.Settings) (n, back *network.Network,
	err error) {
	bound, why := bindNamespace(ctx, p, s)
	if errors.Is(why, namespace.ErrUnreadable) {
		p.Config.Log.Error().Err(why).Str("network", s.NetworkID()).
			Msg("this edge starts without an identity network: whose its identities are cannot be read")
		ns.missing = append(ns.missing, networkState{s.NetworkID(), func() error { return why }})
		return nil, nil, nil
	}
	if why != nil {
		return nil, nil, why
	}
	o := network.Options{
		BaseURL: p.Base, RootCAs: p.Config.NetworkRoots, Now: p.own, Issued: p.Config.Now,
		VerifyConnection: p.Config.Met.Verify("identity network"), Namespace: bound,
	}
	if n, err = network.New(s, o); err == nil && s.Dashboard {
		o.ReturnPath = login.ReturnPath
		back, err = network.New(s, o)
	}
	if err != nil {
		return nil, nil, config.Usage(err)
	}
	return n, back, nil
}

// addDevNetwork adds the dev network where it is wanted.
func addDevNetwork(ctx context.Context, p *Program, all *networks, dev *devnetwork.Provider) error {
	s := dev.Settings()
	s.Dashboard = p.Config.DevDashboard
	n, back, err := all.open(ctx, p, s)
	if err != nil || n == nil {
		return err
	}
	dev.AllowRedirect(n.RedirectURI())
	if p.Config.TestKeys {
		all.test = n
	}
	if p.Config.DevForLive {
		p.Config.Log.Warn().Msg(
			"the dev network is on for live sessions: anybody who can reach it can sign in as anybody")
		all.live = append(all.live, n)
	}
	if back == nil {
		return nil
	}
	p.Config.Log.Warn().Msg(
		"the dev network leads into the dashboard: anybody who can reach it gets in as anybody")
	dev.AllowRedirect(back.RedirectURI())
	all.logIn = append(all.logIn, back)
	return nil
}

// bindNamespace finds out the namespace of an identity network's identities. If the store accepts no writes,
// as on a full disk, a network of which nothing is known yet has its id, as it will have once that can be
// written.
func bindNamespace(ctx context.Context, p *Program, s netsettings.Settings) (string, error) {
	id := s.NetworkID()
	var theirs, first namespace.Namespace
	err := natsconf.AtBoot(ctx, func(ctx context.Context) (err error) {
		theirs, first, err = namespace.Bind(ctx, p.Store.Conn, id, s.IdentityIssuer(), p.Clock())
		if err != nil && theirs.Name != "" { // it was read, and not written
			p.Config.Log.Warn().Err(err).Str("network", id).
				Msg("whose identities a network's are could not be written down; the next start tries again")
			return nil
		}
		return err
	}, func(err error) bool { return errors.Is(err, namespace.ErrUnreadable) }, store.Waits(p.Config.Log))
	if err != nil {
		return "", fmt.Errorf("network %q: %w", id, err)
	}
	if theirs.Name != first.Name {
		p.Config.Log.Warn().Str("network", id).Str("namespace", theirs.Name).Str("issuer", theirs.Issuer).
			Str("before", first.Issuer).
			Msg("the network's id was used with another provider before: identities of that one count " +
				"for nothing here; verifyd check says whose they are")
	}
	return theirs.Name, nil
}
