package lists

import (
	"slices"
	"strings"
	"time"

	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/proof"
)

// Query says which of an account's sessions are wanted. The zero value of a field asks for any.
type Query struct {
	Account string // required
	// ID is looked up at once. Where it is no session that is wanted, the list is what Text asks for; where
	// that is empty, nothing.
	ID sessions.ID
	// Text, of Fold, is what the user, the group or the reference begins with, or the name of the key, which
	// Named says: the ids of all keys whose names do.
	Text  string
	Named []string

	Test           *bool // started with a test key, or with a live one
	PlatformUserID string
	Platform       string
	Group          string
	Keys           []string // ids
	Networks       []string // that decided it
	Reasons        []sessions.Reason
	Levels         []proof.Level
	States         []sessions.State
	Deliveries     []facts.DeliveryState
	Since, Until   time.Time // of creation: from Since on, before Until
	Cursor         string    // Page.Next of the page before
	Limit          int       // 1 or more
}

// Seek reads what somebody holds of a session. id is the session that it names: an id, a token, or a
// webhook-id. text is what else it may be, as Query.Text; empty for a token, which is a secret and is
// compared with nothing but sessions.
func Seek(held string) (id sessions.ID, text string) {
	held = strings.TrimSpace(held)
	if token, err := sessions.ParseToken(held); err == nil {
		return token.ID(), ""
	}
	name := strings.TrimPrefix(strings.TrimPrefix(held, "cbtest_"), "cb_")
	if _, err := sessions.ParseToken(name); err != nil {
		id, _ = sessions.ParseID(name)
	}
	return id, Fold(held)
}

// Fold returns what a text is compared as: without the space around it, and in lower case.
func Fold(text string) string { return strings.ToLower(strings.TrimSpace(text)) }

// selective reports whether the query may look through many sessions to find a few.
func (q Query) selective() bool {
	return q.Text != "" || q.PlatformUserID+q.Platform+q.Group != "" || len(q.Keys)+len(q.Levels)+
		len(q.Deliveries) > 0 || q.wantsOutcome()
}

// wantsOutcome reports whether the query asks how sessions ended.
func (q Query) wantsOutcome() bool { return len(q.States)+len(q.Reasons)+len(q.Networks) > 0 }

// traits are what a record says that queries ask for.
type traits struct {
	user, group, reference string // of Fold
	platform, guildID, key string
	test                   bool
	level                  proof.Level
	created                time.Time
}

// matches reports whether a session is wanted, as far as its record shows.
func (q Query) matches(t traits) bool {
	return (q.Test == nil || *q.Test == t.test) &&
		(q.Text == "" || strings.HasPrefix(t.user, q.Text) || strings.HasPrefix(t.group, q.Text) ||
			strings.HasPrefix(t.reference, q.Text) || slices.Contains(q.Named, t.key)) &&
		(q.PlatformUserID == "" || Fold(q.PlatformUserID) == t.user) &&
		(q.Platform == "" || q.Platform == t.platform) && (q.Group == "" || q.Group == t.guildID) &&
		wanted(q.Keys, t.key) && wanted(q.Levels, t.level) &&
		!t.created.Before(q.Since) && (q.Until.IsZero() || t.created.Before(q.Until))
}

// matchesOutcome reports whether sessions that ended so are wanted.
func (q Query) matchesOutcome(o sessions.Outcome) bool {
	return wanted(q.States, o.State) && wanted(q.Reasons, o.Reason) && wanted(q.Networks, o.Network)
}

// wants reports whether a session is wanted, as it stands.
func (q Query) wants(v facts.View) bool {
	return v.Account == q.Account && q.matches(traits{
		user: Fold(v.PlatformUserID), group: Fold(v.GuildID), reference: Fold(v.Reference),
		platform: v.Platform, guildID: v.GuildID,
		key: v.Key, test: v.Test, level: v.Level.Or(proof.Link), created: v.CreatedAt,
	}) && (q.PlatformUserID == "" || q.PlatformUserID == v.PlatformUserID) && q.matchesOutcome(v.Outcome) &&
		wanted(q.Deliveries, v.Delivery.State)
}

func wanted[T comparable](these []T, this T) bool {
	return len(these) == 0 || slices.Contains(these, this)
}
