package account_test

import (
	"errors"
	"strings"
	"testing"

	"verifyd/edge/account"
)

// What end users see of an account is set by its owners, is in the audit log, and reaches every edge.
func TestFace(t *testing.T) {
	h := start(t)
	owner := account.Member{Network: "dev", Subject: "ada", Name: "Ada"}
	a, err := h.store.CreateAccount(t.Context(), operator, "Harbor Guild", owner)
	if err != nil {
		t.Fatal(err)
	}
	dev := account.Member{Network: "dev", Subject: "bob", Name: "Bob", Role: account.RoleDeveloper}
	if _, err := h.store.AddMember(t.Context(), operator, a.ID, dev); err != nil {
		t.Fatal(err)
	}
	const to = "https://harbor.example/done?a=b#c"
	for range 2 { // a repeat changes nothing
		if err := errors.Join(h.store.SetReturnURL(t.Context(), owner.Actor(), a.ID, to), h.store.SetColour(t.Context(), operator, a.ID, "#1F5FD0")); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the mirror knows the face", func() bool {
		got, ok := h.mirror.Account(a.ID)
		return ok && got.ReturnURL == to && got.Colour == "#1f5fd0"
	})
	log, err := h.store.Audit(t.Context(), a.ID, "", 2)
	if err != nil || log.Records[0].What != account.ColourSet || log.Records[1].What != account.ReturnURLSet || log.Records[1].Detail["to"] != to {
		t.Errorf("audit log: %+v, %v", log.Records, err)
	}
	if err := h.store.SetReturnURL(t.Context(), dev.Actor(), a.ID, ""); !errors.Is(err, account.ErrNotAllowed) {
		t.Errorf("a developer: %v", err)
	}
	if err := errors.Join(h.store.SetReturnURL(t.Context(), owner.Actor(), a.ID, ""), h.store.SetColour(t.Context(), owner.Actor(), a.ID, "")); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{
		"http://harbor.example", "harbor.example", "//harbor.example", "javascript:alert(1)", "https:", "https://", "https:///x", "https:harbor.example",
		"https://user:pass@harbor.example", "https://harbor.example\\@evil.example", "https://harbor.example/ x", "https://harbor.example/\n",
		"https://harbor.example/\u202e", "https://[::1", "intent://x#Intent;scheme=https;end", "https://harbor.example/" + strings.Repeat("x", 2048),
	} {
		var input *account.InputError
		if err := h.store.SetReturnURL(t.Context(), operator, a.ID, bad); !errors.As(err, &input) || input.Field != "return_url" {
			t.Errorf("%.60q: %v", bad, err)
		}
	}
	for _, bad := range []string{"red", "#fff", "1f5fd0", "#1f5fd0;", "#1f5fd00", "#1f5fdg", "#١f5fd0"} {
		var input *account.InputError
		if err := h.store.SetColour(t.Context(), operator, a.ID, bad); !errors.As(err, &input) || input.Field != "colour" {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if got, err := h.store.AccountByName(t.Context(), a.Name); err != nil || got.ReturnURL != "" || got.Colour != "" {
		t.Errorf("what is set in the end: %+v, %v", got, err)
	}
}
