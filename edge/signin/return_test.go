package signin_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"verifyd/edge/limit"
	"verifyd/edge/network"
	"verifyd/sessions"
)

func TestReturnsThatLeadNowhere(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	session, token := r.session()
	b := r.browser()
	back := b.back(token, "sailor_42", "sign-in")
	const lost = "We lost track of your sign-in"
	before := r.sequences()
	for name, address := range map[string]string{
		"no query":      r.base + "/signin/example/callback",
		"no code":       r.base + "/signin/example/callback?error=access_denied&state=x",
		"another state": r.base + "/signin/example/callback?state=" + strings.Repeat("A", 43),
		"bad escape":    r.base + "/signin/example/callback?code=%zz",
	} {
		t.Run(name, func(t *testing.T) { b.Get(address).WantPage(t, http.StatusBadRequest, lost) })
	}
	path, form, _ := strings.Cut(back, "?")
	post := b.Request(http.MethodPost, path, form) // form_post
	post.Header.Set("Sec-Fetch-Site", "cross-site")
	post.Header.Set("Origin", "https://network.example")
	b.Do(post).WantPage(t, http.StatusBadRequest, lost)
	if after := r.sequences(); after["KV_sessions"] != before["KV_sessions"] {
		t.Error("a return that nobody began writes something")
	}
	b.Follow(b.Get(back)).WantPage(t, http.StatusOK, headingVerified) // none of that spent the attempt
	r.want(session.ID, sessions.Verified, sessions.NoReason)
}

// A user who was sent to the identity network's page by somebody else signs nobody in, whatever is done with
// the address that they return to, and whatever that address has become on the way: their own browser has
// spent the code in it.
func TestCodeThatCameToAnotherBrowserIsSpent(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	for name, alter := range map[string]func(state string) string{
		"as it was":  func(state string) string { return state },
		"none":       func(string) string { return "" },
		"another":    func(string) string { return network.NewAttempt().State },
		"cut":        func(state string) string { return state[:len(state)-1] },
		"longer":     func(state string) string { return state + "A" },
		"with a NUL": func(state string) string { return state + "\x00" },
		"not UTF-8":  func(state string) string { return state + "\xff" },
		"a query":    func(state string) string { return state + "&code=x" },
	} {
		t.Run(name, func(t *testing.T) {
			session, token := r.session()
			attacker, victim := r.browser(), r.browser()
			to := mustURL(t, attacker.press(token))
			q := to.Query()
			state := q.Get("state")
			q.Set("state", alter(state))
			to.RawQuery = q.Encode()
			back := victim.signIn(to.String(), "victim", "sign-in")
			got := mustQuery(t, back)
			for times := range 2 {
				victim.Get(back).Want(t, http.StatusBadRequest, "We lost track of your sign-in",
					"Never give anyone the address of this page")
				code := got.Get("code")
				for i, spelled := range []string{strings.ToUpper(code) + "=", code, code} {
					q := url.Values{"state": {state}, "iss": got["iss"], "code": {spelled}}
					late := attacker.To(attacker.Get(r.base + "/signin/example/callback?" + q.Encode()))
					note := "note=checking"
					if i+times == 0 { // the attempt is spent by that
						note = "note=unfinished"
					}
					if !strings.Contains(late, note) {
						t.Errorf("the code as %q leads to %s", spelled, late)
					}
				}
			}
			r.want(session.ID, sessions.Pending, sessions.NoReason)
			attacker.signsIn(token, "example", "sailor_42").WantPage(t, http.StatusOK, headingVerified)
		})
	}
	if n := strings.Count(r.log.String(), `"class":"elsewhere"`); n != 8 {
		t.Errorf("%d returns were refused for their code, want all 8", n)
	}
}

// Returns that nobody asked for write as many codes as the address may have returns that fail, and no more.
// The address of one whose code is not spent does not stay where it is shown.
func TestStrayCodesAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.clock.stop()
	before := r.sequences()
	stranger := r.browser()
	for i := range 200 {
		a := stranger.Get(fmt.Sprintf("%s/signin/example/callback?code=%d", r.base, i))
		if i >= limit.DefaultSignIns.Burst/5 {
			if to := stranger.To(a); to != r.base+"/signin/example/callback" {
				t.Errorf("code %d: the browser shows %s", i, to)
			}
			a = stranger.Follow(a)
		}
		a.WantPage(t, http.StatusBadRequest, "We lost track of your sign-in")
	}
	picture := stranger.Request(http.MethodGet, r.base+"/signin/example/callback?code=x", "")
	picture.Header.Set("Sec-Fetch-Dest", "image")
	stranger.Do(picture).WantPage(t, http.StatusBadRequest, "We lost track of your sign-in")
	written := r.sequences()["KV_sessions"] - before["KV_sessions"]
	if most := uint64(limit.DefaultSignIns.Burst / 5); written != most {
		t.Errorf("200 made-up codes are %d writes, want %d", written, most)
	}
}

func TestHeadOfAReturn(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	_, token := r.session()
	b := r.browser()
	back := b.back(token, "sailor_42", "sign-in")
	if a := b.Do(b.Request(http.MethodHead, back, "")); a.Status != http.StatusMethodNotAllowed ||
		a.Header.Get("Allow") != http.MethodGet {
		t.Errorf("status %d, Allow %q", a.Status, a.Header.Get("Allow"))
	}
	b.Follow(b.Get(back)).WantPage(t, http.StatusOK, headingVerified) // the attempt was not spent
}

