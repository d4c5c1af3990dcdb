package network_test

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"verifyd/edge/network"
	"verifyd/edge/network/netsettings"
)

const (
	steamEndpoint = "https://steamcommunity.com/openid/login"
	steamAsk      = "POST steamcommunity.com/openid/login"
	steamSubject  = "76561197960435530"
	steamSigned   = "signed,op_endpoint,claimed_id,identity,return_to,response_nonce,assoc_handle"
)

// steamReturn is Steam's answer to an attempt that ended well.
func steamReturn(a network.Attempt) url.Values {
	identity := "https://steamcommunity.com/openid/id/" + steamSubject
	return url.Values{
		"state":     {a.State},
		"openid.ns": {"http://specs.openid.net/auth/2.0"}, "openid.mode": {"id_res"}, "openid.op_endpoint": {
			steamEndpoint,
		},
		"openid.claimed_id": {identity}, "openid.identity": {identity},
		"openid.return_to": {"https://verify.example.com/signin/steam/callback?state=" + a.State},
		"openid.response_nonce": {
			time.Now().UTC().Format("2006-01-02T15:04:05Z") + "k3v7q2m5zt4yd6n2xw7p2c4hf2jb=",
		},
		"openid.assoc_handle": {"1234567890"}, "openid.signed": {steamSigned}, "openid.sig": {
			"c2lnbmF0dXJlIG9mIHN0ZWFt",
		},
	}
}

const steamYes = "ns:http://specs.openid.net/auth/2.0\nis_valid:true\n"

func steamSays(answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }
}

func newSteam(t *testing.T) (*world, *network.Network) {
	t.Helper()
	w := newWorld(t)
	w.answers[steamAsk] = steamSays(steamYes)
	return w, w.network(netsettings.Settings{Kind: netsettings.KindSteam})
}

func redeemSteam(t *testing.T, w *world, n *network.Network, q url.Values) (network.Identity, error) {
	t.Helper()
	ret, err := network.ParseReturn(q)
	if err != nil {
		t.Fatal(err)
	}
	return n.Redeem(t.Context(), w.attempt, ret)
}

func TestSteamRequest(t *testing.T) {
	w, n := newSteam(t)
	raw, err := n.AuthURL(t.Context(), w.attempt)
	if err != nil {
		t.Fatal(err)
	}
	address, query, _ := strings.Cut(raw, "?")
	got, err := url.ParseQuery(query)
	const selectID = "http://specs.openid.net/auth/2.0/identifier_select"
	want := url.Values{
		"openid.ns": {"http://specs.openid.net/auth/2.0"}, "openid.mode": {"checkid_setup"},
		"openid.claimed_id": {selectID}, "openid.identity": {selectID}, "openid.realm": {
			"https://verify.example.com/",
		},
		"openid.return_to": {"https://verify.example.com/signin/steam/callback?state=" + w.attempt.State},
	}
	if err != nil || address != steamEndpoint || !reflect.DeepEqual(got, want) {
		t.Errorf("sent to %s with %v, %v; want %v", address, got, err, want)
	}
	if n.AuthorizationOrigin() != "https://steamcommunity.com" {
		t.Errorf("origin %q", n.AuthorizationOrigin())
	}
}

func TestSteamSignIn(t *testing.T) {
	w, n := newSteam(t)
	q := steamReturn(w.attempt)
	got, err := redeemSteam(t, w, n, q)
	if err != nil || !reflect.DeepEqual(got, network.Identity{Subject: steamSubject}) {
		t.Fatalf("identity = %+v, %v", got, err)
	}
	// The provider gets the assertion unchanged, except for the mode (OpenID Authentication 2.0 §11.4.2.1).
	want := maps.Clone(q)
	want.Set("openid.mode", "check_authentication")
	want.Del("state")
	if form := w.forms[steamAsk]; !reflect.DeepEqual(form, want) || w.times(steamAsk) != 1 {
		t.Errorf("asked %d times with %v, want %v", w.times(steamAsk), form, want)
	}
}

// Steam is asked with the headers that a page sends, and may end its answer with more than one line end.
func TestSteamIsAskedAsByAPage(t *testing.T) {
	w, n := newSteam(t)
	var asked http.Header
	w.answers[steamAsk] = func(w http.ResponseWriter, r *http.Request) {
		asked = r.Header
		_, _ = w.Write([]byte("ns:http://specs.openid.net/auth/2.0\nis_valid:true\n\n"))
	}
	if _, err := redeemSteam(t, w, n, steamReturn(w.attempt)); err != nil {
		t.Error(err)
	}
	if o, r := asked.Get("Origin"), asked.Get("Referer"); o != "https://verify.example.com" ||
		r != "https://verify.example.com/" {
		t.Errorf("asked from %q, %q", o, r)
	}
}

