package accountstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/audit"
	"verifyd/edge/account/input"
	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
)

// startOwned returns a store with an account, and its owner.
func startOwned(t *testing.T) (s *Store, ada account.Member, a account.Account) {
	t.Helper()
	s, ada = startStore(t), account.Member{Network: "example", Subject: "ada"}
	a, err := s.CreateAccount(t.Context(), ada.Actor(), "Harbor Guild", ada)
	if err != nil {
		t.Fatal(err)
	}
	return s, ada, a
}

// Names are judged before the turn, for which the account's other changes wait, and those of new accounts in
// a turn for which only their maker's other ones do: a name is refused while another change has the turn, and
// all accounts are read before it and not once more in it.
func TestNamesAreJudgedBeforeTheTurn(t *testing.T) {
	t.Parallel()
	natstest.NeedsEmbedded(t, "what is asked for, which readings show in their subject")
	s, ada, a := startOwned(t)
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
		done, err := s.log.Turn(t.Context(), map[string]string{
			"rename": a.ID, "create": account.IDOf("CREATE"),
		}[what])
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

// While an account's other changes wait for their turn, whatever takes a right away in it is done at once,
// and so is everything in other accounts.
func TestTakingAwayWaitsForNoTurn(t *testing.T) {
	t.Parallel()
	s := startStore(t)
	ctx, cancel := context.WithTimeout(t.Context(), natstest.TestTimeout)
	defer cancel()
	ada, bob := account.Member{Network: "example", Subject: "ada"}, account.Member{
		Network: "example", Subject: "bob", Role: access.RoleOwner,
	}
	a, err := s.CreateAccount(ctx, ada.Actor(), "Harbor Guild", ada)
	if err != nil {
		t.Fatal(err)
	}
	other, err := s.CreateAccount(ctx, bob.Actor(), "Lake Guild", bob)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.AddMember(ctx, ada.Actor(), a.ID, bob); err != nil {
		t.Fatal(err)
	}
	_, k, err := s.CreateKey(ctx, ada.Actor(), a.ID, account.KeyOptions{Name: "bot"})
	if err != nil {
		t.Fatal(err)
	}
	_, invite, err := s.CreateInvite(ctx, ada.Actor(), a.ID, access.RoleViewer, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.RotateSecret(ctx, ada.Actor(), a.ID, account.MaxOverlap); err != nil {
		t.Fatal(err)
	}
	done, err := s.log.Turn(ctx, a.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	for _, step := range []struct {
		what   string
		change func() error
	}{
		{"the revocation of a key", func() error {
			_, err := s.RevokeKey(ctx, ada.Actor(), a.ID, k.ID)
			return err
		}},
		{"the end of a rotation", func() error {
			_, err := s.EndRotation(ctx, ada.Actor(), a.ID)
			return err
		}},
		{"the withdrawal of an invite", func() error {
			_, err := s.WithdrawInvite(ctx, ada.Actor(), a.ID, invite.ID)
			return err
		}},
		{"a lesser role", func() error {
			_, err := s.SetRole(ctx, ada.Actor(), a.ID, bob.Network, bob.Subject, access.RoleViewer)
			return err
		}},
		{"the removal of a member", func() error {
			_, err := s.RemoveMember(ctx, ada.Actor(), a.ID, bob.Network, bob.Subject)
			return err
		}},
		{"the end of an account's service", func() error {
			_, err := s.Disable(ctx, access.Operator(""), a.ID, "")
			return err
		}},
		{"another account's key", func() error {
			_, _, err := s.CreateKey(ctx, bob.Actor(), other.ID, account.KeyOptions{Name: "bot"})
			return err
		}},
	} {
		if err := step.change(); err != nil {
			t.Errorf("%s: %v", step.what, err)
		}
	}
	late, stop := context.WithCancel(ctx)
	stop()
	if _, _, err := s.CreateKey(late, access.Operator(""), a.ID, account.KeyOptions{}); !errors.Is(err,
		natsconf.ErrUnavailable) {
		t.Errorf("a new key takes no turn: %v", err)
	}
}

// An account whose audit log is full is changed by operators alone, and by what takes a right away. Others
// are changed as ever, and so is one whose oldest records have aged out.
func TestFullLog(t *testing.T) {
	t.Parallel()
	s, ada, a := startOwned(t)
	newKey := func(by access.Actor, id string) (account.Key, error) {
		_, k, err := s.CreateKey(t.Context(), by, id, account.KeyOptions{Name: "bot"})
		return k, err
	}
	s.log.Most = 3
	var keys []account.Key
	for range 2 {
		k, err := newKey(ada.Actor(), a.ID)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, k)
	}
	if _, err := newKey(ada.Actor(), a.ID); !errors.Is(err, access.ErrLogFull) {
		t.Errorf("a fourth record: %v", err)
	}
	if _, err := s.RevealSecrets(t.Context(), ada.Actor(), a.ID); !errors.Is(err, access.ErrLogFull) {
		t.Errorf("a record of who saw the secret: %v", err)
	}
	if _, err := s.RevokeKey(t.Context(), ada.Actor(), a.ID, keys[0].ID); err != nil {
		t.Errorf("a revocation: %v", err)
	}
	if _, err := newKey(access.Operator(""), a.ID); err != nil {
		t.Errorf("an operator's change: %v", err)
	}
	if _, err := s.CreateAccount(t.Context(), ada.Actor(), "Lake Guild", ada); err != nil {
		t.Errorf("another account: %v", err)
	}
	old := account.NewID() // whose first 99 records have aged out
	for n := range int64(4) {
		r, err := s.log.Draft(t.Context(), audit.Record{
			Account: old, Who: ada.Actor(), What: audit.KeyCreated,
		})
		if full := errors.Is(err, access.ErrLogFull); full != (n == 3) {
			t.Fatalf("with %d records: %v", n, err)
		} else if full {
			break
		}
		r.Number = 100 + n
		data, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		natstest.Publish(t, s.conn, fmt.Sprintf("audit.%s.%d", old, r.Number), data)
	}
}

// Who looks at the secret again and again leaves one record a day, unless something else came in between.
func TestSecretThatIsSeenAllDay(t *testing.T) {
	t.Parallel()
	s, ada, a := startOwned(t)
	at := time.Date(2033, 11, 24, 10, 0, 0, 0, time.UTC)
	s.Now = func() time.Time { return at }
	sees := func(by access.Actor, want int64) {
		t.Helper()
		if _, err := s.RevealSecrets(t.Context(), by, a.ID); err != nil {
			t.Fatal(err)
		}
		if last, err := s.log.Last(t.Context(), a.ID); err != nil || last != want {
			t.Errorf("%d records, %v, want %d", last, err, want)
		}
	}
	sees(ada.Actor(), 2)
	sees(ada.Actor(), 2)
	at = at.Add(13 * time.Hour)
	sees(ada.Actor(), 2)
	sees(access.Operator("olaf"), 3)
	sees(ada.Actor(), 4)
	at = at.Add(2 * time.Hour) // the next day
	sees(ada.Actor(), 5)
}
