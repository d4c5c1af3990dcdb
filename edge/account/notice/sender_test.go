package notice

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/keymirror"
	"verifyd/edge/places"
	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
	"verifyd/sessions/urlpolicy"
)

// receiver accepts notices over TLS.
type receiver struct {
	*httptest.Server

	mu     sync.Mutex
	status int           // of its answers
	hang   chan struct{} // closed: it answers no more until the test ends
	ids    []string      // of the notices that it accepted
	tries  int
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{status: http.StatusOK}
	r.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		r.mu.Lock()
		hang, status := r.hang, r.status
		r.tries++
		if status == http.StatusOK && hang == nil {
			r.ids = append(r.ids, q.Header.Get("webhook-id"))
		}
		r.mu.Unlock()
		if hang != nil {
			select {
			case <-hang:
			case <-q.Context().Done():
			}
		}
		if !bytes.Contains(body, []byte(`"type":"`)) {
			t.Errorf("a body without a type: %s", body)
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) answers(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
}

func (r *receiver) seen() (tries int, taken map[string]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken = map[string]int{}
	for _, id := range r.ids {
		taken[id]++
	}
	return r.tries, taken
}

// post is a client of its own: the program's is tested with the program.
func (r *receiver) post(ctx context.Context, p Post) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL, bytes.NewReader(p.Body))
	if err != nil {
		return err
	}
	q.Header.Set("webhook-id", p.ID)
	a, err := r.Client().Do(q)
	if err != nil {
		return err
	}
	_ = a.Body.Close()
	if a.StatusCode != http.StatusOK {
		return errors.New(a.Status)
	}
	return nil
}

// service is a store with accounts, and the actors that notify them.
type service struct {
	conn     *natsconf.Conn
	accounts *accountstore.Store
	mirror   *keymirror.Mirror
}

var operator = access.Operator("")

func newService(t *testing.T) *service {
	s := &service{conn: natstest.Start(t)}
	key := secretbox.NewKey()
	var err error
	if s.accounts, err = accountstore.New(t.Context(), s.conn, key); err != nil {
		t.Fatal(err)
	}
	s.mirror = keymirror.New(s.conn, key, zerolog.Nop())
	natstest.Serve(t, s.mirror)
	<-s.mirror.Loaded()
	return s
}