func TestSteamCancelIsADecline(t *testing.T) {
	w, n := newSteam(t)
	q := url.Values{
		"state": {w.attempt.State}, "openid.mode": {"cancel"}, "openid.ns": {
			"http://specs.openid.net/auth/2.0",
		},
	}
	if _, err := redeemSteam(t, w, n, q); !errors.Is(err, network.ErrDeclined) || w.times(steamAsk) != 0 {
		t.Errorf("err = %v", err)
	}
}

// Forgeries are detected before Steam is asked.
func TestSteamRefusesForgeries(t *testing.T) {
	other := network.NewAttempt()
	set := func(name, value string) func(url.Values) {
		return func(q url.Values) { q.Set("openid."+name, value) }
	}
	identity := func(value string) func(url.Values) {
		return func(q url.Values) {
			q.Set("openid.claimed_id", value)
			q.Set("openid.identity", value)
		}
	}
	nonce := func(by time.Duration) func(url.Values) {
		return set("response_nonce", time.Now().Add(by).UTC().Format("2006-01-02T15:04:05Z")+"x")
	}
	unsigned := func(field string) func(url.Values) {
		return set("signed", strings.ReplaceAll(steamSigned, ","+field, ""))
	}
	const id = "https://steamcommunity.com/openid/id/"
	for name, c := range map[string]struct {
		forge func(url.Values)
		class string
	}{
		"another attempt's state": {func(q url.Values) { q.Set("state", other.State) }, "state"},
		"another attempt's assertion": {
			set("return_to", "https://verify.example.com/signin/steam/callback?state="+other.State), "state",
		},
		"another site's assertion": {
			set("return_to", "https://evil.example/signin/steam/callback"), "state",
		},
		"another network's return_to": {func(q url.Values) {
			q.Set("openid.return_to", strings.Replace(q.Get("openid.return_to"), "/steam/", "/second/", 1))
		}, "state"},
		"return_to with more": {
			func(q url.Values) { q.Set("openid.return_to", q.Get("openid.return_to")+"&x=1") }, "state",
		},
		"another provider": {
			set("op_endpoint", "https://evil.example/openid/login"), "issuer",
		},
		"provider in other case": {
			set("op_endpoint", "https://SteamCommunity.com/openid/login"), "issuer",
		},
		"plain http provider": {
			set("op_endpoint", "http://steamcommunity.com/openid/login"), "issuer",
		},
		"OpenID 1.1":                     {set("ns", "http://openid.net/signon/1.1"), "malformed"},
		"no namespace":                   {func(q url.Values) { q.Del("openid.ns") }, "malformed"},
		"no signature":                   {func(q url.Values) { q.Del("openid.sig") }, "signature"},
		"nothing signed":                 {set("signed", ""), "signature"},
		"op_endpoint not signed":         {unsigned("op_endpoint"), "signature"},
		"claimed_id not signed":          {unsigned("claimed_id"), "signature"},
		"identity not signed":            {unsigned("identity"), "signature"},
		"return_to not signed":           {unsigned("return_to"), "signature"},
		"response_nonce not signed":      {unsigned("response_nonce"), "signature"},
		"assoc_handle not signed":        {unsigned("assoc_handle"), "signature"},
		"no claimed_id":                  {func(q url.Values) { q.Del("openid.claimed_id") }, "signature"},
		"claimed_id and identity differ": {set("claimed_id", id+"76561197960435531"), "subject"},
		"identity of another host": {
			identity("https://steamcommunity.com.evil.example/openid/id/" + steamSubject), "subject",
		},
		"identity by plain http": {
			identity("http://steamcommunity.com/openid/id/" + steamSubject), "subject",
		},
		"identity with a path more": {identity(id + steamSubject + "/"), "subject"},
		"identity with a query":     {identity(id + steamSubject + "?x=" + steamSubject), "subject"},
		"identity as a user": {
			identity("https://x@steamcommunity.com/openid/id/" + steamSubject), "subject",
		},
		"identity below another":     {identity("https://evil.example/" + id + steamSubject), "subject"},
		"identity with a digit more": {identity(id + steamSubject + "0"), "subject"},
		"identity of a group":        {identity(id + "103582791429521408"), "subject"},
		"identity below the first":   {identity(id + "76561197960265727"), "subject"},
		"identity above the last":    {identity(id + "76561202255233024"), "subject"},
		"identity with a dot as any char": {
			identity("https://steamcommunityXcom/openid/id/" + steamSubject), "subject",
		},
		"old":                      {nonce(-6 * time.Minute), "expired"},
		"of the future":            {nonce(6 * time.Minute), "early"},
		"nonce without an instant": {set("response_nonce", "k3v7q2m5zt4yd6n2xw7p2c4hf2jb"), "nonce"},
		"nonce in another zone":    {set("response_nonce", "2026-11-21T10:00:00+00:00x"), "nonce"},
		"short nonce":              {set("response_nonce", "2026"), "nonce"},
		"long nonce": {
			set("response_nonce", time.Now().UTC().Format(time.RFC3339)+strings.Repeat("x", 300)), "nonce",
		},
		"provider's error":            {set("mode", "error"), "refused"},
		"setup needed":                {set("mode", "setup_needed"), "malformed"},
		"our own request played back": {set("mode", "checkid_setup"), "malformed"},
		"verification played back":    {set("mode", "check_authentication"), "malformed"},
		"no mode":                     {func(q url.Values) { q.Del("openid.mode") }, "malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			w, n := newSteam(t)
			q := steamReturn(w.attempt)
			c.forge(q)
			_, err := redeemSteam(t, w, n, q)
			wantFailure(t, err, "authorization", c.class)
			if w.times(steamAsk) != 0 {
				t.Error("Steam was asked about a forgery")
			}
			if strings.Contains(err.Error(), w.attempt.State) || strings.Contains(err.Error(), steamSubject) {
				t.Errorf("the error tells too much: %v", err)
			}
		})
	}
}

