package sdk

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"verifyd/edge/client"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/natstest/prove"
)

const (
	oldSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	newSecret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	another   = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	short     = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=" // 23 bytes

	// seeds of key pairs, among the secrets that sign
	oldSeed     = "the old pair's seed, of 32 bytes"
	newSeed     = "the new pair's seed, of 32 bytes"
	anotherSeed = "another pair's seed, of 32 bytes"
)

func publicKey(seed string) string {
	pair := ed25519.NewKeyFromSeed([]byte(seed))
	return "whpk_" + base64.StdEncoding.EncodeToString(pair.Public().(ed25519.PublicKey))
}

// handed is a result that a receiver passed on.
type handed struct {
	User, Guild, ID, Session string
	Verified, Test           bool
	At                       float64
}

// callback is a posted callback, and a receiver's answer.
type callback struct {
	name    string
	id      string
	body    string
	secrets []string // that sign it, and seeds of pairs
	age     time.Duration
	change  func(q *http.Request)
	status  int
	handed  bool
}

func callbacks() []callback {
	const body = `{"platform_user_id":"sailor_42","guild_id":"ü\u2028","verified":true}`
	signed := []string{oldSecret, oldSeed}
	return []callback{
		{name: "valid", id: "cb_a", body: body, secrets: signed, status: 200, handed: true},
		{name: "again", id: "cb_a", body: body, secrets: signed, status: 200},
		{name: "declined, and unknown members", id: "cb_b",
			body: `{"platform_user_id":"u","guild_id":"","verified":false,"more":1}`, secrets: signed,
			status: 200, handed: true},
		{name: "by the new secret", id: "cb_c", body: body, secrets: []string{newSecret}, status: 200,
			handed: true},
		{name: "while secrets rotate", id: "cb_d", body: body, status: 200, handed: true,
			secrets: []string{another, newSecret, anotherSeed, newSeed}},
		{name: "the secret's behind the pair's", id: "cb_da", body: body, status: 200, handed: true,
			secrets: []string{oldSeed, oldSecret}},
		{name: "by the pair alone", id: "cb_e", body: body, secrets: []string{oldSeed}, status: 401},
		{name: "by another secret", id: "cb_e", body: body, secrets: []string{another}, status: 401},
		{name: "unsigned", id: "cb_f", body: body, secrets: signed, status: 401,
			change: func(q *http.Request) { q.Header.Del("webhook-signature") }},
		{name: "signed in a way that nobody knows", id: "cb_f", body: body, secrets: signed, status: 401,
			change: func(q *http.Request) { q.Header.Set("webhook-signature", "v2,AAAA v1,%% v1 ,") }},
		{name: "without a time", id: "cb_f", body: body, secrets: signed, status: 401,
			change: func(q *http.Request) { q.Header.Set("webhook-timestamp", "soon") }},
		{name: "changed", id: "cb_g", body: body, secrets: signed, status: 401,
			change: func(q *http.Request) {
				q.Body = io.NopCloser(strings.NewReader(strings.Replace(body, "true", "TRUE", 1)))
			}},
		{name: "of six minutes ago", id: "cb_h", body: body, secrets: signed, age: 6 * time.Minute,
			status: 401},
		{name: "of the future", id: "cb_h", body: body, secrets: signed, age: -6 * time.Minute, status: 401},
		{name: "of four minutes ago", id: "cb_h", body: body, secrets: signed, age: 4 * time.Minute,
			status: 200, handed: true},
		{name: "no result", id: "cb_i", body: `{"platform_user_id":7}`, secrets: signed, status: 422},
		{name: "no JSON", id: "cb_i", body: `[]`, secrets: signed, status: 422},
		{name: "of a test key", id: "cbtest_j", body: body, secrets: signed, status: 200},
		{name: "a test by its header", id: "cb_k", body: body, secrets: signed, status: 200,
			change: func(q *http.Request) { q.Header.Set("verifyd-test", "true") }},
		{name: "that the handler cannot take", id: "cb_l", secrets: signed, status: 500,
			body: `{"platform_user_id":"fails once","guild_id":"","verified":true}`},
		{name: "that it can take now", id: "cb_l", secrets: signed, status: 200, handed: true,
			body: `{"platform_user_id":"fails once","guild_id":"","verified":true}`},
		{name: "another method", id: "cb_m", body: body, secrets: signed, status: 405,
			change: func(q *http.Request) { q.Method, q.Body, q.ContentLength = http.MethodGet, nil, 0 }},
		{name: "too large", id: "cb_n", body: strings.Repeat(" ", 70<<10), secrets: signed, status: 413},
	}
}

