package accountstore_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/audit"
	"verifyd/edge/account/grant"
	"verifyd/edge/account/input"
	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/permission"
	"verifyd/natsconf/provision"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
)

func TestLoginLinkWorksOnce(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "a")
	edges := h.edges(t)
	token, link, err := h.store.LoginLink(t.Context(), operator, a.ID, access.RoleDeveloper)
	if err != nil {
		t.Fatal(err)
	}
	wins := race(t, 8, func(i int) error {
		got, err := edges[i%4].RedeemLoginLink(t.Context(), token)
		if err == nil && (got != link || got.Role != access.RoleDeveloper || got.Account != a.ID) {
			t.Errorf("redeemed as %+v", got)
		}
		return err
	}, grant.ErrLinkUsed)
	if wins != 1 {
		t.Errorf("it worked %d times", wins)
	}
	if err := err2(h.store.RedeemLoginLink(t.Context(), token)); !errors.Is(err, grant.ErrLinkUsed) {
		t.Errorf("later: %v", err)
	}
}

func TestLoginLinkRefusals(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "a")
	token, link, err := h.store.LoginLink(t.Context(), operator, a.ID, access.RoleOwner)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "x", token[1:], token + "A", "*", strings.Repeat("A", 43)} {
		if err := err2(h.store.RedeemLoginLink(t.Context(), bad)); !errors.Is(err, grant.ErrNoLink) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	h.at(link.ExpiresAt)
	if err := err2(h.store.RedeemLoginLink(t.Context(), token)); !errors.Is(err, grant.ErrLinkExpired) {
		t.Errorf("an expired link: %v", err)
	}
	h.at(link.ExpiresAt.Add(-time.Millisecond))
	if err := err2(h.store.RedeemLoginLink(t.Context(), token)); err != nil {
		t.Errorf("the last moment: %v", err)
	}
	if err := err3(h.store.LoginLink(t.Context(), operator, "acc_nobody", access.RoleOwner)); !errors.Is(err,
		account.ErrNoAccount) {
		t.Errorf("a link for nobody: %v", err)
	}
	if input, ok := errors.AsType[*input.Error](
		err3(h.store.LoginLink(t.Context(), operator, a.ID, "root"))); !ok || input.Field != "role" {
		t.Errorf("a link for a role that is none: %v", input)
	}
}

