package sessions

import (
	"testing"
	"time"

	"verifyd/natsconf/seal"
)

// benchSession is a session of ordinary size.
func benchSession() Session {
	at := time.Now().UTC().Truncate(time.Millisecond)
	return Session{
		ID: newToken().ID(), Account: "acc_k3v7q2m5zt4yd6n2xw7p", Key: "key_k3v7q2m5zt4yd6n2", Platform: "discord", PlatformUserID: "sailor_42",
		GuildID: "118203948571029384", CallbackURL: "https://bot.example.com/verified?token=0123456789abcdef", CreatedAt: at, ExpiresAt: at.Add(Lifetime),
	}
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
	s, box := benchSession(), seal.NewKey().Box(sealUse)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := encodeSession(s, box); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeSession(b *testing.B) {
	s, box := benchSession(), seal.NewKey().Box(sealUse)
	data, err := encodeSession(s, box)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := decodeSession(s.ID, data, box); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeCompletion(b *testing.B) {
	s, box := benchSession(), seal.NewKey().Box(sealUse)
	c := Completion{Session: s, Outcome: Outcome{State: Verified, Network: "default"}, CompletedAt: s.CreatedAt}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := encodeCompletion(c, box); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeCompletion(b *testing.B) {
	s, box := benchSession(), seal.NewKey().Box(sealUse)
	data, err := encodeCompletion(Completion{Session: s, Outcome: Outcome{State: Verified, Network: "default"}, CompletedAt: s.CreatedAt}, box)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := decodeCompletion(s.ID, data, box); err != nil {
			b.Fatal(err)
		}
	}
}
