package devnetwork_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"verifyd/edge/apidoc/openapitest"
	"verifyd/edge/devnetwork"
	"verifyd/edge/network"
	"verifyd/edge/web"
)

const returnTo = "https://verify.example.com/signin/dev/callback"

// request is a valid authorization request whose verifier is v.
func request(v string) url.Values {
	return url.Values{
		"client_id": {"verifyd"}, "redirect_uri": {returnTo}, "response_type": {"code"}, "scope": {"openid"},
		"state": {"s&<>\""},
		"nonce": {"n"}, "code_challenge": {challenge(v)}, "code_challenge_method": {"S256"},
	}
}

// The routes of the doc comment are those that the code registers: they are in no table, so its text is read.
func TestDocCommentListsTheRoutes(t *testing.T) {
	code, err := os.ReadFile("token.go")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(code), `/"+style.Name`, `/style-0.css"`)
	var routes []web.Route
	for _, m := range regexp.MustCompile(`mux\.\w+\("([A-Z]+) (/[^"]*)"`).FindAllStringSubmatch(text, -1) {
		routes = append(routes, web.Route{Method: m[1], Path: m[2]})
	}
	openapitest.Routes(t, "doc.go", routes)
}

func TestAuthorizeRefuses(t *testing.T) {
	p := start(t, devnetwork.Config{RedirectURIs: []string{returnTo}})
	for name, c := range map[string]struct {
		change  func(q url.Values)
		onPage  string // refused on a page, with the browser sent nowhere
		inError string // refused in the return
	}{
		"unknown client": {change: set("client_id", "other"), onPage: "client_id"},
		"no client":      {change: unset("client_id"), onPage: "client_id"},
		"unregistered redirect": {
			change: set("redirect_uri", "https://attacker.example.com/"), onPage: "redirect_uri",
		},
		"redirect with a suffix": {change: set("redirect_uri", returnTo+"/x"), onPage: "redirect_uri"},
		"two redirects":          {change: add("redirect_uri", returnTo), onPage: "redirect_uri"},
		"another response type": {
			change: set("response_type", "token"), inError: "unsupported_response_type",
		},
		"no openid":        {change: set("scope", "profile"), inError: "invalid_scope"},
		"no challenge":     {change: unset("code_challenge"), inError: "invalid_request"},
		"plain challenge":  {change: set("code_challenge_method", "plain"), inError: "invalid_request"},
		"two nonces":       {change: add("nonce", "m"), inError: "invalid_request"},
		"max_age in words": {change: set("max_age", "a minute"), inError: "invalid_request"},
	} {
		q := request(verifier)
		c.change(q)
		q.Set("subject", "u1")
		q.Set("action", "sign-in")
		byGET, page := get(t, p.Issuer()+"/authorize?"+q.Encode())
		byPOST, _ := post(t, p.Issuer()+"/authorize", q)
		for _, resp := range []*http.Response{byGET, byPOST} {
			back, err := resp.Location()
			switch {
			case c.onPage != "" &&
				(resp.StatusCode != http.StatusBadRequest || err == nil || !strings.Contains(page, c.onPage)):
				t.Errorf("%s: %s answered %d, %v", name, resp.Request.Method, resp.StatusCode, back)
			case c.inError != "" &&
				(err != nil || back.Query().Get("error") != c.inError || back.Query().Has("code") ||
					back.Query().Get("iss") != p.Issuer() || back.Query().Get("state") != q.Get("state")):
				t.Errorf("%s: %s answered %d, %v", name, resp.Request.Method, resp.StatusCode, back)
			}
		}
	}
}

func TestFormInputIsChecked(t *testing.T) {
	p := start(t, devnetwork.Config{RedirectURIs: []string{returnTo}})
	for name, c := range map[string]struct {
		subject, action string
		status          int
	}{
		"nobody":         {"", "sign-in", 422},
		"too long":       {strings.Repeat("x", 1025), "sign-in", 422},
		"not UTF-8":      {"\xff", "sign-in", 422},
		"no action":      {"u1", "", 400},
		"unknown action": {"u1", "delete", 400},
	} {
		form := request(verifier)
		form.Set("subject", c.subject)
		form.Set("action", c.action)
		if resp, _ := post(t, p.Issuer()+"/authorize", form); resp.StatusCode != c.status {
			t.Errorf("%s: status %d, want %d", name, resp.StatusCode, c.status)
		}
	}
	if resp, _ := post(t, p.Issuer()+"/authorize",
		url.Values{"x": {strings.Repeat("x", 65<<10)}}); resp.StatusCode != 400 {
		t.Errorf("a huge form: status %d", resp.StatusCode)
	}
}

