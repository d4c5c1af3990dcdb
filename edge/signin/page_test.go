package signin_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"verifyd/edge/signin"
	"verifyd/sessions"
)

// rows returns the foreign values, as the page shows them.
var rows = regexp.MustCompile(`<dd><bdi(?: class="long")?>(.*?)</bdi></dd>`)

func TestValuesOfOthers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ value, shown string }{
		"markup":       {`<script>alert(1)</script>`, `&lt;script&gt;alert(1)&lt;/script&gt;`},
		"quotes":       {`"'><b a='`, `&#34;&#39;&gt;&lt;b a=&#39;`},
		"template":     {`{{.Session}}`, `{{.Session}}`},
		"entity":       {`&lt;`, `&amp;lt;`},
		"override":     {"a\u202Ecod", "a<i>U+202E</i>cod"},
		"Hebrew":       {"שלום", "שלום"},
		"two lines":    {"a\nb", "a<i>U+000A</i>b"},
		"emoji family": {"👩‍👧", "👩‍👧"},
		"close bdi":    {"</bdi></dd>", "&lt;/bdi&gt;&lt;/dd&gt;"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, setup{})
			_, token := r.session(func(q *sessions.Request) {
				q.PlatformUserID, q.Platform, q.GuildID = tc.value, tc.value, tc.value
			})
			b := r.browser()
			body := b.Get(b.page(token)).Body
			found := rows.FindAllStringSubmatch(body, -1)
			if len(found) != 3 {
				t.Fatalf("%d rows\n%s", len(found), body)
			}
			for _, row := range found {
				if row[1] != tc.shown {
					t.Errorf("shown as %q, want %q", row[1], tc.shown)
				}
			}
		})
	}
}

func TestRows(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	b := r.browser()
	_, token := r.session(func(q *sessions.Request) { q.GuildID = "" })
	if body := b.Get(b.page(token)).Body; strings.Contains(body, "Group") {
		t.Error("an empty group is shown")
	}
	_, token = r.session(func(q *sessions.Request) { q.Test = true })
	if body := b.Get(b.page(token)).Body; !strings.Contains(body, "<b>TEST</b>") {
		t.Error("a test session is not marked")
	}
	_, token = r.session(func(q *sessions.Request) { q.Account = "acc_gone" })
	if body := b.Get(b.page(token)).
		Body; !strings.Contains(body, "<bdi>The sender of this link</bdi> asks you") {
		t.Errorf("an account without a name:\n%s", body)
	}
}

// How people know the user and the group stands first, the ids beneath; a name that is the id stands once. A
// known platform is written as people write it. Names are as foreign as ids.
func TestNamesStandAboveIDs(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	b := r.browser()
	shown := func(change func(*sessions.Request)) string {
		_, token := r.session(change)
		return b.Get(b.page(token)).Body
	}
	body := shown(func(q *sessions.Request) {
		q.DisplayName, q.GroupName, q.GuildID = "Ahab\u202e<b>", "Pequod", ""
	})
	for _, want := range []string{
		"<dd><bdi>Ahab<i>U+202E</i>&lt;b&gt;</bdi><small><bdi>sailor_42</bdi></small></dd>",
		"<dd><bdi>Pequod</bdi></dd>", "<dd><bdi>Discord</bdi></dd>",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("%s is missing in\n%s", want, body)
		}
	}
	for _, name := range []string{"Starbuck", "Ishmael"} { // pages are kept, their names are not
		body = shown(func(q *sessions.Request) { q.DisplayName = name })
		if !strings.Contains(body, "<dd><bdi>"+name+"</bdi><small>") {
			t.Errorf("%s is missing in\n%s", name, body)
		}
	}
	body = shown(func(q *sessions.Request) { q.DisplayName, q.Platform = "sailor_42", "disco" })
	for _, want := range []string{"<dd><bdi>sailor_42</bdi></dd>", "<dd><bdi>disco</bdi></dd>"} {
		if !strings.Contains(body, want) {
			t.Errorf("%s is missing in\n%s", want, body)
		}
	}
}

