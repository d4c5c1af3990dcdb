package signin_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"verifyd/sessions"
)

func ofTestKey(q *sessions.Request) { q.Test = true }

func TestEachSessionSeesItsOwnNetworks(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		setup setup
		live  []string
		test  []string
	}{
		"apart":         {setup{}, []string{"example"}, []string{"dev"}},
		"dev for both":  {setup{testForLive: true}, []string{"example", "dev"}, []string{"dev"}},
		"no test keys":  {setup{noTest: true}, []string{"example"}, nil},
		"several, real": {setup{networks: 2}, []string{"example", "second"}, []string{"dev"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, row.setup)
			b := r.browser()
			_, live := r.session()
			_, test := r.session(ofTestKey)
			for _, id := range []string{"example", "second", "dev"} {
				button := `name="network" value="` + id + `"`
				for token, want := range map[sessions.Token][]string{live: row.live, test: row.test} {
					offered := strings.Contains(b.Get(b.page(token)).Body, button)
					wanted := strings.Contains(","+strings.Join(want, ",")+",", ","+id+",")
					if offered != wanted {
						t.Errorf("test %v: %s offered %v, want %v", token == test, id, offered, wanted)
					}
					if a := b.Post(r.base+"/signin",
						url.Values{"session": {token.Reveal()}, "action": {"continue"},
							"network": {id}}); (a.Status == http.StatusSeeOther) != wanted {
						t.Errorf("test %v: pressing %s gave %d, want that it goes on: %v", token == test, id,
							a.Status, wanted)
					}
				}
			}
		})
	}
}

func TestTestSessionEndsByTheDevNetwork(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	b := r.browser()
	s, token := r.session(ofTestKey)
	b.Get(b.page(token))
	authorize := b.To(b.Post(r.base+"/signin", url.Values{
		"session": {token.Reveal()}, "action": {"continue"}, "network": {"dev"},
	}))
	end := b.Follow(b.Get(b.signIn(authorize, "anybody", "sign-in")))
	end.WantPage(t, http.StatusOK, "You are verified")
	if !strings.Contains(end.Body, "<b>TEST</b>") {
		t.Error("the last page does not say that it was a test")
	}
	r.want(s.ID, sessions.Verified, sessions.NoReason)
}

func TestTestSessionWithoutATestNetwork(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{noTest: true})
	b := r.browser()
	s, token := r.session(ofTestKey)
	b.Get(b.page(token)).WantPage(t, http.StatusGone, "This test cannot continue")
	r.want(s.ID, sessions.Pending, sessions.NoReason)
}

// An attempt that began with the network of one kind, before the operator changed the settings, is no verdict
// on the other kind.
func TestAttemptByTheOtherKindsNetworkIsNoVerdict(t *testing.T) {
	t.Parallel()
	both := newRig(t, setup{testForLive: true})
	b := both.browser()
	s, token := both.session()
	b.Get(b.page(token))
	authorize := b.To(b.Post(both.base+"/signin", url.Values{
		"session": {token.Reveal()}, "action": {"continue"}, "network": {"dev"},
	}))
	back := b.signIn(authorize, "anybody", "sign-in")
	both.liveOnly() // the dev network is only for test sessions now
	b.Follow(b.Get(back)).WantPage(t, http.StatusOK, "Is this you?")
	both.want(s.ID, sessions.Pending, sessions.NoReason)
}
