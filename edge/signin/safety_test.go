package signin_test

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"verifyd/edge/signin"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
)

// Chat applications open links, some of them many times, with GET or HEAD, before the user does and between
// their steps. They change nothing, learn nothing and get no cookie.
func TestPreviewsChangeNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	session, token := r.session()
	b, bots := r.browser(), r.browser()
	var card string
	storm := func(address string, steps uint64) { // that the user has done by then
		t.Helper()
		natstest.Await(t, "the user's own steps are stored", func() bool {
			return r.sequences()[topology.StreamEvents] == steps
		})
		before := r.sequences()
		for i := range 1000 {
			req := bots.Request([]string{http.MethodGet, http.MethodHead}[i%2], address, "")
			req.Header.Set("User-Agent", signin.PreviewAgents[i/2%len(signin.PreviewAgents)])
			a := bots.Do(req)
			if a.Status != http.StatusOK || a.Header.Get("Set-Cookie") != "" ||
				(req.Method == http.MethodHead) != (a.Body == "") {
				t.Fatalf("%s: status %d, cookie %q, %d bytes", req.Method, a.Status,
					a.Header.Get("Set-Cookie"), len(a.Body))
			}
			if card == "" {
				card = a.Body
			}
			if req.Method == http.MethodGet && a.Body != card {
				t.Fatalf("another card:\n%s", a.Body)
			}
		}
		if err := r.conn.NC.Flush(); err != nil {
			t.Fatal(err)
		}
		if after := r.sequences(); !maps.Equal(before, after) {
			t.Errorf("streams went from %v to %v", before, after)
		}
	}
	storm(b.page(token), 0)
	b.Get(b.page(token)).WantPage(t, http.StatusOK, headingAsk)
	storm(b.page(token)+"&lang=en", 0)
	storm(b.page(token)+"&lang=", 0)
	back := b.back(token, "sailor_42", "sign-in")
	storm(b.page(token), 1)
	r.want(session.ID, sessions.Pending, sessions.NoReason)
	b.Follow(b.Get(back)).WantPage(t, http.StatusOK, headingVerified)
	storm(b.page(token), 3)
	storm(r.base+"/?session="+strings.Repeat("A", 43), 3) // all links have the same preview card
	for _, secret := range []string{
		"sailor_42", "discord", "Discord", "118203948571029384", "Harbor", token.Reveal(), "<form",
	} {
		if strings.Contains(card, secret) {
			t.Errorf("the card holds %q", secret)
		}
	}
	if !strings.Contains(card, `property="og:title"`) ||
		!strings.Contains(card, "<h1>Confirm your account</h1>") {
		t.Errorf("the card:\n%s", card)
	}
}

// A preview must be the same for every link.
func TestPreviewRevealsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	_, token := r.session()
	b := r.browser()
	head, _, _ := strings.Cut(b.Get(b.page(token)).Body, "<body>")
	for _, secret := range []string{
		"sailor_42", "discord", "Discord", "118203948571029384", "Harbor", token.Reveal(),
	} {
		if strings.Contains(head, secret) {
			t.Errorf("the head of the page holds %q:\n%s", secret, head)
		}
	}
	if !strings.Contains(head, `property="og:title"`) {
		t.Error("no title for previews")
	}
}

