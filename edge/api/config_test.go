package api

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"verifyd/edge/account"
	"verifyd/edge/account/signing"
	"verifyd/edge/limit"
	"verifyd/edge/web"
	"verifyd/natsconf/devtunnel"
	"verifyd/natsconf/secretbox"
	"verifyd/sessions/store"
	"verifyd/sessions/urlpolicy"
)

func TestParseBaseURL(t *testing.T) {
	for raw, want := range map[string][2]string{
		"http://localhost:8080":            {"http://localhost:8080", ""},
		"http://localhost:8080/":           {"http://localhost:8080", ""},
		"https://verify.example.com":       {"https://verify.example.com", ""},
		"HTTPS://verify.example.com//":     {"https://verify.example.com", ""},
		"https://example.com/verify":       {"https://example.com/verify", "/verify"},
		"https://example.com/a/b-c_d.e~f/": {"https://example.com/a/b-c_d.e~f", "/a/b-c_d.e~f"},
		"http://[::1]:8080/x":              {"http://[::1]:8080/x", "/x"},
	} {
		if base, prefix, err := web.ParseBaseURL(raw); err != nil || base != want[0] || prefix != want[1] {
			t.Errorf("ParseBaseURL(%q) = %q, %q, %v; want %q", raw, base, prefix, err, want)
		}
	}
	for _, raw := range []string{
		"", "verify.example.com", "/verify", "//example.com", "ftp://example.com", "https:example.com",
		"https://", "https:///x", "https://:8080",
		"https://user:MARKER@example.com", "https://example.com/?MARKER=1", "https://example.com?",
		"https://example.com/#MARKER", "https://example.com/#",
		"https://example.com/:session", "https://example.com/*all", "https://example.com/a b",
		"https://example.com/%61", "https://example.com/a%2Fb",
		"https://example.com/ü", "https://example.com/a//b", "https://example.com/a/../b",
		"https://example.com/..", "https://example.com/./a",
		"https://exa mple.com", "https://example.com:port", "https://example.com/{x}", "https://[::1", "\x00",
	} {
		if base, _, err := web.ParseBaseURL(raw); !errors.Is(err, web.ErrBaseURL) {
			t.Errorf("ParseBaseURL(%q) = %q, %v; want ErrBaseURL", raw, base, err)
		} else if strings.Contains(err.Error(), "MARKER") {
			t.Errorf("the error repeats what may be a secret: %v", err)
		}
	}
}

func whole(t *testing.T) Config {
	t.Helper()
	rates, err := limit.NewRates(account.Rate{Count: 20, Per: time.Second, Burst: 40})
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		BaseURL: "http://localhost:8080", Keys: newKeyring(), Sessions: &store.Store{},
		Signing:      signing.New(secretbox.NewKey()),
		Reservations: &store.Store{}, Lister: &store.Store{},
		Changes: &store.Watch{}, Usages: &store.Store{}, Rates: rates, Quota: limit.NewQuota(nil, 1),
		Callbacks: urlpolicy.NewPolicy(nil, nil), Listeners: devtunnel.New(nil),
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := New(whole(t)); err != nil {
		t.Fatalf("a whole configuration is refused: %v", err)
	}
	for want, change := range map[string]func(*Config){
		"not a base URL":          func(c *Config) { c.BaseURL = "localhost" },
		"Keys is missing":         func(c *Config) { c.Keys = nil },
		"Reservations is missing": func(c *Config) { c.Reservations = nil },
		"Lister is missing":       func(c *Config) { c.Lister = nil },
		"Usages is missing":       func(c *Config) { c.Usages = nil },
		"Changes is missing":      func(c *Config) { c.Changes = nil },
		"MaxWaiting is -1":        func(c *Config) { c.MaxWaiting = -1 },
		"MaxListing is -1":        func(c *Config) { c.MaxListing = -1 },
		"Sessions is missing":     func(c *Config) { c.Sessions = nil },
		"Rates is missing":        func(c *Config) { c.Rates = nil },
		"Quota is missing":        func(c *Config) { c.Quota = nil },
		"Callbacks is missing":    func(c *Config) { c.Callbacks = nil },
		"mount POST /verify/init": func(c *Config) {
			c.Routes = []web.Route{{Method: http.MethodPost, Path: pathInit, Name: "again", Handler: hello()}}
		},
		"mount GET /sessions/mine": func(c *Config) {
			c.Routes = []web.Route{{Method: http.MethodGet, Path: "/sessions/mine", Name: "mine",
				Handler: hello()}}
		},
		"mount GET page": func(c *Config) {
			c.Routes = []web.Route{{Method: http.MethodGet, Path: "page", Name: "page", Handler: hello()}}
		},
		"a name and a handler": func(c *Config) {
			c.Routes = []web.Route{{Method: http.MethodGet, Path: "/page", Name: "page", Handler: nil}}
		},
		"register metrics": func(c *Config) {
			reg := prometheus.NewRegistry()
			if _, err := web.New(web.Config{Metrics: reg}); err != nil {
				t.Fatal(err)
			}
			c.Metrics = reg
		},
	} {
		c := whole(t)
		change(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("err = %v, want it to say %q", err, want)
		}
	}
}
