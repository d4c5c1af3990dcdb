package api

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"verifyd/edge/export"
	"verifyd/edge/problem"
	"verifyd/sessions"
)

// A reference and a locale are in every answer, and never in the callback; q finds the former.
func TestReferenceAndLocaleComeBack(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	token := parse[started](t, s.init(t, `{`+good+`,"reference":"Order 4711 <é>","locale":"pt-BR"}`),
		http.StatusOK).Session
	bare := parse[started](t, s.init(t, `{`+good+`,"reference":""}`), http.StatusOK).Session
	got := parse[export.Session](t, s.get(t, token, acmeKey), http.StatusOK)
	if got.Reference != "Order 4711 <é>" || got.Locale != "pt-BR" {
		t.Errorf("it reads as %+v", got)
	}
	got = parse[export.Session](t, s.get(t, bare, acmeKey), http.StatusOK)
	if got.Reference+got.Locale != "" {
		t.Errorf("without them it reads as %+v", got)
	}
	for held, want := range map[string][]string{
		"ORDER 47": {idOf(t, token)}, "4711": nil, "pt-BR": nil, "order 4711 <É>": {idOf(t, token)},
	} {
		if ids, _ := s.ids(t, acmeKey, "?q="+url.QueryEscape(held)); !slices.Equal(ids, want) {
			t.Errorf("q=%q finds %v, want %v", held, ids, want)
		}
	}
	c := s.complete(t, token, sessions.Outcome{State: sessions.Verified, Network: "default"})
	if c.Reference != "Order 4711 <é>" || c.Locale != "pt-BR" {
		t.Errorf("completed: %+v", c)
	}
	csv := s.do(t, http.MethodGet, "/sessions?q=order", "", "Authorization", "Bearer "+acmeKey,
		"Accept", "text/csv")
	lines := strings.Split(strings.TrimSpace(csv.body), "\r\n")
	if len(lines) != 2 || !strings.Contains(lines[0], ",reference,locale,tries,") ||
		!strings.HasSuffix(lines[1], ",Order 4711 <é>,pt-BR,,,,,,") {
		t.Errorf("as CSV: %q", lines)
	}
}

// Names are in every answer and in exports, whatever their characters; q finds them by how they begin.
func TestNamesComeBack(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	name, group := "=Cap\u202ealice", "Harbor <b>"
	const names = `,"display_name":"=Cap\u202ealice","group_name":"Harbor <b>"`
	token := parse[started](t, s.init(t, `{`+good+names+`}`), http.StatusOK).Session
	got := parse[export.Session](t, s.get(t, token, acmeKey), http.StatusOK)
	if got.DisplayName != name || got.GroupName != group || got.Reference != "" {
		t.Errorf("it reads as %+v", got)
	}
	for held, want := range map[string][]string{
		"=CAP": {idOf(t, token)}, "harbor": {idOf(t, token)}, "alice": nil,
	} {
		if ids, _ := s.ids(t, acmeKey, "?q="+url.QueryEscape(held)); !slices.Equal(ids, want) {
			t.Errorf("q=%q finds %v, want %v", held, ids, want)
		}
	}
	c := s.complete(t, token, sessions.Outcome{State: sessions.Verified, Network: "default"})
	if c.DisplayName != name || c.GroupName != group {
		t.Errorf("completed: %+v", c)
	}
	csv := s.do(t, http.MethodGet, "/sessions?q=harbor", "", "Authorization", "Bearer "+acmeKey,
		"Accept", "text/csv")
	if !strings.HasSuffix(strings.TrimSpace(csv.body), ",'"+name+","+group) {
		t.Errorf("as CSV: %q", csv.body)
	}
	blank := parse[started](t, s.init(t, `{`+good+`,"display_name":" \u00a0","group_name":"\t"}`),
		http.StatusOK).Session
	if got := parse[export.Session](t, s.get(t, blank, acmeKey), http.StatusOK); got.DisplayName+
		got.GroupName != "" {
		t.Errorf("white space is a name: %+v", got)
	}
	long := s.init(t, `{`+good+`,"display_name":"`+strings.Repeat("é", 513)+`"}`)
	if long.status != http.StatusBadRequest ||
		!strings.Contains(long.body, "1026 bytes; it may have up to 1024") {
		t.Errorf("too long: %d %s", long.status, long.body)
	}
}

