package network_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"verifyd/edge/network"
)

func TestParseReturn(t *testing.T) {
	for query, want := range map[string]network.Return{
		"code=c&state=s": {Code: "c", State: "s"},
		"code=c&state=s&iss=https%3A%2F%2Fi.example": {Code: "c", State: "s", Issuer: "https://i.example"},
		"error=access_denied&state=s":                {Error: "access_denied", State: "s"},
		// RFC 6749 §4.1.2: unrecognized parameters are ignored; Keycloak and Google send some, and a provider
		// may repeat its own.
		"code=c&state=s&session_state=1&scope=a&scope=b":  {Code: "c", State: "s"},
		"error=x&error_description=d&error_uri=u&state=s": {Error: "x", State: "s"},
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := network.ParseReturn(q); err != nil || got != want {
			t.Errorf("%s: %#v, %v", query, got, err)
		}
	}
}

func TestParseReturnRefuses(t *testing.T) {
	for query, names := range map[string]string{
		"":                                   "no state",
		"code=c":                             "no state",
		"code=c&state=":                      "no state",
		"state=s":                            "neither",
		"code=&state=s":                      "neither",
		"code=c&error=access_denied&state=s": "both",
		"code=c&code=d&state=s":              "code",
		"code=c&code=c&state=s":              "code",
		"code=c&state=s&state=s":             "state",
		"code=c&state=s&iss=a&iss=b":         "iss",
		"error=a&error=b&state=s":            "error",
		"code=" + strings.Repeat("c", 16385) + "&state=s": "code",
		"code=c&state=" + strings.Repeat("s", 257):        "state",
		"code=c&state=s&iss=" + strings.Repeat("i", 2049): "iss",
		"error=" + strings.Repeat("e", 129) + "&state=s":  "error",
		"code=a%0Ab&state=s":                              "code",
		"code=%C3%A4&state=s":                             "code",
		"code=%FF&state=s":                                "code",
		"code=c&state=%00":                                "state",
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		got, err := network.ParseReturn(q)
		if !errors.Is(err, network.ErrBadReturn) || !strings.Contains(err.Error(), names) ||
			got != (network.Return{}) {
			t.Errorf("%.40s: %v; want an error that says %q", query, err, names)
		}
	}
}

func FuzzParseReturn(f *testing.F) {
	f.Add("code=c&state=s")
	f.Add("error=access_denied&state=s&iss=https://i.example")
	f.Add("code=c&code=d&state=s")
	f.Fuzz(func(t *testing.T, query string) {
		q, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		r, err := network.ParseReturn(q)
		switch {
		case err == nil && (r.State == "" || (r.Code == "") == (r.Error == "")):
			t.Fatal("accepted without state, or not exactly one of code and error")
		case err == nil &&
			(len(q["code"]) > 1 || len(q["state"]) > 1 || len(q["iss"]) > 1 || len(q["error"]) > 1):
			t.Fatal("accepted a repeated parameter")
		case err != nil && r != (network.Return{}):
			t.Fatal("an error came with a value")
		}
	})
}
