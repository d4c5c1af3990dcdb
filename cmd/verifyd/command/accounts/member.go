package accounts

import (
	"context"
	"errors"
	"fmt"
	"time"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/table"
	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/client/manage"
	"verifyd/sessions/timeline"
)

// Member has the commands on the members of an account.
type Member struct {
	List     memberListCmd     `cmd:"" help:"List an account's members and open invites."`
	Invite   memberInviteCmd   `cmd:"" help:"Create an invite, and print its link, this once, as the only text on standard output."`
	Withdraw memberWithdrawCmd `cmd:"" help:"Withdraw an invite."`
	Role     memberRoleCmd     `cmd:"" help:"Change the role of a member."`
	Remove   memberRemoveCmd   `cmd:"" help:"Remove a member from an account, with the invites that they have created."`
}

type memberListCmd struct {
	ofAccount     `embed:""`
	table.Listing `embed:""`
}

// Run lists the members of the account, and its open invites.
func (l memberListCmd) Run(ctx context.Context, c command.Console) error {
	return l.Manage(ctx, c, func(m command.Manager) error {
		a, err := m.Own(ctx, l.Account)
		if err != nil {
			return err
		}
		people, err := m.Members(ctx, a.ID)
		if err != nil {
			return command.BadInput(err)
		}
		return l.Print(c.Out, memberTable(people), inviteTable(people, time.Now()))
	})
}

func memberTable(people manage.People) *table.Table {
	t := table.New("members", "MEMBER:name", "ID", "ROLE", "IDENTITY", "E-MAIL:email", "SINCE")
	for _, m := range people.Members {
		who := access.Identity{Network: m.Network, Subject: m.Subject}
		t.Add(m.Name, who.Address(), m.Role, timeline.Legible(who.String()), m.Email, m.Since)
	}
	return t
}

func inviteTable(people manage.People, now time.Time) *table.Table {
	t := table.New("invites", "INVITED:for", "ID", "ROLE", "BY", "UNTIL")
	for _, i := range people.Invites {
		if now.Before(i.ExpiresAt) {
			t.Add(i.For, i.ID, i.Role, timeline.Legible(i.By), i.ExpiresAt)
		}
	}
	return t
}

type memberInviteCmd struct {
	ofAccount `embed:""`

	Role    string `default:"developer" help:"Role that they will have: owner, developer or viewer."`
	For     string `placeholder:"TEXT" help:"Who it is meant for: a note for people."`
	BaseURL string `name:"base-url" placeholder:"URL" help:"{base_url} under which users reach the service, as in its own settings; not needed with --server."`
}

// Run creates the invite.
func (i memberInviteCmd) Run(ctx context.Context, c command.Console) error {
	base := ""
	if i.Server == "" {
		if i.BaseURL == "" {
			return config.Usage(errors.New("--base-url is missing; for example --base-url " +
				"https://verify.example.com"))
		}
		var err error
		if base, err = baseURL(i.BaseURL); err != nil {
			return err
		}
	}
	return i.Manage(ctx, c, func(m command.Manager) error {
		a, err := m.Own(ctx, i.Account)
		if err != nil {
			return err
		}
		made, err := m.CreateInvite(ctx, a.ID, i.Role, i.For)
		if err != nil {
			return command.BadInput(err)
		}
		return handOut(c, base+made.Link, fmt.Sprintf("Whoever follows the link until %s, and logs in, is "+
			"%s of %s: send it as you would a password. "+
			"To withdraw it: verifyd member withdraw --account %s %s",
			table.Instant(made.ExpiresAt), made.Role, a.Name, a.ID, made.ID), nil)
	})
}

type memberWithdrawCmd struct {
	ofAccount `embed:""`

	ID string `arg:"" name:"invite" help:"The invite's id (verifyd member list shows it)."`
}

// Run takes the invite back.
func (w memberWithdrawCmd) Run(ctx context.Context, c command.Console) error {
	return w.change(ctx, c, func(m command.Manager, a account.Account) (string, error) {
		return fmt.Sprintf("The invite %s no longer lets anybody into %s.", timeline.Legible(w.ID), a.Name),
			errorOf(m.WithdrawInvite(ctx, a.ID, w.ID))
	})
}

type memberRoleCmd struct {
	ofAccount `embed:""`
	memberArg `embed:""`

	Role string `name:"to" required:"" placeholder:"ROLE" help:"Their new role: owner, developer or viewer."`
}

// Run changes the role.
func (r memberRoleCmd) Run(ctx context.Context, c command.Console) error {
	who, err := r.parts()
	if err != nil {
		return err
	}
	return r.change(ctx, c, func(m command.Manager, a account.Account) (string, error) {
		return fmt.Sprintf("%s is %s of %s.", timeline.Legible(r.Identity), r.Role, a.Name),
			errorOf(m.SetRole(ctx, a.ID, who.Network, who.Subject, r.Role))
	})
}

type memberRemoveCmd struct {
	ofAccount `embed:""`
	memberArg `embed:""`
}

// Run removes the member.
func (r memberRemoveCmd) Run(ctx context.Context, c command.Console) error {
	who, err := r.parts()
	if err != nil {
		return err
	}
	return r.change(ctx, c, func(m command.Manager, a account.Account) (string, error) {
		return fmt.Sprintf("%s is no longer a member of %s.", timeline.Legible(r.Identity), a.Name),
			errorOf(m.RemoveMember(ctx, a.ID, who.Network, who.Subject))
	})
}
