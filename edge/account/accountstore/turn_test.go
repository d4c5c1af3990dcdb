package accountstore

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/input"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
)

// Names are judged before the turn, for which the revocation of another account's key waits: a name is
// refused while another change has the turn, and all accounts are read before it and not once more in it.
func TestNamesAreJudgedBeforeTheTurn(t *testing.T) {
	t.Parallel()
	natstest.NeedsEmbedded(t, "what is asked for, which readings show in their subject")
	s := startStore(t)
	ada := account.Member{Network: "example", Subject: "ada"}
	a, err := s.CreateAccount(t.Context(), ada.Actor(), "Harbor Guild", ada)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Lake Guild", "B Guild", "C Guild", "D Guild", "E Guild", "F Guild"} {
		if _, err := s.CreateAccount(t.Context(), access.Operator(""), name); err != nil {
			t.Fatal(err)
		}
	}
	rename := func(ctx context.Context, name string) error {
		_, err := s.RenameAccount(ctx, ada.Actor(), a.ID, name, false)
		return err
	}
	create := func(ctx context.Context, name string) error {
		_, err := s.CreateAccount(ctx, ada.Actor(), name, ada)
		return err
	}
	listed := make(chan *nats.Msg, 100)
	sub, err := s.conn.NC.ChanSubscribe("$JS.API.CONSUMER.CREATE."+
		topology.BucketStream(topology.BucketAccounts)+".>", listed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	lists := func() (n int) { // since it was asked before
		t.Helper()
		if err := s.conn.NC.Flush(); err != nil {
			t.Fatal(err)
		}
		for ; len(listed) > 0; n++ {
			<-listed
		}
		return n
	}

	for what, change := range map[string]func(context.Context, string) error{
		"rename": rename, "create": create,
	} {
		done, err := s.log.Turn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), natstest.TestTimeout)
		for _, name := range []string{"Discord", "Lake Guild", "Lake Gui1d"} {
			err := change(ctx, name)
			if _, refused := errors.AsType[*input.Error](err); !refused && !errors.Is(err,
				account.ErrAccountExists) {
				t.Fatalf("%s to %q while another change has the turn: %v", what, name, err)
			}
		}
		lists()
		result := make(chan error, 1)
		go func() { result <- change(ctx, strings.ToUpper(what)) }()
		select {
		case <-listed:
		case <-ctx.Done():
			t.Fatalf("%s: the accounts are not read while another change has the turn", what)
		}
		done()
		if err := <-result; err != nil {
			t.Errorf("%s: %v", what, err)
		}
		cancel()
		if n := lists(); n > 0 {
			t.Errorf("%s: the accounts are read in the turn, too, %d times", what, n)
		}
	}
}
