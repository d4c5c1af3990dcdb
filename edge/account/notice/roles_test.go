package notice

import (
	"testing"
	"time"

	"github.com/rs/zerolog"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/keymirror"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/permission"
	"verifyd/natsconf/secretbox"
	"verifyd/sessions/urlpolicy"
)

// If each role has its own credential, an edge changes, reads and marks, and a dispatcher follows the audit
// log and posts.
func TestEachRoleDoesItsPart(t *testing.T) {
	t.Parallel()
	e, r := natstest.StartExternal(t), newReceiver(t)
	natstest.Ensure(t, e.Connect(t, permission.RoleOperator))
	edge, dispatcher := e.Connect(t, permission.RoleEdge), e.Connect(t, permission.RoleDispatcher)
	key := secretbox.NewKey()
	accounts, err := accountstore.New(t.Context(), edge, key)
	if err != nil {
		t.Fatal(err)
	}
	mirror := keymirror.New(dispatcher, key, zerolog.Nop())
	natstest.Serve(t, mirror)
	<-mirror.Loaded()
	s := &service{conn: dispatcher, accounts: accounts, mirror: mirror}
	s.process(t, r.post)
	to, err := urlpolicy.ParseNamed(r.URL)
	if err != nil {
		t.Fatal(err)
	}
	a, err := accounts.CreateAccount(t.Context(), operator, "Acme",
		account.Member{Network: "example", Subject: "1", Name: "Ann", Role: access.RoleOwner})
	if err == nil {
		err = accounts.SetNoticeURL(t.Context(), ann, a.ID, to)
	}
	if err != nil {
		t.Fatal(err)
	}
	natstest.Await(t, "the mirror", func() bool {
		known, _ := mirror.Account(a.ID)
		return known.NoticeURL != ""
	})
	if _, err := accounts.RotateSecret(t.Context(), ann, a.ID, 0); err != nil {
		t.Fatal(err)
	}
	raise(t, NewStore(edge), New(a.ID, QuotaReached, "1", time.Now(), "", nil))
	natstest.Await(t, "both", func() bool { _, taken := r.seen(); return len(taken) == 2 })
	all, err := NewStore(edge).Seen(t.Context(), a.ID, ann)
	if err != nil || len(all) != 2 {
		t.Fatalf("%d, %v", len(all), err)
	}
	if err := NewStore(edge).MarkRead(t.Context(), a.ID, ann, all[0].ID); err != nil {
		t.Error(err)
	}
	if n, err := NewStore(edge).Unread(t.Context(), a.ID, ann); n != 0 || err != nil {
		t.Errorf("%d unread, %v", n, err)
	}
}
