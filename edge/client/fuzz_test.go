package client_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"verifyd/edge/client"
)

// A callback that was changed in any part is refused; a signed one is read as the service wrote it, or is no
// result.
func FuzzVerify(f *testing.F) {
	const (
		secret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
		other  = "cb_another"
	)
	now := time.Unix(1795000000, 0)
	hook, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		f.Fatal(err)
	}
	verifier, err := client.NewVerifier(secret)
	if err != nil {
		f.Fatal(err)
	}
	header := func(id, at, signature string) http.Header {
		return http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {at}, "Webhook-Signature": {signature}}
	}
	for _, body := range []string{
		`{"platform_user_id":"u","guild_id":"","verified":true}`, `{"verified":true}`,
		`{"platform_user_id":"u","guild_id":null,"verified":true}`, `{"Verified":true,"verified":false}`, "",
	} {
		f.Add("cb_session", []byte(body), 0, byte(1))
	}
	f.Fuzz(func(t *testing.T, id string, body []byte, at int, by byte) {
		signature, err := hook.Sign(id, now, body)
		if err != nil {
			t.Skip(err)
		}
		const stamp = "1795000000"
		r, err := verifier.Verify(header(id, stamp, signature), body, now)
		if err == nil && (r.ID != id || id == "" || !strings.Contains(string(body), "erified") &&
			!strings.Contains(string(body), `\u`)) {
			t.Fatalf("%q, %q is read as %+v", id, body, r)
		}
		if by != 0 && len(body) > 0 {
			changed := append([]byte(nil), body...)
			changed[uint(at)%uint(len(body))] ^= by
			if _, err := verifier.Verify(header(id, stamp, signature), changed, now); err == nil {
				t.Fatalf("%q passes for %q", changed, body)
			}
		}
		for what, h := range map[string]http.Header{
			"another id":          header(other+id, stamp, signature),
			"another time":        header(id, "1795000001", signature),
			"a shorter signature": header(id, stamp, signature[:len(signature)-1]),
		} {
			if _, err := verifier.Verify(h, body, now); err == nil {
				t.Fatalf("%s passes for %q, %q", what, id, body)
			}
		}
		if _, err := verifier.Verify(header(id, stamp, string(body)), body, now); err == nil {
			t.Fatalf("%q passes as its own signature", body)
		}
	})
}
