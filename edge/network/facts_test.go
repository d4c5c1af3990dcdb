package network_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"verifyd/edge/network"
	"verifyd/edge/network/netsettings"
)

// A missing or invalid claim that a rule needs is no verdict.
func TestMissingFacts(t *testing.T) {
	github := func(r netsettings.Rules) netsettings.Settings {
		return netsettings.Settings{Kind: "github",
			Rules: r}
	}
	age := netsettings.Rules{MinAccountAge: netsettings.Span(time.Hour)}
	groups := netsettings.Rules{RequireGroups: []string{"octo-org"}}
	const user, orgs = "GET api.github.com/user", "GET api.github.com/user/orgs"
	for name, c := range map[string]struct {
		rules netsettings.Rules
		where string
		serve http.HandlerFunc
		class string
	}{
		"no age":            {age, user, canned(`{"id":1}`), "malformed"},
		"age null":          {age, user, canned(`{"id":1,"created_at":null}`), "malformed"},
		"age is no instant": {age, user, canned(`{"id":1,"created_at":"yesterday"}`), "malformed"},
		"age in milliseconds": {
			age, user, canned(`{"id":1,"created_at":1584682495000}`), "malformed",
		},
		"age is a fraction":   {age, user, canned(`{"id":1,"created_at":1.5}`), "malformed"},
		"no age, and no rule": {netsettings.Rules{}, user, canned(`{"id":1}`), ""},
		"bad age, and no rule": {
			netsettings.Rules{}, user, canned(`{"id":1,"created_at":"yesterday"}`), "",
		},
		"list answers 403":  {groups, orgs, answerStatus(403), "status"},
		"list is huge":      {groups, orgs, answerHuge, "too_large"},
		"list is an object": {groups, orgs, canned(`{"message":"x"}`), "malformed"},
		"list repeats a name": {
			groups, orgs, canned(`[{"login":"a","login":"octo-org"}]`), "malformed",
		},
		"list redirects": {
			groups, orgs, func(w http.ResponseWriter,
				r *http.Request) {
				http.Redirect(w, r, "/x", http.StatusFound)
			}, "redirect",
		},
		"an entry without its member": {groups, orgs, canned(`[{"id":1}]`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.answers["POST github.com/login/oauth/access_token"] = canned(bearer)
			w.answers[user] = canned(`{"id":1}`)
			w.answers[c.where] = c.serve
			_, err := w.network(github(c.rules)).Redeem(t.Context(), w.attempt, network.Return{
				Code: plantedCode, State: w.attempt.State,
			})
			stage := "user_info"
			if c.class == "" {
				stage = ""
			}
			wantFailure(t, err, stage, c.class)
			if err != nil && strings.Contains(err.Error(), plantedToken) {
				t.Errorf("the error holds the token: %v", err)
			}
		})
	}
}

func TestEmailCountsOnlyWhereItIsVerified(t *testing.T) {
	for body, want := range map[string]string{
		`{"id":"175928847299117063","email":"a@b.example","verified":true}`:       "a@b.example",
		`{"id":"175928847299117063","email":"a@b.example","verified":false}`:      "",
		`{"id":"175928847299117063","email":"a@b.example","verified":"true"}`:     "",
		`{"id":"175928847299117063","email":"a@b.example"}`:                       "",
		`{"id":"175928847299117063","email":"a@b.example@c","verified":true}`:     "",
		`{"id":"175928847299117063","email":"a@b.example\n","verified":true}`:     "",
		`{"id":"175928847299117063","email":["a@b.example"],"verified":true}`:     "",
		`{"id":"175928847299117063","email":null,"verified":true}`:                "",
		`{"id":"175928847299117063","email":"a@b.example","email_verified":true}`: "",
	} {
		w := newWorld(t)
		w.answers["POST discord.com/api/oauth2/token"] = canned(bearer)
		w.answers["GET discord.com/api/v10/users/@me"] = canned(body)
		got, err := w.network(netsettings.Settings{Kind: "discord"}).
			Redeem(t.Context(), w.attempt, network.Return{Code: plantedCode, State: w.attempt.State})
		if err != nil || got.Email != want {
			t.Errorf("%s: %q, %v", body, got.Email, err)
		}
	}
}

// The general kinds read facts from the configured claims, in the ID token or in user info.
func TestFactsOfTheGeneralKinds(t *testing.T) {
	rules := netsettings.Rules{
		MinAccountAge: netsettings.Span(time.Hour), RequireGroups: []string{"crew"}, EmailDomains: []string{
			"example.com",
		},
	}
	born := time.Date(2020, 2, 29, 12, 0, 0, 0, time.UTC)
	const info = `{"sub":"` + plantedSubject +
		`","email":"a@example.com","email_verified":true,"account":{"born":"2020-02-29T13:00:00+01:00"},"realm_access":{"roles":["crew",7,null,{}]}}`
	general := func(set *netsettings.Settings, _ *network.Options) {
		set.Rules, set.CreatedClaim, set.GroupsClaim = rules, "/account/born", "realm_access.roles"
	}
	for name, c := range map[string]struct {
		prepare func(*standIn)
		edit    func(*standIn) func(*netsettings.Settings, *network.Options)
		asks    int32
	}{
		"oidc, by user info": {
			edit: func(*standIn) func(*netsettings.Settings, *network.Options) { return general }, asks: 1,
		},
		"oidc, in the ID token": {
			prepare: func(s *standIn) {
				s.claims = func(c map[string]any) {
					c["email"], c["email_verified"], c["account"] = "a@example.com", true, map[string]any{
						"born": born.Unix(),
					}
					c["realm_access"] = map[string]any{"roles": []any{"crew", 7, nil}}
				}
			},
			edit: func(*standIn) func(*netsettings.Settings, *network.Options) { return general },
		},
		"oauth2": {
			edit: func(s *standIn) func(*netsettings.Settings, *network.Options) {
				return func(set *netsettings.Settings, o *network.Options) {
					asOAuth2(s)(set, o)
					general(set, o)
				}
			},
			asks: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStandIn(t)
			s.userInfo = canned(info)
			if c.prepare != nil {
				c.prepare(s)
			}
			got, err := s.network(t, c.edit(s)).Redeem(t.Context(), s.attempt, s.good())
			if err != nil || !got.CreatedAt.Equal(born) || got.Email != "a@example.com" ||
				!slices.Equal(got.Groups, []string{"crew", "7"}) {
				t.Errorf("identity = %+v, %v", got, err)
			}
			if asks := s.userInfoAsks.Load(); asks != c.asks {
				t.Errorf("user info asked %d times, want %d", asks, c.asks)
			}
		})
	}
}
