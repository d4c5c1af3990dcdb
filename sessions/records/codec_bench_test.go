package records

import (
	"testing"
	"time"

	"verifyd/natsconf/secretbox"
	"verifyd/sessions"
)

// benchSession is a session of ordinary size.
func benchSession() sessions.Session {
	at := time.Now().UTC().Truncate(time.Millisecond)
	return sessions.Session{
		ID: sessions.NewToken("", nil).ID(), Request: sessions.Request{Account: "acc_k3v7q2m5zt4yd6n2xw7p",
			Key:      "key_k3v7q2m5zt4yd6n2",
			Platform: "discord", PlatformUserID: "sailor_42",
			GuildID:     "118203948571029384",
			CallbackURL: "https://bot.example.com/verified?token=0123456789abcdef"},
		CreatedAt: at, ExpiresAt: at.Add(sessions.Lifetime),
	}
}

// benchSealed is that session with a key of its own, whose page is in memory.
func benchSealed() (sessions.Session, *Opener, Sealer) {
	s, key := benchSession(), secretbox.NewKey()
	st := &Opener{keys: newSessionKeys(nil, secretbox.NewKey().Box(pageUse), time.Now)}
	s.SealedUnder = sessions.KeyRef{Page: "aaaaaaaaaaaaaaaa", Slot: 7}
	page := &keyPage{}
	page[s.SealedUnder.Slot] = key
	st.keys.remember(s.SealedUnder.Page, page)
	return s, st, Sealer{key: key}
}

func BenchmarkNewToken(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if sessions.NewToken("", nil).ID() == "" {
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
		if _, err := st.OpenSession(b.Context(), s.ID, data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeCompletion(b *testing.B) {
	s, _, with := benchSealed()
	c := sessions.Completion{
		Session: s, Outcome: sessions.Outcome{State: sessions.Verified,
			Network: "default"}, CompletedAt: s.CreatedAt,
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := EncodeCompletion(c, with); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeCompletion(b *testing.B) {
	s, st, with := benchSealed()
	data, err := EncodeCompletion(sessions.Completion{Session: s,
		Outcome: sessions.Outcome{State: sessions.Verified,
			Network: "default"}, CompletedAt: s.CreatedAt}, with)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := st.OpenCompletion(b.Context(), s.ID, data); err != nil {
			b.Fatal(err)
		}
	}
}
