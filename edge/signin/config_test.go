package signin

import (
	"strings"
	"testing"
	"time"

	"verifyd/edge/apidoc/openapitest"
	"verifyd/edge/network"
	"verifyd/edge/network/netsettings"
	"verifyd/natsconf/secretbox"
)

func testNetwork(t *testing.T, id string) *network.Network {
	t.Helper()
	n, err := network.New(netsettings.Settings{
		ID: id, Name: "Example", Kind: netsettings.KindOIDC, Issuer: "https://id.example.com", ClientID: "c",
		ClientSecret: "s",
	}, network.Options{BaseURL: "https://verify.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestDocCommentListsTheRoutes(t *testing.T) {
	h, err := New(Config{
		BaseURL: "https://verify.example.com", Networks: []*network.Network{testNetwork(t, "one")},
		Key: secretbox.NewKey(),
	})
	if err != nil {
		t.Fatal(err)
	}
	openapitest.Routes(t, "config.go", h.Routes())
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
			if _, err := New(Config{BaseURL: tc.base, Networks: tc.networks,
				Key: secretbox.NewKey()}); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("err = %v, want %q in it", err, tc.want)
			}
		})
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
