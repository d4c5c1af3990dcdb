package network_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"testing"

	"verifyd/edge/network"
	"verifyd/edge/network/netsettings"
)

func TestRedeemReturnsWhatTheProviderVouchedFor(t *testing.T) {
	for name, c := range map[string]struct {
		edit    func(*standIn) func(*netsettings.Settings, *network.Options)
		prepare func(*standIn)
		want    network.Identity
		asks    int32
	}{
		"oidc": {want: network.Identity{Subject: plantedSubject, DisplayName: "Sailor ☸"}},
		"oidc, claim of the ID token": {
			edit: func(*standIn) func(*netsettings.Settings, *network.Options) {
				return withClaim("https://example.com/claims/uid")
			},
			prepare: func(s *standIn) {
				s.claims = func(c map[string]any) { c["https://example.com/claims/uid"] = "u-7" }
			},
			want: network.Identity{Subject: "u-7", DisplayName: "Sailor ☸"},
		},
		"oidc, claim of user info": {
			edit: func(*standIn) func(*netsettings.Settings,
				*network.Options) {
				return withClaim("data.0.id")
			},
			want: network.Identity{Subject: "42", DisplayName: "sailor"}, asks: 1,
		},
		"oidc, two audiences with azp": {
			prepare: func(s *standIn) {
				s.claims = func(c map[string]any) {
					c["aud"], c["azp"] = []string{"client", "other"}, "client"
				}
			},
			want: network.Identity{Subject: plantedSubject, DisplayName: "Sailor ☸"},
		},
		"oidc, access token hash": {
			prepare: func(s *standIn) {
				sum := sha256.Sum256([]byte(plantedToken))
				s.claims = func(c map[string]any) {
					c["at_hash"] = base64.RawURLEncoding.EncodeToString(sum[:16])
				}
			},
			want: network.Identity{Subject: plantedSubject, DisplayName: "Sailor ☸"},
		},
		"oidc, verified e-mail": {
			edit: func(*standIn) func(*netsettings.Settings, *network.Options) { return withClaim("email") },
			prepare: func(s *standIn) {
				s.claims = func(c map[string]any) { c["email"], c["email_verified"] = "a@example.com", true }
			},
			want: network.Identity{Subject: "a@example.com", DisplayName: "Sailor ☸", Email: "a@example.com"},
		},
		"oidc, an e-mail that nobody verified": {
			prepare: func(s *standIn) { s.claims = func(c map[string]any) { c["email"] = "a@example.com" } },
			want:    network.Identity{Subject: plantedSubject, DisplayName: "Sailor ☸"},
		},
		"oidc, an e-mail that is none": {
			prepare: func(s *standIn) {
				s.claims = func(c map[string]any) {
					c["email"], c["email_verified"] = "a@b@example.com", true
				}
			},
			want: network.Identity{Subject: plantedSubject, DisplayName: "Sailor ☸"},
		},
		"oauth2, JSON Pointer to a number": {
			edit: func(s *standIn) func(*netsettings.Settings, *network.Options) {
				return func(set *netsettings.Settings, o *network.Options) {
					asOAuth2(s)(set, o)
					set.SubjectClaim = "/data/0/id"
				}
			},
			want: network.Identity{Subject: "42", DisplayName: "sailor"}, asks: 1,
		},
		"oauth2, a number beyond a float's 53 bits": {
			edit: asOAuth2,
			prepare: func(s *standIn) {
				s.userInfo = func(w http.ResponseWriter, _ *http.Request) {
					_, _ = io.WriteString(w, `{"sub":9007199254740993}`)
				}
			},
			want: network.Identity{Subject: "9007199254740993"}, asks: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStandIn(t)
			if c.prepare != nil {
				c.prepare(s)
			}
			var edits []func(*netsettings.Settings, *network.Options)
			if c.edit != nil {
				edits = append(edits, c.edit(s))
			}
			got, err := s.network(t, edits...).Redeem(t.Context(), s.attempt, s.good())
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Fatalf("identity = %+v, %v; want %+v", got, err, c.want)
			}
			if posts, asks := s.codePosts.Load(), s.userInfoAsks.Load(); posts != 1 || asks != c.asks {
				t.Fatalf("code posted %d times, user info asked %d times; want 1 and %d", posts, asks, c.asks)
			}
		})
	}
}

