package sessions

import (
	"testing"
	"time"

	"verifyd/natsconf/secretbox"
)

// benchSession is a session of ordinary size.
func benchSession() Session {
	at := time.Now().UTC().Truncate(time.Millisecond)
	return Session{
		ID: newToken().ID(), Account: "acc_k3v7q2m5zt4yd6n2xw7p", Key: "key_k3v7q2m5zt4yd6n2",
		Platform: "discord", PlatformUserID: "sailor_42",
		GuildID: "118203948571029384", CallbackURL: "https://bot.example.com/verified?token=0123456789abcdef",
		CreatedAt: at, ExpiresAt: at.Add(Lifetime),
	}
}

// benchSealed is that session with a key of its own, whose page is in memory.
func benchSealed() (Session, *Store, sealer) {
	s, key := benchSession(), secretbox.NewKey()
	st := &Store{keys: newSessionKeys(nil, secretbox.NewKey().Box(pageUse), time.Now)}
	s.key = keyRef{page: "aaaaaaaaaaaaaaaa", slot: 7}
	page := &keyPage{}
	page[s.key.slot] = key
	st.keys.remember(s.key.page, page)
	return s, st, sealer{key: key}
}

func BenchmarkNewToken(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if newToken().ID() == "" {
			b.Fatal("no id")
		}
	}
}

func BenchmarkEncodeSession(b *testing.B) {
	s, _, with := benchSealed()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := encodeSession(s, with); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeSession(b *testing.B) {
	s, st, with := benchSealed()
	data, err := encodeSession(s, with)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := st.decodeSession(b.Context(), s.ID, data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeCompletion(b *testing.B) {
	s, _, with := benchSealed()
	c := Completion{
		Session: s, Outcome: Outcome{State: Verified, Network: "default"}, CompletedAt: s.CreatedAt,
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := encodeCompletion(c, with); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeCompletion(b *testing.B) {
	s, st, with := benchSealed()
	data, err := encodeCompletion(Completion{Session: s,
		Outcome: Outcome{State: Verified, Network: "default"}, CompletedAt: s.CreatedAt}, with)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := st.decodeCompletion(b.Context(), s.ID, data); err != nil {
			b.Fatal(err)
		}
	}
}