func TestTokenEndpointRefuses(t *testing.T) {
	var ahead atomic.Int64
	p := start(t, devnetwork.Config{
		ClientSecret: "secret", RedirectURIs: []string{returnTo, returnTo + "2"},
		Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
	})
	for name, c := range map[string]struct {
		change func(form url.Values)
		edit   func(r *http.Request)
		late   time.Duration
		status int
		code   string
	}{
		"good": {status: 200},
		"good, by Basic": {
			change: both(unset("client_id"), unset("client_secret")), edit: basic("verifyd", "secret"),
			status: 200,
		},
		"wrong secret": {change: set("client_secret", "other"), status: 401, code: "invalid_client"},
		"no client": {
			change: both(unset("client_id"), unset("client_secret")), status: 401, code: "invalid_client",
		},
		"wrong Basic": {
			change: unset("client_secret"), edit: basic("verifyd", "other"), status: 401,
			code: "invalid_client",
		},
		"two authentications": {edit: basic("verifyd", "secret"), status: 400, code: "invalid_request"},
		"another grant": {
			change: set("grant_type", "password"), status: 400, code: "unsupported_grant_type",
		},
		"unknown code": {change: set("code", "x"), status: 400, code: "invalid_grant"},
		"two codes":    {change: add("code", "x"), status: 400, code: "invalid_request"},
		"another redirect": {
			change: set("redirect_uri", returnTo+"2"), status: 400, code: "invalid_grant",
		},
		"no redirect": {change: unset("redirect_uri"), status: 400, code: "invalid_grant"},
		"another verifier": {
			change: set("code_verifier", verifier[1:]+"A"), status: 400, code: "invalid_grant",
		},
		"no verifier": {change: unset("code_verifier"), status: 400, code: "invalid_grant"},
		"late":        {late: time.Minute, status: 400, code: "invalid_grant"},
	} {
		form := request(verifier)
		form.Set("subject", "u1")
		form.Set("action", "sign-in")
		resp, _ := post(t, p.Issuer()+"/authorize", form)
		back, err := resp.Location()
		if err != nil {
			t.Fatal(err)
		}
		exchange := url.Values{
			"grant_type": {"authorization_code"}, "code": {back.Query().Get("code")},
			"redirect_uri":  {returnTo},
			"code_verifier": {verifier}, "client_id": {"verifyd"}, "client_secret": {"secret"},
		}
		good, _ := url.ParseQuery(exchange.Encode())
		if c.change != nil {
			c.change(exchange)
		}
		var edits []func(*http.Request)
		if c.edit != nil {
			edits = append(edits, c.edit)
		}
		ahead.Store(int64(c.late))
		resp, body := post(t, p.Issuer()+"/token", exchange, edits...)
		if resp.StatusCode != c.status || errorCode(t, body) != c.code {
			t.Errorf("%s: %d %s; want %d %s", name, resp.StatusCode, body, c.status, c.code)
		}
		// A code that was found is spent, whatever the result.
		if c.code == "invalid_grant" && name != "unknown code" || c.status == 200 {
			if resp, _ := post(t, p.Issuer()+"/token", good); resp.StatusCode != 400 {
				t.Errorf("%s: the code worked a second time", name)
			}
		}
		ahead.Store(0)
	}
}

func TestUserInfoNeedsAToken(t *testing.T) {
	p := start(t, devnetwork.Config{})
	for _, header := range []string{"", "Bearer ", "Bearer x", "Basic x"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.Issuer()+"/userinfo", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", header)
		if resp, _ := send(t, req); resp.StatusCode != 401 || resp.Header.Get("WWW-Authenticate") == "" {
			t.Errorf("%q: status %d", header, resp.StatusCode)
		}
	}
}

