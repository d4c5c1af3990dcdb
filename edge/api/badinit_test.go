package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"verifyd/edge/problem"
	"verifyd/edge/web"
	"verifyd/sessions/urlpolicy"
)

// badInit is one row: the request, and the first fault in the answer.
type badInit struct {
	name, body  string
	field, code string
}

// withURL is a valid body except for its callback URL.
func withURL(url string) string {
	return fmt.Sprintf(`{"platform":"p","platform_user_id":"u","callback_url":%q}`, url)
}

// with is a valid body with some member replaced or added, as raw JSON.
func with(name, value string) string {
	members := map[string]string{
		"platform": `"p"`, "platform_user_id": `"u"`, "callback_url": `"https://h.example/"`,
	}
	members[name] = value
	var b []string
	for _, n := range []string{"platform", "platform_user_id", "guild_id", "callback_url"} {
		if members[n] != "" {
			b = append(b, fmt.Sprintf("%q:%s", n, members[n]))
		}
	}
	return "{" + strings.Join(b, ",") + "}"
}

const good = `"platform":"p","platform_user_id":"u","callback_url":"https://h.example/"`

var badInits = []badInit{
	// missing, null, wrong type, length
	{"platform missing", with("platform", ""), "platform", problem.FaultMissing},
	{"platform_user_id missing", with("platform_user_id", ""), "platform_user_id", problem.FaultMissing},
	{"callback_url missing", with("callback_url", ""), "callback_url", problem.FaultMissing},
	{"platform null", with("platform", "null"), "platform", problem.FaultType},
	{"platform_user_id null", with("platform_user_id", "null"), "platform_user_id", problem.FaultType},
	{"guild_id null", with("guild_id", "null"), "guild_id", problem.FaultType},
	{"callback_url null", with("callback_url", "null"), "callback_url", problem.FaultType},
	{"platform number", with("platform", "1"), "platform", problem.FaultType},
	{"platform_user_id number", with("platform_user_id", "123456789012345678"), "platform_user_id",
		problem.FaultType},
	{"guild_id boolean", with("guild_id", "false"), "guild_id", problem.FaultType},
	{"guild_id array", with("guild_id", `["g"]`), "guild_id", problem.FaultType},
	{"callback_url object", with("callback_url", `{"url":"https://h.example/"}`), "callback_url",
		problem.FaultType},
	{"platform empty", with("platform", `""`), "platform", problem.FaultLength},
	{"platform_user_id empty", with("platform_user_id", `""`), "platform_user_id", problem.FaultLength},
	{"platform too long", with("platform", `"`+strings.Repeat("x", 1025)+`"`), "platform",
		problem.FaultLength},
	{"platform_user_id too long in bytes", with("platform_user_id", `"`+strings.Repeat("é", 513)+`"`),
		"platform_user_id", problem.FaultLength},
	{"guild_id too long after unescaping", with("guild_id", `"`+strings.Repeat(`\u20ac`, 342)+`"`),
		"guild_id", problem.FaultLength},

	// names
	{"duplicate platform", `{"platform":"p",` + good + `}`, "platform", problem.FaultDuplicate},
	{"duplicate callback_url", `{` + good + `,"callback_url":"https://evil.example/"}`, "callback_url",
		problem.FaultDuplicate},
	{"duplicate by escape", `{` + good + `,"callback\u005furl":"https://evil.example/"}`, "callback_url",
		problem.FaultDuplicate},
	{"duplicate unknown member", `{"x":1,"x":1,` + good + `}`, "x", problem.FaultDuplicate},
	{"duplicate within unknown member", `{"x":{"y":1,"y":2},` + good + `}`, "x", problem.FaultDuplicate},
	{"platform in other case", `{"Platform":"p","platform_user_id":"u","callback_url":"https://h.example/"}`,
		"platform", problem.FaultMissing},
	{"callback_url in capitals",
		`{"platform":"p","platform_user_id":"u","CALLBACK_URL":"https://h.example/"}`, "callback_url",
		problem.FaultMissing},
	{"binding without a letter", `{"bindng":"account",` + good + `}`, "bindng", problem.FaultUnknown},
	{"binding with two letters exchanged", `{"bidning":"account",` + good + `}`, "bidning", problem.FaultUnknown},
	{"callbackUrl", `{"platform":"p","platform_user_id":"u","callbackUrl":"https://h.example/"}`,
		"callback_url", problem.FaultMissing},

	// the text as a whole
	{"empty", "", "", problem.FaultSyntax},
	{"white space", " \n", "", problem.FaultSyntax},
	{"null", "null", "", problem.FaultType},
	{"array", `[{` + good + `}]`, "", problem.FaultType},
	{"string", `"platform"`, "", problem.FaultType},
	{"number", "1", "", problem.FaultType},
	{"cut short", `{` + good, "", problem.FaultSyntax},
	{"cut in a string", `{"platform":"p`, "platform", problem.FaultSyntax},
	{"form", "platform=p&platform_user_id=u", "", problem.FaultSyntax},
	{"trailing comma", `{` + good + `,}`, "", problem.FaultSyntax},
	{"single quotes", `{'platform':'p'}`, "", problem.FaultSyntax},
	{"unquoted name", `{platform:"p"}`, "", problem.FaultSyntax},
	{"comment", `{/* hello */` + good + `}`, "", problem.FaultSyntax},
	{"byte order mark", "\ufeff{" + good + `}`, "", problem.FaultSyntax},
	{"raw newline in a string", with("platform", "\"a\nb\""), "platform", problem.FaultSyntax},
	{"bad escape", with("platform", `"\x41"`), "platform", problem.FaultSyntax},
	{"NaN in an unknown member", `{"x":NaN,` + good + `}`, "x", problem.FaultSyntax},
	{"leading zero in an unknown member", `{"x":01,` + good + `}`, "", problem.FaultSyntax},
	{"trailing object", `{` + good + `}{}`, "", problem.FaultTrailing},
	{"trailing text", `{` + good + `} x`, "", problem.FaultTrailing},
	{"trailing NUL", `{` + good + "}\x00", "", problem.FaultTrailing},

	// encoding
	{"invalid UTF-8", with("platform", "\"\xff\""), "platform", problem.FaultEncoding},
	{"latin-1", with("platform_user_id", "\"caf\xe9\""), "platform_user_id", problem.FaultEncoding},
	{"overlong UTF-8", with("platform", "\"\xc0\xaf\""), "platform", problem.FaultEncoding},
	{"surrogate in UTF-8", with("platform", "\"\xed\xa0\x80\""), "platform", problem.FaultEncoding},
	{"invalid UTF-8 in a name", "{\"\xff\":1," + good + `}`, "", problem.FaultEncoding},
	{"invalid UTF-8 in an unknown member", "{\"x\":\"\xff\"," + good + `}`, "x", problem.FaultEncoding},
	{"lone high surrogate", with("platform", `"\ud83d"`), "platform", problem.FaultEncoding},
	{"lone low surrogate", with("guild_id", `"\ude00"`), "guild_id", problem.FaultEncoding},
	{"surrogates in wrong order", with("platform_user_id", `"\ude00\ud83d"`), "platform_user_id",
		problem.FaultEncoding},
	{"UTF-16", "{\x00\"\x00p\x00", "", problem.FaultSyntax},

	// callback URLs (package urlpolicy has the whole table)
	{"empty URL", withURL(""), "callback_url", urlpolicy.CodeLength},
	{"URL too long", withURL("https://h.example/" + strings.Repeat("p", 2048)), "callback_url",
		urlpolicy.CodeLength},
	{"http", withURL("http://h.example/"), "callback_url", urlpolicy.CodeScheme},
	{"ftp", withURL("ftp://h.example/"), "callback_url", urlpolicy.CodeScheme},
	{"javascript", withURL("javascript:alert(1)"), "callback_url", urlpolicy.CodeScheme},
	{"relative", withURL("/verified"), "callback_url", urlpolicy.CodeScheme},
	{"no scheme", withURL("//h.example/"), "callback_url", urlpolicy.CodeScheme},
	{"no slashes", withURL("https:h.example"), "callback_url", urlpolicy.CodeSyntax},
	{"bad escape in URL", withURL("https://h.example/%zz"), "callback_url", urlpolicy.CodeSyntax},
	{"userinfo", withURL("https://user:secret@h.example/"), "callback_url", urlpolicy.CodeUserinfo},
	{"host as userinfo", withURL("https://h.example@127.0.0.1/"), "callback_url", urlpolicy.CodeUserinfo},
	{"fragment", withURL("https://h.example/#top"), "callback_url", urlpolicy.CodeFragment},
	{"empty host", withURL("https:///verified"), "callback_url", urlpolicy.CodeHost},
	{"port without host", withURL("https://:443/"), "callback_url", urlpolicy.CodeHost},
	{"localhost", withURL("https://localhost/"), "callback_url", urlpolicy.CodeHost},
	{"single label", withURL("https://receiver/"), "callback_url", urlpolicy.CodeHost},
	{"decimal look-alike", withURL("https://2130706433/"), "callback_url", urlpolicy.CodeHost},
	{"hexadecimal look-alike", withURL("https://0x7f000001/"), "callback_url", urlpolicy.CodeHost},
	{"octal look-alike", withURL("https://0177.0.0.1/"), "callback_url", urlpolicy.CodeHost},
	{"short look-alike", withURL("https://127.1/"), "callback_url", urlpolicy.CodeHost},
	{"full-width look-alike", `{"platform":"p","platform_user_id":"u","callback_url":"https://127。0。0。1/"}`,
		"callback_url", urlpolicy.CodeCharacters},
	{"umlaut", `{"platform":"p","platform_user_id":"u","callback_url":"https://bücher.example/"}`,
		"callback_url", urlpolicy.CodeCharacters},
	{"space", withURL("https://h.example/a b"), "callback_url", urlpolicy.CodeCharacters},
	{"header injection", withURL("https://h.example/\r\nHost: x"), "callback_url", urlpolicy.CodeCharacters},
	{"backslash", `{"platform":"p","platform_user_id":"u","callback_url":"https://h.example\\@x/"}`,
		"callback_url", urlpolicy.CodeCharacters},
	{"loopback", withURL("https://127.0.0.1/"), "callback_url", urlpolicy.CodeAddress},
	{"IPv6 loopback", withURL("https://[::1]/"), "callback_url", urlpolicy.CodeAddress},
	{"mapped loopback", withURL("https://[::ffff:127.0.0.1]/"), "callback_url", urlpolicy.CodeAddress},
	{"private 10", withURL("https://10.0.0.1/"), "callback_url", urlpolicy.CodeAddress},
	{"private 172", withURL("https://172.16.0.1/"), "callback_url", urlpolicy.CodeAddress},
	{"private 192", withURL("https://192.168.0.1/"), "callback_url", urlpolicy.CodeAddress},
	{"private IPv6", withURL("https://[fd00::1]/"), "callback_url", urlpolicy.CodeAddress},
	{"metadata", withURL("https://169.254.169.254/latest/meta-data/"), "callback_url", urlpolicy.CodeAddress},
	{"wire server", withURL("https://168.63.129.16/"), "callback_url", urlpolicy.CodeAddress},
	{"multicast", withURL("https://224.0.0.1/"), "callback_url", urlpolicy.CodeAddress},
	{"unspecified", withURL("https://0.0.0.0/"), "callback_url", urlpolicy.CodeAddress},
	{"port 0", withURL("https://h.example:0/"), "callback_url", urlpolicy.CodePort},
	{"empty port", withURL("https://h.example:/"), "callback_url", urlpolicy.CodePort},
	{"port too high", withURL("https://h.example:65536/"), "callback_url", urlpolicy.CodePort},
	{"port by name", withURL("https://h.example:https/"), "callback_url", urlpolicy.CodePort},
}