// An address that the provider has not verified identifies nobody, however the claim is spelled.
func TestUnverifiedAddressIsNoSubject(t *testing.T) {
	const address = "a@example.com"
	for _, c := range []struct {
		oauth2   bool
		claim    string
		verified any
		want     string
	}{
		{false, "email", true, address}, {false, "/email", true, address},
		{false, "email", nil, ""}, {false, "/email", nil, ""}, {false, "/email", false, ""},
		{true, "email", false, ""}, {true, "/email", "true", ""},
		{true, "email", true, address}, {true, "/email", nil, address},
	} {
		s := newStandIn(t)
		edits := []func(*netsettings.Settings, *network.Options){withClaim(c.claim)}
		s.claims = func(all map[string]any) { all["email"], all["email_verified"] = address, c.verified }
		if c.oauth2 {
			edits = append(edits, asOAuth2(s), withClaim(c.claim))
			s.userInfo = func(w http.ResponseWriter, _ *http.Request) {
				_ = json.NewEncoder(w).Encode(map[string]any{"email": address, "email_verified": c.verified})
			}
		}
		got, err := s.network(t, edits...).Redeem(t.Context(), s.attempt, s.good())
		if got.Subject != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%+v: %q, %v", c, got.Subject, err)
		}
	}
}

func TestTokenRequestIsExactlyWhatTheSettingsSay(t *testing.T) {
	for style, inHeader := range map[string]bool{
		"": true, netsettings.AuthHeader: true, netsettings.AuthParams: false,
	} {
		s := newStandIn(t)
		n := s.network(t, func(set *netsettings.Settings, _ *network.Options) { set.AuthStyle = style })
		if _, err := n.Redeem(t.Context(), s.attempt, s.good()); err != nil {
			t.Fatal(err)
		}
		form, r := *s.lastForm.Load(), s.lastRequest.Load()
		want := url.Values{
			"grant_type": {"authorization_code"}, "code": {plantedCode}, "code_verifier": {
				s.attempt.Verifier,
			},
			"redirect_uri": {"https://verify.example.com/signin/example/callback"},
		}
		if !inHeader {
			want.Set("client_id", "client")
			want.Set("client_secret", plantedSecret)
		}
		if form.Encode() != want.Encode() {
			t.Errorf("style %q: form = %v, want %v", style, form, want)
		}
		if id, secret, ok := r.BasicAuth(); ok != inHeader || inHeader &&
			(id != "client" || secret != plantedSecret) {
			t.Errorf("style %q: basic auth = %v", style, ok)
		}
		if r.ProtoMajor != 1 || r.Close || r.Header.Get("Accept-Encoding") != "identity" {
			t.Errorf("style %q: sent by %s, close %v, %v; want HTTP/1.1 on a connection that is kept", style,
				r.Proto, r.Close, r.Header)
		}
	}
}

func TestRedeemDistinguishesADeclineFromAFailure(t *testing.T) {
	s := newStandIn(t)
	for _, code := range []string{"access_denied", "consent_required"} {
		for _, issuer := range []string{"", s.URL} {
			_, err := s.network(t).Redeem(t.Context(), s.attempt, network.Return{
				State: s.attempt.State, Error: code, Issuer: issuer,
			})
			if !errors.Is(err, network.ErrDeclined) {
				t.Errorf("%s, issuer %q: err = %v, want ErrDeclined", code, issuer, err)
			}
		}
	}
	// prompt=none may be set for oauth2, and a refusal has only one name there.
	_, err := s.network(t, asOAuth2(s)).Redeem(t.Context(), s.attempt, network.Return{
		State: s.attempt.State, Error: "consent_required",
	})
	var tr *network.Error
	if !errors.As(err, &tr) || tr.Class != network.ClassRefused {
		t.Errorf("consent_required from oauth2: err = %v, want trouble", err)
	}
	if s.codePosts.Load() != 0 {
		t.Error("a decline posted a code")
	}
}

func TestRedeemEndsWhenItsCallerGivesUp(t *testing.T) {
	s := newStandIn(t)
	ctx, cancel := context.WithCancel(t.Context())
	s.token = func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	}
	_, err := s.network(t).Redeem(ctx, s.attempt, s.good())
	var tr *network.Error
	if !errors.As(err, &tr) || tr.Class != network.ClassCanceled || s.codePosts.Load() != 1 {
		t.Fatalf("err = %v after %d posts, want canceled after 1", err, s.codePosts.Load())
	}
}

func TestKeysAreFetchedOnceForManySignIns(t *testing.T) {
	s := newStandIn(t)
	n := s.network(t)
	for range 5 {
		if _, err := n.Redeem(t.Context(), s.attempt, s.good()); err != nil {
			t.Fatal(err)
		}
	}
	if d, k := s.discoveries.Load(), s.keyFetches.Load(); d != 1 || k != 1 {
		t.Fatalf("metadata fetched %d times, keys %d times; want once each", d, k)
	}
}
