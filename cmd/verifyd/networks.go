package main

import (
	"context"
	"errors"
	"slices"

	"verifyd/edge"
	"verifyd/edge/dashboard"
	"verifyd/edge/devnetwork"
	"verifyd/edge/network"
)

// networks are the identity networks by what they are for.
type networks struct {
	live  []*network.Network // for live sessions
	test  *network.Network   // for test sessions; nil: there are none
	logIn []*network.Network // into the dashboard, with a place of return of their own
}

// signIn gives the networks by which sessions are completed, each once.
func (ns networks) signIn() []*network.Network {
	if ns.test == nil || slices.Contains(ns.live, ns.test) {
		return ns.live
	}
	return append(slices.Clone(ns.live), ns.test)
}

// keeper keeps the metadata of all networks at hand.
func (ns networks) keeper() *actor {
	return newActor("networks keeper", network.NewKeeper(slices.Concat(ns.signIn(), ns.logIn)))
}

// checks tell operators which networks do not answer.
func (ns networks) checks() []edge.Check {
	var checks []edge.Check
	for _, n := range ns.signIn() {
		checks = append(checks, edge.Check{Name: "network " + n.ID(), Check: func(context.Context) (string, error) { return "", n.Available() }, Advisory: true})
	}
	return checks
}

// networks makes the configured identity networks, and the dev network where it is wanted: for test sessions, for live ones, for the
// dashboard, or for some of these.
func (p *Program) networks() (networks, error) {
	var all networks
	for _, s := range p.c.networks {
		n, err := p.network(s, "")
		if err == nil && s.Dashboard {
			var back *network.Network
			back, err = p.network(s, dashboard.ReturnPath)
			all.logIn = append(all.logIn, back)
		}
		if err != nil {
			return networks{}, usageError{err}
		}
		all.live = append(all.live, n)
	}
	if p.c.devNetwork == "" {
		return all, nil
	}
	dev, err := devnetwork.New(devnetwork.Config{Listen: p.c.devNetwork, Now: p.c.now, Logger: p.c.log})
	if err != nil {
		return networks{}, usageError{err}
	}
	if err := dev.Listen(); err != nil {
		return networks{}, err
	}
	if err := p.addDev(&all, dev); err != nil {
		return networks{}, errors.Join(err, dev.Close())
	}
	p.c.log.Info().Str("issuer", dev.Issuer()).Msg("the dev network is up")
	p.add("dev network", newActor("dev network", dev))
	return all, nil
}

func (p *Program) network(s network.Settings, returnPath string) (*network.Network, error) {
	return network.New(s, network.Options{BaseURL: p.base, RootCAs: p.c.networkRoots, Now: p.c.now, ReturnPath: returnPath})
}

// addDev puts the dev network where it is wanted.
func (p *Program) addDev(all *networks, dev *devnetwork.Provider) error {
	n, err := p.network(dev.Settings(), "")
	if err != nil {
		return err
	}
	dev.AllowRedirect(n.RedirectURI())
	if p.c.testKeys {
		all.test = n
	}
	if p.c.devForLive {
		p.c.log.Warn().Msg("the dev network is on for live sessions: anybody who can reach it can sign in as anybody")
		all.live = append(all.live, n)
	}
	if !p.c.devDashboard {
		return nil
	}
	back, err := p.network(dev.Settings(), dashboard.ReturnPath)
	if err != nil {
		return err
	}
	p.c.log.Warn().Msg("the dev network leads into the dashboard: anybody who can reach it gets in as anybody")
	dev.AllowRedirect(back.RedirectURI())
	all.logIn = append(all.logIn, back)
	return nil
}
