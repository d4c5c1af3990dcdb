package sessions_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"verifyd/natsconf/secretbox"
	"verifyd/sessions"
)

func TestTokenAndIDLeadOneWay(t *testing.T) {
	t.Parallel()
	token := sessions.NewToken("", nil)
	s := sessions.NewSession(sessions.Request{Account: "acc_a"}, token, time.Now())
	if token.ID() != s.ID || len(s.ID) != 32 {
		t.Fatalf("id of the token = %s, session has %s", token.ID(), s.ID)
	}
	for _, form := range []string{token.Reveal(), string(s.ID)} {
		if id, err := sessions.ParseID(form); err != nil || id != s.ID {
			t.Errorf("ParseID of %d characters: %s, %v", len(form), id, err)
		}
	}
	for _, bad := range []string{
		"", "x", token.Reveal()[1:], string(s.ID)[1:], strings.ToUpper(string(s.ID)), strings.Repeat("*", 43),
		strings.Repeat("1", 32), strings.Repeat("A", 42) + "B",
	} {
		if _, err := sessions.ParseID(bad); !errors.Is(err, sessions.ErrMalformed) {
			t.Errorf("ParseID(%q) accepted", bad)
		}
	}
	if s := token.String(); strings.Contains(s, token.Reveal()) {
		t.Error("a token prints itself")
	}
}

// A token leads to its account for a caller that has the mask; nobody else can find it, and those of older
// builds, which are random, lead nowhere.
func TestTokenLeadsToItsAccount(t *testing.T) {
	t.Parallel()
	mask := secretbox.NewKey().Hash("tokens").Bytes
	const account = "acc_k3v7q2m5zt4yd6n2xw7p"
	seen := map[sessions.Token]bool{}
	for range 100 {
		token := sessions.NewToken(account, mask)
		if _, err := sessions.ParseToken(token.Reveal()); err != nil || seen[token] {
			t.Fatalf("a token of %d characters: %v, seen before: %v", len(token), err, seen[token])
		}
		seen[token] = true
		if got := token.Account(mask); got != account {
			t.Errorf("leads to %q", got)
		}
		if got := token.Account(secretbox.NewKey().Hash("tokens").Bytes); got != "" {
			t.Errorf("without the mask it leads to %q", got)
		}
	}
	for _, other := range []string{"", "acme", "acc_acme", "acc_k3v7q2m5zt4yd6n2xw7P", account + "a"} {
		if got := sessions.NewToken(other, mask).Account(mask); got != "" {
			t.Errorf("a token for %q leads to %q", other, got)
		}
	}
	if got := sessions.Token("no token").Account(mask); got != "" {
		t.Errorf("what is no token leads to %q", got)
	}
}
