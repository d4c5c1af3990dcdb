package record_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/audit"
	"verifyd/edge/account/branding"
	"verifyd/edge/account/naming"
	"verifyd/edge/account/record"
	"verifyd/edge/account/secrets"
	"verifyd/sessions"
	"verifyd/sessions/proof"
)

// at is an instant of a record.
var at = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// Other builds read and write the same members of an account: none of them ever gets another name.
func TestMembersOfAnAccountKeepTheirNames(t *testing.T) {
	t.Parallel()
	box := fuzzKey.Box(record.SecretUse)
	a := record.Account{LeadsTo: "acc_b", Last: &audit.Record{ID: "x"}, Account: account.Account{
		ID: "acc_a", Name: "n", Quota: 1, ReturnURL: "https://a.example/",
		ReturnOrigins: []string{"https://a.example"}, NoticeURL: "https://n.example/", Colour: "#1f5fd0",
		Level: proof.Code, MaxUsers: 2,
		Branding: branding.Branding{
			Accent: "#1f5fd0", AccentDark: "#7aa7ff", Button: "#ffd500",
			Logo: branding.NewLogo([]byte("png"), 3, 4),
		},
		CreatedAt: at, DisabledAt: at, DeletedAt: at, VerifiedAt: at, DeleteAskedAt: at, Granted: true,
		DisabledReason: "r", Former: []naming.Former{{Name: "o", Until: at}},
		Secrets: []account.Secret{{Value: "whsec_x", CreatedAt: at, ExpiresAt: at}},
		Members: []account.Member{{
			Network: "example", Subject: "s", Name: "m", Email: "m@a.example", Role: access.RoleOwner,
			Since: at,
		}},
		Invites: []account.Invite{{
			ID: record.InviteID("00112233445566778899"), Digest: "00112233445566778899",
			Role: access.RoleViewer, For: "f", By: "b", CreatedAt: at, ExpiresAt: at,
			Maker: access.Identity{Network: "example", Subject: "s"},
		}},
	}}
	data, err := a.Encode(box)
	if err != nil {
		t.Fatal(err)
	}
	const ofAccount = "binding branding branding.accent branding.accent_dark branding.button branding.logo " +
		"branding.logo_height branding.logo_width colour created_at delete_asked_at deleted_at disabled_at " +
		"disabled_reason former former.name former.until invites invites.by invites.by_network " +
		"invites.by_subject invites.created_at invites.digest invites.expires_at invites.for invites.role " +
		"last leads_to max_users members members.email members.name members.network members.role " +
		"members.since members.subject name name_granted notice_url quota return_origins return_url " +
		"signing_secrets signing_secrets.created_at signing_secrets.expires_at signing_secrets.sealed v " +
		"verified_at"
	if got := names(t, data); got != ofAccount {
		t.Errorf("an account has\n%s, want\n%s", got, ofAccount)
	}
	if again, err := record.DecodeAccount("acc_a", data, box); err != nil || !reflect.DeepEqual(again, a) {
		t.Errorf("%+v is read as %+v, %v", a, again, err)
	}
}

// The same for a key.
func TestMembersOfAKeyKeepTheirNames(t *testing.T) {
	t.Parallel()
	d, _, err := secrets.ParseKey(secrets.NewKey(true))
	if err != nil {
		t.Fatal(err)
	}
	k := record.Key{Last: &audit.Record{ID: "x"}, Key: account.Key{
		ID: d.ID(), Account: "acc_a", Name: "n", Test: true, Last4: "abcd",
		RateLimit: account.Rate{Count: 1, Per: time.Second, Burst: 2}, Policy: sessions.PolicyOnce,
		CreatedAt: at, ExpiresAt: at, RevokedAt: at, Replaces: "key_b", ReplacedBy: "key_c",
	}}
	data, err := k.Encode()
	if err != nil {
		t.Fatal(err)
	}
	const ofKey = "account created_at expires_at last last4 name policy rate_limit rate_limit.burst " +
		"rate_limit.count rate_limit.per replaced_by replaces revoked_at test v"
	if got := names(t, data); got != ofKey {
		t.Errorf("a key has\n%s, want\n%s", got, ofKey)
	}
	if _, again, err := record.DecodeKey(d.Entry(), data); err != nil || !reflect.DeepEqual(again, k) {
		t.Errorf("%+v is read as %+v, %v", k, again, err)
	}
}

// names returns the names of a record's members and of those of its parts, but not of the record of its last
// change, sorted.
func names(t *testing.T, data []byte) string {
	t.Helper()
	var of map[string]json.RawMessage
	if err := json.Unmarshal(data, &of); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	var all []string
	for name, value := range of {
		all = append(all, name)
		part := strings.Trim(string(value), "[]")
		if name == "last" || !strings.HasPrefix(part, "{") {
			continue
		}
		for below := range strings.FieldsSeq(names(t, []byte(part))) {
			all = append(all, name+"."+below)
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}
