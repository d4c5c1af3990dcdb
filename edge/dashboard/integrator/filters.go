package integrator

import (
	"cmp"
	"fmt"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/dashboard/form"
	"verifyd/edge/network"
	"verifyd/sessions/proof"
)

type level = proof.Level

// filters are the filters of a list of sessions, all of them in the address. A value that is not among the
// choices is ignored.
type filters struct {
	Text       string // a reference to a session, as lists.Seek reads it
	Token      bool   // it was a token, which is in no address and on no page
	User       string
	Platform   string
	Group      string
	From, To   string // days in UTC, or empty
	selections []selection
}

// selection is one filter with its choices.
type selection struct {
	Name, Label, Any string // Any: the name of no choice
	Words            string // of the filtered sessions; %s is the choice
	Value            string
	Choices          []form.Choice
}

// selections returns the filters that have choices, those of the first row first.
func selections(keys []account.Key, networks []*network.Network) []selection {
	key, net := []form.Choice{}, []form.Choice{}
	for _, k := range keys {
		key = append(key, form.Choice{Value: k.ID, Name: cmp.Or(k.Name, "unnamed") + " …" + k.Last4})
	}
	for _, n := range networks {
		net = append(net, form.Choice{Value: n.ID(), Name: n.Name()})
	}
	words := func(these ...string) (choices []form.Choice) {
		for _, w := range these {
			choices = append(choices, form.Choice{Value: w, Name: w})
		}
		return choices
	}
	return []selection{
		{"state", "State", "any", "that are %s", "",
			words("pending", "verified", "failed", "canceled", "expired")},
		{"delivery", "Callback", "any", "whose callback is “%s”", "",
			words("delivered", "rejected", "unknown", "undeliverable", "due", "claimed", "none")},
		{"since", "Started", "any time", "started in %s", "",
			form.Choices("1h", "the last hour", "24h", "the last 24 hours", "72h", "the last 3 days")},
		{"key", "API key", "any", "started with the key “%s”", "", key},
		{"mode", "Live or test", "both", "of %s keys", "", words("live", "test")},
		{"network", "Network", "any", "decided at %s", "", net},
		{"reason", "Reason", "any", "with the reason “%s”", "", form.Choices("declined", "declined",
			"refused", "refused", "unconfirmed", "unconfirmed", "canceled", "canceled", "expired", "expired",
			"unreadable", "unreadable", "outcome_lost", "outcome lost")},
		{"binding", "Binding", "any", "with the binding “%s”", "", words("link", "code", "account")},
	}
}

// firstRow is how many selections are always shown.
const firstRow = 3

// First are the selections that are always shown.
func (f filters) First() []selection { return f.selections[:min(firstRow, len(f.selections))] }

// More are the others.
func (f filters) More() []selection { return f.selections[min(firstRow, len(f.selections)):] }

// MoreOpen reports whether a filter is set that is not always shown.
func (f filters) MoreOpen() bool {
	for _, s := range f.More() {
		if s.Value != "" {
			return true
		}
	}
	return f.Platform+f.Group+f.From+f.To != ""
}

// Of returns a selection by its name.
func (f filters) Of(name string) selection {
	for _, s := range f.selections {
		if s.Name == name {
			return s
		}
	}
	return selection{}
}

// one returns the value of a selection, as a query has it.
func one[T ~string](f filters, name string) []T {
	if v := f.Of(name).Value; v != "" {
		return []T{T(v)}
	}
	return nil
}

// Filtered reports whether a filter is set.
func (f filters) Filtered() bool { return f.Token || f.Text != "" || len(f.Set()) > 0 }

// Set describes the filters that are set, each in words that follow "sessions".
func (f filters) Set() (set []string) {
	for _, each := range []struct{ words, value string }{
		{"of the user “%s”", f.User}, {"on the platform “%s”", f.Platform}, {"in the group “%s”", f.Group},
	} {
		if each.value != "" {
			set = append(set, fmt.Sprintf(each.words, each.value))
		}
	}
	for _, s := range f.selections {
		for _, c := range s.Choices {
			if s.Value != "" && c.Value == s.Value {
				set = append(set, fmt.Sprintf(s.Words, c.Name))
			}
		}
	}
	for _, each := range []struct{ word, day string }{{"from ", f.From}, {"until ", f.To}} {
		if d, err := time.Parse(time.DateOnly, each.day); err == nil {
			set = append(set, each.word+d.Format("2 January 2006"))
		}
	}
	return set
}

// pairs are the names and values of the address.
func (f filters) pairs() []string {
	pairs := []string{
		"q", f.Text, "user", f.User, "platform", f.Platform, "group", f.Group, "from", f.From, "to", f.To,
	}
	for _, s := range f.selections {
		pairs = append(pairs, s.Name, s.Value)
	}
	return pairs
}

// day returns a day of an address; empty if it is not a day.
func day(text string) string {
	if _, err := time.Parse(time.DateOnly, text); err != nil {
		return ""
	}
	return text
}