// A login link into an account is revoked: it cannot be redeemed any more, and logins by it end. It is listed
// as long as it grants anything; other links, and those of other accounts, do not change.
func TestLoginLinkIsRevoked(t *testing.T) {
	t.Parallel()
	h := start(t)
	a, b := h.account(t, "a"), h.account(t, "b")
	link := func(of account.Account) (string, grant.Link) {
		t.Helper()
		token, l, err := h.store.LoginLink(t.Context(), operator, of.ID, access.RoleDeveloper)
		if err != nil {
			t.Fatal(err)
		}
		return token, l
	}
	listed := func(of account.Account, want ...grant.Link) {
		t.Helper()
		grants, err := h.store.LoginLinks(t.Context(), of.ID)
		if err != nil || len(grants) != len(want) {
			t.Fatalf("%d links are listed, want %d: %v", len(grants), len(want), err)
		}
		for _, l := range want {
			i := slices.IndexFunc(grants, func(g grant.Grant) bool { return g.Link == l.ID })
			if i < 0 || grants[i].Role != l.Role || grants[i].Account != of.ID ||
				!grants[i].Until.Equal(l.ExpiresAt.Add(topology.LoginTTL)) {
				t.Errorf("%+v is listed in %+v", l, grants)
			}
		}
	}
	holds := func(l grant.Link, want bool) {
		t.Helper()
		g, err := h.store.LoginLinkGrant(t.Context(), l.Account, l.ID)
		if want && (err != nil || g.Account != l.Account || g.Role != l.Role) || !want &&
			!errors.Is(err, grant.ErrNoLink) {
			t.Errorf("the link gives %+v, %v", g, err)
		}
	}
	unused, first := link(a)
	used, second := link(a)
	_, stays := link(a)
	_, others := link(b)
	if _, err := h.store.RedeemLoginLink(t.Context(), used); err != nil {
		t.Fatal(err)
	}
	listed(a, first, second, stays)
	for _, by := range []access.Actor{access.OperatorWith("dev", "olga", "Olga"), first.Actor(), {}} {
		if err := h.store.RevokeLoginLink(t.Context(), by, a.ID, first.ID); !errors.Is(err,
			access.ErrNotAllowed) {
			t.Errorf("revoked by %s: %v", by, err)
		}
	}
	for _, l := range []grant.Link{first, second} {
		holds(l, true)
		if err := h.store.RevokeLoginLink(t.Context(), operator, a.ID, l.ID); err != nil {
			t.Fatal(err)
		}
		holds(l, false)
		if err := h.store.RevokeLoginLink(t.Context(), operator, a.ID, l.ID); !errors.Is(err,
			grant.ErrNoLink) {
			t.Errorf("a second time: %v", err)
		}
	}
	if err := err2(h.store.RedeemLoginLink(t.Context(), unused)); !errors.Is(err, grant.ErrNoLink) {
		t.Errorf("redeemed after it was taken back: %v", err)
	}
	for _, bad := range []string{others.ID, "link_x", "link_*", "", ">"} {
		if err := h.store.RevokeLoginLink(t.Context(), operator, a.ID, bad); !errors.Is(err,
			grant.ErrNoLink) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, bad := range []string{"", "*", "acc_*"} {
		err := h.store.RevokeLoginLink(t.Context(), operator, bad, stays.ID)
		given := err2(h.store.LoginLinkGrant(t.Context(), bad, stays.ID))
		if !errors.Is(given, grant.ErrNoLink) || !errors.Is(err, account.ErrNoAccount) ||
			!errors.Is(err2(h.store.LoginLinks(t.Context(), bad)), account.ErrNoAccount) {
			t.Errorf("account %q: %v, %v", bad, given, err)
		}
	}
	listed(a, stays)
	listed(b, others)
	if grants, err := h.store.Operators(t.Context()); err != nil || len(grants) != 0 {
		t.Errorf("operators: %+v, %v", grants, err)
	}
	if is, err := h.store.IsOperatorLink(t.Context(), stays.ID); err != nil || is {
		t.Errorf("a link into an account makes an operator: %t, %v", is, err)
	}
	log := h.all(t, a.ID, 10)
	if r := log[len(log)-1]; r.What != audit.LinkRevoked || r.On != second.ID ||
		r.Who.String() != operator.String() || r.Detail["role"] != "developer" {
		t.Errorf("the newest record is %+v", r)
	}
	h.at(stays.ExpiresAt.Add(topology.LoginTTL))
	listed(a)
	holds(stays, false)
}

// The rights of a link are in its grant, where an edge's credential cannot write. A link entry that claims
// more, which an edge could write, lets nobody in.
func TestForgedLoginLinkIsNotRedeemed(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "a")
	for forged, redeemed := range map[string]error{
		`"role":"viewer"`:                  nil,
		`"role":"owner"`:                   grant.ErrNoLink,
		`"role":"viewer","operator":true`:  grant.ErrNoLink,
		`"role":"viewer","account":""`:     grant.ErrNoLink,
		`"role":"viewer","account":"acc_"`: grant.ErrNoLink,
	} {
		token, l, err := h.store.LoginLink(t.Context(), operator, a.ID, access.RoleViewer)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256([]byte(token))
		record := fmt.Sprintf(`{"v":2,"expires_at":%q,"account":%q,%s}`, l.ExpiresAt.Format(time.RFC3339),
			a.ID, forged)
		natstest.Publish(t, h.conn,
			topology.BucketSubject(topology.BucketLogins, "link."+hex.EncodeToString(sum[:])),
			[]byte(record))
		if err := err2(h.store.RedeemLoginLink(t.Context(), token)); !errors.Is(err, redeemed) {
			t.Errorf("%s: %v", forged, err)
		}
	}
}

