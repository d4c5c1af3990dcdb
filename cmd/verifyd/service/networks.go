package service

import (
	"context"
	"errors"
	"fmt"
	"iter"
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
	missing []missingNetwork
}

type missingNetwork struct {
	id  string
	err error
}

// leaveOut notes a network whose namespace could not be bound, if the others can do without it, and reports
// whether they can.
func leaveOut(ns *networks, id string, err error, log zerolog.Logger) bool {
	if !errors.Is(err, namespace.ErrUnreadable) {
		return false
	}
	log.Error().Err(err).Str("network", id).
		Msg("this edge starts without an identity network: whose its identities are cannot be read")
	ns.missing = append(ns.missing, missingNetwork{id, err})
	return true
}

// lack returns why nobody can sign in for live sessions; nil if somebody can.
func (ns networks) lack() error {
	if len(ns.live) > 0 || len(ns.missing) == 0 {
		return nil
	}
	return ns.missing[0].err
}

// states yields the networks that users sign in with, by their ids, with why each cannot be used now.
func (ns networks) states() iter.Seq2[string, func() error] {
	return func(yield func(string, func() error) bool) {
		for _, n := range ns.signIn() {
			if !yield(n.ID(), n.Available) {
				return
			}
		}
		for _, m := range ns.missing {
			if !yield(m.id, func() error { return m.err }) {
				return
			}
		}
	}
}

// signIn returns the networks that complete sessions, each once.
func (ns networks) signIn() []*network.Network {
	if ns.test == nil || slices.Contains(ns.live, ns.test) {
		return ns.live
	}
	return append(slices.Clone(ns.live), ns.test)
}

// ids are those of the networks that users sign in with.
func (ns networks) ids() (ids []string) {
	for id := range ns.states() {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// managed are the networks as the management interface shows them, by their ids.
func (ns networks) managed() (all []manage.Network) {
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
func (ns networks) keeper(log zerolog.Logger) *network.Keeper {
	return network.NewKeeper(slices.Concat(ns.signIn(), ns.logIn), func(network string, doubts []string) {
		log.Warn().Str("network", network).Strs("doubts", doubts).
			Msg("an identity network publishes something odd")
	})
}

// checks report to operators which networks do not answer.
func (ns networks) checks() []web.Check {
	var checks []web.Check
	for id, available := range ns.states() {
		checks = append(checks, web.Check{
			Name: "network " + id, Check: func() (string, error) { return "", available() }, Advisory: true,
		})
	}
	return checks
}

// openNetworks makes the configured identity networks, and the dev network if it is wanted: for test
// sessions, for live ones, for the dashboard, or for some of these.
func openNetworks(ctx context.Context, p *Program) (networks, error) {
	var all networks
	for _, s := range p.Config.Networks {
		namespace, err := bindNamespace(ctx, p, s)
		if leaveOut(&all, s.NetworkID(), err, p.Config.Log) {
			continue
		}
		if err != nil {
			return networks{}, err
		}
		n, err := newNetwork(p, s, namespace, "")
		if err == nil && s.Dashboard {
			var back *network.Network
			back, err = newNetwork(p, s, namespace, login.ReturnPath)
			all.logIn = append(all.logIn, back)
		}
		if err != nil {
			return networks{}, config.Usage(err)
		}
		all.live = append(all.live, n)
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

func newNetwork(p *Program, s netsettings.Settings, namespace, returnPath string) (*network.Network, error) {
	return network.New(s, network.Options{
		BaseURL: p.Base, RootCAs: p.Config.NetworkRoots, Now: p.own, Issued: p.Config.Now,
		VerifyConnection: p.Config.Met.Verify("identity network"),
		Namespace:        namespace, ReturnPath: returnPath,
	})
}

// addDevNetwork adds the dev network where it is wanted.
func addDevNetwork(ctx context.Context, p *Program, all *networks, dev *devnetwork.Provider) error {
	namespace, err := bindNamespace(ctx, p, dev.Settings())
	if leaveOut(all, dev.Settings().NetworkID(), err, p.Config.Log) {
		return nil
	}
	if err != nil {
		return err
	}
	n, err := newNetwork(p, dev.Settings(), namespace, "")
	if err != nil {
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
	if !p.Config.DevDashboard {
		return nil
	}
	back, err := newNetwork(p, dev.Settings(), namespace, login.ReturnPath)
	if err != nil {
		return err
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
