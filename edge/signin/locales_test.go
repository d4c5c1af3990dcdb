package signin_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"verifyd/edge/signin"
	"verifyd/sessions"
)

var (
	headingForm = regexp.MustCompile(`<h1>(.*?)</h1>`)
	localeForm  = regexp.MustCompile(`<li lang="([^"]+)"[^>]*>(?:<a href="([^"]+)">|<b )`)
)

func (b *browser) getIn(address, accept string) answer {
	b.t.Helper()
	req := b.Request(http.MethodGet, address, "")
	req.Header.Set("Accept-Language", accept)
	return b.Do(req)
}

func headingOf(a answer) string {
	if m := headingForm.FindStringSubmatch(a.Body); m != nil {
		return m[1]
	}
	return ""
}

// The page speaks the browser's language, or the nearest one that it has; what is no wish at all reads as
// English.
func TestLanguageOfTheBrowser(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	_, token := r.session()
	b := r.browser()
	for accept, want := range map[string]string{
		"": "en", "en-GB": "en", "de": "de", "de-AT,de;q=0.9": "de", "gsw": "de", "fr-CA": "fr",
		"es-419": "es", "pt-PT": "pt", "pt-BR": "pt", "pl": "pl",
		"tr": "tr", "ja-JP": "ja", "ko": "ko", "zh-CN": "zh-Hans", "zh": "zh-Hans", "ar-EG": "ar",
		"nl,pl;q=0.5": "pl", "tlh": "en",
		"fr;q=0.2, de;q=0.8": "de", "*": "en", "x": "en", ",,;q=": "en", strings.Repeat("de,", 2000): "en",
		"de\x80": "en",
	} {
		a := b.getIn(b.page(token), accept)
		dir := map[bool]string{true: "rtl", false: "ltr"}[want == "ar"]
		if !strings.Contains(a.Body, `<html lang="`+want+`" dir="`+dir+`">`) ||
			a.Header.Get("Content-Language") != want {
			t.Errorf("%.20q: Content-Language %q, want %q", accept, a.Header.Get("Content-Language"), want)
		}
		if vary := a.Header.Get("Vary"); !strings.Contains(vary, "Accept-Language") {
			t.Errorf("Vary: %q", vary)
		}
	}
}

// The switch has every language under its own name, and what was chosen there lasts over the press, the
// provider and the return, though the browser wishes another. It needs neither script nor cookie, and nothing
// in the address but a language's code.
func TestLanguageSwitch(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{prefix: "/v"})
	_, token := r.session()
	b := r.browser()
	ask := b.getIn(b.page(token), "fr")
	links := map[string]string{}
	for _, m := range localeForm.FindAllStringSubmatch(ask.Body, -1) {
		links[m[1]] = strings.ReplaceAll(m[2], "&amp;", "&")
	}
	if len(links) != 11 || links["fr"] != "" ||
		!strings.Contains(ask.Body, `<b aria-current="true">Français</b>`) {
		t.Fatalf("the switch: %v", links)
	}
	turkish := b.getIn(b.Resolve(ask.At, links["tr"]), "fr")
	if headingOf(turkish) != "Bu siz misiniz?" {
		t.Fatalf("the switch leads to %q", headingOf(turkish))
	}
	form := url.Values{
		"session": {token.Reveal()}, "action": {"continue"}, "network": {"example"}, "lang": {"tr"},
	}
	if !strings.Contains(turkish.Body, `<input type="hidden" name="lang" value="tr">`) {
		t.Error("the form forgets the language")
	}
	failure := b.Follow(b.Get(b.signIn(b.To(b.Post(r.base+"/signin", form)), "x", "error")))
	if headingOf(failure) != "Bu siz misiniz?" || !strings.Contains(failure.Body, "tamamlanmadı") {
		t.Errorf("after trouble: %q", headingOf(failure))
	}
	for _, m := range localeForm.FindAllStringSubmatch(failure.Body, -1) {
		if m[1] == "pl" &&
			!strings.Contains(b.Get(b.Resolve(failure.At, strings.ReplaceAll(m[2], "&amp;", "&"))).Body,
				"nie zostało ukończone") {
			t.Error("the notice goes with the language")
		}
	}
	end := b.Follow(b.Get(b.signIn(b.To(b.Post(r.base+"/signin", form)), "x", "sign-in")))
	if headingOf(end) != "Doğrulandınız" {
		t.Errorf("the end: %q", headingOf(end))
	}
	form.Set("lang", "<b>")
	if other := b.Post(r.base+"/signin", form); strings.Contains(other.Header.Get("Location"), "lang") {
		t.Errorf("a language that there is not is kept: %s", other.Header.Get("Location"))
	}
	for _, bad := range []string{"xx", "EN", "de,fr", "../en", "<b>", "zh"} {
		if a := b.getIn(b.page(token)+"&lang="+url.QueryEscape(bad),
			"ja"); a.Header.Get("Content-Language") != "ja" {
			t.Errorf("lang=%s: %q", bad, a.Header.Get("Content-Language"))
		}
	}
}

// Values that others typed stay isolated in their direction on a page that runs the other way.
func TestValuesOnARightToLeftPage(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	_, token := r.session(func(q *sessions.Request) { q.PlatformUserID = "abc (1)" })
	b := r.browser()
	body := b.Get(b.page(token) + "&lang=ar").Body
	for _, part := range []string{
		"<bdi>abc (1)</bdi>", "<bdi>Harbor Guild</bdi>", "<bdi>Example Network</bdi>",
	} {
		if !strings.Contains(body, part) {
			t.Errorf("the page lacks %q", part)
		}
	}
}

// "Back to …" stands after the end only, and leads where the account says; no request has a say in it.
func TestReturnURL(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	b := r.browser()
	const link = `<a class="button" href="https://harbor.example/done?from=verify" rel="noreferrer">Back to <bdi>Harbor Guild</bdi></a>`
	mine := func(q *sessions.Request) { q.Account = "acc_back" }
	session, token := r.session(mine)
	if body := b.Get(b.page(token) + "&return_url=https://evil.example").
		Body; strings.Contains(body, "harbor.example") || strings.Contains(body, "evil") {
		t.Error("a link back before the end")
	}
	b.Get(b.back(token, "x", "sign-in"))
	r.want(session.ID, sessions.Verified, sessions.NoReason)
	end := b.Get(b.page(token) + "&return_url=https://evil.example&return=https://evil.example")
	if end.Status != http.StatusOK || !strings.Contains(end.Body, link) ||
		strings.Contains(end.Body, "evil") || end.Header.Get("Location") != "" {
		t.Errorf("the end: %d\n%s", end.Status, end.Body)
	}
	_, other := r.session()
	if body := b.Follow(b.act(other, "decline")).Body; strings.Contains(body, "Back to") {
		t.Error("an account without a return URL has a link back")
	}
}

// The requester's sign is drawn from the account's colour, with a letter that stands out from it.
func TestSign(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	b := r.browser()
	_, token := r.session(func(q *sessions.Request) { q.Account = "acc_back" })
	if body := b.Get(b.page(token)).Body; !strings.Contains(body, `fill="#1f5fd0"`) ||
		!strings.Contains(body, `fill="#ffffff">H</text>`) {
		t.Errorf("no sign:\n%s", body)
	}
	_, token = r.session()
	if strings.Contains(b.Get(b.page(token)).Body, `class="mark"`) {
		t.Error("an account without a colour has a sign")
	}
}

var _ signin.Accounts = requesters{}
