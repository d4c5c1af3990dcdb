package accounts

import (
	"bytes"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"verifyd/cmd/verifyd/command"
	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/grant"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(natstest.Tests(m)) }

// An operator who takes a login link back is shown which keys remain, with their ids, and who logged in with
// it.
func TestRevokedLinkNamesWhatItMade(t *testing.T) {
	t.Parallel()
	s, err := accountstore.New(t.Context(), natstest.Start(t), secretbox.NewKey())
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.CreateAccount(t.Context(), command.Operator(), "Harbor Guild")
	if err != nil {
		t.Fatal(err)
	}
	link := func() grant.Link {
		t.Helper()
		_, l, err := s.LoginLink(t.Context(), command.Operator(), a.ID, access.RoleOwner)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	idle, busy := link(), link()
	_, k, err := s.CreateKey(t.Context(), busy.Actor(), a.ID, account.KeyOptions{Name: "left behind"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.RevealSecrets(t.Context(), busy.Actor(), a.ID); err != nil {
		t.Fatal(err)
	}
	token, _, err := s.CreateInvite(t.Context(), busy.Actor(), a.ID, access.RoleOwner, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.AcceptInvite(t.Context(), token, account.Member{
		Network: "dev", Subject: "mallory",
	}); err != nil {
		t.Fatal(err)
	}
	for l, want := range map[grant.Link][]string{
		idle: {idle.ID, "No API key"},
		busy: {
			busy.ID, k.ID, "left behind", "active", "verifyd key revoke", "dev:mallory", "owner",
			"rotate-secret",
		},
	} {
		var output bytes.Buffer
		if err := revokeLink(t.Context(), s, a, l.ID, &output); err != nil {
			t.Fatal(err)
		}
		for _, text := range want {
			if !strings.Contains(output.String(), text) {
				t.Errorf("%q is not in:\n%s", text, &output)
			}
		}
	}
}
