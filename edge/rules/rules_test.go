package rules_test

import (
	"testing"
	"time"

	"verifyd/edge/network"
	"verifyd/edge/rules"
	"verifyd/sessions"
)

func TestJudge(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	month := network.Span(30 * 24 * time.Hour)
	who := network.Identity{
		Subject: "42", Email: "a@Example.com", CreatedAt: now.Add(-time.Duration(month)), Groups: []string{
			"harbor", "crew",
		},
	}
	with := func(change func(*network.Identity)) network.Identity {
		id := who
		change(&id)
		return id
	}
	for name, c := range map[string]struct {
		rules network.Rules
		who   network.Identity
		want  sessions.Rule
	}{
		"no rules": {network.Rules{}, network.Identity{Subject: "x"}, ""},
		"denied": {
			network.Rules{DenySubjects: []string{"1", "42"}}, who, sessions.RuleDeny,
		},
		"not denied": {network.Rules{DenySubjects: []string{"420", "4"}}, who, ""},
		"allowed":    {network.Rules{AllowSubjects: []string{"42"}}, who, ""},
		"not allowed": {
			network.Rules{AllowSubjects: []string{"420", "4"}}, who, sessions.RuleAllow,
		},
		"allowed and denied": {
			network.Rules{AllowSubjects: []string{"42"}, DenySubjects: []string{"42"}}, who,
			sessions.RuleDeny,
		},
		"the user's own": {network.Rules{RequireSubjectMatch: true}, who, ""},
		"another's": {
			network.Rules{RequireSubjectMatch: true}, with(func(i *network.Identity) { i.Subject = "43" }),
			sessions.RuleSubjectMatch,
		},
		"domain": {
			network.Rules{EmailDomains: []string{"example.org", "EXAMPLE.com"}}, who, "",
		},
		"another domain": {
			network.Rules{EmailDomains: []string{"example.org"}}, who, sessions.RuleEmailDomains,
		},
		"a subdomain": {
			network.Rules{EmailDomains: []string{"example.com"}},
			with(func(i *network.Identity) { i.Email = "a@x.example.com" }), sessions.RuleEmailDomains,
		},
		"a domain that ends alike": {
			network.Rules{EmailDomains: []string{"example.com"}},
			with(func(i *network.Identity) { i.Email = "a@evilexample.com" }), sessions.RuleEmailDomains,
		},
		"no verified address": {
			network.Rules{EmailDomains: []string{"example.com"}},
			with(func(i *network.Identity) { i.Email = "" }), sessions.RuleEmailDomains,
		},
		"old enough to the second": {network.Rules{MinAccountAge: month}, who, ""},
		"a second too new": {
			network.Rules{MinAccountAge: month},
			with(func(i *network.Identity) { i.CreatedAt = i.CreatedAt.Add(time.Second) }),
			sessions.RuleAccountAge,
		},
		"made in the future": {
			network.Rules{MinAccountAge: month},
			with(func(i *network.Identity) { i.CreatedAt = now.Add(time.Hour) }), sessions.RuleAccountAge,
		},
		"of unknown age": {
			network.Rules{MinAccountAge: month},
			with(func(i *network.Identity) { i.CreatedAt = time.Time{} }), sessions.RuleAccountAge,
		},
		"in a group": {network.Rules{RequireGroups: []string{"staff", "crew"}}, who, ""},
		"in none": {
			network.Rules{RequireGroups: []string{"staff", "Crew", "harbor/crew"}}, who, sessions.RuleGroups,
		},
		"without groups": {
			network.Rules{RequireGroups: []string{"crew"}},
			with(func(i *network.Identity) { i.Groups = nil }), sessions.RuleGroups,
		},
		"one identity is judged last": {
			network.Rules{OneIdentityPer: network.PerGuild, RequireGroups: []string{"staff"}}, who,
			sessions.RuleGroups,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := rules.Judge(c.rules, c.who, sessions.Session{PlatformUserID: "42"}, now)
			if got != c.want || ok != (c.want == "") {
				t.Errorf("judge = %q, %v; want %q", got, ok, c.want)
			}
		})
	}
}

// Two sessions hold the same thing exactly where one identity may stand for one user alone.
func TestHold(t *testing.T) {
	base := sessions.Session{Account: "acc_a", Platform: "discord", GuildID: "g", PlatformUserID: "u"}
	who := network.Identity{Subject: "42"}
	hold := func(per, networkID string, who network.Identity,
		change func(*sessions.Session)) sessions.IdentityBinding {
		t.Helper()
		s := base
		change(&s)
		h, ok := rules.Hold(network.Rules{OneIdentityPer: per, OneIdentityFor: network.Span(time.Hour)},
			networkID, who, s)
		if !ok || h.For != time.Hour {
			t.Fatalf("hold = %+v, %v", h, ok)
		}
		return h
	}
	first := hold("guild", "discord", who, func(*sessions.Session) {})
	for name, c := range map[string]struct {
		other              sessions.IdentityBinding
		sameWhat, sameUser bool
	}{
		"a retry": {hold("guild", "discord", who, func(*sessions.Session) {}), true, true},
		"another user": {
			hold("guild", "discord", who, func(s *sessions.Session) { s.PlatformUserID = "v" }), true, false,
		},
		"another identity": {
			hold("guild", "discord", network.Identity{Subject: "43"}, func(*sessions.Session) {}), false,
			true,
		},
		"another network": {hold("guild", "github", who, func(*sessions.Session) {}), false, true},
		"another guild": {
			hold("guild", "discord", who, func(s *sessions.Session) { s.GuildID = "h" }), false, false,
		},
		"another platform": {
			hold("guild", "discord", who, func(s *sessions.Session) { s.Platform = "forum" }), false, false,
		},
		"another account": {
			hold("guild", "discord", who, func(s *sessions.Session) { s.Account = "acc_b" }), false, false,
		},
		"a trial": {
			hold("guild", "discord", who, func(s *sessions.Session) { s.Test = true }), false, false,
		},
		"texts that run across": {
			hold("guild", "discord", who,
				func(s *sessions.Session) { s.Platform, s.GuildID = "discor", "dg" }), false, false,
		},
		"a wider scope": {hold("platform", "discord", who, func(*sessions.Session) {}), false, false},
	} {
		if sameWhat, sameUser := c.other.Identity == first.Identity,
			c.other.User == first.User; sameWhat != c.sameWhat || sameUser != c.sameUser {
			t.Errorf("%s: same identity %v, same user %v; want %v, %v", name, sameWhat, sameUser, c.sameWhat,
				c.sameUser)
		}
	}
	across := func(platform, guild string) string {
		return hold("guild", "discord", who,
			func(s *sessions.Session) { s.Platform, s.GuildID = platform, guild }).Identity
	}
	if across("a:b", "c") == across("a", "b:c") {
		t.Error("texts with the separator in them run across")
	}
	guilds := hold("platform", "discord", who, func(s *sessions.Session) { s.GuildID = "h" })
	if guilds.Identity != hold("platform", "discord", who, func(*sessions.Session) {}).Identity {
		t.Error("guilds tell identities apart where the platform alone should")
	}
	if _, ok := rules.Hold(network.Rules{}, "discord", who, base); ok {
		t.Error("holds without a rule")
	}
}
