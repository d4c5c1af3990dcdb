package signin_test

import (
	"bytes"
	"html"
	"image"
	"image/color"
	"image/png"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"verifyd/edge/account/branding"
	"verifyd/edge/account/branding/logo"
	"verifyd/edge/signin"
	"verifyd/sessions"
	"verifyd/sessions/proof"
)

// branded is the branding of account acc_branded: every colour, and a logo of the maximum size, a drawing
// with a transparent background.
func branded() branding.Branding {
	const width, height = 288, 96
	drawing := image.NewNRGBA(image.Rect(0, 0, width, height))
	for x := range width {
		for y := range height {
			if dx, dy := (x-width/2)/3, y-height/2; dx*dx+dy*dy < height*height/4 {
				drawing.SetNRGBA(x, y, color.NRGBA{uint8(x / 2), 0x5f, 0xd0, 0xff})
			}
		}
	}
	var encoded bytes.Buffer
	if err := png.Encode(&encoded, drawing); err != nil {
		panic(err) // a buffer accepts everything
	}
	// what follows the end of a PNG is not read
	padded := slices.Concat(encoded.Bytes(), make([]byte, logo.MaxBytes-encoded.Len()))
	picture := branding.NewLogo(padded, width, height)
	return branding.Branding{Accent: "#7a4100", AccentDark: "#ffd500", Button: "#ffd500", Logo: picture}
}

var (
	sheetForm   = regexp.MustCompile(`<link rel="stylesheet" href="([^"]*/branding/colours/[^"]+)">`)
	pictureForm = regexp.MustCompile(`<img class="logo" src="([^"]+)" width="144" height="48" alt="">`)
)

// An account's colours and logo come from this service's own origin, under addresses that change with them,
// and the policy of the page is that of every other account's.
func TestBrandedPage(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{prefix: "/v"})
	b := r.browser()
	mine := func(q *sessions.Request) { q.Account = "acc_branded" }
	_, plainToken := r.session()
	plain := b.Get(b.page(plainToken))
	if sheetForm.MatchString(plain.Body) || strings.Contains(plain.Body, `class="logo"`) {
		t.Errorf("an account without looks has some\n%s", plain.Body)
	}
	s, token := r.session(mine)
	ask := b.Get(b.page(token))
	if got, want := ask.Header.Get("Content-Security-Policy"),
		plain.Header.Get("Content-Security-Policy"); got != want ||
		!strings.Contains(got, "style-src 'self'; img-src 'self'") || strings.Contains(ask.Body, "style=") ||
		strings.Contains(ask.Body, "<style") {
		t.Errorf("policy %q, want %q", got, want)
	}
	sheet, picture := sheetForm.FindStringSubmatch(ask.Body), pictureForm.FindStringSubmatch(ask.Body)
	if sheet == nil || picture == nil || strings.Contains(ask.Body, `class="mark"`) {
		t.Fatalf("no colours, no logo, or a sign beside it\n%s", ask.Body)
	}
	for address, media := range map[string]string{sheet[1]: "text/css; charset=utf-8",
		picture[1]: "image/png"} {
		a := b.Get(r.server.URL + html.UnescapeString(address))
		if !strings.HasPrefix(address, "/v/branding/") || a.Status != http.StatusOK ||
			a.Header.Get("Content-Type") != media || a.Header.Get("X-Content-Type-Options") != "nosniff" ||
			a.Header.Get("Cache-Control") != "public, max-age=31536000, immutable" ||
			a.Header.Get("Cross-Origin-Resource-Policy") != "same-origin" ||
			!strings.Contains(a.Header.Get("Content-Security-Policy"), "default-src 'none'") ||
			a.Header.Get("Set-Cookie") != "" {
			t.Errorf("%s: %d, %v", address, a.Status, a.Header)
		}
	}
	if got := b.Get(r.server.URL + picture[1]).Body; got != string(branded().Logo.PNG) {
		t.Errorf("the logo has %d bytes", len(got))
	}
	css := b.Get(r.server.URL + sheet[1]).Body
	if css != "@media(prefers-color-scheme:light){:root{--action:#7a4100}}"+
		"@media(prefers-color-scheme:dark){:root{--action:#ffd500}}.main{background:#ffd500;color:#14181f}" {
		t.Errorf("the sheet: %s", css)
	}
	if _, err := r.store.Complete(t.Context(), s, sessions.Outcome{
		State: sessions.Failed, Reason: sessions.Declined,
	}); err != nil {
		t.Fatal(err)
	}
	if end := b.Get(b.page(token)); !sheetForm.MatchString(end.Body) {
		t.Errorf("the end is without colours\n%s", end.Body)
	}
	_, coded := r.session(mine, func(q *sessions.Request) { q.Level = proof.Code })
	if code := b.Follow(b.Get(b.back(coded, "x", "sign-in"))); !sheetForm.MatchString(code.Body) ||
		!pictureForm.MatchString(code.Body) || !strings.Contains(code.Body, "<kbd") {
		t.Errorf("the code is without looks\n%s", code.Body)
	}
}

