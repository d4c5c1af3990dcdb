package sdk

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"verifyd/edge/client"
)

// exchange is a request that a kit must make, and its answer.
type exchange struct {
	request string // method and target
	body    string // its body; empty: not checked
	status  int
	header  map[string]string
	answer  string // empty with status 0: the connection is cut
}

const (
	startBody = `{"platform":"discord","platform_user_id":"sailor_42","guild_id":"g","callback_url":"https://h.example/v"}`
	started   = `{"verify_url":"https://v.example/?session=tok","session":"tok","expires_at":"2026-11-21T13:22:09.105Z"}`
	pending   = `{"id":"a","state":"pending","platform":"p","platform_user_id":"u","expires_at":"2026-11-21T13:22:09.105Z"}`
	verified  = `{"id":"a","state":"verified","verified":true,"platform":"p","platform_user_id":"u","test":true,` +
		`"completed_at":"2026-11-21T13:22:09.105Z","delivery":{"state":"delivered","attempts":[{"number":1,` +
		`"verdict":"delivered","status":204,"claimed_at":"2026-11-21T13:22:09.105Z"}]}}`
	refusal = `{"code":"invalid_request","detail":"no","errors":[{"field":"platform","code":"missing","detail":"x"}]}`
)

// step is a step of a conversation: a call of the kit, its requests, and the result of the call.
type step struct {
	call string
	asks []exchange
	ends string
}

