package accountstore_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/audit"
	"verifyd/edge/account/branding"
	"verifyd/edge/account/input"
	"verifyd/natsconf/natstest"
)

// What users see of an account is set by its owners, is in the audit log, and reaches every edge.
func TestBranding(t *testing.T) {
	t.Parallel()
	h := start(t)
	owner := account.Member{Network: "dev", Subject: "ada", Name: "Ada"}
	a, err := h.store.CreateAccount(t.Context(), operator, "Harbor Guild", owner)
	if err != nil {
		t.Fatal(err)
	}
	dev := account.Member{Network: "dev", Subject: "bob", Name: "Bob", Role: access.RoleDeveloper}
	if _, err := h.store.AddMember(t.Context(), operator, a.ID, dev); err != nil {
		t.Fatal(err)
	}
	const to = "https://harbor.example/done?a=b#c"
	var refused *input.Error
	if err := h.store.SetReturnURL(t.Context(), owner.Actor(), a.ID, to); !errors.As(err, &refused) ||
		!strings.Contains(refused.Detail, `"https://harbor.example" is not one of the allowed sites`) {
		t.Errorf("a site that is not allowed: %v", err)
	}
	if err := h.store.SetReturnOrigins(t.Context(), owner.Actor(), a.ID, []string{
		"https://Harbor.example:443/", "https://other.example:8443", "https://harbor.example",
	}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a repeat changes nothing
		if err := errors.Join(h.store.SetReturnURL(t.Context(), owner.Actor(), a.ID, to),
			h.store.SetColour(t.Context(), operator, a.ID, "#1F5FD0")); err != nil {
			t.Fatal(err)
		}
	}
	natstest.Await(t, "the mirror knows the branding", func() bool {
		got, ok := h.mirror.Account(a.ID)
		return ok && got.ReturnURL == to && got.Colour == "#1f5fd0"
	})
	log, err := h.store.Audit(t.Context(), a.ID, "", 2)
	if err != nil || log.Records[0].What != audit.ColourSet ||
		log.Records[1].What != audit.ReturnURLSet || log.Records[1].Detail["to"] != to {
		t.Errorf("audit log: %+v, %v", log.Records, err)
	}
	if log, err := h.store.Audit(t.Context(), a.ID, "", 3); err != nil ||
		log.Records[2].What != audit.ReturnOriginsSet ||
		log.Records[2].Detail["to"] != "https://harbor.example https://other.example:8443" {
		t.Errorf("audit log: %+v, %v", log.Records, err)
	}
	for _, elsewhere := range []string{
		"https://harbor.example:8443/", "https://other.example/", "https://harbor.example.evil.example/",
		"https://evil.example/https://harbor.example", "https://www.harbor.example/",
	} {
		if err := h.store.SetReturnURL(t.Context(), owner.Actor(), a.ID, elsewhere); !errors.As(err,
			&refused) || refused.Field != "return_url" ||
			!strings.Contains(refused.Detail,
				"give a page of https://harbor.example or https://other.example:8443") {
			t.Errorf("%s: %v", elsewhere, err)
		}
	}
	if err := h.store.SetReturnOrigins(t.Context(), owner.Actor(), a.ID,
		[]string{"https://other.example:8443"}); !errors.As(err, &refused) ||
		refused.Field != "return_origins" {
		t.Errorf("the link's own site is taken away: %v", err)
	}
	if err := h.store.SetReturnOrigins(t.Context(), dev.Actor(), a.ID, nil); !errors.Is(err,
		access.ErrNotAllowed) {
		t.Errorf("a developer: %v", err)
	}
	if err := h.store.SetReturnURL(t.Context(), dev.Actor(), a.ID, ""); !errors.Is(err,
		access.ErrNotAllowed) {
		t.Errorf("a developer: %v", err)
	}
	if err := errors.Join(h.store.SetReturnURL(t.Context(), owner.Actor(), a.ID, ""),
		h.store.SetColour(t.Context(), owner.Actor(), a.ID, "")); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{
		"http://harbor.example", "harbor.example", "//harbor.example", "javascript:alert(1)", "https:",
		"https://", "https:///x", "https:harbor.example",
		"https://user:pass@harbor.example", "https://harbor.example\\@evil.example",
		"https://harbor.example/ x", "https://harbor.example/\n",
		"https://harbor.example/\u202e", "https://[::1", "intent://x#Intent;scheme=https;end",
		"https://harbor.example/" + strings.Repeat("x", 2048),
	} {
		var input *input.Error
		if err := h.store.SetReturnURL(t.Context(), operator, a.ID, bad); !errors.As(err, &input) ||
			input.Field != "return_url" {
			t.Errorf("%.60q: %v", bad, err)
		}
	}
	for _, bad := range [][]string{
		{""}, {"harbor.example"}, {"http://harbor.example"}, {"https://harbor.example/x"},
		{"https://harbor.example?x"}, {"https://harbor.example#"}, {"https://*.example"},
		{"https://user@harbor.example"}, {"https://harbor.example\n"}, manyOrigins(11),
	} {
		if err := h.store.SetReturnOrigins(t.Context(), operator, a.ID, bad); !errors.As(err, &refused) ||
			refused.Field != "return_origins" {
			t.Errorf("%.60q: %v", bad, err)
		}
	}
	for _, bad := range []string{"red", "#fff", "1f5fd0", "#1f5fd0;", "#1f5fd00", "#1f5fdg", "#١f5fd0"} {
		var input *input.Error
		if err := h.store.SetColour(t.Context(), operator, a.ID, bad); !errors.As(err, &input) ||
			input.Field != "colour" {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if got, err := h.store.AccountByName(t.Context(), a.Name); err != nil || got.ReturnURL != "" ||
		got.Colour != "" {
		t.Errorf("what is set in the end: %+v, %v", got, err)
	}
}

func manyOrigins(n int) []string {
	sites := make([]string, n)
	for i := range sites {
		sites[i] = fmt.Sprintf("https://%d.harbor.example", i)
	}
	return sites
}

// The operator allows a site of a return URL, on every edge; a full list stays as it is.
func TestOperatorAllowsTheSiteOfAReturnURL(t *testing.T) {
	t.Parallel()
	h := start(t)
	a, err := h.store.CreateAccount(t.Context(), operator, "Harbor Guild")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.store.SetReturnURL(t.Context(), operator, a.ID, "https://harbor.example/done"); err != nil {
		t.Fatal(err)
	}
	if got, err := h.store.Account(t.Context(), a.ID); err != nil ||
		!slices.Equal(got.ReturnOrigins, []string{"https://harbor.example"}) {
		t.Errorf("%+v, %v", got, err)
	}
	if err := errors.Join(h.store.SetReturnURL(t.Context(), operator, a.ID, ""),
		h.store.SetReturnOrigins(t.Context(), operator, a.ID, manyOrigins(10))); err != nil {
		t.Fatal(err)
	}
	var input *input.Error
	if err := h.store.SetReturnURL(t.Context(), operator, a.ID,
		"https://harbor.example/done"); !errors.As(err, &input) {
		t.Errorf("an eleventh site: %v", err)
	}
}

// The branding of an account is set by its owners, all together or not at all, and reaches every edge. A
// build without branding serves the account and does not drop it.
func TestLooks(t *testing.T) {
	t.Parallel()
	h := start(t)
	owner := account.Member{Network: "dev", Subject: "ada", Name: "Ada"}
	a, err := h.store.CreateAccount(t.Context(), operator, "Harbor Guild", owner)
	if err != nil {
		t.Fatal(err)
	}
	picture := branding.NewLogo([]byte("\x89PNG, as it were"), 288, 96)
	set := func(by access.Actor, to accountstore.Look) error {
		return h.store.SetLook(t.Context(), by, a.ID, to)
	}
	for range 2 { // a repeat changes nothing
		if err := set(owner.Actor(), accountstore.Look{
			Colour: new("#1F5FD0"), Accent: new("#1f5fd0"), AccentDark: new("#7AA7FF"),
			Button: new("#ffd500"), Logo: &picture,
		}); err != nil {
			t.Fatal(err)
		}
	}
	want := branding.Branding{Accent: "#1f5fd0", AccentDark: "#7aa7ff", Button: "#ffd500"}
	natstest.Await(t, "the mirror knows the looks", func() bool {
		got, ok := h.mirror.Account(a.ID)
		b := got.Branding
		if b.Logo == nil || string(b.Logo.PNG) != string(picture.PNG) || b.Logo.Digest != picture.Digest ||
			b.Logo.Width != 288 || b.Logo.Height != 96 {
			return false
		}
		b.Logo = nil
		return ok && b == want && got.Colour == "#1f5fd0"
	})
	log, err := h.store.Audit(t.Context(), a.ID, "", 10)
	if err != nil || log.Records[0].What != audit.LookSet ||
		log.Records[0].Detail["button_to"] != "#ffd500" ||
		log.Records[0].Detail["logo_to"] != picture.Digest || log.Records[1].What == audit.LookSet {
		t.Errorf("audit log: %+v, %v", log.Records, err)
	}
	var refused *input.Error
	if err := set(owner.Actor(), accountstore.Look{Button: new("#000000"),
		Accent: new("#ffffff")}); !errors.As(err,
		&refused) || refused.Field != "accent" {
		t.Errorf("links that cannot be read: %v", err)
	}
	dev := account.Member{Network: "dev", Subject: "bob", Name: "Bob", Role: access.RoleDeveloper}
	if _, err := h.store.AddMember(t.Context(), operator, a.ID, dev); err != nil {
		t.Fatal(err)
	}
	if err := set(dev.Actor(), accountstore.Look{Button: new("")}); !errors.Is(err, access.ErrNotAllowed) {
		t.Errorf("a developer: %v", err)
	}
	var none *branding.Logo
	if err := set(owner.Actor(), accountstore.Look{Logo: &none, Accent: new("")}); err != nil {
		t.Fatal(err)
	}
	got, err := h.store.Account(t.Context(), a.ID)
	if want.Accent = ""; err != nil || got.Branding != want || got.Colour != "#1f5fd0" {
		t.Errorf("without a logo: %+v, %v", got.Branding, err)
	}
	if _, err := h.store.DeleteAccount(t.Context(), operator, a.ID, false); err != nil {
		t.Fatal(err)
	}
	natstest.Await(t, "nothing is left of the looks", func() bool {
		left, ok := h.mirror.Account(a.ID)
		return ok && !left.DeletedAt.IsZero() && left.Branding == branding.Branding{}
	})
}
