package dashboard_test

import (
	"net/http"
	"strings"
	"testing"
)

// Owners set what users see, without a script; what is wrong stands beside its field, with what was typed.
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
	b.Get(at).Want(t, http.StatusOK, "Save colour", "Save sites", "Save address", "See the end")

	wrong(post("colour", "colour", "cornflower"), "colour", `value="cornflower"`,
		"write red, green and blue in hexadecimal")
	b.Follow(post("colour", "colour", " #1F5FD0 ")).Want(t, http.StatusOK, "Saved.")
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
		"change the link before you take that site away")
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
		Want(t, http.StatusOK, "Colour for users set", "Link back for users set",
			"Allowed sites of the link back set", "to: https://harbor.example https://www.harbor.example")
	b.Get(at+"/preview").Want(t, http.StatusOK, "question of Harbor Guild #1f5fd0")
	b.Get(at+"/preview?end=yes").Want(t, http.StatusOK, "end of Harbor Guild #1f5fd0")
	b.Follow(post("colour", "colour", "")).Want(t, http.StatusOK, "Saved.")
	b.Follow(post("return-url", "return_url", "")).Want(t, http.StatusOK, "Saved.")
	b.Get("/dashboard/settings").Want(t, http.StatusOK, "no sign")

	dev := r.as("dev")
	look := dev.Get(at)
	look.Want(t, http.StatusOK, "Only owners of this account can change these.", "https://www.harbor.example")
	look.Lacks(t, "<textarea", "Save")
}

// Who holds the Enter key down on "Send again" is slowed, and told so.
func TestSendingAgainHasARate(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.clock.stop() // or on a slow machine the rate would keep up
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