// A link that was copied with what closed its sentence is that link.
func TestPunctuationAfterALink(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	_, token := r.session()
	b := r.browser()
	link := b.page(token)
	want := b.Get(link)
	want.WantPage(t, http.StatusOK, headingAsk)
	for _, after := range []string{".", ",", "!?", `."`, ").", "»", "。", "*"} {
		if got := b.Get(link + url.QueryEscape(after)).Body; got != want.Body {
			t.Errorf("with %s after it, another page:\n%s", after, got)
		}
	}
	for _, after := range []string{"A", ".A", "-", "_", "/"} {
		b.Get(link+url.QueryEscape(after)).WantPage(t, http.StatusNotFound, "We don’t know this link")
	}
}

func TestNotesAreOnlyLookedUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	_, token := r.session()
	b := r.browser()
	plain := b.Get(b.page(token)).Body
	for _, query := range []string{
		"&note=x", "&note=%3Cb%3E", "&note=", "&note=unfinished&note=unfinished", "&note=ask.heading",
	} {
		if got := b.Get(b.page(token) + query).Body; got != plain {
			t.Errorf("%s changes the page:\n%s", query, got)
		}
	}
	body := b.Get(b.page(token) + "&note=unfinished&network=%3Cb%3Eevil").Body
	if strings.Contains(body, "evil") || !strings.Contains(body, "Nothing was decided") {
		t.Errorf("the notice:\n%s", body)
	}
}

// 1,024 bytes in each of the three values, in the characters that take most space.
func TestWeight(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	b := r.browser()
	total := func(address string) int {
		body := b.Get(address).Body
		n := len(body)
		for _, asset := range assetsOf(body) {
			n += len(b.Get(r.server.URL + asset).Body)
		}
		return n
	}
	for _, value := range []string{
		strings.Repeat("x", 1024), strings.Repeat("<", 1024), strings.Repeat("\x01", 1024),
		strings.Repeat("'", 1024),
	} {
		_, token := r.session(func(q *sessions.Request) {
			q.PlatformUserID, q.Platform, q.GuildID = value, value, value
		})
		for _, query := range []string{"", "&note=unconfirmed&lang="} { // the question, the list of languages
			if n := total(b.page(token) + query); n >= 30_000 {
				t.Errorf("%.8q…, %q: %d bytes, want under 30,000", value, query, n)
			}
		}
	}
}

var assetForm = regexp.MustCompile(`(?:href|src)="([^"]*/assets/[^"]+)"`)

func assetsOf(body string) (paths []string) {
	for _, m := range assetForm.FindAllStringSubmatch(body, -1) {
		paths = append(paths, html.UnescapeString(m[1]))
	}
	return paths
}

