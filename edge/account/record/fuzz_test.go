package record_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"verifyd/edge/account/record"
	"verifyd/natsconf/secretbox"
)

// fuzzKey is the master key under which the seeds are sealed that a service wrote.
var fuzzKey = secretbox.Key([]byte("verifyd fuzz seeds, not a secret"))

// An account that is read is written and read back the same, including what a newer build added.
func FuzzAccount(f *testing.F) {
	box := fuzzKey.Box(record.SecretUse)
	f.Add("acc_a", []byte(`{"v":1,"name":"n","quota":7,"created_at":"2026-11-21T12:00:00Z"}`))
	f.Add("acc_a", []byte(`{"v":3,"name":"n","created_at":"2026-11-21T12:00:00Z","disabled_at":"2026-11-22T12:00:00Z","new":{"a":1}}`))
	f.Add("acc_a", []byte(`{"v":4,"name":"n","binding":"code","max_users":2,"created_at":"2026-11-21T12:00:00Z","members":[{"network":"n",`+
		`"subject":"s","role":"owner","since":"2026-11-21T12:00:00Z"}],"invites":[{"digest":"00","role":"viewer","by":"login link x",`+
		`"created_at":"2026-11-21T12:00:00Z","expires_at":"2026-11-28T12:00:00Z"}]}`))
	f.Add("acc_a", []byte(`{"v":2,"name":"n","created_at":"2026-11-21T12:00:00Z","branding":{"accent":"#1f5fd0",`+
		`"accent_dark":"#7aa7ff","button":"#ffd500","logo":"iVBORw0KGgo=","logo_width":288,"logo_height":96}}`))
	f.Add("acc_a", []byte(`{"v":5}`))
	f.Add("acc_a", []byte(`{"v":3,"DISABLED_AT":"2026-11-22T12:00:00Z"}`))
	f.Fuzz(func(t *testing.T, id string, data []byte) {
		a, err := record.DecodeAccount(id, data, box)
		if err != nil {
			if !reflect.DeepEqual(a, record.Account{}) {
				t.Fatalf("%s: %+v beside %v", data, a, err)
			}
			return
		}
		written, err := a.Encode(box)
		if err != nil {
			t.Fatalf("%+v is not written: %v", a, err)
		}
		kept, err := record.KeepAccount(data, written)
		if err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		for _, as := range [][]byte{written, kept} {
			again, err := record.DecodeAccount(id, as, box)
			if err != nil {
				t.Fatalf("%s is written as %s, which is refused: %v", data, as, err)
			}
			if b, c := text(t, whole(a)), text(t, whole(again)); !bytes.Equal(b, c) {
				t.Fatalf("%s is read as %s, written as %s, and read as %s", data, b, as, c)
			}
		}
		if err := record.AccountRewritable(written); err != nil {
			t.Fatalf("%s cannot be written again: %v", written, err)
		}
	})
}

// A key that is read is written and read back the same: above all that it was revoked, or expires.
func FuzzKey(f *testing.F) {
	const entry = "00000000000000000000.00000000000000000000000000000000000000000000"
	f.Add(entry, []byte(`{"v":2,"account":"acc_a","last4":"abcd","rate_limit":{"events":5,"per":1000000000},`+
		`"created_at":"2026-11-21T12:00:00Z","expires_at":"2026-11-22T12:00:00Z","revoked_at":"2026-11-21T13:00:00Z"}`))
	f.Add(strings.Replace(entry, ".", "", 1), []byte(`{"v":1,"account":"acc_a","last4":"abcd","created_at":"2026-11-21T12:00:00Z"}`))
	f.Add("x", []byte(`{"v":3}`))
	f.Add(entry, []byte(`{"v":2,"REVOKED_AT":"2026-11-21T13:00:00Z"}`))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		d, k, err := record.DecodeKey(name, data)
		if err != nil {
			if !reflect.DeepEqual(k, record.Key{}) {
				t.Fatalf("%s: %+v beside %v", data, k, err)
			}
			return
		}
		if k.ID != d.ID() || d.Entry() != name && strings.Replace(d.Entry(), ".", "", 1) != name {
			t.Fatalf("%q is read as %q, %q", name, d.Entry(), k.ID)
		}
		written, err := k.Encode()
		if err != nil {
			t.Fatalf("%+v is not written: %v", k, err)
		}
		kept, err := record.KeepKey(data, written)
		if err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		for _, as := range [][]byte{written, kept} {
			_, again, err := record.DecodeKey(name, as)
			if err != nil || !bytes.Equal(text(t, again), text(t, k)) {
				t.Fatalf("%s is written as %s, and read as %+v, %v", data, as, again, err)
			}
		}
		if err := record.KeyRewritable(written); err != nil {
			t.Fatalf("%s cannot be written again: %v", written, err)
		}
	})
}

// whole is an account with what its JSON leaves out.
func whole(a record.Account) []any {
	all := []any{a, a.ID, a.Branding, a.Branding.Logo, a.NoticeURL}
	for _, s := range a.Secrets {
		all = append(all, s, s.Value)
	}
	for _, i := range a.Invites {
		all = append(all, i, i.ID, i.Maker)
	}
	return all
}

// text formats a value, without distinguishing an empty list from none.
func text(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
