package signin_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"verifyd/edge/network"
	"verifyd/edge/network/netsettings"
	"verifyd/sessions"
)

// evil is a provider, configured like any other, that tries to get the codes of the honest one (RFC 9700
// §4.4). Its metadata is right, except that it does not mention iss.
type evil struct {
	server *httptest.Server
	posts  atomic.Int32 // to its token endpoint
	cut    atomic.Bool  // it closes the connection when a code arrives
	// hold receives each request for its metadata, which is answered when it is taken; none is held when nil
	hold chan struct{}
}

func newEvil(t *testing.T) *evil {
	t.Helper()
	e := &evil{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		if e.hold != nil {
			e.hold <- struct{}{}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{
			"issuer": e.server.URL, "authorization_endpoint": e.server.URL + "/authorize",
			"token_endpoint": e.server.URL + "/token", "jwks_uri": e.server.URL + "/jwks",
		})
	})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, _ *http.Request) {
		e.posts.Add(1)
		if e.cut.Load() {
			panic(http.ErrAbortHandler)
		}
		http.Error(w, "thanks", http.StatusBadRequest)
	})
	e.server = httptest.NewServer(mux)
	t.Cleanup(e.server.Close)
	return e
}

func (e *evil) network(tb testing.TB, base string) *network.Network {
	tb.Helper()
	n, err := network.New(netsettings.Settings{
		ID: "evil", Name: "Evil Network", Kind: netsettings.KindOIDC, Issuer: e.server.URL,
		ClientID:     "verifyd",
		ClientSecret: "s",
	}, network.Options{BaseURL: base})
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// The user chooses the evil network, which sends the browser on to the honest one with the honest client's id
// and the state of the attempt. The honest provider's code must not be posted to the evil one, however it is
// returned.
func TestMixUpBetweenTwoProviders(t *testing.T) {
	t.Parallel()
	e := newEvil(t)
	r := newRig(t, setup{evil: e})
	honest := r.nets[0]
	for name, bend := range map[string]func(*url.URL){
		"at the honest network's address": func(*url.URL) {},
		"at the evil network's address, with the honest issuer": func(u *url.URL) {
			u.Path = "/signin/evil/callback"
		},
	} {
		t.Run(name, func(t *testing.T) {
			session, token := r.session()
			b := r.browser()
			b.Get(b.page(token))
			asked := mustQuery(t, b.To(b.Post(r.base+"/signin", url.Values{
				"session": {token.Reveal()}, "action": {"continue"}, "network": {"evil"},
			})))
			asked.Set("redirect_uri", honest.RedirectURI()) // the only one that the honest provider knows
			asked.Set("client_id", r.dev.Settings().ClientID)
			back := mustURL(t, b.signIn(r.dev.Issuer()+"/authorize?"+asked.Encode(), "sailor_42", "sign-in"))
			if back.Query().Get("code") == "" || back.Query().Get("iss") != r.dev.Issuer() {
				t.Fatalf("the honest provider gave no code: %s", back)
			}
			bend(back)
			b.Follow(b.Get(back.String())).WantPage(t, http.StatusOK, headingAsk)
			r.want(session.ID, sessions.Pending, sessions.NoReason)
			if e.posts.Load() != 0 {
				t.Error("the honest provider's code was posted to the evil one")
			}
		})
	}
}

// A provider that closes its kept connection when the code arrives gets the code once. The user sees that
// nothing was decided, and may try again.
func TestProviderClosesAKeptConnection(t *testing.T) {
	t.Parallel()
	e := newEvil(t)
	r := newRig(t, setup{evil: e})
	for n, cut := range []bool{false, true} {
		e.cut.Store(cut)
		session, token := r.session()
		b := r.browser()
		b.Get(b.page(token))
		asked := mustQuery(t, b.To(b.Post(r.base+"/signin", url.Values{
			"session": {token.Reveal()}, "action": {"continue"}, "network": {"evil"},
		})))
		back := url.Values{"code": {"c"}, "state": {asked.Get("state")}}
		page := b.Follow(b.Get(r.base + "/signin/evil/callback?" + back.Encode()))
		page.WantPage(t, http.StatusOK, headingAsk)
		if cut && !strings.Contains(page.Body, "did not respond. Nothing was decided.") {
			t.Errorf("no notice:\n%s", page.Body)
		}
		r.want(session.ID, sessions.Pending, sessions.NoReason)
		if posts := e.posts.Load(); posts != int32(n)+1 {
			t.Errorf("%d codes came of %d sign-ins", posts, n+1)
		}
	}
}
