package client_test

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"verifyd/edge/client"
)

// pair generates a key pair, and returns its public key and a change of a request that adds its signature.
func pair(seed string) (public string, sign func(r *http.Request)) {
	private := ed25519.NewKeyFromSeed([]byte(seed))
	text := base64.StdEncoding.EncodeToString(private.Public().(ed25519.PublicKey))
	return "whpk_" + text, func(r *http.Request) {
		content := r.Header.Get("Webhook-Id") + "." + r.Header.Get("Webhook-Timestamp") + "." + verified
		signature := base64.StdEncoding.EncodeToString(ed25519.Sign(private, []byte(content)))
		r.Header.Set("Webhook-Signature", r.Header.Get("Webhook-Signature")+" v1a,"+signature)
	}
}

func TestReceiverWithAPublicKey(t *testing.T) {
	public, sign := pair("0123456789abcdef0123456789abcdef")
	_, other := pair("another seed of thirty-two bytes")
	for name, c := range map[string]struct {
		keys   []string // of the receiver
		change func(*http.Request)
		status int
	}{
		"its own":                   {[]string{public}, sign, 200},
		"the old key's, while both": {[]string{public}, func(r *http.Request) { other(r); sign(r) }, 200},
		"another's":                 {[]string{public}, other, 401},
		"the secret's alone":        {[]string{public}, func(*http.Request) {}, 401},
		"none of its form": {[]string{public}, func(r *http.Request) {
			r.Header.Set("Webhook-Signature", "v1a, v1a,%% v1a,AAAA v1a")
		}, 401},
		"of another body": {[]string{public}, func(r *http.Request) {
			sign(r)
			r.Body = struct {
				*strings.Reader
				nothing
			}{strings.NewReader(strings.Replace(verified, "true", "null", 1)), nothing{}}
		}, 401},
		"of another time": {[]string{public}, func(r *http.Request) {
			sign(r)
			r.Header.Set("Webhook-Timestamp", fmt.Sprint(time.Now().Unix()+1))
		}, 401},
		"a receiver with the secret":       {[]string{secret}, sign, 200},
		"a secret, and a signature of v1a": {[]string{oldSecret}, sign, 401},
		"a receiver with both":             {[]string{oldSecret, public}, sign, 200},
	} {
		t.Run(name, func(t *testing.T) {
			handed := 0
			rc, err := client.NewReceiver(c.keys, func(context.Context, client.Result) error {
				handed++
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			cb := newCallback()
			cb.change = c.change
			w := httptest.NewRecorder()
			rc.ServeHTTP(w, cb.request(t))
			if w.Code != c.status || handed > 0 != (c.status == 200) {
				t.Errorf("%d %s, %d handed over; want %d", w.Code, w.Body, handed, c.status)
			}
		})
	}
	for _, wrong := range []string{
		"whpk_", "whpk_MARKER%%", "whpk_TUFSS0VS", "whsk_TUFSS0VS", public + "AA==",
	} {
		if _, err := client.NewVerifier(wrong); err == nil || strings.Contains(err.Error(), "MARKER") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

func TestSigningKeys(t *testing.T) {
	t.Parallel()
	s, c := serve(t, say(200, "Content-Type: application/json", `{"signing_keys":[
		{"public_key":"whpk_a","from":"2026-11-21T13:12:09.105Z","until":null,"later":1},
		{"public_key":"whpk_b","from":"2026-02-03T08:00:00.000Z","until":"2026-11-22T13:12:09.105Z"}]}`))
	got, err := c.SigningKeys(t.Context())
	if err != nil || !slices.Equal(got, []string{"whpk_a", "whpk_b"}) {
		t.Errorf("%q, %v", got, err)
	}
	if asked := s.requests(); asked[0].line != "GET /signing-keys" || asked[0].key != "Bearer "+apiKey {
		t.Errorf("asked %+v", asked)
	}
	_, c = serve(t, say(401, "Content-Type: application/problem+json",
		`{"code":"key_invalid","status":401}`))
	_, err = c.SigningKeys(t.Context())
	if refused, ok := errors.AsType[*client.Error](err); !ok || refused.Code != client.CodeKeyInvalid {
		t.Errorf("refused, it gives %v", err)
	}
}
