package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/rs/zerolog"

	"verifyd/natsconf"
	"verifyd/sessions"
)

// resender is who asked, in the facts of an attempt that an operator asked for.
const resender = "operator"

type deliveriesResendCmd struct {
	storeCmd   `embed:""`
	sessionArg `embed:""`
}

// Run asks for one more attempt. A running dispatcher takes it at once; a stopped service sends it at its next start.
func (d deliveriesResendCmd) Run(ctx context.Context, c console) error {
	id, err := d.id()
	if err != nil {
		return err
	}
	return d.look(ctx, c, func(st *store) error {
		ctx, cancel := context.WithTimeout(ctx, lookFor)
		defer cancel()
		completions := natsconf.NewWriter(st.conn, natsconf.StreamCompletions)
		writing := startLayer("command", zerolog.Nop(), newActor("completions writer", completions))
		defer writing.stop()
		asked, err := sessions.NewStore(sessions.Config{Conn: st.conn, Completions: completions, Key: st.key}).Resend(ctx, id, resender)
		switch {
		case errors.Is(err, sessions.ErrDeliveryOpen):
			return usageError{fmt.Errorf("session %s: the callback is waiting or being sent; see: verifyd explain %s", id, id)}
		case errors.Is(err, sessions.ErrNoDelivery):
			return usageError{fmt.Errorf("session %s has nothing to send: only verified and failed sessions are sent", id)}
		case err != nil:
			return noneKept(id, err)
		}
		_, err = fmt.Fprintf(c.err, "Attempt %d of session %s is due. verifyd explain %s shows how it ends.\n", asked.Number, id, id)
		return err
	})
}
