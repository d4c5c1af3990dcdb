package told_test

import (
	"testing"

	"verifyd/sessions"
	"verifyd/sessions/told"
)

func TestOutcomeWordsNameTheRule(t *testing.T) {
	for want, o := range map[string]sessions.Outcome{
		"Not verified: the network's rules do not accept this identity: min_account_age (discord)": {
			State: sessions.Failed, Reason: sessions.Refused, Rule: sessions.RuleAccountAge, Network: "discord",
		},
		"Not verified: the network's rules do not accept this identity (discord)": {State: sessions.Failed, Reason: sessions.Refused, Network: "discord"},
		"Not verified: the user said no":                                          {State: sessions.Failed, Reason: sessions.Declined},
	} {
		if got := (told.Story{View: sessions.View{Outcome: o}}).OutcomeWords(); got != want {
			t.Errorf("words %q, want %q", got, want)
		}
	}
}