// script is the conversation that every kit has. TestScriptIsTheInterface compares it with the document.
var script = []step{
	{ // an unavailable edge is tried again, under the same key
		`{"call":"start","platform":"discord","user":"sailor_42","guild":"g","callback":"https://h.example/v"}`,
		[]exchange{
			{request: "POST /verify/init", body: startBody, status: 503,
				header: map[string]string{"Retry-After": "0"}},
			{request: "POST /verify/init", body: startBody},
			{request: "POST /verify/init", body: startBody, status: 200, answer: started},
		},
		`{"ok":{"url":"https://v.example/?session=tok","session":"tok","id":"` + client.Started{Session: "tok"}.ID() +
			`","expires":"2026-11-21T13:22:09.105Z"}}`,
	},
	{ // one's own key, while the first request with it goes on
		`{"call":"start","platform":"p","user":"u","callback":"https://h.example/v","key":"mine"}`,
		[]exchange{
			{request: "POST /verify/init", status: 409, answer: `{"code":"idempotency_in_progress"}`},
			{request: "POST /verify/init", status: 200, answer: started},
		},
		"",
	},
	{ // an invalid request is not repeated
		`{"call":"start","platform":"","user":"u","callback":"https://h.example/v"}`,
		[]exchange{{request: "POST /verify/init", status: 400, answer: refusal}},
		`{"refused":{"status":400,"code":"invalid_request","fields":["platform"],"retry":0,"tries":null}}`,
	},
	{
		`{"call":"start","platform":"p","user":"u","callback":"https://h.example/v"}`,
		[]exchange{{request: "POST /verify/init", status: 429, header: map[string]string{"Retry-After": "7"},
			answer: `{"code":"rate_limited"}`}},
		`{"refused":{"status":429,"code":"rate_limited","fields":[],"retry":7,"tries":null}}`,
	},
	{ // the level, if the caller sets it
		`{"call":"start","platform":"p","user":"u","callback":"https://h.example/v","binding":"code"}`,
		[]exchange{{request: "POST /verify/init", status: 200, answer: started,
			body: `{"platform":"p","platform_user_id":"u","callback_url":"https://h.example/v",` +
				`"binding":"code"}`}},
		"",
	},
	{ // the caller's reference for the session, the user's language, and names
		`{"call":"start","platform":"p","user":"u","callback":"https://h.example/v","reference":"order 4711",` +
			`"locale":"pt-BR","called":"Captain Ahab","group":"Pequod"}`,
		[]exchange{{request: "POST /verify/init", status: 200, answer: started,
			body: `{"platform":"p","platform_user_id":"u","callback_url":"https://h.example/v",` +
				`"reference":"order 4711","locale":"pt-BR","display_name":"Captain Ahab","group_name":"Pequod"}`}},
		"",
	},
	{
		`{"call":"read","session":"a/b"}`,
		[]exchange{{request: "GET /sessions/a%2Fb", status: 200, answer: verified}},
		`{"ok":{"id":"a","state":"verified","verified":true,"test":true,"user":"u","delivery":"delivered",` +
			`"attempts":[204],"completed":"2026-11-21T13:22:09.105Z"}}`,
	},
	{ // no redirect is followed: the API key would be sent along
		`{"call":"read","session":"a"}`,
		[]exchange{{request: "GET /sessions/a", status: 302,
			header: map[string]string{"Location": "/elsewhere"}}},
		`{"refused":{"status":302,"code":"","fields":[],"retry":0,"tries":null}}`,
	},
	{`{"call":"read","session":"a"}`, []exchange{{request: "GET /sessions/a", status: 200, answer: "<html>"}},
		`{"noAnswer":true}`},
	{`{"call":"read","session":"a"}`, []exchange{{request: "GET /sessions/a"}}, `{"noAnswer":true}`},
	{
		`{"call":"wait","session":"a"}`,
		[]exchange{
			{request: "GET /sessions/a?wait=30", status: 200, answer: pending},
			{request: "GET /sessions/a?wait=30", status: 200, answer: verified},
		},
		"",
	},
	{
		`{"call":"list","user":"u v","state":"failed","limit":2}`,
		[]exchange{{request: "GET /sessions?platform_user_id=u+v&state=failed&limit=2", status: 200,
			answer: `{"sessions":[` + pending + `],"next":"c"}`}},
		`{"ok":{"ids":["a"],"next":"c"}}`,
	},
	{
		`{"call":"list","user":"u","state":"verified","delivery":"unknown","since":"2026-11-21T00:00:00Z",` +
			`"until":"2026-11-22T00:00:00Z","limit":100,"cursor":"c"}`,
		[]exchange{{request: "GET /sessions?platform_user_id=u&state=verified&delivery=unknown&" +
			"since=2026-11-21T00%3A00%3A00Z&until=2026-11-22T00%3A00%3A00Z&limit=100&cursor=c", status: 200,
			answer: `{"sessions":[],"next":null}`}},
		`{"ok":{"ids":[],"next":null}}`,
	},
	{
		`{"call":"list","user":"u","state":"failed","limit":1,"q":"a b","platform":"p","group":"g","key":"Bot",` +
			`"mode":"test","network":"default","reason":"declined","binding":"code","from":"2026-11-20",` +
			`"to":"2026-11-21"}`,
		[]exchange{{request: "GET /sessions?platform_user_id=u&state=failed&limit=1&q=a+b&" +
			"platform=p&group=g&key=Bot&mode=test&network=default&" +
			"reason=declined&binding=code&from=2026-11-20&to=2026-11-21", status: 200,
			answer: `{"sessions":[],"next":null}`}},
		`{"ok":{"ids":[],"next":null}}`,
	},
	{
		`{"call":"pages"}`,
		[]exchange{
			{request: "GET /sessions", status: 200, answer: `{"sessions":[` + pending + `],"next":"c d"}`},
			{request: "GET /sessions?cursor=c+d", status: 200,
				answer: `{"sessions":[` + verified + `],"next":null}`},
		},
		`{"ok":{"ids":["a","a"]}}`,
	},
	{`{"call":"cancel","session":"a"}`, []exchange{{request: "POST /sessions/a/cancel", status: 409,
		answer: `{"code":"session_completed"}`}},
		`{"refused":{"status":409,"code":"session_completed","fields":[],"retry":0,"tries":null}}`},
	{
		`{"call":"confirm","session":"a/b","user":"sailor_42","code":"k7m-2qx"}`,
		[]exchange{{request: "POST /sessions/a%2Fb/confirm", status: 200, answer: verified,
			body: `{"platform_user_id":"sailor_42","code":"k7m-2qx"}`}},
		`{"ok":{"id":"a","state":"verified","verified":true,"test":true,"user":"u","delivery":"delivered",` +
			`"attempts":[204],"completed":"2026-11-21T13:22:09.105Z"}}`,
	},
	{
		`{"call":"confirm","session":"a","user":"u","code":"x"}`,
		[]exchange{{request: "POST /sessions/a/confirm", status: 422,
			answer: `{"code":"wrong_code","tries_left":4}`}},
		`{"refused":{"status":422,"code":"wrong_code","fields":[],"retry":0,"tries":4}}`,
	},
	{ // no tries left differs from a missing value
		`{"call":"confirm","session":"a","user":"u","code":"x"}`,
		[]exchange{{request: "POST /sessions/a/confirm", status: 422,
			answer: `{"code":"wrong_code","tries_left":0}`}},
		`{"refused":{"status":422,"code":"wrong_code","fields":[],"retry":0,"tries":0}}`,
	},
	{ // the caller may repeat it; the kit does not
		`{"call":"confirm","session":"a","user":"u","code":"x"}`,
		[]exchange{{request: "POST /sessions/a/confirm", status: 503}},
		`{"refused":{"status":503,"code":"","fields":[],"retry":0,"tries":null}}`,
	},
	{
		`{"call":"confirm","session":"a","user":"u","code":"x"}`,
		[]exchange{{request: "POST /sessions/a/confirm"}},
		`{"noAnswer":true}`,
	},
	{`{"call":"resend","session":"a"}`, []exchange{{request: "POST /sessions/a/resend", status: 503}},
		`{"refused":{"status":503,"code":"","fields":[],"retry":0,"tries":null}}`},
}