func TestBadInits(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	if n := len(badInits); n < 60 {
		t.Fatalf("%d rows", n)
	}
	for _, row := range badInits {
		t.Run(row.name, func(t *testing.T) {
			p := wantProblem(t, s.init(t, row.body), problem.CodeInvalidRequest)
			if len(p.Errors) != 1 {
				t.Fatalf("errors = %+v, want one", p.Errors)
			}
			f := p.Errors[0]
			if f.Field != row.field || f.Code != row.code || f.Detail == "" {
				t.Errorf("fault = %+v, want field %q and code %q", f, row.field, row.code)
			}
			if !strings.Contains(p.Detail, f.Detail) {
				t.Errorf("detail = %q does not say %q", p.Detail, f.Detail)
			}
		})
	}
}

func TestAllFaultyFieldsAreNamed(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	p := wantProblem(t, s.init(t,
		`{"platform":7,"guild_id":null,"Platform_User_ID":"u","callback_url":"http://h.example/"}`),
		problem.CodeInvalidRequest)
	var got []string
	for _, f := range p.Errors {
		got = append(got, f.Field+" "+f.Code)
	}
	want := "platform type, platform_user_id missing, guild_id type, callback_url callback_url_scheme"
	if strings.Join(got, ", ") != want {
		t.Errorf("errors = %v, want %s", got, want)
	}
	if !strings.Contains(p.Errors[1].Detail, "lower case") {
		t.Errorf("detail = %q does not tell of the other letter case", p.Errors[1].Detail)
	}
	if !strings.Contains(p.Detail, "and 3 more") {
		t.Errorf("detail = %q", p.Detail)
	}
}

