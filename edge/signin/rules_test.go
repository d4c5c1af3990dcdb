package signin_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"verifyd/edge/network/netsettings"
	"verifyd/sessions"
	"verifyd/sessions/failure"
)

func (r *rig) wantRule(id sessions.ID, rule failure.Rule) {
	r.t.Helper()
	v, err := r.store.Read(r.t.Context(), id)
	if err != nil || v.State != sessions.Failed || v.Reason != sessions.Refused || v.Rule != rule {
		r.t.Errorf("session: %q, %q, rule %q, err %v; want refused by %q", v.State, v.Reason, v.Rule, err,
			rule)
	}
}

func TestRulesRefuse(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		rules netsettings.Rules
		rule  failure.Rule
		says  string
	}{
		"not allowed": {
			netsettings.Rules{AllowSubjects: []string{"captain"}}, failure.RuleAllow, "is not accepted here",
		},
		"denied": {
			netsettings.Rules{DenySubjects: []string{"sailor_42"}}, failure.RuleDeny, "is not accepted here",
		},
		"without e-mail": {
			netsettings.Rules{EmailDomains: []string{"example.com"}}, failure.RuleEmailDomains,
			"has no confirmed e-mail address",
		},
		"without groups": {
			netsettings.Rules{RequireGroups: []string{"crew"}}, failure.RuleGroups, "is not in a group",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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

// Each rule has a text of its own, which says what to do, and never which list or whose binding it was.
func TestEachRuleIsExplained(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	for rule, says := range map[failure.Rule]string{
		failure.NoRule:           "is not the one that this link is for",
		failure.RuleSubjectMatch: "sign in with the account named here",
		failure.RuleEmailDomains: "Confirm such an address at <bdi>Example Network</bdi>",
		failure.RuleAccountAge:   "is too new",
		failure.RuleGroups:       "Join the group at <bdi>Example Network</bdi>",
		failure.RuleAllow:        "is not accepted here",
		failure.RuleDeny:         "is not accepted here",
		failure.RuleOneIdentity:  "We cannot say which one",
		"of a later build":       "You were not verified",
	} {
		s, token := r.session()
		o := sessions.Outcome{
			State: sessions.Failed, Reason: sessions.Refused, Rule: rule, Network: "example",
		}
		if _, err := r.store.Complete(t.Context(), s, o); err != nil {
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
	t.Parallel()
	r := newRig(t, setup{rules: netsettings.Rules{OneIdentityPer: netsettings.PerGuild}})
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
	r.wantRule(walk("ben", "harbor", "one", "sign-in"), failure.RuleOneIdentity)
	r.want(walk("ben", "lighthouse", "one", "sign-in"), sessions.Verified, sessions.NoReason)
	r.want(walk("ben", "harbor", "two", "sign-in"), sessions.Verified, sessions.NoReason)
	r.want(walk("anna", "harbor", "three", "decline"), sessions.Failed, sessions.Declined)
	// a decline binds nothing
	r.want(walk("ben", "harbor", "three", "sign-in"), sessions.Verified, sessions.NoReason)
	r.clock.advance(time.Hour)
	r.wantRule(walk("ben", "harbor", "one", "sign-in"), failure.RuleOneIdentity)
}