// A repeat under an idempotency key has the same values of both; neither is confused with the other or with a
// binding.
func TestReferenceAndLocaleAreOfTheRequest(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	start := func(key, more string) answer {
		return s.do(t, http.MethodPost, pathInit, `{`+good+more+`}`, "Authorization", "Bearer "+acmeKey,
			"Content-Type", "application/json", "Idempotency-Key", key)
	}
	all := []string{``, `,"display_name":"de"`, `,"group_name":"de"`, `,"reference":"code"`, `,"locale":"de"`, `,"reference":"de"`, `,"reference":"locale"`,
		`,"binding":"code"`, `,"binding":"code","reference":"code"`}
	for i, first := range all {
		key := fmt.Sprintf("key-%d", i)
		a := parse[started](t, start(key, first), http.StatusOK)
		for j, other := range all {
			again := start(key, other)
			if i != j {
				wantProblem(t, again, problem.CodeIdempotencyReused)
				continue
			}
			if got := parse[started](t, again, http.StatusOK); got.Session != a.Session {
				t.Errorf("%s: another session", first)
			}
		}
	}
}

func TestBadReferencesAndLocales(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	for body, says := range map[string]string{
		`,"reference":7`:    "it must be a string",
		`,"reference":null`: "it must be a string",
		`,"reference":"` + strings.Repeat("é", 65) + `"`: "it may have up to 128 as UTF-8",
		`,"reference":"a\u0000"`:                         "byte 1 begins U+0000",
		`,"reference":"\u202e"`:                          "byte 0 begins U+202E",
		`,"locale":["de"]`:                               "it must be a string",
		`,"locale":""`:                                   "leave it out",
		`,"locale":"pt_BR"`:                              "as in pt-BR",
		`,"locale":"deutsch bitte"`:                      "not a BCP 47 language tag",
	} {
		doc := wantProblem(t, s.init(t, `{`+good+body+`}`), problem.CodeInvalidRequest)
		if len(doc.Errors) != 1 || !strings.Contains(doc.Errors[0].Detail, says) ||
			!strings.Contains(body, `"`+doc.Errors[0].Field+`"`) || doc.Errors[0].Code != problem.FaultValue &&
			doc.Errors[0].Code != problem.FaultType {
			t.Errorf("%s: %+v, which does not say %q", body, doc.Errors, says)
		}
	}
}

func TestReferences(t *testing.T) {
	t.Parallel()
	for _, right := range []string{
		"", "order 4711", "#1/ä-漢字-🙂", strings.Repeat("x", 128), "e\u0301", `<b>"&`,
	} {
		if err := checkReference(right); err != nil {
			t.Errorf("%q: %v", right, err)
		}
	}
	for wrong, says := range map[string]string{
		strings.Repeat("x", 129):      "it has 129 bytes",
		strings.Repeat("ä", 64) + "x": "it has 129 bytes",
		"a\nb":                        "byte 1 begins U+000A",
		"a\x00":                       "byte 1 begins U+0000",
		"ä\u202eb":                    "byte 2 begins U+202E",
		"\u200b":                      "U+200B",
		"a\u00a0b":                    "U+00A0",
		"\xff":                        "U+FFFD",
	} {
		err := checkReference(wrong)
		if err == nil || !strings.Contains(strings.Replace(err.Error(), "the field", "it", 1), says) {
			t.Errorf("%q: %v, which does not say %q", wrong, err, says)
		}
	}
}

func TestLocales(t *testing.T) {
	t.Parallel()
	for _, right := range []string{
		"de", "pt-BR", "zh-Hant-TW", "DE-at", "xx", "tlh", "de-CH-1901",
		"sl-rozaj-biske", "x-whatever", "en-u-ca-gregory",
		"i-klingon", "und", "qaa-ZZ",
	} {
		if err := checkLocale(right); err != nil {
			t.Errorf("%q: %v", right, err)
		}
	}
	for _, wrong := range []string{
		"", "pt_BR", "d", "de-", "-de", "german language", "de;q=0.5", "en,de", "*", "de-a", "überall",
		"en-\x00",
		strings.Repeat("de-", 20) + "de",
	} {
		if err := checkLocale(wrong); err == nil || len(err.Error()) > 200 {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}