func TestEveryPageSaysThatItIsNotReal(t *testing.T) {
	p := start(t, devnetwork.Config{RedirectURIs: []string{returnTo}})
	hostile := request(verifier)
	hostile.Set("state", `"><script>alert(1)</script>`)
	for address, status := range map[string]int{
		"/authorize?" + hostile.Encode(): 200,
		"/authorize":                     400,
		"/authorize?a=%zz":               400,
		"/":                              404,
		"/token":                         404,
	} {
		resp, body := get(t, p.Issuer()+address)
		if resp.StatusCode != status || !strings.Contains(body, "Not a real identity network.") {
			t.Errorf("%s: status %d, or the page does not say that it is not real", address, resp.StatusCode)
		}
		if strings.Contains(body, "<script") || len(body) > 30<<10 {
			t.Errorf("%s: a script, or %d bytes", address, len(body))
		}
		csp := resp.Header.Get("Content-Security-Policy")
		if !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") ||
			resp.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: headers %v", address, resp.Header)
		}
	}
	resp, form := get(t, p.Issuer()+"/authorize?"+request(verifier).Encode())
	if csp := resp.Header.Get("Content-Security-Policy"); !strings.HasSuffix(csp,
		"form-action 'self' https://verify.example.com") {
		t.Errorf("the form may not return to the service: %s", csp)
	}
	style := regexp.MustCompile(`rel="stylesheet" href="([^"]+)"`).FindStringSubmatch(form)
	if style == nil {
		t.Fatal("the page has no style sheet")
	}
	if resp, body := get(t, p.Issuer()+style[1]); resp.StatusCode != 200 ||
		!strings.Contains(body, "prefers-color-scheme:dark") {
		t.Errorf("style: status %d", resp.StatusCode)
	}
}

const verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk" // RFC 7636 appendix B

func challenge(v string) string {
	if v != verifier {
		panic("only the verifier of RFC 7636 appendix B has a known challenge here")
	}
	return "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
}

func set(name, value string) func(url.Values) { return func(q url.Values) { q.Set(name, value) } }
func add(name, value string) func(url.Values) { return func(q url.Values) { q.Add(name, value) } }
func unset(name string) func(url.Values)      { return func(q url.Values) { q.Del(name) } }

func both(a, b func(url.Values)) func(url.Values) {
	return func(q url.Values) {
		a(q)
		b(q)
	}
}

func basic(id, secret string) func(*http.Request) {
	return func(r *http.Request) { r.SetBasicAuth(id, secret) }
}

func errorCode(t *testing.T, body string) string {
	t.Helper()
	var answer struct {
		Error string `json:"error"`
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatal(err)
	}
	return answer.Error
}

func TestMetadataIsWhatNetworkExpects(t *testing.T) {
	p := start(t, devnetwork.Config{})
	n := join(t, p)
	if err := n.Discover(t.Context()); err != nil || n.AuthorizationOrigin() != p.Issuer() {
		t.Fatalf("discover: %v, origin %s", err, n.AuthorizationOrigin())
	}
	a := network.NewAttempt()
	q := press(t, p, n, a, "u1", "sign-in")
	q.Del("iss") // the metadata promises it, so a return without is refused (RFC 9207 §2.4)
	r, err := network.ParseReturn(q)
	if err != nil {
		t.Fatal(err)
	}
	wantFailure(t, n, a, r, network.StageAuthorization, network.ClassIssuer)
}

// Behind a proxy with an issuer of its own it may listen anywhere; without one it may not.
func TestIssuerOfItsOwn(t *testing.T) {
	for _, issuer := range []string{
		"http://network.localhost", "https://network.localhost/", "https://", "network.localhost",
		"https://network.localhost/path",
	} {
		if _, err := devnetwork.New(devnetwork.Config{Listen: ":0", Issuer: issuer}); err == nil {
			t.Errorf("the issuer %q is taken", issuer)
		}
	}
	if _, err := devnetwork.New(devnetwork.Config{Listen: ":0"}); err == nil {
		t.Error("it may listen beyond loopback without an issuer")
	}
	p, err := devnetwork.New(devnetwork.Config{Listen: ":0", Issuer: "https://network.localhost"})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Listen(); err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.Issuer() != "https://network.localhost" || p.Settings().Issuer != p.Issuer() {
		t.Errorf("issuer %q", p.Issuer())
	}
}

// A client that reaches the network can sign in as anybody: so it does not answer to a name that a foreign
// page has made resolve here.
func TestOtherNamesAreNotAnswered(t *testing.T) {
	p := start(t, devnetwork.Config{})
	for host, want := range map[string]int{
		"": http.StatusOK, "localhost:1": http.StatusOK, "evil.example": http.StatusMisdirectedRequest,
	} {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			p.Issuer()+"/.well-known/openid-configuration", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		q.Host = host // the address's own if it is empty
		answer, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%q: %d, want %d", host, answer.StatusCode, want)
		}
	}
}
