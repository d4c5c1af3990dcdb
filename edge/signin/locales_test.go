package signin_test

import (
	"html"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"verifyd/edge/signin"
	"verifyd/sessions"
	"verifyd/sessions/proof"
)

var (
	headingForm = regexp.MustCompile(`<h1>(.*?)</h1>`)
	switchForm  = regexp.MustCompile(`<nav><a href="([^"]+)">.*aria-label="([^"]+)".*</svg> (.+)</a></nav>`)
	localeForm  = regexp.MustCompile(`<li><a lang="([^"]+)" href="([^"]+)"( aria-current="true")?>`)
)

func (b *browser) getIn(address, accept string) answer {
	b.t.Helper()
	req := b.Request(http.MethodGet, address, "")
	req.Header.Set("Accept-Language", accept)
	return b.Do(req)
}

// A page opens in the language that its session was started with, rather than in the browser's; what the user
// chooses there overrides both, and an unknown language leaves it to the browser.
func TestLanguageOfTheSession(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	b := r.browser()
	start := func(locale string) (sessions.Session, sessions.Token) {
		return r.session(func(q *sessions.Request) { q.Locale, q.Reference = locale, "order 4711" })
	}
	for locale, want := range map[string]string{
		"": "fr", "de": "de", "de-AT": "de", "pt-BR": "pt", "zh-TW": "zh-Hant", "en-US": "en", "xx": "fr",
		"qaa-ZZ": "fr", "x-de": "fr", "und": "fr", "fr": "fr", "AR-eg": "ar",
	} {
		_, token := start(locale)
		page := b.getIn(b.page(token), "fr-CA")
		if !strings.Contains(page.Body, `<html lang="`+want+`"`) || page.Header.Get("Content-Language") != want {
			t.Errorf("%q opens in %s, want %s", locale, page.Header.Get("Content-Language"), want)
		}
		if strings.Contains(page.Body, "4711") {
			t.Errorf("%q: the user sees the reference", locale)
		}
	}
	s, token := start("ja")
	list, links, current := b.listed(b.getIn(b.page(token), "fr"), "fr")
	if current != "ja" || !strings.Contains(list.Body, `<html lang="ja"`) {
		t.Errorf("the list of languages is in %s\n%s", current, list.Body)
	}
	for _, code := range []string{"nl", "ja"} {
		if page := b.getIn(links[code], "fr"); !strings.Contains(page.Body, `<html lang="`+code+`"`) {
			t.Errorf("chosen %s: %s", code, page.Header.Get("Content-Language"))
		}
	}
	if _, err := r.store.Complete(t.Context(), s, sessions.Outcome{
		State: sessions.Failed, Reason: sessions.Declined,
	}); err != nil {
		t.Fatal(err)
	}
	end := b.getIn(b.page(token), "fr")
	if !strings.Contains(end.Body, `<html lang="ja"`) || strings.Contains(end.Body, "4711") {
		t.Errorf("the end: %s", end.Body)
	}
}

// languages are the codes of all languages: the names of their files, sorted.
func languages(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("texts/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("texts: %v, %v", files, err)
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(filepath.Base(f), ".yaml")
	}
	slices.Sort(files)
	return files
}

// listed follows a page's link to the list of languages. It returns the list's page, the address that each
// language leads to, and the code of the one that is marked as the present one.
func (b *browser) listed(from answer, accept string) (list answer, links map[string]string, current string) {
	b.t.Helper()
	to := switchForm.FindStringSubmatch(from.Body)
	if to == nil {
		b.t.Fatalf("%s: no link to the list of languages\n%s", from.At, from.Body)
	}
	list = b.getIn(b.Resolve(from.At, html.UnescapeString(to[1])), accept)
	links = map[string]string{}
	for _, m := range localeForm.FindAllStringSubmatch(list.Body, -1) {
		links[m[1]] = b.Resolve(list.At, html.UnescapeString(m[2]))
		if m[3] != "" {
			current += m[1]
		}
	}
	return list, links, current
}

func headingOf(a answer) string {
	if m := headingForm.FindStringSubmatch(a.Body); m != nil {
		return m[1]
	}
	return ""
}