// keyCallbacks are for receivers with public keys and no secret. The official libraries do not support v1a:
// each kit checks it with its language's means, against signatures by Go's crypto/ed25519.
func keyCallbacks() []callback {
	const body = `{"platform_user_id":"sailor_42","guild_id":"ü\u2028","verified":true}`
	signed := []string{oldSecret, oldSeed}
	set := func(signature string) func(*http.Request) {
		return func(q *http.Request) { q.Header.Set("webhook-signature", signature) }
	}
	return []callback{
		{name: "by the old pair", id: "cb_ka", body: body, secrets: signed, status: 200, handed: true},
		{name: "by both", id: "cb_kb", body: body, status: 200, handed: true,
			secrets: []string{another, another, anotherSeed, newSeed}},
		{name: "by the pair alone", id: "cb_kc", body: body, secrets: []string{newSeed}, status: 200,
			handed: true},
		{name: "by the secret alone", id: "cb_kd", body: body, secrets: signed[:1], status: 401},
		{name: "by another pair", id: "cb_ke", body: body, secrets: []string{oldSecret, anotherSeed},
			status: 401},
		{name: "no signature at all", id: "cb_kf", body: body, secrets: signed, status: 401,
			change: set("v1a v1a, v1a,%% v1a,AAAA v1a," + strings.Repeat("A", 86) + "==")},
		{name: "changed", id: "cb_kg", body: body, secrets: signed, status: 401,
			change: func(q *http.Request) {
				q.Body = io.NopCloser(strings.NewReader(strings.Replace(body, "true", "TRUE", 1)))
			}},
	}
}

// Each kit does what package client does: it sends the same requests, and its receivers give the same answers
// and results.
func TestKits(t *testing.T) {
	prove.Only(t, "languages", "it runs five languages")
	t.Parallel()
	t.Run("Go", func(t *testing.T) {
		t.Parallel()
		post := func(callbacks []callback, secrets ...string) {
			results, failed := make(chan handed, 1), false
			receiver, err := client.NewReceiver(secrets, fromGo(results, &failed))
			if err != nil {
				t.Fatal(err)
			}
			server := httptest.NewServer(receiver)
			defer server.Close()
			postAll(t, server.URL, results, callbacks)
		}
		post(callbacks(), oldSecret, newSecret)
		post(keyCallbacks(), publicKey(oldSeed), publicKey(newSeed))
	})
	for _, k := range kits {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			dir := k.installed(t)
			k.asks(t, dir)
			k.offers(t, dir)
			for _, kind := range k.kinds {
				t.Run(kind, func(t *testing.T) {
					url, results := k.receives(t, dir, kind, oldSecret, newSecret)
					postAll(t, url, results, callbacks())
				})
			}
			k.refuses(t, dir, short, "signing secret 1 of 1 is not whsec_ and base64 of at least 24 bytes")
			if k.noPublicKeys != "" {
				k.refuses(t, dir, publicKey(oldSeed), k.noPublicKeys)
				return
			}
			url, results := k.receives(t, dir, k.kinds[0], publicKey(oldSeed), publicKey(newSeed))
			postAll(t, url, results, keyCallbacks())
		})
	}
}

// refuses runs a receiver of the kit with a secret that ends it.
func (k kit) refuses(t *testing.T, dir, secret, why string) {
	t.Helper()
	c := k.command(dir, k.receiver, k.kinds[0], secret)
	c.Env = append(c.Env, "SECRETS="+secret)
	var out strings.Builder
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(natstest.TestTimeout, func() { _ = c.Process.Kill() }).Stop() // it listens
	if err := c.Wait(); err == nil || !strings.Contains(out.String(), why) {
		t.Errorf("given %s it ends with %v and says %s", secret, err, out.String())
	}
}

