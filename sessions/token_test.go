package sessions_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"verifyd/sessions"
)

func TestTokenAndIDLeadOneWay(t *testing.T) {
	t.Parallel()
	token := sessions.NewToken()
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