func TestBadMedia(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	tooLarge := `{"x":"` + strings.Repeat("x", web.MaxBodyBytes) + `"}`
	for name, row := range map[string]struct {
		body   string
		header []string
		code   problem.Code
	}{
		"no type": {goodBody, nil, problem.CodeUnsupportedMedia},
		"text":    {goodBody, []string{"Content-Type", "text/plain"}, problem.CodeUnsupportedMedia},
		"form": {
			goodBody, []string{"Content-Type", "application/x-www-form-urlencoded"},
			problem.CodeUnsupportedMedia,
		},
		"a kind of JSON": {
			goodBody, []string{"Content-Type", "application/ld+json"}, problem.CodeUnsupportedMedia,
		},
		"other charset": {
			goodBody, []string{"Content-Type", "application/json; charset=latin1"},
			problem.CodeUnsupportedMedia,
		},
		"other parameter": {
			goodBody, []string{"Content-Type", "application/json; version=1"}, problem.CodeUnsupportedMedia,
		},
		"second parameter": {
			goodBody, []string{"Content-Type", "application/json; charset=utf-8; v=1"},
			problem.CodeUnsupportedMedia,
		},
		"broken": {
			goodBody, []string{"Content-Type", "application/json; charset"}, problem.CodeUnsupportedMedia,
		},
		"two types": {
			goodBody, []string{"Content-Type", "application/json", "Content-Type", "application/json"},
			problem.CodeUnsupportedMedia,
		},
		"two types in one": {
			goodBody, []string{"Content-Type", "application/json, text/plain"}, problem.CodeUnsupportedMedia,
		},
		"gzip": {
			goodBody, []string{"Content-Type", "application/json", "Content-Encoding", "gzip"},
			problem.CodeUnsupportedMedia,
		},
		"identity and gzip": {
			goodBody, []string{"Content-Type", "application/json", "Content-Encoding", "identity",
				"Content-Encoding", "br"}, problem.CodeUnsupportedMedia,
		},
		"too large": {tooLarge, []string{"Content-Type", "application/json"},
			problem.CodeBodyTooLarge},
		"too large, some type": {tooLarge, []string{"Content-Type", "text/plain"}, problem.CodeBodyTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			header := append([]string{"Authorization", "Bearer " + acmeKey}, row.header...)
			wantProblem(t, s.do(t, http.MethodPost, pathInit, row.body, header...), row.code)
		})
	}
}

// A body that does not declare its length is also cut off at the limit.
func TestBodyOfUnknownLengthIsBounded(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	for _, row := range []struct {
		bytes  int
		status int
	}{{web.MaxBodyBytes, http.StatusOK}, {web.MaxBodyBytes + 1, http.StatusRequestEntityTooLarge}} {
		body := goodBody + strings.Repeat(" ", row.bytes-len(goodBody))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			"http://"+s.server.Addr()+pathInit, struct{ *strings.Reader }{strings.NewReader(body)})
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+acmeKey)
		req.Header.Set("Content-Type", "application/json")
		if a := send(t, s.client, req); a.status != row.status {
			t.Errorf("%d bytes: status = %d, want %d", row.bytes, a.status, row.status)
		}
	}
}
