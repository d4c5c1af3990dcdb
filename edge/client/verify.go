package client

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// Tolerance is how far webhook-timestamp may be from the receiver's own clock, either way. A person who
// obtains a callback can send it again for that long, and Seen prevents that.
const Tolerance = 5 * time.Minute

// minSecretBytes is what Standard Webhooks asks of a signing secret, decoded: a shorter one can be guessed
// from one callback.
const minSecretBytes = 24

// publicPrefix is how Standard Webhooks marks a public key.
const publicPrefix = "whpk_"

// headerTest marks callbacks that say nothing about a person: those of test keys, and those sent to try a
// receiver.
const headerTest = "verifyd-test"

// The reasons for which a callback is not accepted.
var (
	// ErrUnsigned: webhook-id, webhook-timestamp or webhook-signature is missing, or not of its form.
	ErrUnsigned = errors.New("the headers of a signed callback are missing or malformed")
	// ErrTime: the timestamp is further from now than Tolerance. It is an old request, or one of the clocks
	// is wrong.
	ErrTime = errors.New("the timestamp is more than 5 minutes from this receiver's clock")
	// ErrSignature: none of the signatures was made with any of the secrets or keys over these bytes.
	ErrSignature = errors.New("no signature matches: another secret, or a changed body")
	// ErrBody: rightly signed, but not a result.
	ErrBody = errors.New("the body is not a verification result")
)

// Result is the outcome of a session (contract §2.3), and what its callback says about itself.
type Result struct {
	PlatformUserID string // as given at the start
	GuildID        string // as given at the start; empty if none was
	// the user controls the identity; false: they declined, or the network's rules refused it
	Verified bool

	// webhook-id, the same for every attempt: two results with the same ID are the same result
	ID string
	// the session's id, as Started.ID gives it; empty in a callback that belongs to no session
	Session string
	SentAt  time.Time // webhook-timestamp
	// Test is true if the result says nothing about a person: it comes from a test key, or was sent to try
	// the receiver.
	Test bool
}

// Verifier checks callbacks against the account's signing secrets or public keys. It is immutable and safe
// for concurrent use.
type Verifier struct {
	hooks []*standardwebhooks.Webhook
	keys  []ed25519.PublicKey
}

// NewVerifier takes what callbacks are checked with: the signing secret, "whsec_…", or the public key,
// "whpk_…", which cannot sign; two while they rotate. One match is enough: a receiver that is to accept only
// the public key's signature is given no secret. The error says which of them is not of its form, by its
// place.
func NewVerifier(secrets ...string) (*Verifier, error) {
	v := &Verifier{}
	for i, secret := range secrets {
		if text, ok := strings.CutPrefix(secret, publicPrefix); ok {
			key, err := base64.StdEncoding.DecodeString(text)
			if err != nil || len(key) != ed25519.PublicKeySize {
				return nil, fmt.Errorf("public key %d of %d is not whpk_ and 32 bytes of base64; copy it "+
					"from the dashboard or from GET /signing-keys", i+1, len(secrets))
			}
			v.keys = append(v.keys, key)
			continue
		}
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		if err != nil || len(key) < minSecretBytes {
			return nil, fmt.Errorf("signing secret %d of %d is not whsec_ and base64 of at least %d bytes; "+
				"copy it from the dashboard or from verifyd account secret", i+1, len(secrets),
				minSecretBytes)
		}
		hook, _ := standardwebhooks.NewWebhookRaw(key) // never fails
		v.hooks = append(v.hooks, hook)
	}
	if len(v.hooks)+len(v.keys) == 0 {
		return nil, errors.New("no signing secret; give the account's, which begins with whsec_, or its " +
			"public key, which begins with whpk_")
	}
	return v, nil
}

// Verify judges a callback by its header and its body, exactly as it was received, at an instant. The errors
// are ErrUnsigned, ErrTime, ErrSignature and ErrBody. It does not know replays; Receiver does.
func (v *Verifier) Verify(header http.Header, body []byte, now time.Time) (Result, error) {
	id, signatures := header.Get(standardwebhooks.HeaderWebhookID),
		header.Get(standardwebhooks.HeaderWebhookSignature)
	seconds, err := strconv.ParseInt(header.Get(standardwebhooks.HeaderWebhookTimestamp), 10, 64)
	if err != nil || id == "" || signatures == "" {
		return Result{}, ErrUnsigned
	}
	at := time.Unix(seconds, 0)
	if at.Before(now.Add(-Tolerance)) || at.After(now.Add(Tolerance)) {
		return Result{}, ErrTime
	}
	if !v.signed(header, body) {
		return Result{}, ErrSignature
	}
	r := Result{ID: id, SentAt: at.UTC(), Test: header.Get(headerTest) == "true"}
	// the signature covers it, whatever became of the header
	if session, ok := strings.CutPrefix(id, "cbtest_"); ok {
		r.Session, r.Test = session, true
	} else if session, ok := strings.CutPrefix(id, "cb_"); ok {
		r.Session = session
	}
	return r.read(body)
}

// signed looks at every secret and key with every signature. The library's own clock is not asked: the time
// was judged by ours.
func (v *Verifier) signed(header http.Header, body []byte) bool {
	for _, hook := range v.hooks {
		if hook.VerifyIgnoringTimestamp(body, header) == nil {
			return true
		}
	}
	return len(v.keys) > 0 && v.signedByKey(header, body)
}

// signedByKey looks at the signatures of version "v1a", which the library does not know.
func (v *Verifier) signedByKey(header http.Header, body []byte) bool {
	content := slices.Concat([]byte(header.Get(standardwebhooks.HeaderWebhookID)+"."+
		header.Get(standardwebhooks.HeaderWebhookTimestamp)+"."), body)
	for entry := range strings.FieldsSeq(header.Get(standardwebhooks.HeaderWebhookSignature)) {
		text, ok := strings.CutPrefix(entry, "v1a,")
		signature, err := base64.StdEncoding.DecodeString(text)
		if !ok || err != nil {
			continue
		}
		for _, key := range v.keys {
			if ed25519.Verify(key, content, signature) {
				return true
			}
		}
	}
	return false
}

// read takes the three members out of the body. Others are ignored, since a later contract may have more.
func (r Result) read(body []byte) (Result, error) {
	var doc struct {
		PlatformUserID *string `json:"platform_user_id"`
		GuildID        *string `json:"guild_id"`
		Verified       *bool   `json:"verified"`
	}
	if err := json.Unmarshal(body, &doc); err != nil || doc.PlatformUserID == nil || doc.GuildID == nil ||
		doc.Verified == nil {
		return Result{}, ErrBody
	}
	r.PlatformUserID, r.GuildID, r.Verified = *doc.PlatformUserID, *doc.GuildID, *doc.Verified
	return r, nil
}
