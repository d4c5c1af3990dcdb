package command

import (
	"context"
	"errors"
	"fmt"
	osuser "os/user"
	"strconv"
	"time"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/table"
	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/input"
	"verifyd/edge/client/manage"
)

// Operator is the user who runs a command, as the audit log names them: by their user name on the machine.
func Operator() access.Actor {
	u, err := osuser.Current()
	if err != nil {
		return access.Operator("")
	}
	return access.Operator(u.Username)
}

// OwnAccount returns the account that a command is to change, or whose secrets it is to show. Anyone may have
// created an account on the dashboard, under any free name: such an account is accepted only by its id, or
// else a key that is meant for one customer could be created for another.
func OwnAccount(ctx context.Context, s *accountstore.Store, name string) (account.Account, error) {
	a, err := s.AccountByName(ctx, name)
	if err != nil || name == a.ID {
		return a, BadInput(err)
	}
	by, at, known, err := s.MadeBy(ctx, a.ID)
	if err != nil {
		return a, err
	}
	return a, ownByName(a, len(a.Members), by, at, known)
}

// ownByName returns why an account is not accepted by its name; nil if it is.
func ownByName(a account.Account, members int, by access.Actor, at time.Time, known bool) error {
	switch {
	case known && by.Kind == access.ActorOperator, !known && members == 0:
		return nil
	case known:
		return config.Usage(fmt.Errorf(
			"%s was created on the dashboard by %s on %s, where anybody can take any free name: "+
				"if it is the account that you mean, give its id, %s",
			strconv.Quote(a.Name), ActorText(by), table.Instant(at), a.ID))
	default:
		return config.Usage(fmt.Errorf(
			"%s has members, and its audit log does not reach back to who created it: "+
				"if it is the account that you mean, give its id, %s",
			strconv.Quote(a.Name), a.ID))
	}
}

// ActorText names the actor of a record, with the identity of a member next to the name, which others may
// have, too.
func ActorText(who access.Actor) string {
	if id := who.Identity(); id != "" && id != who.String() {
		return who.String() + " (" + id + ")"
	}
	return who.String()
}

// wrongInput are the errors that a person fixes at the command line, by naming something else.
var wrongInput = []error{
	account.ErrNoKey, account.ErrNoAccount, account.ErrAccountExists, account.ErrRolled, account.ErrKeyEnded,
	account.ErrRotating, account.ErrNotRotating, accountstore.ErrDeletionAsked, account.ErrNoMember,
	account.ErrNoInvite, account.ErrLastOwner, account.ErrAlreadyMember, account.ErrFull,
}

// BadInput marks such an error as a usage error.
func BadInput(err error) error {
	if _, ok := errors.AsType[*input.Error](err); ok {
		return config.Usage(err)
	}
	if e, ok := errors.AsType[*manage.Error](err); ok && e.Status >= 400 && e.Status < 500 &&
		e.RetryAfter == 0 {
		return config.Usage(err)
	}
	for _, wrong := range wrongInput {
		if errors.Is(err, wrong) {
			return config.Usage(err)
		}
	}
	return err
}
