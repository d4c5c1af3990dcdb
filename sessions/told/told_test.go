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

// A host is named as pauses, dispatchers and operators' filters name it, however the callback URL writes it.
func TestHostIsTheDestination(t *testing.T) {
	for raw, want := range map[string]string{
		"https://bot.example.com/x":         "bot.example.com:443",
		"HTTPS://Bot.Example.COM/x":         "bot.example.com:443",
		"https://bot.example.com.:8443/x":   "bot.example.com:8443",
		"https://bot.example.com:08443?a=b": "bot.example.com:08443", // such a URL is refused; it is shown as it is
		"https://[2001:DB8:0::1]/x":         "[2001:db8::1]:443",
		"https://127.0.0.1:9/x":             "127.0.0.1:9",
		"bot.example.com":                   "-",
	} {
		if got := told.Host(sessions.Session{CallbackURL: raw}); got != want {
			t.Errorf("%s: %q, want %q", raw, got, want)
		}
	}
}