func TestForeignPress(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	session, token := r.session()
	b := r.browser()
	for name, headers := range map[string]map[string]string{
		"another site":                   {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"},
		"another site without an origin": {"Sec-Fetch-Site": "cross-site", "Origin": "null"},
		"a neighbour": {
			"Sec-Fetch-Site": "same-site", "Origin": "https://neighbour.example.com",
		},
		"another site, older browser":     {"Origin": "https://evil.example"},
		"a hidden origin, older browser":  {"Origin": "null"},
		"the right host on another port":  {"Origin": "http://127.0.0.1:1"},
		"a host that begins like the own": {"Origin": r.base + ".evil.example"},
	} {
		for _, action := range []string{"continue", "decline"} {
			t.Run(name+" "+action, func(t *testing.T) {
				form := url.Values{"session": {token.Reveal()}, "action": {action}, "network": {"example"}}
				req := b.Request(http.MethodPost, r.base+"/signin", form.Encode())
				req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				for k, v := range headers {
					req.Header.Set(k, v)
				}
				a := b.Do(req)
				a.WantPage(t, http.StatusForbidden, "Please start from your link")
				if a.Header.Get("Set-Cookie") != "" {
					t.Error("a refused press set a cookie")
				}
			})
		}
	}
	r.want(session.ID, sessions.Pending, sessions.NoReason)
}

// Behind a proxy that rewrites Host, an older browser is known by the base URL's origin.
func TestOwnPressFromOlderBrowser(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	_, token := r.session()
	b := r.browser()
	b.Get(b.page(token))
	for _, host := range []string{"", "inner.example:8080"} {
		form := url.Values{"session": {token.Reveal()}, "action": {"continue"}, "network": {"example"}}
		req := b.Request(http.MethodPost, r.base+"/signin", form.Encode())
		if req.Host = host; host != "" { // the browser knows only the outer host
			for _, c := range b.Client.Jar.Cookies(req.URL) {
				req.AddCookie(c)
			}
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=UTF-8")
		req.Header.Set("Origin", r.base)
		if to := b.To(b.Do(req)); !strings.HasPrefix(to, r.dev.Issuer()) {
			t.Errorf("leads to %q", to)
		}
	}
}

func TestForms(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	session, token := r.session()
	b := r.browser()
	const form = "application/x-www-form-urlencoded"
	own := "session=" + token.Reveal()
	for name, tc := range map[string]struct {
		media, body string
		status      int
	}{
		"no media type": {"", own + "&action=decline", http.StatusUnsupportedMediaType},
		"text":          {"text/plain", own + "&action=decline", http.StatusUnsupportedMediaType},
		"multipart": {
			"multipart/form-data; boundary=x", own + "&action=decline", http.StatusUnsupportedMediaType,
		},
		"JSON":                 {"application/json", `{"action":"decline"}`, http.StatusUnsupportedMediaType},
		"no media type at all": {";", own + "&action=decline", http.StatusUnsupportedMediaType},
		"too large": {
			form, own + "&action=decline&x=" + strings.Repeat("x", 8<<10), http.StatusRequestEntityTooLarge,
		},
		"bad escape":      {form, own + "&action=decline&x=%zz", http.StatusBadRequest},
		"no action":       {form, own, http.StatusBadRequest},
		"unknown action":  {form, own + "&action=verify", http.StatusBadRequest},
		"two actions":     {form, own + "&action=decline&action=continue", http.StatusBadRequest},
		"no network":      {form, own + "&action=continue", http.StatusBadRequest},
		"unknown network": {form, own + "&action=continue&network=other", http.StatusBadRequest},
		"two networks": {
			form, own + "&action=continue&network=example&network=example", http.StatusBadRequest,
		},
		"no session":   {form, "action=decline", http.StatusNotFound},
		"bad session":  {form, "session=x&action=decline", http.StatusNotFound},
		"two sessions": {form, own + "&" + own + "&action=decline", http.StatusNotFound},
		"unknown session": {
			form, "session=" + strings.Repeat("A", 43) + "&action=decline", http.StatusNotFound,
		},
		"session by its id": {
			form, "session=" + string(session.ID) + "&action=decline", http.StatusNotFound,
		},
		"empty": {form, "", http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			req := b.Request(http.MethodPost, r.base+"/signin?"+own+"&action=decline", tc.body)
			req.Header.Set("Content-Type", tc.media)
			a := b.Do(req)
			if a.Status != tc.status || a.Header.Get("Set-Cookie") != "" ||
				!strings.Contains(a.Body, "<h1>") {
				t.Errorf("status %d, want %d; cookie %q", a.Status, tc.status, a.Header.Get("Set-Cookie"))
			}
		})
	}
	r.want(session.ID, sessions.Pending, sessions.NoReason)
}

func TestLinksThatLeadNowhere(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	session, token := r.session()
	b := r.browser()
	for _, query := range []string{
		"?session=", "?session=x", "?session=" + token.Reveal() + "x", "?session=" + token.Reveal()[:42],
		"?session=" + token.Reveal() + "&session=" + token.Reveal(), "?session=" + strings.Repeat("A", 43),
		"?session=" + string(session.ID), "?Session=" + token.Reveal(), "?session=%zz",
	} {
		b.Get(r.base+"/"+query).WantPage(t, http.StatusNotFound, "We don’t know this link")
	}
	for _, query := range []string{"", "?"} { // the bare address: no link at all
		page := b.Get(r.base + "/" + query)
		page.WantPage(t, http.StatusNotFound, "There is nothing here")
		page.Holds(t, `href="/dashboard"`, `href="/docs"`)
	}
}

// No secret and no identity ever reaches the log.
func TestLogHoldsNoSecret(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{waiting: briefly()})
	_, token := r.session()
	b := r.browser()
	secrets := []string{token.Reveal(), "subject_marker"}
	for _, action := range []string{"error", "token-error", "sign-in"} {
		back := b.back(token, "subject_marker", action)
		for _, parameter := range []string{"state", "code"} {
			if v := mustQuery(t, back).Get(parameter); v != "" {
				secrets = append(secrets, v)
			}
		}
		b.Get(back)
		b.Get(back)
		r.browser().Get(back)
	}
	r.away()
	b.Get(b.page(token))
	for _, secret := range secrets {
		if strings.Contains(r.log.String(), secret) {
			t.Errorf("the log holds a secret:\n%s", r.log)
		}
	}
	if len(secrets) < 6 || r.outcomes("verified") != 1 {
		t.Errorf("the test saw %d secrets; log:\n%s", len(secrets), r.log)
	}
}