// recorded answers with the script's exchanges, in their order.
type recorded struct {
	t *testing.T

	mu   sync.Mutex
	left []exchange
	keys []string // of starts
}

func (r *recorded) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	got := q.Method + " " + q.RequestURI
	if len(r.left) == 0 || r.left[0].request != got {
		r.t.Errorf("it asks %s", got)
		w.WriteHeader(http.StatusTeapot)
		return
	}
	x := r.left[0]
	r.left = r.left[1:]
	body, err := io.ReadAll(q.Body)
	if err != nil || x.body != "" && !sameJSON(r.t, string(body), x.body) {
		r.t.Errorf("%s brings %s, %v", got, body, err)
	}
	if q.Header.Get("Authorization") != "Bearer vfy_conformance" ||
		!strings.Contains(q.UserAgent(), version) {
		r.t.Errorf("%s with %v", got, q.Header)
	}
	if strings.HasSuffix(got, "/init") {
		r.keys = append(r.keys, q.Header.Get("Idempotency-Key"))
	}
	if x.status == 0 {
		panic(http.ErrAbortHandler)
	}
	for name, value := range x.header {
		w.Header().Set(name, value)
	}
	w.WriteHeader(x.status)
	_, _ = io.WriteString(w, x.answer)
}

// converse makes a kit take the steps, and returns the result of each call.
func (k kit) converse(t *testing.T, dir string, steps []step) (ends []map[string]any, r *recorded,
	shown string) {
	t.Helper()
	r = &recorded{t: t}
	var calls []string
	for _, s := range steps {
		r.left = append(r.left, s.asks...)
		calls = append(calls, s.call)
	}
	server := httptest.NewServer(r)
	defer server.Close()
	var said struct {
		Ends   []map[string]any `json:"ends"`
		Client string           `json:"client"`
	}
	k.says(t, dir, &said, fmt.Sprintf(`{"base":%q,"key":"vfy_conformance","calls":[%s]}`,
		server.URL+"/", strings.Join(calls, ",")), k.client)
	if len(said.Ends) != len(steps) {
		t.Fatalf("%d calls ended, of %d", len(said.Ends), len(steps))
	}
	return said.Ends, r, said.Client
}

// says runs a program that uses the kit, and reads the JSON that it prints.
func (k kit) says(t *testing.T, dir string, into any, in string, args ...string) {
	t.Helper()
	c := k.command(dir, args...)
	c.Stdin = strings.NewReader(in)
	var errOut bytes.Buffer
	c.Stderr = &errOut
	out, err := c.Output()
	if err == nil {
		err = json.Unmarshal(out, into)
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", args[0], err, out, &errOut)
	}
}

// asks checks that a kit sends the requests of the script and nothing else, and returns the right results.
func (k kit) asks(t *testing.T, dir string) {
	t.Helper()
	ends, r, shown := k.converse(t, dir, script)
	for i, s := range script {
		if ok, _ := ends[i]["ok"].(map[string]any); ok["shown"] != nil {
			if strings.Contains(fmt.Sprint(ok["shown"]), "tok") {
				t.Errorf("a started session shows its token: %v", ok["shown"])
			}
			delete(ok, "shown")
		}
		got, err := json.Marshal(ends[i])
		if err != nil {
			t.Fatal(err)
		}
		if s.ends != "" && !sameJSON(t, string(got), s.ends) ||
			s.ends == "" && ends[i]["ok"] == nil {
			t.Errorf("%s ends with %s, want %s", s.call, got, s.ends)
		}
	}
	if strings.Contains(shown, "vfy_") {
		t.Errorf("a client shows its key: %s", shown)
	}
	keys := r.keys
	if len(keys) != 9 || len(r.left) > 0 || len(keys[0]) < 20 || keys[0] != keys[1] || keys[1] != keys[2] ||
		keys[3] != "mine" || keys[4] != "mine" || keys[5] == keys[0] || keys[6] == keys[5] ||
		keys[7] == keys[6] || keys[8] == keys[7] || slices.Contains(keys, "") {
		t.Errorf("idempotency keys %q, %d exchanges are left", keys, len(r.left))
	}
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	return fmt.Sprint(x) == fmt.Sprint(y)
}
