package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"verifyd/edge/client"
)

const (
	secret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	oldSecret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	verified  = `{"platform_user_id":"sailor_42","guild_id":"7","verified":true}`
)

// callback is a POST as the service makes it; the fields are what a test changes.
type callback struct {
	id      string
	at      time.Time
	body    string
	secrets []string
	test    bool
	change  func(*http.Request)
}

func newCallback() callback {
	return callback{id: "cb_abc", at: time.Now(), body: verified, secrets: []string{secret}}
}

func (c callback) request(t *testing.T) *http.Request {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/verified", strings.NewReader(c.body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Webhook-Id", c.id)
	r.Header.Set("Webhook-Timestamp", fmt.Sprint(c.at.Unix()))
	var signatures []string
	for _, s := range c.secrets {
		hook, err := standardwebhooks.NewWebhook(s)
		if err != nil {
			t.Fatal(err)
		}
		signature, err := hook.Sign(c.id, c.at, []byte(c.body))
		if err != nil {
			t.Fatal(err)
		}
		signatures = append(signatures, signature)
	}
	r.Header.Set("Webhook-Signature", strings.Join(signatures, " "))
	if c.test {
		r.Header.Set("Verifyd-Test", "true")
	}
	if c.change != nil {
		c.change(r)
	}
	return r
}

// desk is a receiver and the results that it passed on.
type desk struct {
	*client.Receiver

	got []client.Result
	end error // what the handler returns
}

func newDesk(t *testing.T, options ...client.ReceiverOption) *desk {
	t.Helper()
	d := &desk{}
	var err error
	d.Receiver, err = client.NewReceiver([]string{secret, oldSecret},
		func(_ context.Context, r client.Result) error {
			d.got = append(d.got, r)
			return d.end
		}, options...)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *desk) receive(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w
}

func TestReceiverAnswers(t *testing.T) {
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	for name, c := range map[string]struct {
		change func(*callback)
		status int
		handed int
	}{
		"valid": {func(*callback) {}, 200, 1},
		"not verified": {
			func(c *callback) { c.body = `{"platform_user_id":"u","guild_id":"","verified":false}` }, 200, 1,
		},
		"a member more": {
			func(c *callback) { c.body = strings.Replace(verified, "{", `{"later":1,`, 1) }, 200, 1,
		},
		"unknown header": {func(c *callback) { c.change = header("X-Later", "1") }, 200, 1},
		"both signatures": {
			func(c *callback) { c.secrets = []string{"whsec_YWJj", oldSecret} }, 200, 1,
		},
		"only the old secret": {func(c *callback) { c.secrets = []string{oldSecret} }, 200, 1},
		"another secret":      {func(c *callback) { c.secrets = []string{"whsec_YWJj"} }, 401, 0},
		"no signature": {
			func(c *callback) { c.change = func(r *http.Request) { r.Header.Del("Webhook-Signature") } }, 401,
			0,
		},
		"no id": {
			func(c *callback) { c.change = func(r *http.Request) { r.Header.Del("Webhook-Id") } }, 401, 0,
		},
		"no time": {
			func(c *callback) { c.change = func(r *http.Request) { r.Header.Del("Webhook-Timestamp") } }, 401,
			0,
		},
		"another id": {
			func(c *callback) { c.change = header("Webhook-Id", "cb_other") }, 401, 0,
		},
		"another time": {
			func(c *callback) { c.change = header("Webhook-Timestamp", fmt.Sprint(c.at.Unix()+1)) }, 401, 0,
		},
		"a signature of a later kind": {
			func(c *callback) { c.change = header("Webhook-Signature", "v2,aaaa v1a,bbbb junk") }, 401, 0,
		},
		"an old time": {
			func(c *callback) { c.at = c.at.Add(-client.Tolerance - time.Minute) }, 401, 0,
		},
		"a time to come": {
			func(c *callback) { c.at = c.at.Add(client.Tolerance + time.Minute) }, 401, 0,
		},
		"almost old": {
			func(c *callback) { c.at = c.at.Add(-client.Tolerance + time.Minute) }, 200, 1,
		},
		"too large": {func(c *callback) { c.body = strings.Repeat("x", 65<<10) }, 413, 0},
		"signed, but no result": {
			func(c *callback) { c.body = `{"platform_user_id":"u","verified":true}` }, 422, 0,
		},
		"signed, but verified: null": {
			func(c *callback) { c.body = `{"platform_user_id":"u","guild_id":"","verified":null}` }, 422, 0,
		},
		"a GET": {
			func(c *callback) { c.change = func(r *http.Request) { r.Method = http.MethodGet } }, 405, 0,
		},
		"a test":                 {func(c *callback) { c.test = true }, 200, 0},
		"a test by its id alone": {func(c *callback) { c.id = "cbtest_abc" }, 200, 0},
		"a test with another secret": {
			func(c *callback) { c.test, c.secrets = true, []string{"whsec_YWJj"} }, 401, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, cb := newDesk(t), newCallback()
			c.change(&cb)
			if w := d.receive(cb.request(t)); w.Code != c.status || len(d.got) != c.handed {
				t.Errorf("%d %s, %d handed over; want %d, %d", w.Code, w.Body, len(d.got), c.status, c.handed)
			}
		})
	}
}

