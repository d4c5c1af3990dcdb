package check

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"verifyd/cmd/verifyd/config"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/namespace"
	"verifyd/edge/network/netsettings"
	"verifyd/natsconf"
)

// checkSubjectMatch reports a network that does not require the session's own user next to one that does: a
// forwarded link can be completed with the former.
func checkSubjectMatch(s *Survey, c config.Config) {
	var strict, open []string
	for _, n := range c.Networks {
		if n.RequireSubjectMatch {
			strict = append(strict, n.NetworkID())
		} else {
			open = append(open, n.NetworkID())
		}
	}
	if len(strict) > 0 && len(open) > 0 {
		s.Warn("networks", "set require_subject_match for each network, or for none; forwarded "+
			"links are refused only if it is set",
			"require_subject_match is set for %s but not for %s: a session's user can choose the "+
				"network, and at the latter anybody can sign in for anybody",
			strings.Join(strict, ", "), strings.Join(open, ", "))
	}
}

// checkIdentities reports members and operators of the networks in the settings who cannot log in any more:
// if an id is pointed at another provider, the identities of the previous one are left behind.
func checkIdentities(ctx context.Context, s *Survey, conn *natsconf.Conn, c config.Config) {
	if !c.Edge || len(c.Networks) == 0 {
		return
	}
	people, err := accountstore.PeopleOf(ctx, conn)
	for _, n := range c.Networks {
		if err == nil {
			err = checkIdentitiesOf(ctx, s, conn, n, people)
		}
	}
	if err != nil {
		s.Warn("identities", "run it again, with a credential that may read accounts",
			"whose identities those of the networks are cannot be determined: %s", err)
	}
}

// checkNames reports accounts whose names can be mistaken for others': they keep working, and an operator
// decides.
func checkNames(ctx context.Context, s *Survey, conn *natsconf.Conn, c config.Config) {
	if !c.Edge {
		return
	}
	doubts, err := accountstore.Doubts(ctx, conn, c.OwnNames()...)
	if err != nil {
		s.Warn("names", "run it again, with a credential that may read accounts",
			"whether accounts have names that mislead users cannot be determined: %s", err)
		return
	}
	for _, d := range doubts {
		s.Warn("names", fmt.Sprintf("if it may have the name: verifyd account rename %s %q --grant; "+
			"otherwise rename it", d.Account.ID, d.Account.Name),
			"users may mistake account %s (%s) for another one: %s", d.Account.Name, d.Account.ID, d.Why)
	}
	if len(doubts) == 0 {
		s.ok("names", "no account has a name that users could mistake for another's")
	}
}

func checkIdentitiesOf(ctx context.Context, s *Survey, conn *natsconf.Conn, n netsettings.Settings,
	people map[string]accountstore.People) error {
	id, issuer := n.NetworkID(), n.IdentityIssuer()
	theirs, first, err := namespace.LookUp(ctx, conn, id, issuer)
	if errors.Is(err, namespace.ErrUnreadable) {
		s.Warn("identities", "run the newer verifyd, if one has written it; otherwise restore a backup, or "+
			"give the network another id, under which its members are new ones",
			"edges start without the network %s, since whose its identities are is not known: %s", id, err)
		return nil
	}
	if err != nil {
		return err
	}
	before := people[first.Name]
	switch {
	case theirs.Name != first.Name:
		s.Warn("identities",
			fmt.Sprintf("if the provider is the same and has only moved, set identities_of: %s for "+
				"it in VERIFYD_NETWORKS_FILE; if it is a different one, let its people in by invites and "+
				"login links, and grant operators by %s:SUBJECT",
				first.Issuer, theirs.Name),
			"%s points to %s, but was first used with %s: %s of the latter cannot log in by it, "+
				"and have no effect; identities of the former are known as %s (%s)",
			id, issuer, first.Issuer, countOf(before), theirs.Name, countOf(people[theirs.Name]))
	case first.Issuer == "" && before != (accountstore.People{}):
		s.Warn("identities", "nothing to do if they belong to that provider; otherwise start the service "+
			"once with the provider that they used, before the id is pointed elsewhere",
			"the next start binds %s to its provider: from then on, %s are taken to be of %s", id,
			countOf(before), issuer)
	default:
		s.ok("identities", "those of %s are of %s: %s", id, issuer, countOf(before))
	}
	return nil
}

func countOf(p accountstore.People) string {
	return fmt.Sprintf("%d memberships and %d operators", p.Members, p.Operators)
}
