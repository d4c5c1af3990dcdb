package network_test

import (
	"net/url"
	"testing"
	"time"

	"verifyd/edge/network/netsettings"
)

// Each network is asked in its own words to have a user sign in again, in the place of the prompt that is set
// for it, and only if that is wanted.
func TestSignInAgainIsAskedInTheNetworksWords(t *testing.T) {
	oidc := map[string]string{"prompt": "login", "max_age": "600"}
	words := map[string]map[string]string{
		"discord": {"prompt": "consent"}, "github": {"prompt": "select_account"}, "gitlab": oidc,
		"google": {"prompt": "select_account"}, "microsoft": oidc, "roblox": oidc,
		"twitch": {"force_verify": "true"}, "vatsim": {"prompt": "login"},
	}
	seen := map[string]bool{}
	for name, c := range presetCases() {
		want, known := words[c.settings.Kind]
		if !known {
			t.Fatalf("nothing is written here of %s", c.settings.Kind)
		}
		seen[c.settings.Kind] = true
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if c.discovery != "" {
				w.oidc(c.discovery, c.metadata, c.claims)
			}
			n := w.network(c.settings)
			for _, maxAge := range []time.Duration{0, 10 * time.Minute} {
				w.attempt.MaxAge = maxAge
				raw, err := n.AuthURL(t.Context(), w.attempt)
				if err != nil {
					t.Fatal(err)
				}
				u, err := url.Parse(raw)
				if err != nil {
					t.Fatal(err)
				}
				for _, param := range []string{"prompt", "max_age", "force_verify"} {
					said := want[param]
					if maxAge == 0 {
						said = ""
					}
					if got := u.Query().Get(param); got != said {
						t.Errorf("max age %v: %s %q, want %q", maxAge, param, got, said)
					}
				}
			}
		})
	}
	if len(seen) != len(words) {
		t.Errorf("only %v were asked", seen)
	}
	for kind, want := range map[string]string{"oidc": "login", "oauth2": "select_account"} {
		s := netsettings.Settings{Kind: kind, Prompt: "select_account"}
		if got := s.SignInAgain(time.Minute)["prompt"]; got != want {
			t.Errorf("prompt of kind %s: %q, want %q", kind, got, want)
		}
	}
}

// When a user signed in is read from the ID token, by the provider's clock alone, whatever else it has there.
func TestSignedInAgo(t *testing.T) {
	now := time.Now().Unix()
	for name, c := range map[string]struct {
		signedIn any // nil: the token does not say
		want     time.Duration
	}{
		"not said":          {nil, 0},
		"now":               {now, 0},
		"a minute ago":      {now - 60, time.Minute},
		"fractions":         {float64(now) - 0.5, time.Second / 2},
		"after it was made": {now + 60, 0},
		"no instant":        {0, 365 * 24 * time.Hour},
		"overflow":          {-1e300, 365 * 24 * time.Hour},
		"text":              {"yesterday", 0},
		"a list":            {[]any{now}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStandIn(t)
			s.claims = func(claims map[string]any) {
				claims["iat"] = now
				if c.signedIn != nil {
					claims["auth_time"] = c.signedIn
				}
			}
			id, err := s.network(t).Redeem(t.Context(), s.attempt, s.good())
			if err != nil || id.SignedInAgo != c.want {
				t.Errorf("%v, %v; want %v", id.SignedInAgo, err, c.want)
			}
		})
	}
}
