package signin_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"verifyd/edge/network"
	"verifyd/sessions"
)

func (r *rig) wantRule(id sessions.ID, rule sessions.Rule) {
	r.t.Helper()
	v, err := r.store.Read(r.t.Context(), id)
	if err != nil || v.State != sessions.Failed || v.Reason != sessions.Refused || v.Rule != rule {
		r.t.Errorf("session: %q, %q, rule %q, err %v; want refused by %q", v.State, v.Reason, v.Rule, err,
			rule)
	}
}

func TestRulesRefuse(t *testing.T) {
	for name, tc := range map[string]struct {
		rules network.Rules
		rule  sessions.Rule
		says  string
	}{
		"not allowed": {
			network.Rules{AllowSubjects: []string{"captain"}}, sessions.RuleAllow, "is not let in here",
		},
		"denied": {
			network.Rules{DenySubjects: []string{"sailor_42"}}, sessions.RuleDeny, "is not let in here",
		},
		"without e-mail": {
			network.Rules{EmailDomains: []string{"example.com"}}, sessions.RuleEmailDomains,
			"has no confirmed e-mail address",
		},
		"without groups": {
			network.Rules{RequireGroups: []string{"crew"}}, sessions.RuleGroups, "is not in a group",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{rules: tc.rules})
			session, token := r.session()
			b := r.browser()
			end := b.Follow(b.Get(b.back(token, "sailor_42", "sign-in")))
			end.WantPage(t, http.StatusOK, headingNotVerified)
			if !strings.Contains(end.Body, tc.says) {
				t.Errorf("the page does not say %q\n%s", tc.says, end.Body)
			}
			r.wantRule(session.ID, tc.rule)
			if !strings.Contains(r.log.String(), `"rule":"`+string(tc.rule)+`"`) ||
				strings.Contains(r.log.String(), `"sailor_42"`) {
				t.Errorf("log:\n%s", r.log)
			}
		})
	}
}

// Each rule has words of its own, which tell what to do, and never which list or whose hold it was.
func TestEachRuleIsExplained(t *testing.T) {
	r := newRig(t, setup{})
	for rule, says := range map[sessions.Rule]string{
		sessions.NoRule:           "is not the one that this link is for",
		sessions.RuleSubjectMatch: "sign in with the account named here",
		sessions.RuleEmailDomains: "Confirm such an address at <bdi>Example Network</bdi>",
		sessions.RuleAccountAge:   "is too new",
		sessions.RuleGroups:       "Join the group at <bdi>Example Network</bdi>",
		sessions.RuleAllow:        "is not let in here",
		sessions.RuleDeny:         "is not let in here",
		sessions.RuleOneIdentity:  "We do not tell which",
		"of a later build":        "You were not verified",
	} {
		s, token := r.session()
		o := sessions.Outcome{
			State: sessions.Failed, Reason: sessions.Refused, Rule: rule, Network: "example",
		}
		if _, err := r.store.Complete(t.Context(), s.ID, o); err != nil {
			t.Fatal(err)
		}
		b := r.browser()
		page := b.Get(b.page(token))
		page.WantPage(t, http.StatusOK, headingNotVerified)
		if !strings.Contains(page.Body, says) ||
			!strings.Contains(page.Body, "only learns that it did not work") {
			t.Errorf("%q: the page does not say %q\n%s", rule, says, page.Body)
		}
	}
}

func TestOneIdentityPerGuild(t *testing.T) {
	r := newRig(t, setup{rules: network.Rules{OneIdentityPer: network.PerGuild}})
	walk := func(user, guild, subject, action string) sessions.ID {
		t.Helper()
		s, token := r.session(func(q *sessions.Request) { q.PlatformUserID, q.GuildID = user, guild })
		b := r.browser()
		b.Follow(b.Get(b.back(token, subject, action)))
		return s.ID
	}
	r.want(walk("anna", "harbor", "one", "sign-in"), sessions.Verified, sessions.NoReason)
	// again, for the same user
	r.want(walk("anna", "harbor", "one", "sign-in"), sessions.Verified, sessions.NoReason)
	r.wantRule(walk("ben", "harbor", "one", "sign-in"), sessions.RuleOneIdentity)
	r.want(walk("ben", "lighthouse", "one", "sign-in"), sessions.Verified, sessions.NoReason)
	r.want(walk("ben", "harbor", "two", "sign-in"), sessions.Verified, sessions.NoReason)
	r.want(walk("anna", "harbor", "three", "decline"), sessions.Failed, sessions.Declined)
	// a decline holds nothing
	r.want(walk("ben", "harbor", "three", "sign-in"), sessions.Verified, sessions.NoReason)
	r.clock.advance(time.Hour)
	r.wantRule(walk("ben", "harbor", "one", "sign-in"), sessions.RuleOneIdentity)
}
