package dashboard_test

import (
	"bytes"
	"image"
	"image/png"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// Owners set what users see, without a script; errors are shown at their field, with what was typed.
func TestBrandingPage(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	b := r.as("olga")
	const at = "/dashboard/sign-in-page"
	post := func(what, field, value string) answer {
		t.Helper()
		return b.post(at+"/"+what, "account", a.ID, field, value)
	}
	wrong := func(page answer, field, typed, says string) {
		t.Helper()
		page.Want(t, http.StatusUnprocessableEntity, says)
		if !strings.Contains(page.Body, `id="`+field+`-fault"`) || !strings.Contains(page.Body, typed) {
			t.Errorf("%s: no fault beside it, or %q is gone\n%s", field, typed, page.Body)
		}
	}
	b.Get("/dashboard/settings").Want(t, http.StatusOK, "Change what your users see", "no sign")
	b.Get(at).Want(t, http.StatusOK, "Save looks", "Save sites", "Save address", "Every state of the page")

	wrong(b.upload(at+"/look", nil, "account", a.ID, "colour", "cornflower", "colour_own", "yes"), "colour",
		` checked`, "write red, green and blue in hexadecimal")
	b.Follow(b.upload(at+"/look", nil, "account", a.ID, "colour", " #1F5FD0 ", "colour_own", "yes")).
		Want(t, http.StatusOK, "Saved.")
	wrong(post("return-url", "return_url", "https://harbor.example/done"), "return_url",
		`value="https://harbor.example/done"`, "allow it first")
	wrong(post("return-origins", "return_origins", "https://harbor.example\nharbor.example"),
		"return_origins", ">https://harbor.example\nharbor.example<", "does not begin with https://")
	b.Follow(post("return-origins", "return_origins",
		"https://harbor.example\r\n\r\nhttps://www.harbor.example/")).
		Want(t, http.StatusOK, "https://harbor.example\nhttps://www.harbor.example")
	wrong(post("return-url", "return_url", "https://evil.example/"), "return_url",
		`value="https://evil.example/"`, "https://harbor.example or https://www.harbor.example")
	b.Follow(post("return-url", "return_url", "https://harbor.example/done?a=<b>")).
		Want(t, http.StatusOK, "Saved.")
	wrong(post("return-origins", "return_origins", ""), "return_origins", "</textarea>",
		"change the link before you remove that site")
	page := b.Get(at)
	if !strings.Contains(page.Body, `value="#1f5fd0"`) ||
		!strings.Contains(page.Body, `value="https://harbor.example/done?a=&lt;b&gt;"`) {
		t.Errorf("the page does not show what stands\n%s", page.Body)
	}
	got, err := r.accounts.Account(t.Context(), a.ID)
	if err != nil || got.Colour != "#1f5fd0" || got.ReturnURL != "https://harbor.example/done?a=<b>" ||
		len(got.ReturnOrigins) != 2 {
		t.Errorf("stored: %+v, %v", got, err)
	}
	b.Get("/dashboard/audit").
		Want(t, http.StatusOK, "Look for users set", "sign to: #1f5fd0", "Link back for users set",
			"Allowed sites of the link back set", "to: https://harbor.example https://www.harbor.example")
	b.Get(at+"/preview").Want(t, http.StatusOK, "ask of Harbor Guild #1f5fd0")
	b.Get(at+"/preview?state=verified").Want(t, http.StatusOK, "verified of Harbor Guild #1f5fd0")
	b.Follow(b.upload(at+"/look", nil, "account", a.ID, "colour", "#1f5fd0")). // the checkbox is not ticked
											Want(t, http.StatusOK, "Saved.")
	b.Follow(post("return-url", "return_url", "")).Want(t, http.StatusOK, "Saved.")
	b.Get("/dashboard/settings").Want(t, http.StatusOK, "no sign")

	dev := r.as("dev")
	look := dev.Get(at)
	look.Want(t, http.StatusOK, "Only owners of this account can change these.", "https://www.harbor.example")
	look.Lacks(t, "<textarea", "Save")
}

// upload sends a form with files as a page of the same site does; a nil logo means that none was chosen.
func (b *browser) upload(path string, logo []byte, pairs ...string) answer {
	b.t.Helper()
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	for i := 0; i < len(pairs); i += 2 {
		_ = w.WriteField(pairs[i], pairs[i+1])
	}
	part, err := w.CreateFormFile("logo", map[bool]string{true: "logo.png"}[logo != nil])
	if err == nil {
		_, err = part.Write(logo)
	}
	if err != nil || w.Close() != nil {
		b.t.Fatal(err)
	}
	req := b.Request(http.MethodPost, path, body.String())
	req.Header.Set("Content-Type", w.FormDataContentType())
	return b.Do(req)
}

// The branding is saved completely or not at all; the error of a colour says how it was measured and what
// would be accepted, also in a preview.
func TestLooks(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	b := r.as("olga")
	const at = "/dashboard/sign-in-page"
	save := func(logo []byte, pairs ...string) answer {
		t.Helper()
		return b.upload(at+"/look", logo, append(pairs, "account", a.ID)...)
	}
	stands := func() (string, string, string, int) {
		t.Helper()
		got, err := r.accounts.Account(t.Context(), a.ID)
		if err != nil {
			t.Fatal(err)
		}
		l := 0
		if got.Branding.Logo != nil {
			l = got.Branding.Logo.Width
		}
		return got.Branding.Button, got.Branding.Accent, got.Branding.AccentDark, l
	}
	var file bytes.Buffer
	if err := png.Encode(&file, image.NewNRGBA(image.Rect(0, 0, 400, 100))); err != nil {
		t.Fatal(err)
	}
	refused := save(file.Bytes(), "button", "#ffd500", "button_own", "yes", "accent", "#ffd500",
		"accent_own", "yes")
	refused.Want(t, http.StatusUnprocessableEntity, "links in #ffd500 on the light page, which is #f6f7f9",
		"the contrast is 1.3", "text needs 4.5:1", "would do")
	if !strings.Contains(refused.Body, `id="accent-fault"`) || !strings.Contains(refused.Body,
		`value="#ffd500"`) {
		t.Errorf("the fault is not beside its field, or what was chosen is gone\n%s", refused.Body)
	}
	if button, accent, dark, logo := stands(); button+accent+dark != "" || logo != 0 {
		t.Errorf("half of it is saved: %s %s %s %d", button, accent, dark, logo)
	}
	save([]byte("GIF89a"), "button", "#ffd500", "button_own", "yes").
		Want(t, http.StatusUnprocessableEntity, "the file is not a PNG, JPEG or WebP picture")
	save(bytes.Repeat([]byte{0}, 2<<20)).
		Want(t, http.StatusUnprocessableEntity, "the file has 2097152 bytes; at most 1048576 are allowed")
	save(bytes.Repeat([]byte{0}, 5<<20)).Want(t, http.StatusRequestEntityTooLarge,
		"That file is too large", "It may have 2112 KiB at most")
	b.post("/dashboard/settings/name", "account", a.ID, "name", strings.Repeat("n", 20<<10)).
		Want(t, http.StatusRequestEntityTooLarge, "That form is too large", "It may have 16 KiB at most")
	for what, text := range map[string][]string{
		"a field": {"accent", strings.Repeat("#", 20<<10)}, "a name": {strings.Repeat("n", 20<<10), ""},
		"fields": slices.Repeat([]string{"accent", strings.Repeat("#", 1<<10)}, 20),
	} {
		t.Log(what)
		save(file.Bytes(), append(text, "button", "#ffd500", "button_own", "yes")...).
			Want(t, http.StatusRequestEntityTooLarge, "That text is too large", "It may have 16 KiB at most")
	}
	if button, _, _, logo := stands(); button != "" || logo != 0 {
		t.Errorf("a form with too much text is saved: %s %d", button, logo)
	}
	page := b.Follow(save(file.Bytes(), "button", "#ffd500", "button_own", "yes", "accent", "#7A4100",
		"accent_own",
		"yes", "accent_dark", "#ffd500", "accent_dark_own", "yes"))
	page.Want(t, http.StatusOK, "Saved.")
	if button, accent, dark, logo := stands(); button != "#ffd500" || accent != "#7a4100" ||
		dark != "#ffd500" ||
		logo != 288 {
		t.Errorf("saved: %s %s %s %d", button, accent, dark, logo)
	}
	if !strings.Contains(page.Body, `<img src="/branding/logo/`+a.ID+`/`) {
		t.Errorf("no logo on the page\n%s", page.Body)
	}
	if policy := page.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "frame-src 'self'") {
		t.Errorf("its frames are not let in: %s", policy)
	}
	b.Get("/dashboard/audit").Want(t, http.StatusOK, "button to: #ffd500", "accent dark to: #ffd500",
		"logo to: ")

	// previewed, and not saved
	look := b.Get(at + "?button=%23000000&button_own=yes&accent=%23777777&accent_own=yes")
	look.Want(t, http.StatusOK, "the contrast is 4.17:1")
	if !strings.Contains(look.Body, "button=%23000000&amp;button_own=yes") {
		t.Errorf("the frames do not show it\n%s", look.Body)
	}
	b.Get(at+"/preview?button=%23000000&button_own=yes").Want(t, http.StatusOK,
		"ask of Harbor Guild  #000000")
	b.Get(at+"/preview?button=%237b7b7b&button_own=yes").Want(t, http.StatusOK,
		"ask of Harbor Guild  #ffd500")
	if button, _, _, _ := stands(); button != "#ffd500" {
		t.Errorf("looking at a colour saves it: %s", button)
	}

	b.Follow(save(nil, "no_logo", "yes", "button", "#ffd500")).Want(t, http.StatusOK, "Saved.")
	if button, accent, _, logo := stands(); button != "" || accent != "#7a4100" || logo != 0 {
		t.Errorf("taken away: %q %q %d", button, accent, logo)
	}

	// a form of another site, another account, a developer, and without a login
	foreign := b.Request(http.MethodPost, at+"/look", "")
	foreign.Header.Set("Sec-Fetch-Site", "cross-site")
	foreign.Header.Set("Content-Type", "multipart/form-data; boundary=x")
	if got := b.Do(foreign); got.Status != http.StatusForbidden {
		t.Errorf("another site's form: %d", got.Status)
	}
	b.upload(at+"/look", nil, "account", "acc_other", "button", "#000000").Want(t, http.StatusConflict)
	r.as("dev").upload(at+"/look", nil, "account", a.ID).Want(t, http.StatusForbidden)
	b.Post(at+"/look", url.Values{"account": {a.ID}}).Want(t, http.StatusUnsupportedMediaType)
}

// A user who holds the Enter key down on "Send again" is slowed, and gets a message.
func TestSendingAgainHasARate(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.clock.stop() // or the rate would keep up on a slow machine
	a := r.account("Harbor Guild")
	other := r.account("Lake Guild")
	b := r.as("olga")
	s := r.session(a)
	send := func(account string) answer {
		return b.post("/dashboard/sessions/"+string(s.ID)+"/resend", "account", account)
	}
	b.To(b.post("/dashboard/account", "to", a.ID))
	var refused answer
	for n := 0; refused.Status != http.StatusTooManyRequests; n++ {
		if n > 100 {
			t.Fatal("a hundred in a row are taken")
		}
		refused = send(a.ID)
		if n < 30 && refused.Status != http.StatusSeeOther {
			t.Fatalf("number %d: status %d", n+1, refused.Status)
		}
	}
	refused.Want(t, http.StatusTooManyRequests, "Slow down a little", "Wait a few seconds")
	if refused.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	b.To(b.post("/dashboard/account", "to", other.ID))
	send(other.ID).Want(t, http.StatusNotFound) // another account has a rate of its own
}
