// Package export writes sessions for other programs: as the JSON document that the integrators' interface
// answers with, and many of them as CSV (RFC 4180) or JSON lines.
package export

import (
	"time"

	"verifyd/edge/web"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
	"verifyd/sessions/proof"
)

// Session is a session as its integrator sees it. The callback URL and the receiver's answer are left out:
// the former may hold the integrator's secrets, the latter the receiver's.
type Session struct {
	ID sessions.ID `json:"id"` // never the token
	// started with a test key: its outcome says nothing about a person
	Test           bool   `json:"test"`
	Platform       string `json:"platform"`
	PlatformUserID string `json:"platform_user_id"`
	GuildID        string `json:"guild_id"`
	// the level that it requires, and the level that was reached; the latter is null if nothing was proven
	Binding  proof.Level     `json:"binding"`
	Reached  *proof.Level    `json:"reached"`
	State    sessions.State  `json:"state"`
	Step     proof.Step      `json:"step"`     // what a pending session waits for; empty: the user's sign-in
	Verified *bool           `json:"verified"` // null unless verified or failed
	Reason   sessions.Reason `json:"reason"`   // empty while pending and when verified
	// the rule of the identity network that refused; empty for other reasons
	Rule        failure.Rule `json:"rule"`
	CreatedAt   string       `json:"created_at"`
	ExpiresAt   string       `json:"expires_at"`
	CompletedAt *string      `json:"completed_at"` // null while pending and when expired
	Delivery    Delivery     `json:"delivery"`
	Reference   string       `json:"reference"` // as given, as are the next three
	Locale      string       `json:"locale"`
	DisplayName string       `json:"display_name"`
	GroupName   string       `json:"group_name"`
}

// Delivery is the state of the session's callback.
type Delivery struct {
	State    facts.DeliveryState `json:"state"`
	Attempts []Attempt           `json:"attempts"` // in order; never null
	// why it is due still; null: it is not due, was not tried yet, or that is not known
	Waiting *Waiting `json:"waiting"`
}

// Waiting is why a callback that is due was not sent yet.
type Waiting struct {
	Tries         int           `json:"tries"`  // at the next attempt; nothing was sent
	Class         failure.Class `json:"class"`  // what failed last
	Detail        string        `json:"detail"` // one sentence for people; may be empty
	TriedAt       string        `json:"tried_at"`
	NextAttemptAt string        `json:"next_attempt_at"`
}

// Attempt is one attempt at the callback.
type Attempt struct {
	Number    int            `json:"number"`  // from 1
	Verdict   *facts.Verdict `json:"verdict"` // null while the attempt is in progress
	Class     failure.Class  `json:"class"`   // what failed; empty if nothing did
	Status    *int           `json:"status"`  // the receiver's HTTP status; null where none was read
	ClaimedAt string         `json:"claimed_at"`
	EndedAt   *string        `json:"ended_at"` // null while the attempt is in progress
}

// Document returns the JSON document of a view.
func Document(v facts.View) Session {
	doc := Session{
		ID: v.ID, Test: v.Test, Platform: v.Platform, PlatformUserID: v.PlatformUserID, GuildID: v.GuildID,
		Binding: v.Level.Or(proof.Link), State: v.State, Reason: v.Reason, Rule: v.Rule,
		CreatedAt: web.Timestamp(v.CreatedAt), ExpiresAt: web.Timestamp(v.ExpiresAt),
		CompletedAt: TimestampOrNull(v.CompletedAt),
		Delivery:    Delivery{State: v.Delivery.State, Attempts: []Attempt{}},
		Reference:   v.Reference, Locale: v.Locale, DisplayName: v.DisplayName, GroupName: v.GroupName,
	}
	if v.State == sessions.Verified || v.State == sessions.Failed {
		verified := v.Verified()
		doc.Verified = &verified
	}
	if v.State == sessions.Pending {
		doc.Step = v.Progress.Step()
	}
	if v.Reached != "" {
		doc.Reached = &v.Reached
	}
	if w := v.Delivery.Waiting; w != nil {
		doc.Delivery.Waiting = &Waiting{
			w.Tries, w.Class, w.Detail, web.Timestamp(w.At), web.Timestamp(w.Next),
		}
	}
	for _, at := range v.Delivery.Attempts {
		doc.Delivery.Attempts = append(doc.Delivery.Attempts, attempt(at))
	}
	return doc
}

func attempt(at facts.Attempt) Attempt {
	doc := Attempt{Number: at.Claim.Number, ClaimedAt: web.Timestamp(at.Claim.At)}
	if r := at.Result; r != nil {
		doc.Verdict, doc.Class, doc.EndedAt = &r.Verdict, r.Class, TimestampOrNull(r.At)
		if r.Status != 0 {
			doc.Status = &r.Status
		}
	}
	return doc
}

// TimestampOrNull formats an instant; nil if there is none.
func TimestampOrNull(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := web.Timestamp(t)
	return &s
}
