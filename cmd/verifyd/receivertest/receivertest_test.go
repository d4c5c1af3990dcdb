package receivertest_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"verifyd/cmd/verifyd/receivertest"
	"verifyd/dispatcher/callback/localca"
	"verifyd/edge/client"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil { // they wait for slow senders, each with a time-out
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// receive runs a receiver over https with a certificate from its own authority, and returns what is needed to
// try it.
func receive(t *testing.T, h http.Handler) receivertest.Options {
	t.Helper()
	ca, err := localca.New()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.Issue(localca.Certificate{Hosts: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return options(s.URL+"/verified?key=MARKER", func(o *receivertest.Options) { o.Roots = ca.Pool() })
}

func options(url string, change func(*receivertest.Options)) receivertest.Options {
	o := receivertest.Options{
		URL: url, Secret: secret, AllowPrivate: true, Timeout: 10 * time.Second, User: "verifyd-try",
		Guild: "verifyd-try", SlowPause: 10 * time.Millisecond,
	}
	if change != nil {
		change(&o)
	}
	return o
}

func run(t *testing.T, o receivertest.Options) receivertest.Report {
	t.Helper()
	b, err := receivertest.New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	r, err := b.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// outcomes returns the checks that did not pass.
func outcomes(r receivertest.Report) map[string]receivertest.Outcome {
	not := map[string]receivertest.Outcome{}
	for _, f := range r.Checks {
		if f.Outcome != receivertest.Pass {
			not[f.Check] = f.Outcome
		}
		if (f.Outcome == receivertest.Pass) != (f.Why == "") || f.Got == "" {
			not[f.Check+" says nothing"] = f.Outcome
		}
	}
	return not
}

func expect(t *testing.T, r receivertest.Report, want map[string]receivertest.Outcome) {
	t.Helper()
	got := outcomes(r)
	for name, outcome := range got {
		if want[name] != outcome {
			t.Errorf("%s: %s", name, outcome)
		}
	}
	for name, outcome := range want {
		if got[name] != outcome {
			t.Errorf("%s: %q, want %s", name, got[name], outcome)
		}
	}
}

// goReceiver is the receiver that integrators get.
func goReceiver(t *testing.T) http.Handler {
	t.Helper()
	rc, err := client.NewReceiver([]string{secret}, func(context.Context, client.Result) error { return nil },
		client.WithTests())
	if err != nil {
		t.Fatal(err)
	}
	return rc
}

const again = "The same webhook-id again"

func TestAGoodReceiverPasses(t *testing.T) {
	t.Parallel()
	r := run(t, receive(t, goReceiver(t)))
	expect(t, r, map[string]receivertest.Outcome{again: receivertest.Look})
	if r.Failed() != 0 || len(r.Checks) < 12 {
		t.Errorf("%d of %d failed", r.Failed(), len(r.Checks))
	}
}

// A receiver that speaks plain HTTP on this machine is tried by the same client, through the front.
func TestAReceiverOnThisMachine(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(goReceiver(t))
	t.Cleanup(s.Close)
	for _, url := range []string{s.URL, strings.Replace(s.URL, "127.0.0.1", "localhost", 1) + "/hook"} {
		r := run(t, options(url, nil))
		expect(t, r, map[string]receivertest.Outcome{again: receivertest.Look})
		if !strings.HasPrefix(url, "http://"+r.Receiver) {
			t.Errorf("the receiver is called %q, not %q", r.Receiver, url)
		}
	}
}

// sloppy is a receiver with faults.
type sloppy struct {
	ignoresSignature, ignoresTime, firstSignatureOnly, wholeHeader, knowsHeaders, asciiOnly, once, answersGET,
	parsesFirst bool

	mu   sync.Mutex
	seen map[string]bool
}

func (s *sloppy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost && !s.answersGET {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	body, _ := io.ReadAll(r.Body)
	status := s.judge(r.Header, body)
	if s.parsesFirst && status == http.StatusUnauthorized {
		status = http.StatusInternalServerError
	}
	w.WriteHeader(status)
}

func (s *sloppy) judge(h http.Header, body []byte) int {
	at, _ := strconv.ParseInt(h.Get("Webhook-Timestamp"), 10, 64)
	switch {
	case s.knowsHeaders && h.Get("X-Later") != "":
		return http.StatusBadRequest
	case !s.ignoresTime && !s.ignoresSignature && time.Since(time.Unix(at, 0)) > 5*time.Minute:
		return http.StatusUnauthorized
	case !s.ignoresSignature && !s.signed(h, body):
		return http.StatusUnauthorized
	case s.asciiOnly && bytes.ContainsFunc(body, func(r rune) bool { return r > 127 }):
		return http.StatusInternalServerError
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if id := h.Get("Webhook-Id"); s.once && s.seen[id] {
		return http.StatusConflict
	} else if s.seen == nil {
		s.seen = map[string]bool{id: true}
	} else {
		s.seen[id] = true
	}
	return http.StatusNoContent
}

func (s *sloppy) signed(h http.Header, body []byte) bool {
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", h.Get("Webhook-Id"), h.Get("Webhook-Timestamp"), body)
	signatures := strings.Fields(h.Get("Webhook-Signature"))
	if s.firstSignatureOnly && len(signatures) > 1 {
		signatures = signatures[:1]
	}
	if s.wholeHeader {
		signatures = []string{h.Get("Webhook-Signature")}
	}
	for _, signature := range signatures {
		if signature == "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)) {
			return true
		}
	}
	return false
}

// Each fault is found, and nothing else is.
func TestFaultsAreFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		receiver *sloppy
		want     map[string]receivertest.Outcome
	}{
		"none": {&sloppy{}, map[string]receivertest.Outcome{}},
		"takes everything": {&sloppy{ignoresSignature: true}, map[string]receivertest.Outcome{
			"A signature made with another secret": receivertest.Fail,
			"A body changed after it was signed":   receivertest.Fail,
			"No signature at all":                  receivertest.Fail,
			"A timestamp of an hour ago":           receivertest.Fail,
			"Two signatures, the known one last":   receivertest.Look,
			"Two signatures, the known one first":  receivertest.Look,
		}},
		"takes old ones": {
			&sloppy{ignoresTime: true}, map[string]receivertest.Outcome{
				"A timestamp of an hour ago": receivertest.Fail,
			},
		},
		"looks at the first signature": {
			&sloppy{firstSignatureOnly: true}, map[string]receivertest.Outcome{
				"Two signatures, the known one last": receivertest.Fail,
			},
		},
		"takes the header for one signature": {
			&sloppy{wholeHeader: true}, map[string]receivertest.Outcome{
				"Two signatures, the known one last":    receivertest.Fail,
				"Two signatures, the known one first":   receivertest.Fail,
				"A signature by a key pair in addition": receivertest.Fail,
			},
		},
		"refuses headers": {
			&sloppy{knowsHeaders: true}, map[string]receivertest.Outcome{
				"A header that nobody knows": receivertest.Fail,
			},
		},
		"fails at other letters": {
			&sloppy{asciiOnly: true}, map[string]receivertest.Outcome{
				"Ids of unusual characters": receivertest.Fail, "The longest id": receivertest.Fail,
			},
		},
		"refuses what it has": {
			&sloppy{once: true}, map[string]receivertest.Outcome{again: receivertest.Fail},
		},
		"does not care for the method": {
			&sloppy{answersGET: true, ignoresTime: true, ignoresSignature: true}, nil,
		},
		"fails where it ought to refuse": {
			&sloppy{parsesFirst: true}, map[string]receivertest.Outcome{
				"A signature made with another secret": receivertest.Look,
				"A body changed after it was signed":   receivertest.Look,
				"No signature at all":                  receivertest.Look,
				"A timestamp of an hour ago":           receivertest.Look,
			},
		},
		"refuses all, since it is not one": {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			switch {
			case c.receiver == nil:
				r := run(t, receive(t, http.RedirectHandler("https://elsewhere.example/", http.StatusFound)))
				if first := r.Checks[0]; first.Outcome != receivertest.Fail ||
					!strings.Contains(first.Why, "edirect") {
					t.Errorf("%+v", first)
				}
				if len(r.Checks) != 1 || r.Ready() ||
					!strings.Contains(r.Stopped, "valid callback was not accepted") {
					t.Errorf("what refuses everything is asked for more: %+v", r)
				}
			case c.want == nil:
				got := outcomes(run(t, receive(t, c.receiver)))
				if got["GET"] != receivertest.Look || got["HEAD"] != receivertest.Look {
					t.Errorf("%v", got)
				}
			default:
				if c.want[again] == "" {
					c.want[again] = receivertest.Look
				}
				expect(t, run(t, receive(t, c.receiver)), c.want)
			}
		})
	}
}

// A receiver that treats the first packet as the whole request fails only at the slow sender.
func TestTheSlowSenderIsSlow(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(nil)
	good := goReceiver(t)
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first := make([]byte, 1<<16)
		n, _ := r.Body.Read(first)
		r.Body = io.NopCloser(bytes.NewReader(first[:n]))
		good.ServeHTTP(w, r)
	})
	s.Start()
	t.Cleanup(s.Close)
	expect(t, run(t, options(s.URL, nil)), map[string]receivertest.Outcome{
		again: receivertest.Look, "A slow sender": receivertest.Fail,
	})
}

