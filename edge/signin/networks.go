package signin

import (
	"errors"
	"fmt"
	"slices"

	"verifyd/edge/flow"
	"verifyd/edge/network"
	"verifyd/sessions"
	"verifyd/sessions/proof"
)

// networks are the identity networks, by what they are for.
type networks struct {
	live  []*network.Network // of live sessions, that say who somebody is
	known []*network.Network // of live sessions, those that prove platform accounts alone included
	test  []*network.Network // of test sessions: one or none
}

func checkNetworks(ns []*network.Network, test *network.Network) error {
	if len(identities(ns)) == 0 {
		return errors.New("identity networks: at least one is needed that is not platform_only, or nobody " +
			"can sign in")
	}
	seen := map[string]*network.Network{}
	for _, n := range ns {
		if seen[n.ID()] != nil {
			return fmt.Errorf("identity networks: the id %q is there twice; give each network its own",
				n.ID())
		}
		seen[n.ID()] = n
	}
	if test != nil && seen[test.ID()] != nil && seen[test.ID()] != test {
		return fmt.Errorf("identity networks: the id %q is that of the network of test sessions; give "+
			"this one another", test.ID())
	}
	return nil
}

// identities returns the networks that say who somebody is, and not only that a platform account is theirs.
func identities(ns []*network.Network) []*network.Network {
	return slices.DeleteFunc(slices.Clone(ns), (*network.Network).PlatformOnly)
}

// networksOf returns the networks by which a session may be completed. A test session never ends by a real
// network, nor a live one by that of test sessions, unless the operator has made it one of both.
func (ns networks) networksOf(test bool) []*network.Network {
	if test {
		return ns.test
	}
	return ns.live
}

// network returns the network of an id among those of a session, or nil.
func (ns networks) network(id string, test bool) *network.Network {
	for _, n := range ns.networksOf(test) {
		if n.ID() == id {
			return n
		}
	}
	return nil
}

// Proves reports whether a network vouches for the accounts of a platform, for live sessions or for test
// ones.
func (ns networks) Proves(platform string, test bool) bool { return ns.prover(platform, test) != nil }

// prover returns the network that vouches for a platform's accounts: the first one that answers, or else the
// first; nil: there is none.
func (ns networks) prover(platform string, test bool) (found *network.Network) {
	for _, n := range ns.knownOf(test) {
		switch {
		case !n.Proves(platform):
		case n.Available() == nil:
			return n
		case found == nil:
			found = n
		}
	}
	return found
}

// knownOf returns all networks that take part in sessions, those that prove platform accounts alone included.
func (ns networks) knownOf(test bool) []*network.Network {
	if test {
		return ns.test
	}
	return ns.known
}

// next returns the network to which a press on the button of another leads, and whether it is to prove the
// platform account alone; nil: there is no such button.
func (ns networks) next(s sessions.Session, button string, progress proof.Progress,
	browser string) (n *network.Network, platform bool) {
	n = ns.network(button, s.Test)
	if n == nil || !ns.comesSecond(s, n, progress, browser) {
		return n, false
	}
	return ns.prover(s.Platform, s.Test), true
}

// comesSecond reports whether a browser is to prove the platform account elsewhere before it signs in with a
// network.
func (networks) comesSecond(s sessions.Session, n *network.Network, progress proof.Progress,
	browser string) bool {
	return s.Level == proof.Account && !n.Proves(s.Platform) && !progress.PlatformIn(browser)
}

// networkOf returns the network of an attempt, or nil.
func (ns networks) networkOf(f flow.Flow, s sessions.Session) *network.Network {
	if !f.Platform {
		return ns.network(f.Network, s.Test)
	}
	for _, n := range ns.knownOf(s.Test) {
		if n.ID() == f.Network && n.Proves(s.Platform) {
			return n
		}
	}
	return nil
}
