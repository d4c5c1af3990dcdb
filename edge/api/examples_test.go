package api

import (
	"encoding/json"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"verifyd/edge/account/notice"
	"verifyd/edge/export"
	"verifyd/edge/limit"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/proof"
)

// The document's examples of answers are what the service sends. That they have the members of their schemas,
// and no others, is part of the document's own validity.
func TestExamplesAreWhatIsSent(t *testing.T) {
	t.Parallel()
	doc, err := described()
	if err != nil {
		t.Fatal(err)
	}
	example := func(content openapi3.Content, media, name string) any {
		t.Helper()
		if content.Get(media) == nil || content.Get(media).Examples[name] == nil {
			t.Fatalf("there is no example %s", name)
		}
		return content.Get(media).Examples[name].Value.Value
	}
	same := func(what string, sent []byte, example any) {
		t.Helper()
		var got any
		if err := json.Unmarshal(sent, &got); err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(example)
		if err != nil {
			t.Fatal(err)
		}
		var wanted any
		if err := json.Unmarshal(want, &wanted); err != nil || !reflect.DeepEqual(got, wanted) {
			t.Errorf("%s is sent as\n%s\nand the example is\n%s", what, sent, want)
		}
	}
	of := func(method, path, status string) openapi3.Content {
		return doc.Paths.Value(path).GetOperation(method).Responses.Value(status).Value.Content
	}

	refused := example(of(http.MethodPost, pathInit, "400"), "application/problem+json", "http").(map[string]any)
	a := newService(t, nil).do(t, http.MethodPost, pathInit,
		`{"platform":"p","platform_user_id":"u","callback_url":"http://h.example/"}`, "Authorization",
		"Bearer "+acmeKey, "X-Request-Id", refused["request_id"].(string))
	refused["request_id"] = parse[map[string]any](t, a, http.StatusBadRequest)["request_id"]
	same("a refusal", []byte(a.body), refused)

	at := func(clock string) time.Time {
		t.Helper()
		instant, err := time.Parse(time.RFC3339, "2026-11-21T"+clock+"Z")
		if err != nil {
			t.Fatal(err)
		}
		return instant
	}
	result := facts.Result{Number: 1, Verdict: facts.VerdictDelivered, Status: 204, At: at("13:12:41.936")}
	session, err := json.Marshal(export.Document(facts.View{
		Session: sessions.Session{
			ID: "k3v7q2m5zt4yd6n2xw7p2c4hf2jb5ral", CreatedAt: at("13:12:09.105"),
			ExpiresAt: at("13:22:09.105"), Request: sessions.Request{
				Platform: "discord", PlatformUserID: "sailor_42", GuildID: "118203948571029384",
				Reference: "order 4711", Locale: "pt-BR",
			},
		},
		Outcome:     sessions.Outcome{State: sessions.Verified, Reached: proof.Link},
		CompletedAt: at("13:12:41.870"),
		Delivery: facts.Delivery{State: facts.DeliveryDelivered, Attempts: []facts.Attempt{
			{Claim: facts.Claim{Number: 1, At: at("13:12:41.898")}, Result: &result},
		}},
	}))
	if err != nil {
		t.Fatal(err)
	}
	same("a session", session, example(of(http.MethodGet, "/sessions/{session}", "200"), "application/json",
		"verified"))

	posted := doc.Extensions["webhooks"]
	if posted == nil {
		t.Fatal("the document has no webhooks")
	}
	n, _ := notice.OfQuota(limit.Standing{Account: "acc_mfzwizltoq2dsnbqgqyd", Usage: limit.Usage{
		Used: 4000, Limit: 5000, ResetAt: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC),
	}}, at("12:03:58"))
	body, err := n.Body()
	if err != nil {
		t.Fatal(err)
	}
	told := posted.(map[string]any)["notice"].(map[string]any)["post"].(map[string]any)["requestBody"].(map[string]any)
	told = told["content"].(map[string]any)["application/json"].(map[string]any)["examples"].(map[string]any)
	told = told["quota"].(map[string]any)["value"].(map[string]any)
	told["id"] = n.ID
	same("a notice", body, told)
}
