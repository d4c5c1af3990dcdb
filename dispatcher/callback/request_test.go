package callback_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"verifyd/dispatcher/callback"
	"verifyd/sessions/urlpolicy"
)

// send makes one attempt with cb at a receiver of its own and returns what arrived.
func send(t *testing.T, cb callback.Callback, path string) received {
	t.Helper()
	r := receive(t, nil, okAnswer)
	c := newClient(time.Minute)
	cb.URL = mustURL(t, "https://"+r.listener.Addr().String()+path)
	request, err := c.Prepare(cb)
	if err != nil {
		t.Fatal(err)
	}
	if answer := mustDial(t, c, cb.URL).Send(t.Context(), request); answer.Verdict != delivered {
		t.Fatalf("%+v", answer)
	}
	posts := r.stop()
	if len(posts) != 1 {
		t.Fatalf("%d POSTs received", len(posts))
	}
	return posts[0]
}

func sample() callback.Callback {
	return callback.Callback{
		Session: testID, PlatformUserID: "u-1", GuildID: "", Verified: false, Secrets: []string{testSecret},
		At: time.Now(),
	}
}

func TestTheWholeRequest(t *testing.T) {
	cb := sample()
	got := send(t, cb, "/a%2Fb//c?token=x&r[]=%00")
	if got.line != "POST /a%2Fb//c?token=x&r[]=%00 HTTP/1.1" {
		t.Errorf("request line %q", got.line)
	}
	if string(got.body) != `{"platform_user_id":"u-1","guild_id":"","verified":false}` {
		t.Errorf("body %s", got.body)
	}
	if !strings.HasPrefix(got.host, "127.0.0.1:") {
		t.Errorf("Host %q", got.host)
	}
	want := http.Header{
		"User-Agent": {"verifyd/test"}, "Content-Type": {"application/json"}, "Content-Length": {
			strconv.Itoa(len(got.body)),
		},
		"Webhook-Id": {"cb_" + string(testID)}, "Webhook-Timestamp": {strconv.FormatInt(cb.At.Unix(), 10)},
		"Webhook-Signature": got.header["Webhook-Signature"], // judged by its own test
	}
	if fmt.Sprint(got.header) != fmt.Sprint(want) {
		t.Errorf("header %v\nwant   %v", got.header, want)
	}
}

func TestTestCallbackIsMarkedInWhatIsSigned(t *testing.T) {
	cb := sample()
	cb.Test = true
	got := send(t, cb, "/")
	if h := got.header.Get(callback.HeaderTest); h != "true" {
		t.Errorf("%s = %q", callback.HeaderTest, h)
	}
	if id := got.header.Get(callback.HeaderID); id != "cbtest_"+string(cb.Session) {
		t.Errorf("webhook-id = %q", id)
	}
	verify(t, testSecret, got)
	got.header.Set(callback.HeaderID, callback.ID(cb.Session, false))
	if hook, err := standardwebhooks.NewWebhook(testSecret); err != nil ||
		hook.Verify(got.body, got.header) == nil {
		t.Errorf("it verifies as a live one (%v)", err)
	}
}

func TestStringsComeBackUnchanged(t *testing.T) {
	for _, s := range []string{
		"", "👩‍👩‍👧‍👦🏳️‍🌈", "שלום \u202Eevil\u202C", `quote " and \ backslash`, "line\nfeed\r\ttab",
		"\u2028\u2029", "<>&'", "\x00\x01\x1f\x7f",
		"\uFFFD\uFFFE\uFEFF", "e\u0301 is not é", strings.Repeat("🦊", 256), strings.Repeat("\x01", 1024),
		"true", "null", "{}",
	} {
		cb := sample()
		cb.PlatformUserID, cb.GuildID, cb.Verified = s, s+"!", true
		got := send(t, cb, "/")
		var body struct {
			PlatformUserID string `json:"platform_user_id"`
			GuildID        string `json:"guild_id"`
			Verified       bool   `json:"verified"`
		}
		if err := json.Unmarshal(got.body, &body); err != nil || body.PlatformUserID != s ||
			body.GuildID != s+"!" || !body.Verified {
			t.Errorf("%.40q came back as %.40q, %v", s, body.PlatformUserID, err)
		}
		verify(t, testSecret, got)
	}
}

func TestCharactersAreWrittenAsTheyAre(t *testing.T) {
	cb := sample()
	cb.PlatformUserID = "🦊<>&\u2028é"
	if got, want := string(send(t, cb, "/").body),
		"{\"platform_user_id\":\"🦊<>&\u2028é\",\"guild_id\":\"\",\"verified\":false}"; got != want {
		t.Errorf("body %q\nwant %q", got, want)
	}
}

