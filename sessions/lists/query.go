package lists

import (
	"slices"
	"strings"
	"time"

	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/proof"
)

// Query selects sessions of an account. The zero value of a field matches any.
type Query struct {
	Account string // required
	// ID is looked up at once. If the query does not select that session, the list is the one that Text
	// selects; if Text is empty, the list is empty.
	ID sessions.ID
	// Text, in the form of Fold, is a prefix of the user or the group, of the name of either, of the
	// reference, or of the name of the key.
	// For the last, Named has the ids of all keys whose names begin with it.
	Text  string
	Named []string

	Test           *bool // whether it was started with a test key
	PlatformUserID string
	Platform       string
	Group          string
	Keys           []string // ids
	Networks       []string // that decided the outcome
	Reasons        []sessions.Reason
	Levels         []proof.Level
	States         []sessions.State
	Deliveries     []facts.DeliveryState
	Since, Until   time.Time // of creation: at or after Since, before Until
	Cursor         string    // Page.Next of the previous page
	Limit          int       // 1 or more
}

// Seek parses a search input. id is the session that it names: by an id, a token, or a webhook-id. text is
// the input as Query.Text; it is empty for a token, which is a secret and is compared with nothing but
// sessions.
func Seek(input string) (id sessions.ID, text string) {
	input = strings.TrimSpace(input)
	if token, err := sessions.ParseToken(input); err == nil {
		return token.ID(), ""
	}
	name := strings.TrimPrefix(strings.TrimPrefix(input, "cbtest_"), "cb_")
	if _, err := sessions.ParseToken(name); err != nil {
		id, _ = sessions.ParseID(name)
	}
	return id, Fold(input)
}

// Fold returns the form in which texts are compared: without the space around it, and in lower case.
func Fold(text string) string { return strings.ToLower(strings.TrimSpace(text)) }

// selective reports whether the query may examine many sessions to find a few.
func (q Query) selective() bool {
	return q.Text != "" || q.PlatformUserID+q.Platform+q.Group != "" || len(q.Keys)+len(q.Levels)+
		len(q.Deliveries) > 0 || q.wantsOutcome()
}

// wantsOutcome reports whether the query selects by outcome.
func (q Query) wantsOutcome() bool { return len(q.States)+len(q.Reasons)+len(q.Networks) > 0 }

// traits are the properties of a record by which queries select.
type traits struct {
	user, group, reference string // in the form of Fold, as are the next two
	displayName, groupName string
	platform, guildID, key string
	test                   bool
	level                  proof.Level
	created                time.Time
}

// matches reports whether the query selects a session, as far as its record shows.
func (q Query) matches(t traits) bool {
	return (q.Test == nil || *q.Test == t.test) &&
		(q.Text == "" || strings.HasPrefix(t.user, q.Text) || strings.HasPrefix(t.group, q.Text) ||
			strings.HasPrefix(t.reference, q.Text) || strings.HasPrefix(t.displayName, q.Text) ||
			strings.HasPrefix(t.groupName, q.Text) || slices.Contains(q.Named, t.key)) &&
		(q.PlatformUserID == "" || Fold(q.PlatformUserID) == t.user) &&
		(q.Platform == "" || q.Platform == t.platform) && (q.Group == "" || q.Group == t.guildID) &&
		wanted(q.Keys, t.key) && wanted(q.Levels, t.level) &&
		!t.created.Before(q.Since) && (q.Until.IsZero() || t.created.Before(q.Until))
}

// matchesOutcome reports whether the query selects an outcome.
func (q Query) matchesOutcome(o sessions.Outcome) bool {
	return wanted(q.States, o.State) && wanted(q.Reasons, o.Reason) && wanted(q.Networks, o.Network)
}

// wants reports whether the query selects a session in its current state.
func (q Query) wants(v facts.View) bool {
	return v.Account == q.Account && q.matches(traits{
		user: Fold(v.PlatformUserID), group: Fold(v.GuildID), reference: Fold(v.Reference),
		displayName: Fold(v.DisplayName), groupName: Fold(v.GroupName), platform: v.Platform,
		guildID: v.GuildID, key: v.Key, test: v.Test, level: v.Level.Or(proof.Link), created: v.CreatedAt,
	}) && (q.PlatformUserID == "" || q.PlatformUserID == v.PlatformUserID) && q.matchesOutcome(v.Outcome) &&
		wanted(q.Deliveries, v.Delivery.State)
}

func wanted[T comparable](values []T, v T) bool {
	return len(values) == 0 || slices.Contains(values, v)
}