// The page is in the browser's language, or the nearest one that it has; without a usable preference it is in
// English.
func TestLanguageOfTheBrowser(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	_, token := r.session()
	b := r.browser()
	for accept, want := range map[string]string{
		"": "en", "en-GB": "en", "de": "de", "de-AT,de;q=0.9": "de", "gsw": "de", "fr-CA": "fr",
		"es-419": "es", "pt-PT": "pt", "pt-BR": "pt", "pl": "pl",
		"tr": "tr", "ja-JP": "ja", "ko": "ko", "ar-EG": "ar", "nl-BE": "nl", "hi-IN": "hi", "it-CH": "it",
		"th-TH": "th", "vi-VN": "vi", "ru-UA, uk;q=0.9": "ru", "uk-UA, ru;q=0.9": "uk",
		"id-ID": "id", "in-ID": "id", // Java's older code
		"zh": "zh-Hans", "zh-CN": "zh-Hans", "zh-SG": "zh-Hans", "zh-Hans-HK": "zh-Hans",
		"zh-TW": "zh-Hant", "zh-HK": "zh-Hant", "zh-MO": "zh-Hant", "zh-Hant-CN": "zh-Hant",
		"la,pl;q=0.5": "pl", "tlh": "en",
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

// The page leads to a list that has every language under its own name, and the choice lasts through the
// press, the provider and the return, although the browser prefers another. It needs neither script nor
// cookie, and only a language's code in the address.
func TestLanguageSwitch(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{prefix: "/v"})
	_, token := r.session()
	b := r.browser()
	ask := b.getIn(b.page(token), "fr")
	if m := switchForm.FindStringSubmatch(ask.Body); m == nil || m[2] != "Langue" || m[3] != "Français" {
		t.Errorf("the link to the list: %q", m)
	}
	list, links, current := b.listed(ask, "fr")
	list.WantPage(t, http.StatusOK, "Langue")
	if have := slices.Sorted(maps.Keys(links)); !slices.Equal(have, languages(t)) || current != "fr" {
		t.Fatalf("the list: %v, at present %q", links, current)
	}
	if back := b.getIn(links["fr"], "fr"); headingOf(back) != headingOf(ask) {
		t.Errorf("the present language leads back to %q", headingOf(back))
	}
	turkish := b.getIn(links["tr"], "fr")
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
	list, links, current = b.listed(failure, "fr")
	if headingOf(list) != "Dil" || current != "tr" {
		t.Errorf("the list of a page in Turkish: %q, at present %q", headingOf(list), current)
	}
	for lang, says := range map[string]string{"pl": "nie zostało ukończone", "tr": "tamamlanmadı"} {
		if !strings.Contains(b.Get(links[lang]).Body, says) {
			t.Errorf("the notice goes with the language: %s", lang)
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

// Every page of a session links to the list of languages, which links back to it.
func TestLanguagesOfEveryState(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{waiting: briefly()})
	b := r.browser()
	ended := func(o sessions.Outcome) sessions.Token {
		session, token := r.session()
		if _, err := r.store.Complete(t.Context(), session, o); err != nil {
			t.Fatal(err)
		}
		return token
	}
	_, pending := r.session()
	_, held := r.session()
	r.browser().press(held)
	_, confirm := r.session(asking(proof.Code))
	b.signsIn(confirm, "example", "somebody")
	_, signedIn := r.session(asking(proof.Code))
	r.browser().signsIn(signedIn, "example", "somebody")
	canceled := sessions.Outcome{State: sessions.Canceled, Reason: sessions.CanceledReason}
	declined := sessions.Outcome{State: sessions.Failed, Reason: sessions.Declined}
	headings := map[string]string{
		r.page(pending):  headingAsk,
		r.page(held):     headingElsewhere,
		r.page(confirm):  headingConfirm,
		r.page(signedIn): headingSignedIn,
		r.page(ended(sessions.Outcome{State: sessions.Verified})): headingVerified,
		r.page(ended(declined)):                                   headingNotVerified,
		r.page(ended(canceled)):                                   "No longer needed",
		r.base + "/?session=x":                                    "We don’t know this link",
		r.base + "/?session=" + strings.Repeat("A", 43):           "We don’t know this link",
	}
	check := func(heading, address string) {
		t.Helper()
		page := b.Get(address)
		if headingOf(page) != heading {
			t.Errorf("%s: heading %q, want %q", address, headingOf(page), heading)
		}
		_, links, _ := b.listed(page, "")
		if back := b.Get(links["en"]); headingOf(back) != headingOf(page) || back.Status != page.Status {
			t.Errorf("%q: the list leads back to %q", heading, headingOf(back))
		}
		if other := b.Get(links["ja"]); other.Status != page.Status ||
			other.Header.Get("Content-Language") != "ja" {
			t.Errorf("%q: the list leads to %q", heading, headingOf(other))
		}
	}
	for address, heading := range headings {
		check(heading, address)
	}
	press := b.continues(held)
	press.WantPage(t, http.StatusConflict, headingElsewhere)
	press.Lacks(t, "<nav") // its address cannot be opened again
	yes := func() bool { return true }
	r.closed.Store(&yes)
	check(headingClosed, r.page(pending))
	r.clock.advance(sessions.Lifetime)
	check("This link has expired", r.page(pending))
	r.away()
	check("One moment, please", r.page(pending))
}

// The list of languages is one page for all states, sessions and addresses. It says nothing about a session,
// reads nothing from the store, changes nothing, sets no cookie, and repeats only known parts of an address.
func TestListOfLanguages(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{prefix: "/v", waiting: briefly()})
	session, token := r.session()
	b := r.browser()
	other := strings.Repeat("A", 43) // or never existed: the list does not know
	before := r.sequences()
	plain := b.getIn(r.base+"/?lang=", "de")
	plain.WantPage(t, http.StatusOK, "Sprache")
	plain.Holds(t, "<title>Sprache</title>", `<a lang="ja" href="?lang=ja"><bdi>日本語</bdi></a>`,
		`<a lang="ar" href="?lang=ar"><bdi>العربية</bdi></a>`,
		`<a lang="de" href="?lang=de" aria-current="true"><bdi>Deutsch</bdi></a>`)
	plain.Lacks(t, "<nav", "<form", "<script")
	b.Get(r.base+"/?lang=&from=ar").Holds(t, `<html lang="ar" dir="rtl">`,
		`<a lang="en" href="?lang=en"><bdi>English</bdi></a>`,
		`<a lang="ar" href="?lang=ar" aria-current="true"><bdi>العربية</bdi></a>`)
	for query, keeps := range map[string]string{
		"?session=" + token.Reveal() + "&lang=": "session=" + token.Reveal() + "&",
		"?lang=&session=" + other:               "session=" + other + "&",
		"?session=" + token.Reveal() + "&lang=&note=unfinished": "note=unfinished&session=" +
			token.Reveal() + "&",
		"?lang=&session=" + token.Reveal() + "x": "",
		"?lang=&session=%22%3E%3Cb%3E":           "",
		"?lang=&session=https://evil.example":    "",
		"?lang=&session=&note=evil&network=evil": "",
		"?lang=&session=a&session=b&from=%22%3E": "",
		"?lang=&//evil.example/=evil&end=evil":   "",
		"?lang=&session=%zz":                     "",
	} {
		a := b.getAs(r.base+"/"+query, agentPhone)
		want := strings.ReplaceAll(b.Get(r.base+"/?lang=").Body, `href="?lang`,
			`href="?`+strings.ReplaceAll(keeps, "&", "&amp;")+"lang")
		if a.Status != http.StatusOK || a.Body != want || a.Header.Get("Set-Cookie") != "" {
			t.Errorf("%s: %d, cookie %q\n%s\nwant\n%s", query, a.Status, a.Header.Get("Set-Cookie"), a.Body,
				want)
		}
		checkHeaders(t, query, a)
	}
	head := b.Do(b.Request(http.MethodHead, b.page(token)+"&lang=", ""))
	if head.Status != http.StatusOK || head.Body != "" {
		t.Errorf("HEAD: %d, %q", head.Status, head.Body)
	}
	if err := r.conn.NC.Flush(); err != nil {
		t.Fatal(err)
	}
	if after := r.sequences(); !maps.Equal(before, after) {
		t.Errorf("streams went from %v to %v", before, after)
	}
	r.want(session.ID, sessions.Pending, sessions.NoReason)
	r.away()
	b.Get(b.page(token)).WantPage(t, http.StatusServiceUnavailable, "One moment, please")
	b.Get(b.page(token)+"&lang=").WantPage(t, http.StatusOK, "Language")
}

// Values that others typed stay isolated on a page with the other text direction.
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

// "Back to …" is shown only after the end, and leads where the account says; no request can change it.
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

// The requester's sign is rendered in the account's colour, with a letter of sufficient contrast.
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