// If each role has a credential of its own, an edge's cannot create or revoke operators or login links. It is
// refused at once, and the audit log has no record of it.
func TestGrantsNeedTheOperatorsCredential(t *testing.T) {
	t.Parallel()
	e := natstest.StartExternal(t)
	conn := e.Connect(t, permission.RoleOperator)
	if err := (provision.Ensurer{Conn: conn, Topology: topology.New(natstest.Options(conn))}).
		Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	key := secretbox.NewKey()
	full, err := accountstore.New(t.Context(), conn, key)
	if err != nil {
		t.Fatal(err)
	}
	edge, err := accountstore.New(t.Context(), e.Connect(t, permission.RoleEdge), key)
	if err != nil {
		t.Fatal(err)
	}
	a, err := full.CreateAccount(t.Context(), operator, "a")
	if err != nil {
		t.Fatal(err)
	}
	_, link, err := full.LoginLink(t.Context(), operator, a.ID, access.RoleViewer)
	if err != nil {
		t.Fatal(err)
	}
	_, operators, err := full.OperatorLink(t.Context(), operator)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := full.GrantOperator(t.Context(), operator, "example", "olga"); err != nil {
		t.Fatal(err)
	}
	log := func() (all []string) {
		t.Helper()
		for _, of := range []string{a.ID, audit.ServiceLog} {
			page, err := full.Audit(t.Context(), of, "", 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range page.Records {
				all = append(all, r.What)
			}
		}
		return all
	}
	before := log()
	for name, do := range map[string]func(*accountstore.Store) error{
		"make a login link": func(s *accountstore.Store) error {
			return err3(s.LoginLink(t.Context(), operator, a.ID, access.RoleOwner))
		},
		"take a login link back": func(s *accountstore.Store) error {
			return s.RevokeLoginLink(t.Context(), operator, a.ID, link.ID)
		},
		"make an operator's login link": func(s *accountstore.Store) error {
			return err3(s.OperatorLink(t.Context(), operator))
		},
		"take an operator's login link back": func(s *accountstore.Store) error {
			return s.RevokeOperatorLink(t.Context(), operator, operators.ID)
		},
		"make an operator": func(s *accountstore.Store) error {
			return err2(s.GrantOperator(t.Context(), operator, "example", "nils"))
		},
		"make an operator none": func(s *accountstore.Store) error {
			return s.RevokeOperator(t.Context(), operator, "example", "olga")
		},
	} {
		err := do(edge)
		if !errors.Is(err, natsconf.ErrCredential) ||
			strings.Contains(name, "link") != strings.Contains(err.Error(), "change the login link") {
			t.Errorf("%s: %v", name, err)
		}
		if now := log(); !slices.Equal(now, before) {
			t.Errorf("%s: the audit log tells %q, before it was %q", name, now, before)
		}
		if err := do(full); err != nil {
			t.Errorf("%s, with the operator's credential: %v", name, err)
		}
		before = log()
	}
	if err := edge.Repair(t.Context()); err != nil {
		t.Errorf("an edge repairs: %v", err)
	}
}

// No token is stored: a copy of the store lets nobody in.
func TestTokensAreStoredAsDigests(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "a")
	link, _, err := h.store.LoginLink(t.Context(), operator, a.ID, access.RoleOwner)
	if err != nil {
		t.Fatal(err)
	}
	invite, _, err := h.store.CreateInvite(t.Context(), operator, a.ID, access.RoleOwner, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.store.RedeemLoginLink(t.Context(), link); err != nil {
		t.Fatal(err)
	}
	_, secret, _ := strings.Cut(invite, ".")
	seen := 0
	for _, stream := range []string{
		topology.BucketStream(topology.BucketLogins), topology.BucketStream(topology.BucketAccounts),
		topology.StreamAudit,
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
			if all := m.Subject() + string(m.Data()); strings.Contains(all, link) ||
				strings.Contains(all, secret) {
				t.Errorf("%s holds a token on %s", stream, m.Subject())
			}
		}
	}
	if seen < 6 {
		t.Errorf("only %d messages were looked at", seen)
	}
}