// An assertion that Steam does not confirm is ignored, and Steam is asked once, whatever it answers.
func TestSteamDoesNotVouch(t *testing.T) {
	const ns = "ns:http://specs.openid.net/auth/2.0\n"
	for name, c := range map[string]struct {
		serve http.HandlerFunc
		class string
	}{
		"not valid":           {steamSays(ns + "is_valid:false\n"), "signature"},
		"verified before":     {steamSays(ns + "is_valid:false\ninvalidate_handle:1\n"), "signature"},
		"both":                {steamSays(ns + "is_valid:false\nis_valid:true\n"), "malformed"},
		"true within another": {steamSays(ns + "error:is_valid:true\n"), "malformed"},
		"no namespace":        {steamSays("is_valid:true\n"), "malformed"},
		"another namespace":   {steamSays("ns:http://openid.net/signon/1.1\nis_valid:true\n"), "malformed"},
		"in other case":       {steamSays(ns + "is_valid:True\n"), "malformed"},
		"with a space":        {steamSays(ns + "is_valid: true\n"), "malformed"},
		"with carriage":       {steamSays(ns + "is_valid:true\r\n"), "malformed"},
		"empty":               {steamSays(""), "malformed"},
		"a page":              {steamSays("<html>is_valid:true</html>"), "malformed"},
		"many lines":          {steamSays(ns + "is_valid:true\n" + strings.Repeat("x:y\n", 20)), "malformed"},
		"500":                 {answerStatus(500), "status"},
		"429":                 {answerStatus(429), "status"},
		"huge":                {answerHuge, "too_large"},
		"redirect": {
			func(w http.ResponseWriter,
				r *http.Request) {
				http.Redirect(w, r, "/x", http.StatusTemporaryRedirect)
			}, "redirect",
		},
		"cut": {
			func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "reset",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, n := newSteam(t)
			w.answers[steamAsk] = c.serve
			_, err := redeemSteam(t, w, n, steamReturn(w.attempt))
			wantFailure(t, err, "token", c.class)
			if w.times(steamAsk) != 1 {
				t.Errorf("Steam was asked %d times", w.times(steamAsk))
			}
		})
	}
}

func TestForgedSteamReturns(t *testing.T) {
	for name, forge := range map[string]func(url.Values){
		"two claimed ids": func(q url.Values) { q.Add("openid.claimed_id", "x") },
		"two signatures":  func(q url.Values) { q.Add("openid.sig", "x") },
		"two states":      func(q url.Values) { q.Add("state", "x") },
		"no state":        func(q url.Values) { q.Del("state") },
		"a code too":      func(q url.Values) { q.Set("code", "x") },
		"an error too":    func(q url.Values) { q.Set("error", "access_denied") },
		"not ASCII":       func(q url.Values) { q.Set("openid.sig", "ä") },
		"a line break":    func(q url.Values) { q.Set("openid.sig", "a\nis_valid:true") },
		"long":            func(q url.Values) { q.Set("openid.x", strings.Repeat("x", 3000)) },
		"many": func(q url.Values) {
			for _, c := range "abcdefghijklmnopqrstuvwxyz" {
				q.Set("openid."+string(c), "x")
			}
		},
	} {
		q := steamReturn(network.NewAttempt())
		forge(q)
		if r, err := network.ParseReturn(q); !errors.Is(err, network.ErrBadReturn) ||
			r != (network.Return{}) {
			t.Errorf("%s: err = %v", name, err)
		}
	}
}

// A return of one protocol is ignored by a network of another.
func TestReturnsOfAnotherProtocol(t *testing.T) {
	w, n := newSteam(t)
	_, err := n.Redeem(t.Context(), w.attempt, network.Return{Code: plantedCode, State: w.attempt.State})
	wantFailure(t, err, "authorization", "malformed")
	discord := w.network(netsettings.Settings{Kind: netsettings.KindDiscord})
	_, err = redeemSteam(t, w, discord, steamReturn(w.attempt))
	wantFailure(t, err, "authorization", "malformed")
	if len(w.asked) != 0 {
		t.Errorf("asked %v", w.asked)
	}
}
