package signin

import (
	"strings"
	"testing"
	"time"

	"verifyd/edge/network"
	"verifyd/natsconf/seal"
)

func testNetwork(t *testing.T, id string) *network.Network {
	t.Helper()
	n, err := network.New(network.Settings{
		ID: id, Name: "Example", Kind: network.KindOIDC, Issuer: "https://id.example.com", ClientID: "c", ClientSecret: "s",
	}, network.Options{BaseURL: "https://verify.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestBadConfig(t *testing.T) {
	one := []*network.Network{testNetwork(t, "one")}
	for name, tc := range map[string]struct {
		base     string
		networks []*network.Network
		want     string
	}{
		"empty":          {"", one, "base URL"},
		"relative":       {"/verify", one, "base URL"},
		"another scheme": {"ftp://example.com", one, "base URL"},
		"no host":        {"https://", one, "base URL"},
		"query":          {"https://example.com/?x", one, "base URL"},
		"fragment":       {"https://example.com/#x", one, "base URL"},
		"password":       {"https://a:b@example.com", one, "base URL"},
		"odd path":       {"https://example.com/a b", one, "its path may hold letters"},
		"escaped path":   {"https://example.com/a%3Bb", one, "its path may hold letters"},
		"double slash":   {"https://example.com//a", one, "its path may hold letters"},
		"no network":     {"https://example.com", nil, "at least one"},
		"same network":   {"https://example.com", append(one, one...), `"one" is there twice`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := New(Config{BaseURL: tc.base, Networks: tc.networks, Key: seal.NewKey()}); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("err = %v, want %q in it", err, tc.want)
			}
		})
	}
}

func TestOrigin(t *testing.T) {
	for base, want := range map[string]string{
		"https://example.com":         "https://example.com",
		"https://Example.com":         "https://example.com",
		"https://example.com:443/a/b": "https://example.com",
		"http://example.com:80":       "http://example.com",
		"http://example.com:443":      "http://example.com:443",
		"http://[::1]:8080/v":         "http://[::1]:8080",
	} {
		if got := origin(base); got != want {
			t.Errorf("%s: %q, want %q", base, got, want)
		}
	}
}

func TestMinutesLeft(t *testing.T) {
	for in, want := range map[time.Duration]int{
		10 * time.Minute: 10, 9*time.Minute + 31*time.Second: 10, 9*time.Minute + 29*time.Second: 9,
		time.Minute: 1, 59 * time.Second: 0, 0: 0, -time.Minute: 0,
	} {
		if got := minutesLeft(in); got != want {
			t.Errorf("%s: %d, want %d", in, got, want)
		}
	}
}

func TestPlainSources(t *testing.T) {
	for name, tc := range map[string]struct {
		https  bool
		origin string
		want   string
	}{
		"https network":           {true, "https://id.example.com", ""},
		"dev network":             {false, "http://127.0.0.1:9000", "http://127.0.0.1:9000"},
		"dev network under https": {true, "http://localhost:9000", "http://localhost:9000"},
		"not known, under https":  {true, "", ""},
		"not known":               {false, "", "http://localhost:* http://127.0.0.1:*"},
	} {
		h := &Handler{https: tc.https}
		if got := strings.Join(h.plainSources(tc.origin), " "); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
