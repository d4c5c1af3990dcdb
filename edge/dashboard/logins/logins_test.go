package logins_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"verifyd/edge/account/entry"
	"verifyd/edge/dashboard/logins"
	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(natstest.Tests(m)) }

func start(t *testing.T) (*logins.Store, *natsconf.Conn, *time.Time) {
	t.Helper()
	conn := natstest.Start(t)
	now := time.Now()
	return logins.NewStore(conn, secretbox.NewKey(), func() time.Time { return now }), conn, &now
}

func begin(t *testing.T, s *logins.Store, l logins.Login) (string, logins.Login) {
	t.Helper()
	token, err := s.Begin(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	found, err := s.Find(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	return token, found
}

var ada = logins.Login{Network: "example", Subject: "ada", Name: "Ada"}

// An ended login does not come back, whatever a concurrent request does with it.
func TestEndedLoginStaysEnded(t *testing.T) {
	s, _, _ := start(t)
	token, l := begin(t, s, ada)
	if err := s.End(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	if err := s.Choose(t.Context(), l, "acc_x"); !errors.Is(err, logins.ErrNotLoggedIn) {
		t.Errorf("choose: %v", err)
	}
	if err := s.End(t.Context(), l); err != nil {
		t.Errorf("a second end: %v", err)
	}
	if _, err := s.Find(t.Context(), token); !errors.Is(err, logins.ErrNotLoggedIn) {
		t.Errorf("find: %v", err)
	}
}

// EndAll ends all current logins of one identity, and no later ones or those of others.
func TestEndAll(t *testing.T) {
	s, _, _ := start(t)
	first, l := begin(t, s, ada)
	second, _ := begin(t, s, ada)
	bob, _ := begin(t, s, logins.Login{Network: "example", Subject: "bob"})
	elsewhere, _ := begin(t, s, logins.Login{Network: "other", Subject: "ada"})
	link, ofLink := begin(t, s, logins.Login{LinkID: "link_1", Account: "acc_x"})
	if err := s.EndAll(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{first, second} {
		if _, err := s.Find(t.Context(), token); !errors.Is(err, logins.ErrNotLoggedIn) {
			t.Errorf("still logged in: %v", err)
		}
	}
	for _, token := range []string{bob, elsewhere, link} {
		if _, err := s.Find(t.Context(), token); err != nil {
			t.Error(err)
		}
	}
	fresh, _ := begin(t, s, ada)
	if _, err := s.Find(t.Context(), fresh); err != nil {
		t.Error(err)
	}
	if err := s.EndAll(t.Context(), ofLink); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Find(t.Context(), link); !errors.Is(err, logins.ErrNotLoggedIn) {
		t.Errorf("the link's login: %v", err)
	}
}

func TestParcelsWorkOnce(t *testing.T) {
	s, _, now := start(t)
	_, l := begin(t, s, ada)
	_, other := begin(t, s, ada)
	hand := func() string {
		name, err := s.Hand(t.Context(), l, "planted")
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	name, got := hand(), ""
	if err := s.Take(t.Context(), other, name, &got); !errors.Is(err, logins.ErrNoParcel) {
		t.Errorf("another login takes it: %v", err)
	}
	if err := s.Take(t.Context(), l, name, &got); err != nil || got != "planted" {
		t.Errorf("%q, %v", got, err)
	}
	for _, name := range []string{name, "", strings.Repeat("A", 43), "x.>"} {
		if err := s.Take(t.Context(), l, name, &got); !errors.Is(err, logins.ErrNoParcel) {
			t.Errorf("%q: %v", name, err)
		}
	}
	late := hand()
	*now = now.Add(3 * time.Minute)
	if err := s.Take(t.Context(), l, late, &got); !errors.Is(err, logins.ErrNoParcel) {
		t.Errorf("after three minutes: %v", err)
	}
}

// A copy of the store logs nobody in, and holds no readable parcel.
func TestStoreHoldsNoSecret(t *testing.T) {
	s, conn, _ := start(t)
	token, l := begin(t, s, ada)
	name, err := s.Hand(t.Context(), l, "planted")
	if err != nil {
		t.Fatal(err)
	}
	stream := topology.BucketStream(topology.BucketLogins)
	first, last, err := conn.Bounds(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	msgs, err := conn.Range(t.Context(), stream, ">", first, last)
	if err != nil || len(msgs) < 2 {
		t.Fatalf("%d messages, %v", len(msgs), err)
	}
	for _, m := range msgs {
		for _, secret := range []string{token, name, "planted"} {
			if strings.Contains(m.Subject()+string(m.Data()), secret) {
				t.Errorf("%s holds a secret", m.Subject())
			}
		}
	}
}

// Of many concurrent requests for a parcel, one gets it.
func TestParcelIsTakenByOne(t *testing.T) {
	s, _, _ := start(t)
	_, l := begin(t, s, ada)
	name, err := s.Hand(t.Context(), l, "planted")
	if err != nil {
		t.Fatal(err)
	}
	var took atomic.Int32
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			var got string
			if s.Take(t.Context(), l, name, &got) == nil {
				took.Add(1)
			}
		})
	}
	all.Wait()
	if n := took.Load(); n != 1 {
		t.Errorf("%d took it", n)
	}
}

// A failure to take a parcel does not mean that it was taken.
func TestParcelWaitsWhileTheStoreTakesNothing(t *testing.T) {
	s, conn, _ := start(t)
	_, l := begin(t, s, ada)
	name, err := s.Hand(t.Context(), l, "hello")
	if err != nil {
		t.Fatal(err)
	}
	stream, err := conn.JS.Stream(t.Context(), topology.BucketStream(topology.BucketLogins))
	if err != nil {
		t.Fatal(err)
	}
	config := stream.CachedInfo().Config
	limit := func(bytes int32) {
		config.MaxMsgSize = bytes
		if _, err := conn.JS.UpdateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
	var got string
	limit(1)
	if err := s.Take(t.Context(), l, name, &got); !errors.Is(err, natsconf.ErrUnavailable) {
		t.Errorf("while the store takes nothing: %v", err)
	}
	limit(-1)
	if err := s.Take(t.Context(), l, name, &got); err != nil || got != "hello" {
		t.Errorf("afterwards: %q, %v", got, err)
	}
	if err := s.Take(t.Context(), l, name, &got); !errors.Is(err, logins.ErrNoParcel) {
		t.Errorf("twice: %v", err)
	}
}

// A use is stored at most every few minutes, and never over a change of the login, or its end.
func TestUsesAreStoredSometimes(t *testing.T) {
	s, conn, now := start(t)
	token, l := begin(t, s, ada)
	writes := func() uint64 {
		t.Helper()
		stream, err := conn.JS.Stream(t.Context(), topology.BucketStream(topology.BucketLogins))
		if err != nil {
			t.Fatal(err)
		}
		return stream.CachedInfo().State.LastSeq
	}
	use := func(l logins.Login, want uint64) {
		t.Helper()
		before := writes()
		if err := s.Use(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		if n := writes() - before; n != want {
			t.Errorf("a use is %d writes, want %d", n, want)
		}
	}
	use(l, 0)
	*now = now.Add(5 * time.Minute)
	use(l, 1)
	use(l, 0) // another request had read it before
	l, err := s.Find(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	use(l, 0)
	if err := s.Choose(t.Context(), l, "acc_x"); err != nil {
		t.Fatal(err)
	}
	*now = now.Add(5 * time.Minute)
	use(l, 0)
	if l, err := s.Find(t.Context(), token); err != nil || l.Account != "acc_x" {
		t.Errorf("%+v, %v", l, err)
	}
	if err := s.End(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	use(l, 0)
	if _, err := s.Find(t.Context(), token); !errors.Is(err, logins.ErrNotLoggedIn) {
		t.Errorf("a login that has ended is used again: %v", err)
	}
}

// A sign-in is fresh for ten minutes, however much the login is used, and from when the person signed in at
// the network, not from when the login began. Of a login that an older build has made, the beginning counts.
func TestFreshness(t *testing.T) {
	s, conn, now := start(t)
	older := strings.Repeat("A", 43)
	record := fmt.Sprintf(`{"v":1,"network":"example","subject":"ada","created_at":%q}`,
		now.UTC().Format(time.RFC3339Nano))
	if err := entry.Put(t.Context(), conn, topology.BucketLogins,
		fmt.Sprintf("session.%x", sha256.Sum256([]byte(older))), []byte(record), 0); err != nil {
		t.Fatal(err)
	}
	silent := ada
	silent.SignedInAgo = 4 * time.Minute
	first, _ := begin(t, s, ada)
	second, _ := begin(t, s, silent)
	third, _ := begin(t, s, logins.Login{Network: "example", Subject: "ada", SignedInAgo: time.Hour})
	begun := *now
	for _, c := range []struct {
		after time.Duration
		want  [4]bool // of the older one, and those that began
	}{
		{0, [4]bool{true, true, true, false}},
		{6*time.Minute - time.Second, [4]bool{true, true, true, false}},
		{6 * time.Minute, [4]bool{true, true, false, false}},
		{logins.FreshFor - time.Second, [4]bool{true, true, false, false}},
		{logins.FreshFor, [4]bool{}},
	} {
		*now = begun.Add(c.after)
		var got [4]bool
		for i, token := range []string{older, first, second, third} {
			l, err := s.Find(t.Context(), token)
			if err != nil {
				t.Fatal(err)
			}
			got[i] = s.Fresh(l)
			if err := errors.Join(s.Use(t.Context(), l), s.Choose(t.Context(), l, "acc_x")); err != nil {
				t.Fatal(err)
			}
		}
		if got != c.want {
			t.Errorf("after %v: %v, want %v", c.after, got, c.want)
		}
	}
}
