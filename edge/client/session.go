package client

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Verification is what a session is started with. Platform, PlatformUserID and GuildID are the integrator's
// own words, any text of up to 1,024 bytes, and come back exactly as given.
type Verification struct {
	Platform       string `json:"platform"`         // identifies the integration
	PlatformUserID string `json:"platform_user_id"` // identifies the user there
	GuildID        string `json:"guild_id,omitempty"`
	CallbackURL    string `json:"callback_url"` // absolute https URL of the receiver
	// Binding is what is to be proven before the session is verified: "link", that whoever has the link
	// controls an identity; "code", and that the account's owner confirms on the platform, with a code
	// (Client.Confirm); "account", and that the same browser signed in as that platform account. Empty: what
	// the account has set.
	Binding string `json:"binding,omitempty"`
	// Reference is your own name for the session, such as an order number: up to 128 bytes of printable
	// text, which no user sees.
	Reference string `json:"reference,omitempty"`
	// Locale is the user's language as a BCP 47 tag, such as "de" or "pt-BR"; empty: the browser says it.
	Locale string `json:"locale,omitempty"`
	// DisplayName and GroupName are how people know the user and the group on the platform; the page shows
	// them above PlatformUserID and GuildID. Any text of up to 1,024 bytes.
	DisplayName string `json:"display_name,omitempty"`
	GroupName   string `json:"group_name,omitempty"`

	// IdempotencyKey makes a repeat of Start safe: for ten minutes the same key and verification give the
	// same session, and cost no quota. 1 to 255 visible ASCII characters, new for each session that is
	// wanted; empty: Start makes one, which its own tries share.
	IdempotencyKey string `json:"-"`
}

// Started is a session that has begun.
type Started struct {
	VerifyURL string `json:"verify_url"` // where to send the user
	// the session's token; who holds it may sign in, so it belongs into no log
	Session   string    `json:"session"`
	ExpiresAt time.Time `json:"expires_at"`
}

// ID returns the session's id, under which it may be logged. It is the Session of its Result and the ID of
// what Client.Session reads: the first 20 bytes of the token's SHA-256, in lower-case base32.
func (s Started) ID() string {
	sum := sha256.Sum256([]byte(s.Session))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:20]))
}

// answer is a Started as the service gives it; one that lacks a member is none.
type answer struct{ Started }

func (a *answer) UnmarshalJSON(data []byte) error {
	a.Started = Started{} // of an earlier try
	err := json.Unmarshal(data, &a.Started)
	if err == nil && (a.VerifyURL == "" || a.Session == "") {
		err = errors.New("it has no verify_url or no session")
	}
	return err
}

// Start starts a session. It tries up to six times within ctx, under one idempotency key, while no answer
// comes, or a 502, 503 or 504, or the answer that an earlier call with the key is in progress; a certificate
// that is not accepted is not tried again. Its errors are
// *Error and *NoAnswer; after a *NoAnswer a session may exist that nobody has the link of, and a repeat
// starts another where v has no idempotency key.
func (c *Client) Start(ctx context.Context, v Verification) (Started, error) {
	var a answer
	err := c.service.Create(ctx, "/verify/init", v.IdempotencyKey, v, &a)
	return a.Started, err
}

// State is the state of a session.
type State string

// The states of a session. Pending is the only one that changes.
const (
	Pending  State = "pending"
	Verified State = "verified"
	Failed   State = "failed"
	Canceled State = "canceled"
	Expired  State = "expired"
)

// Session is everything that can be read about a session.
type Session struct {
	ID             string `json:"id"`
	Test           bool   `json:"test"` // started with a test key: says nothing about a person
	Platform       string `json:"platform"`
	PlatformUserID string `json:"platform_user_id"`
	GuildID        string `json:"guild_id"`
	Binding        string `json:"binding"` // what it asks to be proven: "link", "code" or "account"
	Reached        string `json:"reached"` // what was proven; empty if nothing was
	State          State  `json:"state"`
	// what a pending session waits for: "identity" after the platform account was proven, "confirm" until the
	// user's code is given; empty: the sign-in
	Step     string `json:"step"`
	Verified *bool  `json:"verified"` // nil unless State is Verified or Failed
	// why it is not verified: "declined", "refused", "unconfirmed", "canceled", "expired", "unreadable",
	// "outcome_lost"
	Reason string `json:"reason"`
	// the network's rule that refused, such as "min_account_age"; empty for other reasons
	Rule        string     `json:"rule"`
	CreatedAt   time.Time  `json:"created_at"`
	ExpiresAt   time.Time  `json:"expires_at"`
	CompletedAt *time.Time `json:"completed_at"` // nil while pending and when expired
	Delivery    Delivery   `json:"delivery"`
	Reference   string     `json:"reference"` // as given, as are the next three
	Locale      string     `json:"locale"`
	DisplayName string     `json:"display_name"`
	GroupName   string     `json:"group_name"`
}

// Delivery is the state of the callback.
type Delivery struct {
	// "none", "due", "claimed", "delivered", "rejected", "unknown" or "undeliverable"
	State    string    `json:"state"`
	Attempts []Attempt `json:"attempts"`
	// Waiting is why it is due still; nil: it is not due, was not tried yet, or that is not known
	Waiting *Waiting `json:"waiting"`
}

