package account_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"verifyd/edge/account"
	"verifyd/natsconf"
)

func TestLoginLinkWorksOnce(t *testing.T) {
	h := start(t)
	a := h.account(t, "a")
	edges := h.edges(t)
	token, link, err := h.store.LoginLink(t.Context(), operator, a.ID, account.RoleDeveloper)
	if err != nil {
		t.Fatal(err)
	}
	wins := race(t, 8, func(i int) error {
		got, err := edges[i%4].RedeemLoginLink(t.Context(), token)
		if err == nil && (got != link || got.Role != account.RoleDeveloper || got.Account != a.ID) {
			t.Errorf("redeemed as %+v", got)
		}
		return err
	}, account.ErrLinkUsed)
	if wins != 1 {
		t.Errorf("it worked %d times", wins)
	}
	if err := err2(h.store.RedeemLoginLink(t.Context(), token)); !errors.Is(err, account.ErrLinkUsed) {
		t.Errorf("later: %v", err)
	}
}

func TestLoginLinkRefusals(t *testing.T) {
	h := start(t)
	a := h.account(t, "a")
	token, link, err := h.store.LoginLink(t.Context(), operator, a.ID, account.RoleOwner)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "x", token[1:], token + "A", "*", strings.Repeat("A", 43)} {
		if err := err2(h.store.RedeemLoginLink(t.Context(), bad)); !errors.Is(err, account.ErrNoLink) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	h.at(link.ExpiresAt)
	if err := err2(h.store.RedeemLoginLink(t.Context(), token)); !errors.Is(err, account.ErrLinkExpired) {
		t.Errorf("an expired link: %v", err)
	}
	h.at(link.ExpiresAt.Add(-time.Millisecond))
	if err := err2(h.store.RedeemLoginLink(t.Context(), token)); err != nil {
		t.Errorf("the last moment: %v", err)
	}
	if err := err3(h.store.LoginLink(t.Context(), operator, "acc_nobody", account.RoleOwner)); !errors.Is(err, account.ErrNoAccount) {
		t.Errorf("a link for nobody: %v", err)
	}
	if input, ok := errors.AsType[*account.InputError](err3(h.store.LoginLink(t.Context(), operator, a.ID, "root"))); !ok || input.Field != "role" {
		t.Errorf("a link for a role that is none: %v", input)
	}
}

// No token lies in the store: a copy of it lets nobody in.
func TestTokensAreStoredAsDigests(t *testing.T) {
	h := start(t)
	a := h.account(t, "a")
	link, _, err := h.store.LoginLink(t.Context(), operator, a.ID, account.RoleOwner)
	if err != nil {
		t.Fatal(err)
	}
	invite, _, err := h.store.CreateInvite(t.Context(), operator, a.ID, account.RoleOwner, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.store.RedeemLoginLink(t.Context(), link); err != nil {
		t.Fatal(err)
	}
	_, secret, _ := strings.Cut(invite, ".")
	seen := 0
	for _, stream := range []string{
		natsconf.BucketStream(natsconf.BucketLogins), natsconf.BucketStream(natsconf.BucketAccounts), natsconf.StreamAudit,
	} {
		_, last, err := h.conn.Bounds(t.Context(), stream)
		if err != nil {
			t.Fatal(err)
		}
		msgs, err := h.conn.Range(t.Context(), stream, ">", 1, last)
		if err != nil {
			t.Fatal(err)
		}
		seen += len(msgs)
		for _, m := range msgs {
			if all := m.Subject() + string(m.Data()); strings.Contains(all, link) || strings.Contains(all, secret) {
				t.Errorf("%s holds a token on %s", stream, m.Subject())
			}
		}
	}
	if seen < 6 {
		t.Errorf("only %d messages were looked at", seen)
	}
}