func TestEverySecretSigns(t *testing.T) {
	const next = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	cb := sample()
	cb.Secrets = []string{testSecret, next}
	got := send(t, cb, "/")
	if n := len(strings.Split(got.header.Get(callback.HeaderSignature), " ")); n != 2 {
		t.Errorf("%d signatures", n)
	}
	verify(t, testSecret, got)
	verify(t, next, got)
	other, err := standardwebhooks.NewWebhook("whsec_" + strings.Repeat("AAAA", 8))
	if err != nil || other.Verify(got.body, got.header) == nil {
		t.Errorf("a third secret verifies (%v)", err)
	}
	altered := append([]byte{' '}, got.body...)
	if hook, err := standardwebhooks.NewWebhook(testSecret); err != nil ||
		hook.Verify(altered, got.header) == nil {
		t.Errorf("an altered body verifies (%v)", err)
	}
}

// A private key's signature is over the same content, and the secrets' stay as they are. The official library
// reads the header like receivers that support only version 1.
func TestPrivateKeysSign(t *testing.T) {
	seed := []byte("0123456789abcdef0123456789abcdef")
	cb := sample()
	cb.Secrets = []string{testSecret, "whsk_" + base64.StdEncoding.EncodeToString(seed)}
	got := send(t, cb, "/")
	verify(t, testSecret, got)
	first, second, _ := strings.Cut(got.header.Get(callback.HeaderSignature), " ")
	text, ok := strings.CutPrefix(second, "v1a,")
	signature, err := base64.StdEncoding.DecodeString(text)
	if !strings.HasPrefix(first, "v1,") || !ok || err != nil {
		t.Fatalf("signatures %q and %q, %v", first, second, err)
	}
	public := ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
	content := got.header.Get(callback.HeaderID) + "." + got.header.Get(callback.HeaderTimestamp) + "." +
		string(got.body)
	if !ed25519.Verify(public, []byte(content), signature) {
		t.Error("the signature is not over the content")
	}
	if ed25519.Verify(public, []byte(content+" "), signature) {
		t.Error("an altered body verifies")
	}
}

func verify(t *testing.T, secret string, got received) {
	t.Helper()
	hook, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	if err := hook.Verify(got.body, got.header); err != nil {
		t.Error(err)
	}
}

func TestPrepareRefuses(t *testing.T) {
	c := newClient(quick)
	u := mustURL(t, "https://hooks.example/?token=MARKER")
	for name, spoil := range map[string]func(*callback.Callback){
		"no URL":           func(cb *callback.Callback) { cb.URL = urlpolicy.URL{} },
		"no session":       func(cb *callback.Callback) { cb.Session = "" },
		"no secret":        func(cb *callback.Callback) { cb.Secrets = nil },
		"an empty secret":  func(cb *callback.Callback) { cb.Secrets = []string{testSecret, "whsec_"} },
		"no seed":          func(cb *callback.Callback) { cb.Secrets = []string{testSecret, "whsk_"} },
		"a broken seed":    func(cb *callback.Callback) { cb.Secrets = []string{"whsk_MARKER%%"} },
		"a short seed":     func(cb *callback.Callback) { cb.Secrets = []string{"whsk_MARKER=="} },
		"a broken secret":  func(cb *callback.Callback) { cb.Secrets = []string{"whsec_MARKER%%"} },
		"invalid UTF-8":    func(cb *callback.Callback) { cb.PlatformUserID = "MARKER\xff" },
		"a lone surrogate": func(cb *callback.Callback) { cb.GuildID = "\xed\xa0\x80" },
	} {
		cb := sample()
		cb.URL = u
		spoil(&cb)
		if _, err := c.Prepare(cb); err == nil || strings.Contains(err.Error(), "MARKER") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestValuesKeepSecretsOutOfLogs(t *testing.T) {
	c := newClient(quick)
	cb := sample()
	cb.URL = mustURL(t, "https://hooks.example/?token=MARKER")
	cb.Secrets = []string{"whsec_MARK"}
	request, err := c.Prepare(cb)
	if err != nil {
		t.Fatal(err)
	}
	if s := fmt.Sprintf("%v %s %v %s", cb, cb, request, request); strings.Contains(s, "MARK") ||
		!strings.Contains(s, "hooks.example:443") {
		t.Error(s)
	}
}

func TestIDIsTheSameForEveryAttempt(t *testing.T) {
	if id := callback.ID("abc", false); id != "cb_abc" {
		t.Errorf("ID = %q", id)
	}
}