// Waiting is why a callback that is due was not sent yet.
type Waiting struct {
	// Tries is how often the next attempt was tried so far; nothing was sent. It is 0 if the last attempt was
	// sent and is followed by another.
	Tries         int       `json:"tries"`
	Class         string    `json:"class"`  // what went wrong last, in one word
	Detail        string    `json:"detail"` // in a sentence; may be empty
	TriedAt       time.Time `json:"tried_at"`
	NextAttemptAt time.Time `json:"next_attempt_at"`
}

// Attempt is one attempt at the callback.
type Attempt struct {
	Number    int        `json:"number"`  // from 1
	Verdict   string     `json:"verdict"` // empty while it is in progress
	Class     string     `json:"class"`   // what went wrong; empty if nothing did
	Status    int        `json:"status"`  // the receiver's HTTP status; 0 if none was read
	ClaimedAt time.Time  `json:"claimed_at"`
	EndedAt   *time.Time `json:"ended_at"` // nil while it is in progress
}

// Session reads a session of the key's account, named by its token or its id. It changes nothing, so a repeat
// is harmless. Its errors are *Error (CodeSessionNotFound if the account has no such session) and *NoAnswer.
func (c *Client) Session(ctx context.Context, session string) (Session, error) {
	return c.read(ctx, http.MethodGet, sessionPath(session), nil)
}

// List reads one page of the account's sessions, newest first, and the cursor of the next; empty if there is
// none. The filter has the parameters of GET /sessions, as the service's documentation lists them:
// platform_user_id, state, delivery, since, until, limit, cursor, q, platform, group, key, mode, network,
// reason, binding, from, to; nil: none. It changes nothing, so a repeat is harmless. Its errors are *Error
// (CodeInvalidRequest for a filter that does not exist) and *NoAnswer.
func (c *Client) List(ctx context.Context, filter url.Values) (page []Session, next string, err error) {
	var list struct {
		Sessions []Session `json:"sessions"`
		Next     string    `json:"next"`
	}
	path := "/sessions"
	if len(filter) > 0 {
		path += "?" + filter.Encode()
	}
	err = c.service.Call(ctx, http.MethodGet, path, nil, &list)
	if err == nil && list.Sessions == nil {
		err = &NoAnswer{Err: errors.New("the answer has no sessions")}
	}
	return list.Sessions, list.Next, err
}

const (
	// waitHeld is for how long Wait asks the service to hold an answer back, in seconds.
	waitHeld = "30"
	// minWait is the interval between two reads where the service did not hold the answer back.
	minWait = time.Second
)

// Wait reads a session until it is no longer pending, or ctx ends. The callback is the way to learn an
// outcome; Wait is for programs that have no public address, and for tests. Errors end it: those of Session,
// and ctx's. A repeat is harmless.
func (c *Client) Wait(ctx context.Context, session string) (Session, error) {
	for {
		next := time.Now().Add(minWait)
		s, err := c.read(ctx, http.MethodGet, sessionPath(session)+"?wait="+waitHeld, nil)
		if err != nil || s.State != Pending {
			return s, err
		}
		select {
		case <-time.After(time.Until(next)):
		case <-ctx.Done():
			return s, ctx.Err()
		}
	}
}

// Cancel takes a pending session back: its link stops working, and no callback is sent. A repeat is harmless.
// Its errors are those of Session, and an *Error with CodeSessionCompleted or CodeSessionExpired if it came
// too late.
func (c *Client) Cancel(ctx context.Context, session string) (Session, error) {
	return c.read(ctx, http.MethodPost, sessionPath(session)+"/cancel", nil)
}

// Confirm completes a session whose Binding is "code" as verified, where this is its code, in any case, with
// or without spaces and hyphens, and who gave it is the user that it was started for: platformUserID is what
// the platform says of who is writing, never what the user writes. Five codes are accepted; the same one from
// the same user is one try, so a repeat is harmless. Its errors are those of Session, and an *Error with
// CodeWrongCode, whose TriesLeft says how many more are accepted, CodeNothingToConfirm, or the status 410 if
// the session has expired.
func (c *Client) Confirm(ctx context.Context, session, platformUserID, code string) (Session, error) {
	return c.read(ctx, http.MethodPost, sessionPath(session)+"/confirm", struct {
		PlatformUserID string `json:"platform_user_id"`
		Code           string `json:"code"`
	}{platformUserID, code})
}

// Resend has the callback sent once more, with the same webhook-id, after its delivery has ended. It returns
// when that is recorded; reading the session shows how it goes. A repeat sends another one as soon as this
// one has ended. Its errors are those of Session, and an *Error with CodeDeliveryOpen or CodeNothingToSend.
func (c *Client) Resend(ctx context.Context, session string) (Session, error) {
	return c.read(ctx, http.MethodPost, sessionPath(session)+"/resend", nil)
}

func (c *Client) read(ctx context.Context, method, path string, body any) (Session, error) {
	var s Session
	err := c.service.Call(ctx, method, path, body, &s)
	if err == nil && (s.ID == "" || s.State == "") {
		err = &NoAnswer{Err: errors.New("the answer has no id or no state")}
	}
	return s, err
}

func sessionPath(session string) string { return "/sessions/" + url.PathEscape(session) }