func TestReceiverPassesOnWhatWasSent(t *testing.T) {
	d, cb := newDesk(t, client.WithTests()), newCallback()
	cb.test = true
	d.receive(cb.request(t))
	want := client.Result{
		PlatformUserID: "sailor_42", GuildID: "7", Verified: true, ID: "cb_abc", Session: "abc",
		SentAt: cb.at.Truncate(time.Second).UTC(), Test: true,
	}
	if len(d.got) != 1 || d.got[0] != want {
		t.Errorf("got %+v", d.got)
	}
}

// A body changed under a valid signature never gets through, whichever byte it is.
func TestEveryByteIsSigned(t *testing.T) {
	d, cb := newDesk(t), newCallback()
	for i := range verified {
		cb.change = func(r *http.Request) {
			changed := []byte(verified)
			changed[i] ^= 1
			r.Body = http.NoBody
			r.Body = struct {
				*strings.Reader
				nothing
			}{strings.NewReader(string(changed)), nothing{}}
		}
		if w := d.receive(cb.request(t)); w.Code != http.StatusUnauthorized {
			t.Fatalf("byte %d: %d %s", i, w.Code, w.Body)
		}
	}
}

type nothing struct{}

func (nothing) Close() error { return nil }

func TestTheSameIsHandedOverOnce(t *testing.T) {
	d, cb := newDesk(t), newCallback()
	for range 3 {
		if w := d.receive(cb.request(t)); w.Code != http.StatusOK {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		cb.at = cb.at.Add(time.Second) // sent again, it has a new signature
	}
	if len(d.got) != 1 {
		t.Errorf("handed over %d times", len(d.got))
	}
}

func TestWhatFailedIsHandedOverAgain(t *testing.T) {
	d, cb := newDesk(t), newCallback()
	d.end = errors.New("the database is away")
	if w := d.receive(cb.request(t)); w.Code != http.StatusInternalServerError ||
		strings.Contains(w.Body.String(), "database") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	d.end = nil
	if w := d.receive(cb.request(t)); w.Code != http.StatusOK || len(d.got) != 2 {
		t.Errorf("%d %s, handed over %d times", w.Code, w.Body, len(d.got))
	}
}

func TestAPanicIsNoHandling(t *testing.T) {
	calls := 0
	rc, err := client.NewReceiver([]string{secret}, func(context.Context, client.Result) error {
		if calls++; calls == 1 {
			panic("a fault of the integrator's")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		rc.ServeHTTP(httptest.NewRecorder(), newCallback().request(t))
	}()
	w := httptest.NewRecorder()
	if rc.ServeHTTP(w, newCallback().request(t)); w.Code != http.StatusOK || calls != 2 {
		t.Errorf("%d %s after %d calls", w.Code, w.Body, calls)
	}
}

// While the first is being handled the second must not be answered with success: the first may still fail.
func TestWhileItIsHandled(t *testing.T) {
	begun, go1 := make(chan struct{}), make(chan error)
	rc, err := client.NewReceiver([]string{secret}, func(context.Context, client.Result) error {
		close(begun)
		return <-go1
	})
	if err != nil {
		t.Fatal(err)
	}
	first, cb := make(chan int), newCallback()
	go func() {
		w := httptest.NewRecorder()
		rc.ServeHTTP(w, cb.request(t))
		first <- w.Code
	}()
	<-begun
	w := httptest.NewRecorder()
	rc.ServeHTTP(w, cb.request(t))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	go1 <- nil
	if code := <-first; code != http.StatusOK {
		t.Errorf("the first got %d", code)
	}
}

// brokenSeen is a shared memory that is down.
type brokenSeen struct{ begin, end error }

func (b brokenSeen) Begin(context.Context, string) (client.Sighting, error) {
	return client.SeenNew, b.begin
}
func (b brokenSeen) End(context.Context, string, bool) error { return b.end }

func TestWithoutItsMemoryNothingIsHandled(t *testing.T) {
	d := newDesk(t, client.WithSeen(brokenSeen{begin: errors.New("away")}))
	if w := d.receive(newCallback().request(t)); w.Code != http.StatusServiceUnavailable || len(d.got) != 0 {
		t.Errorf("%d, handed over %d times", w.Code, len(d.got))
	}
	d = newDesk(t, client.WithSeen(brokenSeen{end: errors.New("away")}))
	if w := d.receive(newCallback().request(t)); w.Code != http.StatusServiceUnavailable || len(d.got) != 1 {
		t.Errorf("%d, handed over %d times", w.Code, len(d.got))
	}
}

func TestReceiverRefusesSecretsThatProveNothing(t *testing.T) {
	short := "whsec_" + strings.Repeat("A", 31) + "=" // 23 bytes
	for _, secrets := range [][]string{
		nil, {""}, {"whsec_"}, {"whsec_%%%"}, {secret, ""}, {short}, {secret, short},
	} {
		if _, err := client.NewReceiver(secrets,
			func(context.Context, client.Result) error { return nil }); err == nil {
			t.Errorf("%q was accepted", secrets)
		} else if strings.Contains(err.Error(), "%%%") || strings.Contains(err.Error(), short) {
			t.Errorf("it shows the secret: %v", err)
		}
	}
	if _, err := client.NewReceiver([]string{secret}, nil); err == nil {
		t.Error("no handler was accepted")
	}
}
