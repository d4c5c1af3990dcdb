package accounts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/store"
	"verifyd/cmd/verifyd/table"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/audit"
	"verifyd/edge/account/grant"
	"verifyd/edge/client/manage"
	"verifyd/natsconf/fleet"
	"verifyd/sessions/timeline"
)

// Operator has the commands on operators: who may use the operator's pages of the dashboard.
type Operator struct {
	Grant     operatorGrantCmd  `cmd:"" help:"Make somebody who can log in to the dashboard an operator."`
	Revoke    operatorRevokeCmd `cmd:"" help:"Revoke an operator's grant or login link."`
	List      operatorListCmd   `cmd:"" help:"List the operators."`
	LoginLink operatorLinkCmd   `cmd:"" help:"Print a link to log in to the operator's pages; it works once, within 10 minutes."`
	Token     OperatorToken     `cmd:"" help:"Operator tokens, with which programs manage accounts over HTTP."`
	Audit     operatorAuditCmd  `cmd:"" help:"Show what operators did to the service: operators, tokens, pauses, repairs of the store; newest first."`
}

// whyOperators explains why no service creates operators, or their tokens, for another machine.
const whyOperators = "who is an operator is stored where no edge can write"

type operatorGrantCmd struct {
	command.Local `embed:""`
	identityArg   `embed:""`

	Unchecked bool `help:"Accept the network's id as it is, if no running service can report which networks there are."`
}

// Run creates the grant.
func (o operatorGrantCmd) Run(ctx context.Context, c command.Console) error {
	who, err := o.parts()
	if err != nil {
		return err
	}
	return o.Use(ctx, c, whyOperators, func(st *store.Store) error {
		if err := o.known(ctx, st, who.Network); err != nil {
			return err
		}
		if _, err := st.Accounts.GrantOperator(ctx, command.Operator(), who.Network,
			who.Subject); err != nil {
			return command.BadInput(err)
		}
		_, err := fmt.Fprintf(c.Err,
			"%s is an operator: they see all accounts, pause receiver hosts and send callbacks again, "+
				"on {base_url}/dashboard/operator.\n", timeline.Legible(o.Identity))
		return err
	})
}

// known returns an error if no edge accepts logins by a network: a grant for a mistyped network is useless
// now, and would be somebody else's once there is a network of that id.
func (o operatorGrantCmd) known(ctx context.Context, st *store.Store, network string) error {
	if o.Unchecked {
		return nil
	}
	all, err := fleet.Ask(ctx, st.Conn)
	if err != nil {
		return err
	}
	var known []string
	for _, p := range all {
		known = append(known, p.Networks...)
	}
	slices.Sort(known)
	known = slices.Compact(known)
	switch {
	case slices.Contains(known, network):
		return nil
	case len(known) == 0:
		return config.Usage(errors.New(
			"IDENTITY: no running edge reports which identity networks lead into its dashboard; " +
				"start the service with one (dashboard: true, or --network-dashboard), or use --unchecked"))
	default:
		return config.Usage(fmt.Errorf(
			"IDENTITY: no identity network %s leads into the dashboard; these do: %s", strconv.Quote(network),
			strings.Join(known, ", ")))
	}
}

type operatorRevokeCmd struct {
	command.Local `embed:""`

	Who string `arg:"" help:"Who, as NETWORK:SUBJECT, or the id of a login link; verifyd operator list shows both."`
}

// Run ends the grant.
func (o operatorRevokeCmd) Run(ctx context.Context, c command.Console) error {
	revoke := func(s *accountstore.Store) error {
		return s.RevokeOperatorLink(ctx, command.Operator(), o.Who)
	}
	if strings.Contains(o.Who, ":") {
		who, err := identityArg{o.Who}.parts()
		if err != nil {
			return err
		}
		revoke = func(s *accountstore.Store) error {
			return s.RevokeOperator(ctx, command.Operator(), who.Network, who.Subject)
		}
	}
	return o.UseAccounts(ctx, c, whyOperators, func(s *accountstore.Store) error {
		err := revoke(s)
		if errors.Is(err, grant.ErrNoOperator) {
			return config.Usage(fmt.Errorf("WHO: %w", err))
		}
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(c.Err, "%s is no longer an operator, from the next click on.\n",
			timeline.Legible(o.Who))
		return err
	})
}

type operatorListCmd struct {
	command.Local `embed:""`
	table.Listing `embed:""`
}

// Run lists the operators.
func (o operatorListCmd) Run(ctx context.Context, c command.Console) error {
	return o.UseAccounts(ctx, c, whyOperators, func(s *accountstore.Store) error {
		grants, err := s.Operators(ctx)
		if err != nil {
			return err
		}
		t := table.New("operators", "WHO", "SINCE", "UNTIL", "BY")
		for _, g := range grants {
			t.Add(timeline.Legible(g.Holder()), g.Since, g.Until, timeline.Legible(g.By))
		}
		return o.Print(c.Out, t)
	})
}

type operatorLinkCmd struct {
	command.Local `embed:""`

	BaseURL string `name:"base-url" required:"" help:"{base_url} under which users reach the service, as in its own settings."`
}

// Run prints only the link on standard output.
func (o operatorLinkCmd) Run(ctx context.Context, c command.Console) error {
	base, err := baseURL(o.BaseURL)
	if err != nil {
		return err
	}
	return o.UseAccounts(ctx, c, whyOperators, func(s *accountstore.Store) error {
		token, link, err := s.OperatorLink(ctx, command.Operator())
		if err != nil {
			return err
		}
		return handOut(c, linkOf(base, token), fmt.Sprintf(
			"The link works once, until %s. Whoever opens it is an operator for 12 hours: send it as you "+
				"would a password. To revoke it, even after it was used: verifyd operator revoke %s",
			table.Instant(link.ExpiresAt), link.ID), nil)
	})
}

type operatorAuditCmd struct {
	command.Local `embed:""`
	table.Listing `embed:""`

	Limit int `default:"50" help:"Maximum number of records, newest first; 0: all."`
}

// Run lists the records of the service's log.
func (o operatorAuditCmd) Run(ctx context.Context, c command.Console) error {
	return o.UseAccounts(ctx, c, whyOperators, func(s *accountstore.Store) error {
		read := func(from string, limit int) (records []manage.Record, next string, err error) {
			page, err := s.Audit(ctx, audit.ServiceLog, from, limit)
			for _, r := range page.Records {
				records = append(records, manage.Record{
					At: r.At, Who: command.ActorText(r.Who), What: r.What, On: &r.On, Detail: r.Detail,
				})
			}
			return records, page.Next, err
		}
		return listAudit(c, o.Limit, o.Listing, read)
	})
}
