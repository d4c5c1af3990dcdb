package logins_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"verifyd/edge/account/entry"
	"verifyd/edge/dashboard/logins"
	"verifyd/natsconf/topology"
)

// A person's logins are listed while they last, the newest first, and nobody else's are.
func TestOwnLogins(t *testing.T) {
	s, _, now := start(t)
	var own []logins.Login
	for range 4 {
		_, l := begin(t, s, ada)
		own = append(own, l)
		*now = now.Add(time.Minute)
	}
	_, bob := begin(t, s, logins.Login{Network: "example", Subject: "bob"})
	_, elsewhere := begin(t, s, logins.Login{Network: "other", Subject: "ada"})
	_, link := begin(t, s, logins.Login{LinkID: "link_1", Account: "acc_x"})
	begin(t, s, logins.Login{LinkID: "link_2", Account: "acc_x"})
	want := func(of logins.Login, logins ...logins.Login) {
		t.Helper()
		listed, err := s.Own(t.Context(), of)
		if err != nil {
			t.Fatal(err)
		}
		if got := ids(listed); !slices.Equal(got, ids(logins)) {
			t.Errorf("listed %q, want %q", got, ids(logins))
		}
	}
	want(own[0], own[3], own[2], own[1], own[0])
	want(bob, bob)
	want(elsewhere, elsewhere)
	want(link, link)
	if err := s.End(t.Context(), own[2]); err != nil {
		t.Fatal(err)
	}
	want(own[3], own[3], own[1], own[0])
	*now = now.Add(logins.Idle - 5*time.Minute)
	if err := s.Use(t.Context(), own[1]); err != nil {
		t.Fatal(err)
	}
	*now = now.Add(5 * time.Minute) // the others end for want of use
	_, fresh := begin(t, s, ada)
	want(fresh, fresh, own[1])
	if err := s.EndAll(t.Context(), fresh); err != nil {
		t.Fatal(err)
	}
	_, last := begin(t, s, ada)
	want(last, last)
}

func ids(all []logins.Login) (ids []string) {
	for _, l := range all {
		ids = append(ids, l.ID())
	}
	return ids
}

// A person ends any of their logins, and none of others.
func TestLoginsAreEndedOneByOne(t *testing.T) {
	s, _, _ := start(t)
	token, l := begin(t, s, ada)
	other, ended := begin(t, s, ada)
	bobs, bob := begin(t, s, logins.Login{Network: "example", Subject: "bob"})
	links, link := begin(t, s, logins.Login{LinkID: "link_1", Account: "acc_x"})
	if err := s.EndOwn(t.Context(), l, ended.ID()); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{ended.ID(), bob.ID(), link.ID(), "", "*", other, bobs} {
		if err := s.EndOwn(t.Context(), l, id); !errors.Is(err, logins.ErrNotLoggedIn) {
			t.Errorf("the end of %q: %v", id, err)
		}
	}
	if _, err := s.Find(t.Context(), other); !errors.Is(err, logins.ErrNotLoggedIn) {
		t.Errorf("an ended login: %v", err)
	}
	for _, token := range []string{token, bobs, links} {
		if _, err := s.Find(t.Context(), token); err != nil {
			t.Error(err)
		}
	}
	if err := s.EndOwn(t.Context(), link, link.ID()); err != nil {
		t.Error(err)
	}
	if _, err := s.Find(t.Context(), links); !errors.Is(err, logins.ErrNotLoggedIn) {
		t.Errorf("a login by a link that has ended: %v", err)
	}
}

// A login that a build without the index has made goes on, sees itself, and is ended by its ID.
func TestLoginsOfOlderBuilds(t *testing.T) {
	s, conn, now := start(t)
	token := strings.Repeat("A", 43)
	id := fmt.Sprintf("%x", sha256.Sum256([]byte(token)))
	record := fmt.Sprintf(`{"v":1,"network":"example","subject":"ada","name":"Ada","created_at":%q}`,
		now.Add(-time.Minute).UTC().Format(time.RFC3339))
	if err := entry.Put(t.Context(), conn, topology.BucketLogins, "session."+id, []byte(record),
		0); err != nil {
		t.Fatal(err)
	}
	_, newer := begin(t, s, ada)
	older, err := s.Find(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		of   logins.Login
		want []string
	}{{older, []string{newer.ID(), id}}, {newer, []string{newer.ID()}}} {
		listed, err := s.Own(t.Context(), c.of)
		if got := ids(listed); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("listed %q, want %q, %v", got, c.want, err)
		}
	}
	if err := s.EndOwn(t.Context(), newer, id); err != nil {
		t.Error(err)
	}
	if _, err := s.Find(t.Context(), token); !errors.Is(err, logins.ErrNotLoggedIn) {
		t.Errorf("it has ended: %v", err)
	}
}
