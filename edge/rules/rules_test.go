package rules_test

import (
	"testing"
	"time"

	"verifyd/edge/network"
	"verifyd/edge/network/netsettings"
	"verifyd/edge/rules"
	"verifyd/sessions"
	"verifyd/sessions/failure"
	"verifyd/sessions/store"
)

func TestJudge(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	month := netsettings.Span(30 * 24 * time.Hour)
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
		rules netsettings.Rules
		who   network.Identity
		want  failure.Rule
	}{
		"no rules": {netsettings.Rules{}, network.Identity{Subject: "x"}, ""},
		"denied": {
			netsettings.Rules{DenySubjects: []string{"1", "42"}}, who, failure.RuleDeny,
		},
		"not denied": {netsettings.Rules{DenySubjects: []string{"420", "4"}}, who, ""},
		"allowed":    {netsettings.Rules{AllowSubjects: []string{"42"}}, who, ""},
		"not allowed": {
			netsettings.Rules{AllowSubjects: []string{"420", "4"}}, who, failure.RuleAllow,
		},
		"allowed and denied": {
			netsettings.Rules{AllowSubjects: []string{"42"}, DenySubjects: []string{"42"}}, who,
			failure.RuleDeny,
		},
		"the user's own": {netsettings.Rules{RequireSubjectMatch: true}, who, ""},
		"another's": {
			netsettings.Rules{RequireSubjectMatch: true},
			with(func(i *network.Identity) { i.Subject = "43" }),
			failure.RuleSubjectMatch,
		},
		"domain": {
			netsettings.Rules{EmailDomains: []string{"example.org", "EXAMPLE.com"}}, who, "",
		},
		"another domain": {
			netsettings.Rules{EmailDomains: []string{"example.org"}}, who, failure.RuleEmailDomains,
		},
		"a subdomain": {
			netsettings.Rules{EmailDomains: []string{"example.com"}},
			with(func(i *network.Identity) { i.Email = "a@x.example.com" }), failure.RuleEmailDomains,
		},
		"a domain that ends alike": {
			netsettings.Rules{EmailDomains: []string{"example.com"}},
			with(func(i *network.Identity) { i.Email = "a@evilexample.com" }), failure.RuleEmailDomains,
		},
		"no verified address": {
			netsettings.Rules{EmailDomains: []string{"example.com"}},
			with(func(i *network.Identity) { i.Email = "" }), failure.RuleEmailDomains,
		},
		"old enough to the second": {netsettings.Rules{MinAccountAge: month}, who, ""},
		"a second too new": {
			netsettings.Rules{MinAccountAge: month},
			with(func(i *network.Identity) { i.CreatedAt = i.CreatedAt.Add(time.Second) }),
			failure.RuleAccountAge,
		},
		"made in the future": {
			netsettings.Rules{MinAccountAge: month},
			with(func(i *network.Identity) { i.CreatedAt = now.Add(time.Hour) }), failure.RuleAccountAge,
		},
		"of unknown age": {
			netsettings.Rules{MinAccountAge: month},
			with(func(i *network.Identity) { i.CreatedAt = time.Time{} }), failure.RuleAccountAge,
		},
		"in a group": {netsettings.Rules{RequireGroups: []string{"staff", "crew"}}, who, ""},
		"in none": {
			netsettings.Rules{RequireGroups: []string{"staff", "Crew", "harbor/crew"}}, who,
			failure.RuleGroups,
		},
		"without groups": {
			netsettings.Rules{RequireGroups: []string{"crew"}},
			with(func(i *network.Identity) { i.Groups = nil }), failure.RuleGroups,
		},
		"one identity is judged last": {
			netsettings.Rules{OneIdentityPer: netsettings.PerGuild, RequireGroups: []string{"staff"}}, who,
			failure.RuleGroups,
		},
	} {
		t.Run(name, func(t *testing.T) {
			about := sessions.Session{Request: sessions.Request{PlatformUserID: "42"}}
			got, ok := rules.Judge(c.rules, c.who, about, now)
			if got != c.want || ok != (c.want == "") {
				t.Errorf("judge = %q, %v; want %q", got, ok, c.want)
			}
		})
	}
}

// Two sessions have the same hold exactly if one identity may stand for only one user.
func TestHold(t *testing.T) {
	base := sessions.Session{Request: sessions.Request{
		Account: "acc_a", Platform: "discord", GuildID: "g", PlatformUserID: "u",
	}}
	who := network.Identity{Subject: "42"}
	hold := func(per, networkID string, who network.Identity,
		change func(*sessions.Session)) store.IdentityHold {
		t.Helper()
		s := base
		change(&s)
		h, ok := rules.Hold(netsettings.Rules{OneIdentityPer: per,
			OneIdentityFor: netsettings.Span(time.Hour)},
			networkID, who, s)
		if !ok || h.For != time.Hour {
			t.Fatalf("hold = %+v, %v", h, ok)
		}
		return h
	}
	first := hold("guild", "discord", who, func(*sessions.Session) {})
	for name, c := range map[string]struct {
		other              store.IdentityHold
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
	if _, ok := rules.Hold(netsettings.Rules{}, "discord", who, base); ok {
		t.Error("holds without a rule")
	}
}

// The slots of an account are held by users like identities, so that erasing a user frees them, and
// to one identity of one account.
func TestSlots(t *testing.T) {
	base := sessions.Session{ID: "sid", Request: sessions.Request{
		Account: "acc_a", Platform: "discord", GuildID: "g", PlatformUserID: "u",
	}}
	slots := rules.Slots(3, netsettings.Rules{}, "example", network.Identity{Subject: "42"}, base)
	seen := map[string]bool{}
	platform, _ := rules.Holders(base)
	for _, slot := range slots {
		seen[slot.Identity] = true
		if slot.User != platform || slot.Session != base.ID || slot.For != 365*24*time.Hour {
			t.Errorf("slot %+v", slot)
		}
	}
	if len(seen) != 3 {
		t.Errorf("%d slots are apart", len(seen))
	}
	for name, change := range map[string]func(*sessions.Session){
		"account": func(s *sessions.Session) { s.Account = "acc_b" },
		"test":    func(s *sessions.Session) { s.Test = true },
	} {
		other := base
		change(&other)
		if seen[rules.Slots(1, netsettings.Rules{}, "example", network.Identity{Subject: "42"},
			other)[0].Identity] {
			t.Errorf("another %s has the same slots", name)
		}
	}
	elsewhere := base
	elsewhere.Platform = "twitch"
	of := rules.Slots(1, netsettings.Rules{}, "example", network.Identity{Subject: "42"}, elsewhere)[0]
	if of.User == platform || !seen[of.Identity] {
		t.Error("platforms have slots of their own, or share users")
	}
}