// A return that no conforming provider sends is no verdict, and spends its attempt.
func TestMalformedReturns(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	session, token := r.session()
	b := r.browser()
	for name, query := range map[string]string{
		"two codes":      "&code=a&code=b",
		"code and error": "&code=a&error=access_denied",
		"neither":        "",
		"two errors":     "&error=access_denied&error=access_denied",
		"bad escape":     "&error=access_denied&x=%zz",
		"long code":      "&code=" + strings.Repeat("x", 5000),
	} {
		t.Run(name, func(t *testing.T) {
			state := mustQuery(t, b.press(token)).Get("state")
			b.Follow(b.Get(r.base+"/signin/example/callback?state="+state+query)).
				WantPage(t, http.StatusOK, headingAsk)
			r.want(session.ID, sessions.Pending, sessions.NoReason)
			late := b.To(b.Get(r.base + "/signin/example/callback?state=" + state + "&error=access_denied"))
			if !strings.Contains(late, "note=checking") {
				t.Errorf("the attempt was not spent: %s", late)
			}
		})
	}
	r.want(session.ID, sessions.Pending, sessions.NoReason)
}

func TestMixUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{networks: 2})
	session, token := r.session()
	b := r.browser()
	for _, action := range []string{"sign-in", "decline"} {
		back := b.back(token, "sailor_42", action)
		wrong := strings.Replace(back, "/signin/example/", "/signin/second/", 1)
		b.Follow(b.Get(wrong)).WantPage(t, http.StatusOK, headingAsk)
		b.Follow(b.Get(back)).WantPage(t, http.StatusOK, headingAsk) // spent
		b.Get(strings.Replace(back, "/signin/example/", "/signin/nowhere/", 1))
	}
	r.want(session.ID, sessions.Pending, sessions.NoReason)
	if !strings.Contains(r.log.String(), `"class":"mix_up"`) {
		t.Errorf("log:\n%s", r.log)
	}
}

func TestTamperedCookie(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	session, token := r.session()
	b := r.browser()
	back := b.back(token, "sailor_42", "sign-in")
	other := b.back(token, "sailor_42", "sign-in")
	at := mustURL(t, back)
	cookies := slices.DeleteFunc(b.Client.Jar.Cookies(at), func(c *http.Cookie) bool {
		return c.Name == "verifyd_browser"
	})
	if len(cookies) != 2 {
		t.Fatalf("%d cookies, want 2", len(cookies))
	}
	raw, err := base64.RawURLEncoding.DecodeString(cookies[0].Value)
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)/2] ^= 1
	for name, value := range map[string]string{
		"one bit":        base64.RawURLEncoding.EncodeToString(raw),
		"cut":            cookies[0].Value[:len(cookies[0].Value)-4],
		"another's":      cookies[1].Value,
		"no base64":      "!",
		"empty":          "",
		"nothing sealed": "AAAA",
		"long":           strings.Repeat("A", 3000),
	} {
		t.Run(name, func(t *testing.T) {
			victim := r.browser()
			for _, c := range cookies { // whichever of the two belongs to the return
				victim.Client.Jar.SetCookies(at, []*http.Cookie{
					{Name: c.Name, Value: value, Path: "/signin"},
				})
			}
			if name == "another's" {
				victim.Client.Jar.SetCookies(at, []*http.Cookie{
					{Name: cookies[1].Name, Value: cookies[0].Value, Path: "/signin"},
				})
			}
			a := victim.Get(back)
			a.WantPage(t, http.StatusBadRequest, "We lost track of your sign-in")
			if !strings.Contains(a.Header.Get("Set-Cookie"), "Max-Age=0") {
				t.Error("what does not open is not removed")
			}
		})
	}
	r.want(session.ID, sessions.Pending, sessions.NoReason)
	b.Follow(b.Get(other)).WantPage(t, http.StatusOK, headingVerified)
}

func TestCookiesAreFew(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	_, token := r.session()
	b := r.browser()
	at := mustURL(t, r.base+"/signin")
	b.Client.Jar.SetCookies(at, []*http.Cookie{
		{Name: "verifyd_flow_aaaaaaaaaaaaaaaa", Value: "AQID", Path: "/signin"},
		{Name: "another", Value: "x", Path: "/signin"},
	})
	var backs []string
	for range 12 {
		backs = append(backs, b.back(token, "sailor_42", "error"))
	}
	ours := 0
	for _, c := range b.Client.Jar.Cookies(at) {
		if strings.HasPrefix(c.Name, "verifyd_flow_") {
			ours++
		}
		if c.Value == "AQID" {
			t.Error("a cookie that does not open stays")
		}
	}
	if ours != 8 || len(b.Client.Jar.Cookies(at)) != 10 {
		t.Errorf("%d flow cookies, want 8: %v", ours, b.Client.Jar.Cookies(at))
	}
	for i, back := range backs { // the oldest was removed
		if a := b.Get(back); (a.Status == http.StatusBadRequest) != (i < 4) {
			t.Errorf("return %d: status %d", i+1, a.Status)
		}
	}
}

func mustURL(tb testing.TB, address string) *url.URL {
	tb.Helper()
	u, err := url.Parse(address)
	if err != nil {
		tb.Fatal(err)
	}
	return u
}
