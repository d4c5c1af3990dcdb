package callback_test

import (
	"bytes"
	"net/http"
	"testing"
	"time"

	"verifyd/dispatcher/callback"
	"verifyd/sessions/facts"
)

func probe(t *testing.T, change func(*callback.Probe)) (received, callback.Answer) {
	t.Helper()
	r := receive(t, nil, okAnswer)
	c := newClient(time.Minute)
	p := callback.Probe{Callback: callback.Callback{
		URL: r.url(t), Session: testID, PlatformUserID: "u-1", GuildID: "g-1", Verified: true,
		Secrets: []string{testSecret}, At: time.Now(),
	}}
	change(&p)
	request, err := c.PrepareProbe(p)
	if err != nil {
		t.Fatal(err)
	}
	answer := mustDial(t, c, p.URL).Send(t.Context(), request)
	posts := r.stop()
	if len(posts) != 1 {
		t.Fatalf("%d requests arrived", len(posts))
	}
	return posts[0], answer
}

func TestProbesMatchTheirRequests(t *testing.T) {
	const body = `{"platform_user_id":"u-1","guild_id":"g-1","verified":true}`
	got, answer := probe(t, func(p *callback.Probe) {
		p.Headers = map[string]string{"X-Later": "1"}
		p.Change = func(b []byte) []byte { return bytes.Replace(b, []byte("u-1"), []byte("other"), 1) }
	})
	if answer.Verdict != facts.VerdictDelivered || got.header.Get("X-Later") != "1" ||
		got.header.Get(callback.HeaderSignature) == "" ||
		string(got.body) != `{"platform_user_id":"other","guild_id":"g-1","verified":true}` {
		t.Errorf("changed: %v %s, %+v", got.header, got.body, answer)
	}
	if got, _ = probe(t, func(p *callback.Probe) { p.Unsigned = true }); got.header.Get(callback.HeaderID)+
		got.header.Get(callback.HeaderTimestamp)+got.header.Get(callback.HeaderSignature) != "" ||
		string(got.body) != body {
		t.Errorf("unsigned: %v %s", got.header, got.body)
	}
	if got, answer = probe(t,
		func(p *callback.Probe) {
			p.Method =
				http.MethodGet
		}); got.line != "GET /verified?token=MARKER HTTP/1.1" || len(got.body) != 0 ||
		answer.Status != http.StatusOK {
		t.Errorf("GET: %q %s, %+v", got.line, got.body, answer)
	}
	began := time.Now()
	if got, answer = probe(t,
		func(p *callback.Probe) { p.Pieces, p.Pause = 5, 20*time.Millisecond }); string(got.body) != body ||
		answer.Status != http.StatusOK || time.Since(began) < 4*20*time.Millisecond {
		t.Errorf("slow: %s, %+v", got.body, answer)
	}
}