// Branding that no account has is not found, however it is requested.
func TestOtherBrandingIsNotThere(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	b := r.browser()
	digest := branded().Logo.Digest
	for _, path := range []string{
		"/branding/colours/a-ffd500", "/branding/colours/a-ffd500.css", "/branding/colours/affd50--.css",
		"/branding/colours/aFFD500--.css", "/branding/colours/b--.css", "/branding/colours/a--}body{.css",
		"/branding/colours/a--%0a.css", "/branding/logo/acc_branded/" + digest,
		"/branding/logo/acc_branded/x.png",
		"/branding/logo/acc_harbor/" + digest + ".png", "/branding/logo/acc_none/" + digest + ".png",
		"/branding/logo/acc_branded/" + strings.ToUpper(digest) + ".png",
	} {
		a := b.Get(r.server.URL + path)
		if a.Status != http.StatusNotFound || strings.Contains(a.Header.Get("Cache-Control"), "public") {
			t.Errorf("%s: %d, %v", path, a.Status, a.Header)
		}
	}
	if a := b.Get(r.server.URL + "/branding/logo/acc_branded/" + digest + ".png"); a.Status != http.StatusOK {
		t.Errorf("the logo itself: %d", a.Status)
	}
}

// A page of hostile values stays within its size with colours, and an ordinary one with the largest logo.
func TestWeightOfBranding(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	b := r.browser()
	weight := func(value string) (page, picture int) {
		_, token := r.session(func(q *sessions.Request) {
			q.Account = "acc_branded"
			if value != "" {
				q.PlatformUserID, q.Platform, q.GuildID = value, value, value
			}
		})
		body := b.Get(b.page(token)).Body
		page = len(body)
		for _, asset := range append(assetsOf(body), sheetForm.FindStringSubmatch(body)[1]) {
			page += len(b.Get(r.server.URL + asset).Body)
		}
		return page, len(b.Get(r.server.URL + pictureForm.FindStringSubmatch(body)[1]).Body)
	}
	if page, picture := weight(""); page+picture >= 30_000 || picture != logo.MaxBytes {
		t.Errorf("an ordinary page with a logo of %d: %d bytes, want under 30,000", picture, page+picture)
	}
	for _, value := range []string{strings.Repeat("<", 1024), strings.Repeat("\x01", 1024)} {
		if page, _ := weight(value); page >= 30_000 {
			t.Errorf("%.8q…: %d bytes, want under 30,000", value, page)
		}
	}
}

// Every state has a preview, with the given branding, in a frame of this service and of no other; and nothing
// in it can be pressed.
func TestPreviewOfEveryState(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	bodies := map[string]bool{}
	for _, state := range signin.Previews() {
		a := r.preview(signin.Requester{
			ID: "acc_1", Name: "Harbor <Guild>", ReturnURL: "https://harbor.example/done",
			Branding: branded(),
		}, "?state="+state+"&button=%23%22%3E&lang=de", state)
		policy := a.Header.Get("Content-Security-Policy")
		if a.Status != http.StatusOK || !sheetForm.MatchString(a.Body) || !strings.Contains(policy,
			"frame-ancestors 'self'; form-action 'none'") || !strings.Contains(a.Body, `<html lang="de"`) {
			t.Errorf("%s: %d, %s\n%s", state, a.Status, policy, a.Body)
		}
		if n := strings.Count(a.Body, "<button"); n != strings.Count(a.Body, ` type="button"`) {
			t.Errorf("%s: something can be pressed\n%s", state, a.Body)
		}
		if strings.Contains(a.Body, "<Guild>") || strings.Contains(a.Body, `button=#"`) {
			t.Errorf("%s: something stands unescaped\n%s", state, a.Body)
		}
		_, main, _ := strings.Cut(a.Body, "<h1>")
		bodies[main] = true
	}
	if len(bodies) != len(signin.Previews()) || len(bodies) < 10 {
		t.Errorf("%d states look different", len(bodies))
	}
	_, token := r.session()
	b := r.browser()
	if policy := b.Get(b.page(token)).Header.Get("Content-Security-Policy"); !strings.Contains(policy,
		"frame-ancestors 'none'") {
		t.Errorf("a real page may stand in a frame: %s", policy)
	}
}
