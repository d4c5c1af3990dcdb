package callback

import (
	"testing"
	"time"

	"verifyd/sessions"
	"verifyd/sessions/urlpolicy"
)

// benchCallback is a callback of ordinary size.
func benchCallback(b *testing.B) Callback {
	b.Helper()
	u, err := urlpolicy.NewPolicy(nil, nil).Parse("https://bot.example.com/verified?token=0123456789abcdef")
	if err != nil {
		b.Fatal(err)
	}
	return Callback{
		URL: u, Session: sessions.ID("k3v7q2m5zt4yd6n2xw7p2c4hf2jb5ral"), PlatformUserID: "sailor_42",
		GuildID: "118203948571029384", Verified: true,
		Secrets: []string{"whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="}, At: time.Now(),
	}
}

func BenchmarkPrepare(b *testing.B) {
	c, cb := New(Config{}), benchCallback(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Prepare(cb); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSign(b *testing.B) { benchmarkSign(b, benchCallback(b).Secrets...) }

func BenchmarkSignPrivateKey(b *testing.B) {
	benchmarkSign(b, "whsk_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=")
}

func benchmarkSign(b *testing.B, secrets ...string) {
	b.Helper()
	c, cb := New(Config{}), benchCallback(b)
	body := []byte(`{"platform_user_id":"sailor_42","guild_id":"118203948571029384","verified":true}`)
	m := Message{URL: cb.URL, ID: cb.id(), Body: body, Secrets: secrets, At: cb.At}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.sign(m); err != nil {
			b.Fatal(err)
		}
	}
}