// account creates an account whose notices are sent to an address; empty: nowhere.
func (s *service) account(t *testing.T, name, address string, owners ...account.Member) account.Account {
	a, err := s.accounts.CreateAccount(t.Context(), operator, name, owners...)
	if err != nil {
		t.Fatal(err)
	}
	if address != "" {
		to, err := urlpolicy.ParseNamed(address)
		if err == nil {
			err = s.accounts.SetNoticeURL(t.Context(), operator, a.ID, to)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	natstest.Await(t, "the mirror", func() bool {
		seen, ok := s.mirror.Account(a.ID)
		return ok && seen.NoticeURL == address
	})
	return a
}

// process runs one process's actors until stop.
func (s *service) process(t *testing.T, post func(context.Context, Post) error) (stop func()) {
	sender := natstest.Serve(t, NewSender(SenderConfig{
		Conn: s.conn, Directory: s.mirror, Post: post, Log: zerolog.Nop(), Now: time.Now,
		Metrics: prometheus.NewRegistry(), MinPause: 50 * time.Millisecond,
	}))
	follower := natstest.Serve(t, &Follower{Conn: s.conn, Log: zerolog.Nop(), Now: time.Now})
	return func() { sender(); follower() }
}

func (s *service) rotate(t *testing.T, a account.Account) {
	if _, err := s.accounts.RotateSecret(t.Context(), operator, a.ID, 0); err != nil {
		t.Fatal(err)
	}
}

// A rotation and a new member are reported, to a receiver that fails first and then recovers, and across a
// restart; each once if the receiver accepts it.
func TestAuditLogIsReported(t *testing.T) {
	t.Parallel()
	s, r := newService(t), newReceiver(t)
	a, silent := s.account(t, "Acme", r.URL+"/notices?token=x"), s.account(t, "Silent", "")
	r.answers(http.StatusInternalServerError)
	stop := s.process(t, r.post)
	s.rotate(t, a)
	s.rotate(t, silent)
	natstest.Await(t, "three tries", func() bool { tries, _ := r.seen(); return tries >= 3 })
	stop()
	// while nobody runs
	if _, err := s.accounts.AddMember(t.Context(), operator, a.ID, account.Member{
		Network: "example", Subject: "7", Name: "Zoe", Role: access.RoleViewer,
	}); err != nil {
		t.Fatal(err)
	}
	r.answers(http.StatusOK)
	s.process(t, r.post)
	s.process(t, r.post)
	natstest.Await(t, "both notices", func() bool { _, taken := r.seen(); return len(taken) == 2 })
	all, err := NewStore(s.conn).List(t.Context(), a.ID)
	if err != nil || len(all) != 2 || all[0].Type != MemberJoined || all[1].Type != SecretRotated {
		t.Fatalf("%+v, %v", all, err)
	}
	natstest.Await(t, "nothing left to post", func() bool {
		state, err := s.conn.ConsumerState(t.Context(), "NOTICES", "notices")
		return err == nil && state.Waiting+state.Given == 0
	})
	if _, taken := r.seen(); taken[all[0].ID] != 1 || taken[all[1].ID] != 1 {
		t.Errorf("taken: %v", taken)
	}
	if all, err := NewStore(s.conn).List(t.Context(), silent.ID); err != nil || len(all) != 1 {
		t.Errorf("an account without an address has %d on its list, %v", len(all), err)
	}
}

// A hanging address has one POST in progress, and delays no other account's notices.
func TestHangingAddressDelaysNoOther(t *testing.T) {
	t.Parallel()
	s, bad, good := newService(t), newReceiver(t), newReceiver(t)
	hung := make(chan struct{})
	defer close(hung)
	bad.hang = hung
	a, b := s.account(t, "Bad", bad.URL), s.account(t, "Good", good.URL)
	s.process(t, bad.post) // both have a certificate that this client trusts
	store := NewStore(s.conn)
	for _, cause := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12"} {
		raise(t, store, New(a.ID, SecretRotated, cause, time.Now(), "", nil))
	}
	natstest.Await(t, "the bad one to hang", func() bool { tries, _ := bad.seen(); return tries == 1 })
	for _, cause := range []string{"1", "2", "3"} {
		raise(t, store, New(b.ID, SecretRotated, cause, time.Now(), "", nil))
	}
	natstest.Await(t, "the good one's", func() bool { _, taken := good.seen(); return len(taken) == 3 })
	if tries, _ := bad.seen(); tries != 1 {
		t.Errorf("%d POSTs to the address that hangs", tries)
	}
}

// The accounts of one person have two POSTs in progress, however many of them have an address that hangs, and
// keep no other's notices waiting.
func TestHangingAddressesOfOneOwnerDelayNoOther(t *testing.T) {
	t.Parallel()
	s, bad, good := newService(t), newReceiver(t), newReceiver(t)
	hung := make(chan struct{})
	defer close(hung)
	bad.hang = hung
	store := NewStore(s.conn)
	for i := range places.Pools.Notices.Size {
		a := s.account(t, fmt.Sprint("Bad ", i), bad.URL, account.Member{Network: "example", Subject: "ada"})
		raise(t, store, New(a.ID, SecretRotated, "1", time.Now(), "", nil))
	}
	b := s.account(t, "Good", good.URL)
	s.process(t, bad.post) // both have a certificate that this client trusts
	natstest.Await(t, "the bad ones to hang", func() bool { tries, _ := bad.seen(); return tries >= 2 })
	raise(t, store, New(b.ID, SecretRotated, "1", time.Now(), "", nil))
	natstest.Await(t, "the good one's", func() bool { _, taken := good.seen(); return len(taken) == 1 })
	if tries, _ := bad.seen(); tries != 2 {
		t.Errorf("%d POSTs to the addresses that hang", tries)
	}
}

// After a day the notice is not tried any more; the list has it all the same.
func TestATryEndsAfterADay(t *testing.T) {
	t.Parallel()
	s, r := newService(t), newReceiver(t)
	a := s.account(t, "Acme", r.URL)
	store := NewStore(s.conn)
	raise(t, store, New(a.ID, SecretRotated, "old", time.Now().Add(-tryFor), "", nil),
		New(a.ID, SecretRotated, "new", time.Now().Add(-tryFor+time.Hour), "", nil))
	s.process(t, r.post)
	natstest.Await(t, "the new one", func() bool { _, taken := r.seen(); return len(taken) == 1 })
	if all, err := store.List(t.Context(), a.ID); err != nil || len(all) != 2 {
		t.Errorf("%d on the list, %v", len(all), err)
	}
	if tries, taken := r.seen(); tries != 1 || taken[New(a.ID, SecretRotated, "new", time.Now(), "",
		nil).ID] != 1 {
		t.Errorf("%d tries, %v", tries, taken)
	}
	for age, want := range map[time.Duration]time.Duration{
		0: minPause, time.Minute: 30 * time.Second, 12 * time.Hour: maxPause,
	} {
		if got := (&Sender{c: SenderConfig{MinPause: minPause}}).pause(age); got != want {
			t.Errorf("after %s: %s, want %s", age, got, want)
		}
	}
}

// A notice that is offered while the store is down is stored later, and a stored one is not stored again.
func TestOfferedNoticesAreStored(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	conn, stop := natstest.StartIn(t, dir)
	q := NewQueue(NewStore(conn), zerolog.Nop())
	ended := natstest.Serve(t, q)
	q.Offer(rotated("1"))
	q.Offer(New("no account", SecretRotated, "1", time.Now(), "", nil))
	natstest.Await(t, "the notice", func() bool {
		all, err := NewStore(conn).List(t.Context(), acme)
		return err == nil && len(all) == 1
	})
	natstest.Await(t, "an empty queue", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return len(q.open) == 0
	})
	q.Offer(rotated("1"))
	q.mu.Lock()
	open := len(q.open)
	q.mu.Unlock()
	if open != 0 {
		t.Error("what was stored waits again")
	}
	ended()
	q.Offer(rotated("2"))
	q.flush(t.Context()) // as the last one at a stop
	stop()
	again, _ := natstest.StartIn(t, dir)
	if all, err := NewStore(again).List(t.Context(), acme); err != nil || len(all) != 2 {
		t.Errorf("after a restart: %d, %v", len(all), err)
	}
}
