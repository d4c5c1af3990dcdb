package check

import (
	"testing"
	"time"

	"verifyd/cmd/verifyd/config"
	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/namespace"
	"verifyd/edge/network/netsettings"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
)

// check reports what happens to members and operators before a start binds a network's id, after that, and
// when the id is pointed elsewhere, with the namespace of the new identities. A setting distinguishes a
// provider that has only moved.
func TestCheckReportsIdentityOwners(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	store, err := accountstore.New(t.Context(), conn, secretbox.NewKey())
	if err != nil {
		t.Fatal(err)
	}
	c := config.Config{
		Edge: true, Networks: []netsettings.Settings{
			{ID: "example", Kind: netsettings.KindOIDC, Issuer: "https://id.harbor.example"},
		},
	}
	says := func(l Level, words string) Finding {
		t.Helper()
		var s Survey
		checkIdentities(t.Context(), &s, conn, c)
		expectFinding(t, map[string][]Finding{"identities": s.findings}, "identities", l, words)
		return s.findings[0]
	}
	says(LevelOK, "0 memberships and 0 operators")
	member := account.Member{Network: "example", Subject: "12345", Role: access.RoleOwner}
	if _, err := store.CreateAccount(t.Context(), access.Operator(""), "Harbor Guild", member); err != nil {
		t.Fatal(err)
	}
	if _, err := store.GrantOperator(t.Context(), access.Operator(""), "example", "12345"); err != nil {
		t.Fatal(err)
	}
	says(LevelWarning, "1 memberships and 1 operators are taken to be of https://id.harbor.example")
	if _, _, err := namespace.Bind(t.Context(), conn, "example", c.Networks[0].IdentityIssuer(),
		time.Now()); err != nil {
		t.Fatal(err)
	}
	says(LevelOK, "https://id.harbor.example: 1 memberships and 1 operators")
	c.Networks[0].Issuer = "https://id.other.example"
	f := says(LevelWarning, "1 memberships and 1 operators of the latter cannot log in")
	theirs, _, err := namespace.LookUp(t.Context(), conn, "example", "https://id.other.example")
	if err != nil || theirs.Name == "example" {
		t.Fatalf("%+v, %v", theirs, err)
	}
	expectFinding(t, map[string][]Finding{"identities": {{Level: f.Level, Detail: f.Detail + f.Do}}},
		"identities", LevelWarning, theirs.Name)
	c.Networks[0].IdentitiesOf = "https://id.harbor.example"
	says(LevelOK, "https://id.harbor.example: 1 memberships and 1 operators")
	entry := topology.BucketSubject(topology.BucketIdentities, "network.example")
	for _, unreadable := range []string{`{"v":1,"network":"exa`, `{"v":99}`} {
		natstest.Publish(t, conn, entry, []byte(unreadable))
		says(LevelWarning, "edges start without the network example")
	}
}

// A network that accepts any identity next to one that requires the session's own user is reported.
func TestCheckWarnsOfOneNetworkWithoutSubjectMatch(t *testing.T) {
	t.Parallel()
	strict := netsettings.Settings{ID: "strict", Rules: netsettings.Rules{RequireSubjectMatch: true}}
	open := netsettings.Settings{ID: "open"}
	for _, of := range []struct {
		networks []netsettings.Settings
		warned   bool
	}{{[]netsettings.Settings{strict, open}, true}, {[]netsettings.Settings{strict, strict}, false},
		{[]netsettings.Settings{open, open}, false}, {nil, false}} {
		var s Survey
		checkSubjectMatch(&s, config.Config{Networks: of.networks})
		if (len(s.findings) == 1 && s.Worst() == LevelWarning) != of.warned {
			t.Errorf("%d networks: %+v", len(of.networks), s.findings)
		}
	}
}

// The namespace of a network's subjects follows from the source of its identities.
func TestIdentityIssuers(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]netsettings.Settings{
		"https://id.example.com": {
			Kind: netsettings.KindOIDC, Issuer: "https://id.example.com",
		},
		"https://id.example.com/me": {
			Kind: netsettings.KindOAuth2, Issuer: "https://issuer.example.com",
			UserInfoEndpoint: "https://id.example.com/me",
		},
		"https://login.microsoftonline.com/common/v2.0": {Kind: netsettings.KindMicrosoft},
		"https://discord.com":                           {Kind: netsettings.KindDiscord},
		"https://steamcommunity.com/openid/login":       {Kind: netsettings.KindSteam},
		"https://auth.vatsim.net/oauth/authorize":       {Kind: netsettings.KindVATSIM},
		"https://before.example.com": {
			Kind: netsettings.KindOIDC, Issuer: "https://id.example.com",
			IdentitiesOf: "https://before.example.com",
		},
	} {
		if got := s.IdentityIssuer(); got != want {
			t.Errorf("%s: %q, want %q", s.Kind, got, want)
		}
	}
}

// Accounts that were created before names were checked are reported, until an operator grants them theirs.
func TestCheckReportsNames(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	store, err := accountstore.New(t.Context(), conn, secretbox.NewKey())
	if err != nil {
		t.Fatal(err)
	}
	id := account.IDOf("Steam")
	old := []byte(`{"v":2,"name":"Steam","created_at":"2026-01-01T00:00:00Z"}`)
	subject := topology.BucketSubject(topology.BucketAccounts, id)
	natstest.Publish(t, conn, subject, old)
	says := func(l Level, words string) {
		t.Helper()
		var s Survey
		checkNames(t.Context(), &s, conn, config.Config{Edge: true})
		expectFinding(t, map[string][]Finding{"names": s.findings}, "names", l, words)
	}
	says(LevelWarning, "account Steam ("+id+")")
	if _, err := store.RenameAccount(t.Context(), access.Operator(""), id, "Steam", true); err != nil {
		t.Fatal(err)
	}
	says(LevelOK, "no account")
}
