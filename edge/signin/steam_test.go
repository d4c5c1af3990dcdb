package signin_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"verifyd/edge/network"
	"verifyd/edge/network/netsettings"
	"verifyd/sessions"
)

// steam replaces steamcommunity.com: a server with a certificate for that name, which confirms every
// assertion.
type steam struct {
	server *httptest.Server
	roots  *x509.CertPool
	asked  atomic.Int32
}

func newSteam(t *testing.T) *steam {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"steamcommunity.com"}, NotBefore: time.Now().
				Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	s := &steam{roots: x509.NewCertPool()}
	s.roots.AddCert(leaf)
	s.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		if r.FormValue("openid.mode") != "check_authentication" {
			t.Errorf("asked with mode %q", r.FormValue("openid.mode"))
		}
		_, _ = io.WriteString(w, "ns:http://specs.openid.net/auth/2.0\nis_valid:true\n")
	}))
	s.server.TLS = &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		MinVersion:   tls.VersionTLS12,
	}
	s.server.StartTLS()
	t.Cleanup(s.server.Close)
	return s
}

func (s *steam) network(tb testing.TB, base string) *network.Network {
	tb.Helper()
	n, err := network.New(netsettings.Settings{Kind: netsettings.KindSteam}, network.Options{
		BaseURL: base, RootCAs: s.roots,
		Dial: func(ctx context.Context, proto, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, proto, s.server.Listener.Addr().String())
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// pressSteam presses Steam's button, and returns what Steam is asked.
func (b *browser) pressSteam(token sessions.Token) url.Values {
	b.t.Helper()
	b.Get(b.page(token))
	to := b.To(b.Post(b.r.base+"/signin", url.Values{
		"session": {token.Reveal()}, "action": {"continue"}, "network": {"steam"},
	}))
	return mustQuery(b.t, to)
}

// assertion is the address that Steam sends the browser back to.
func assertion(asked url.Values) string {
	const id = "https://steamcommunity.com/openid/id/76561197960435530"
	q := url.Values{
		"openid.ns": {asked.Get("openid.ns")}, "openid.mode": {"id_res"}, "openid.op_endpoint": {
			"https://steamcommunity.com/openid/login",
		},
		"openid.claimed_id": {id}, "openid.identity": {id}, "openid.return_to": {
			asked.Get("openid.return_to"),
		},
		"openid.response_nonce": {time.Now().UTC().Format("2006-01-02T15:04:05Z") + "x"},
		"openid.assoc_handle":   {"1"},
		"openid.signed": {
			"signed,op_endpoint,claimed_id,identity,return_to,response_nonce,assoc_handle",
		},
		"openid.sig": {"c2ln"},
	}
	return asked.Get("openid.return_to") + "&" + q.Encode()
}

func TestSteamRoundTrip(t *testing.T) {
	t.Parallel()
	s := newSteam(t)
	r := newRig(t, setup{prefix: "/v", steam: s})
	session, token := r.session()
	b := r.browser()
	asked := b.pressSteam(token)
	if asked.Get("openid.realm") != r.base+"/" {
		t.Errorf("realm %q", asked.Get("openid.realm"))
	}
	back := assertion(asked)
	b.Follow(b.Get(back)).WantPage(t, http.StatusOK, headingVerified)
	if v, err := r.store.Read(t.Context(), session.ID); err != nil || v.State != sessions.Verified ||
		v.Network != "steam" {
		t.Errorf("session: %v, %q, %v", v.State, v.Network, err)
	}
	b.Follow(b.Get(back)).WantPage(t, http.StatusOK, headingVerified) // a reload
	if s.asked.Load() != 1 {
		t.Errorf("Steam was asked %d times about one assertion", s.asked.Load())
	}
}

// An assertion counts only in the browser and for the attempt that it was made for, and once; any other is no
// verdict.
func TestSteamAssertionsAreOfOneAttempt(t *testing.T) {
	t.Parallel()
	s := newSteam(t)
	r := newRig(t, setup{steam: s})
	victim, attacker := r.browser(), r.browser()
	_, theirs := r.session()
	session, own := r.session(func(q *sessions.Request) { q.PlatformUserID = "attacker" })
	stolen := assertion(victim.pressSteam(theirs)) // the victim's genuine assertion, before it is used
	attacker.Get(stolen).WantPage(t, http.StatusBadRequest, "We lost track of your sign-in")

	asked := attacker.pressSteam(own)
	injected := mustURL(t, stolen)
	q := injected.Query()
	q.Set("state", mustURL(t, asked.Get("openid.return_to")).Query().Get("state"))
	injected.RawQuery = q.Encode()
	attacker.Follow(attacker.Get(injected.String())).WantPage(t, http.StatusOK, headingAsk)
	r.want(session.ID, sessions.Pending, sessions.NoReason)
	if s.asked.Load() != 0 {
		t.Error("Steam was asked about another attempt's assertion")
	}
	again := assertion(asked) // the attempt is spent: even its genuine assertion is ignored
	attacker.Follow(attacker.Get(again)).WantPage(t, http.StatusOK, headingAsk)
	r.want(session.ID, sessions.Pending, sessions.NoReason)
}