// receives runs a receiver of the kit, and returns its address and its results.
func (k kit) receives(t *testing.T, dir, kind string, secrets ...string) (url string, _ <-chan handed) {
	t.Helper()
	address, args := "", append([]string{k.receiver, kind}, secrets...)
	if k.listen != nil {
		address = k.listen(t)
		args = []string{"-S", address, k.receiver}
	}
	c := k.command(dir, args...)
	c.Env = append(c.Env, "SECRETS="+strings.Join(secrets, " "))
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stdout, c.Stderr = in, in
	err = c.Start()
	_ = in.Close()
	if err != nil {
		t.Fatal(err)
	}
	results, ready := make(chan handed, 100), make(chan string, 1)
	var said strings.Builder
	go func() {
		defer close(results)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var h handed
			text := lines.Text()
			switch _, err := strconv.Atoi(text); {
			case err == nil:
				ready <- "http://127.0.0.1:" + text
			case strings.HasSuffix(text, " started"): // PHP's server
				ready <- "http://" + address
			case json.Unmarshal([]byte(text), &h) == nil:
				results <- h
			default:
				said.WriteString(text + "\n")
			}
		}
	}()
	t.Cleanup(func() {
		_ = c.Process.Kill()
		for range results { // until its output ends
		}
		_ = c.Wait()
		_ = out.Close()
		if t.Failed() {
			t.Log(said.String())
		}
	})
	select {
	case url = <-ready:
	case <-time.After(natstest.TestTimeout):
		t.Fatal("it does not listen")
	}
	return url, results
}

func postAll(t *testing.T, url string, results <-chan handed, callbacks []callback) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	httpClient := &http.Client{Transport: transport, Timeout: natstest.TestTimeout}
	for _, c := range callbacks {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/verified",
			strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-c.age)
		q.Header.Set("Content-Type", "application/json")
		q.Header.Set("webhook-id", c.id)
		q.Header.Set("webhook-timestamp", fmt.Sprint(at.Unix()))
		q.Header.Set("webhook-signature", sign(t, c, at))
		if c.change != nil {
			c.change(q)
		}
		answer, err := httpClient.Do(q)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		words, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		head := answer.Header
		if answer.StatusCode != c.status || head.Get("Content-Type") != "text/plain; charset=utf-8" ||
			c.status == http.StatusMethodNotAllowed && head.Get("Allow") != http.MethodPost {
			t.Errorf("%s: %d %q %v, want %d", c.name, answer.StatusCode, words, answer.Header, c.status)
		}
		if !c.handed {
			select {
			case h := <-results:
				t.Errorf("%s: it hands over %+v", c.name, h)
			default:
			}
			continue
		}
		select {
		case h := <-results:
			want := handed{ID: c.id, Session: strings.TrimPrefix(c.id, "cb_"), At: float64(at.Unix())}
			var body struct {
				User     string `json:"platform_user_id"`
				Guild    string `json:"guild_id"`
				Verified bool   `json:"verified"`
			}
			if err := json.Unmarshal([]byte(c.body), &body); err != nil {
				t.Fatal(err)
			}
			want.User, want.Guild, want.Verified = body.User, body.Guild, body.Verified
			if h != want {
				t.Errorf("%s: it hands over %+v, want %+v", c.name, h, want)
			}
		case <-time.After(natstest.TestTimeout):
			t.Fatalf("%s: nothing is handed over", c.name)
		}
	}
}

func sign(t *testing.T, c callback, at time.Time) string {
	t.Helper()
	var all []string
	for _, secret := range c.secrets {
		if !strings.HasPrefix(secret, "whsec_") {
			content := fmt.Sprintf("%s.%d.%s", c.id, at.Unix(), c.body)
			signature := ed25519.Sign(ed25519.NewKeyFromSeed([]byte(secret)), []byte(content))
			all = append(all, "v1a,"+base64.StdEncoding.EncodeToString(signature))
			continue
		}
		hook, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			t.Fatal(err)
		}
		signature, err := hook.Sign(c.id, at, []byte(c.body))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, signature)
	}
	return strings.Join(all, " ")
}

// fromGo is the handler of package client's receiver; like the kits' programs it fails once.
func fromGo(results chan<- handed, failed *bool) client.Handle {
	return func(_ context.Context, r client.Result) error {
		if r.PlatformUserID == "fails once" && !*failed {
			*failed = true
			return errors.New("the database is away")
		}
		results <- handed{User: r.PlatformUserID, Guild: r.GuildID, ID: r.ID, Session: r.Session,
			Verified: r.Verified, Test: r.Test, At: float64(r.SentAt.Unix())}
		return nil
	}
}