func TestAssets(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{prefix: "/v"})
	_, token := r.session()
	b := r.browser()
	paths := assetsOf(b.Get(b.page(token)).Body)
	if len(paths) != 2 {
		t.Fatalf("assets: %v", paths)
	}
	for _, p := range paths {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			a := b.Do(b.Request(method, r.server.URL+p, ""))
			if a.Status != http.StatusOK ||
				a.Header.Get("Cache-Control") != "public, max-age=31536000, immutable" ||
				a.Header.Get("X-Content-Type-Options") != "nosniff" ||
				(a.Body == "") != (method == http.MethodHead) {
				t.Errorf("%s %s: %d, %v", method, p, a.Status, a.Header)
			}
		}
		if !regexp.MustCompile(`^/v/assets/[a-z]+-[0-9a-f]{12}\.(css|svg)$`).MatchString(p) {
			t.Errorf("address %q", p)
		}
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]setup{"plain": {}, "https": {tls: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, s)
			_, token := r.session()
			b := r.browser()
			form := url.Values{"session": {token.Reveal()}, "action": {"continue"}, "network": {"example"}}
			answers := map[string]answer{
				"ask":       b.Get(b.page(token)),
				"card":      b.getAs(b.page(token), signin.PreviewAgents[0]),
				"app":       b.getAs(b.page(token), agentInsta),
				"cookies":   r.browser().continues(token),
				"languages": b.Get(b.page(token) + "&lang="),
				"unknown":   b.Get(r.base + "/?session=x"),
				"nowhere":   b.Get(r.base + "/"),
				"lost":      b.Get(r.base + "/signin/example/callback?state=x"),
				"malformed": b.Post(r.base+"/signin", url.Values{"session": {token.Reveal()}}),
				"redirect":  b.Post(r.base+"/signin", form),
				"trouble":   b.Get(b.back(token, "x", "error")),
				"return":    b.Get(b.back(token, "x", "sign-in")),
				"verified":  b.Get(b.page(token)),
			}
			_, held := r.session()
			b.press(held)
			answers["elsewhere"] = r.browser().Get(b.page(held))
			answers["stopped"] = b.act(held, "stop")
			for name, a := range answers {
				checkHeaders(t, name, a)
			}
			policy := answers["ask"].Header.Get("Content-Security-Policy")
			if want := "form-action 'self' https: " + r.dev.Issuer(); !s.tls &&
				!strings.HasSuffix(b.policyAfterDiscovery(token), want) {
				t.Errorf("policy %q, want it to end in %q", policy, want)
			}
			if !strings.HasSuffix(answers["verified"].Header.Get("Content-Security-Policy"),
				"form-action 'none'") {
				t.Error("a page without a form allows one")
			}
		})
	}
}

// policyAfterDiscovery is the policy of another session's page once the network's address is known.
func (b *browser) policyAfterDiscovery(sessions.Token) string {
	_, token := b.r.session()
	return b.Get(b.page(token)).Header.Get("Content-Security-Policy")
}

func checkHeaders(t *testing.T, page string, a answer) {
	t.Helper()
	for name, want := range map[string]string{
		"Cache-Control":                "no-store",
		"Referrer-Policy":              "no-referrer",
		"X-Content-Type-Options":       "nosniff",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
		"X-Robots-Tag":                 "noindex",
	} {
		if got := a.Header.Get(name); got != want {
			t.Errorf("%s: %s: %q, want %q", page, name, got, want)
		}
	}
	csp := a.Header.Get("Content-Security-Policy")
	for _, part := range []string{
		"default-src 'none'", "style-src 'self'", "base-uri 'none'", "frame-ancestors 'none'", "form-action ",
	} {
		if !strings.Contains(csp, part) {
			t.Errorf("%s: policy %q lacks %q", page, csp, part)
		}
	}
	if strings.Contains(csp, "unsafe") || a.Header.Get("Permissions-Policy") == "" {
		t.Errorf("%s: policies %q, %q", page, csp, a.Header.Get("Permissions-Policy"))
	}
	if a.Status != http.StatusSeeOther && a.Header.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Errorf("%s: media type %q", page, a.Header.Get("Content-Type"))
	}
	if a.Status == http.StatusSeeOther && a.Body != "" {
		t.Errorf("%s: a redirect with the body %q", page, a.Body)
	}
}

// Before the network's address is known, plain http may lead to this machine; https never does.
func TestPolicyBeforeDiscovery(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]setup{
		"form-action 'self' https: http://localhost:* http://127.0.0.1:*": {},
		"form-action 'self' https:":                                       {tls: true},
	} {
		r := newRig(t, s)
		_, token := r.session()
		b := r.browser()
		if csp := b.Get(b.page(token)).Header.Get("Content-Security-Policy"); !strings.HasSuffix(csp, want) {
			t.Errorf("policy %q, want it to end in %q", csp, want)
		}
	}
}