func TestNoReceiver(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	for _, scheme := range []string{"http://", "https://"} {
		r := run(t, options(scheme+l.Addr().String(), nil))
		if len(r.Checks) != 0 || r.Ready() || !strings.Contains(r.Stopped, "was not reached") {
			t.Errorf("%s: %+v", scheme, r)
		}
		var table bytes.Buffer
		if err := r.Print(&table); err != nil || !strings.Contains(table.String(), "No check was made.") {
			t.Errorf("%v\n%s", err, table.String())
		}
	}
}

// An interrupted dial tells a waiting caller nothing about the receiver.
func TestTheEndOfAWaitIsNoAnswer(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(goReceiver(t))
	t.Cleanup(s.Close)
	b, err := receivertest.New(options(s.URL, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if accepts, result := b.Accepts(over); accepts || strings.Contains(result, "listens") {
		t.Errorf("%t: %s", accepts, result)
	}
}

func TestTheGuardHolds(t *testing.T) {
	for _, c := range []struct {
		change func(*receivertest.Options)
		says   string
	}{
		{func(o *receivertest.Options) { o.URL = "http://bot.example.com/" }, "--allow-private"},
		{func(o *receivertest.Options) { o.URL, o.AllowPrivate = "http://localhost:3000/", false },
			"--allow-private"},
		{func(o *receivertest.Options) { o.URL = "http://192.168.0.1/" }, "this machine"},
		{func(o *receivertest.Options) { o.URL, o.AllowPrivate = "https://127.0.0.1/", false },
			"--allow-private"},
		{func(o *receivertest.Options) { o.URL = "https://169.254.169.254/latest" }, "the URL"},
		{func(o *receivertest.Options) { o.URL = "https://u:p@bot.example.com/" }, "the URL"},
		{func(o *receivertest.Options) { o.URL = "bot.example.com" }, "the URL"},
		{func(o *receivertest.Options) { o.Secret = "whsec_%" }, "signing secret"},
		{func(o *receivertest.Options) { o.Secret = secret[:len(secret)-4] }, "at least 24 bytes"},
	} {
		o := options("https://bot.example.com/", c.change)
		b, err := receivertest.New(o)
		if err == nil {
			b.Close()
			t.Errorf("%s was taken", o.URL)
		} else if !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "u:p") ||
			strings.Contains(err.Error(), "whsec_%") {
			t.Errorf("%s: %v", o.URL, err)
		}
	}
}

func TestReports(t *testing.T) {
	t.Parallel()
	r := run(t, receive(t, &sloppy{ignoresTime: true}))
	var table, doc bytes.Buffer
	if err := r.Print(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"FAIL  A timestamp of an hour ago", "pass  A valid callback", "204 No Content",
		"1 of 16 checks failed.", "send it again forever",
	} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, table.String())
		}
	}
	if err := r.JSON(&doc); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Failed int
		Checks []struct{ Check, Outcome, Got, Why string }
	}
	if err := json.Unmarshal(doc.Bytes(), &got); err != nil || got.Failed != 1 || len(got.Checks) != 16 ||
		got.Checks[5].Outcome != "fail" || got.Checks[5].Why == "" {
		t.Errorf("%v: %s", err, doc.String())
	}
	if text := table.String() + doc.String(); strings.Contains(text, "MARKER") ||
		strings.Contains(text, secret) {
		t.Errorf("a secret is shown:\n%s", text)
	}
}
