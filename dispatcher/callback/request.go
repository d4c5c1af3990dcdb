package callback

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"verifyd/sessions"
	"verifyd/sessions/tracing"
	"verifyd/sessions/urlpolicy"
)

// The header fields of Standard Webhooks (standardwebhooks.com, "Webhook headers").
const (
	HeaderID        = standardwebhooks.HeaderWebhookID
	HeaderTimestamp = standardwebhooks.HeaderWebhookTimestamp
	HeaderSignature = standardwebhooks.HeaderWebhookSignature

	// HeaderTest marks the callback of a session that a test key started, with the value "true". The
	// webhook-id, which is signed, marks it too.
	HeaderTest = "verifyd-test"
)

// Callback is the content of one POST.
type Callback struct {
	URL     urlpolicy.URL
	Session sessions.ID // makes the webhook-id, the same for every attempt
	Test    bool        // started with a test key: the callback is marked
	// PlatformUserID and GuildID are returned as they were given (contract §2.3): any valid Unicode.
	PlatformUserID, GuildID string
	Verified                bool
	// Secrets sign the callback, in this order: signing secrets in the form "whsec_…", one, or two while a
	// secret rotates, and ed25519 private keys in the form "whsk_…".
	Secrets []string
	At      time.Time // webhook-timestamp; receivers refuse one that is minutes old
	// Trace is a W3C traceparent for the receiver; empty: it gets none.
	Trace string
}

// String keeps the secrets and the URL's query out of logs.
func (cb Callback) String() string { return cb.id() + " to " + cb.URL.HostPort() }

func (cb Callback) id() string { return ID(cb.Session, cb.Test) }

// ID returns the webhook-id of a session's callback. It leads to the session for a holder of the API key, and
// to nothing otherwise. The signature covers it, so that a test callback cannot be passed off as a live one
// by leaving out a header.
func ID(session sessions.ID, test bool) string {
	if test {
		return "cbtest_" + string(session)
	}
	return "cb_" + string(session)
}

// payload is the body: these three members, in this order, and no other (contract §2.3).
type payload struct {
	PlatformUserID string `json:"platform_user_id"`
	GuildID        string `json:"guild_id"`
	Verified       bool   `json:"verified"`
}

// Request is one callback as it goes over the wire. It is immutable.
type Request struct {
	destination string // HostPort of the URL it was prepared for
	bytes       []byte

	pieces int           // of a slow probe; 0: one write
	pause  time.Duration // between them
}

// String keeps the URL's query out of logs.
func (r Request) String() string { return fmt.Sprintf("%d bytes to %s", len(r.bytes), r.destination) }

// Text returns the request as it goes over the wire, for the integrator alone to read: the URL's query may
// carry their secrets.
func (r Request) Text() string { return string(r.bytes) }

// Prepare makes the exact bytes of a callback. Errors are lasting: no URL, no session, no usable signing
// secret, or a string that is not valid UTF-8.
func (c *Client) Prepare(cb Callback) (Request, error) {
	if cb.URL == (urlpolicy.URL{}) || cb.Session == "" {
		return Request{}, errors.New("prepare callback: no URL or no session")
	}
	// This encoder writes every character except the quote, the backslash and control characters as it is: <,
	// >, & and U+2028 too.
	body, err := json.Marshal(payload{cb.PlatformUserID, cb.GuildID, cb.Verified})
	if err != nil {
		return Request{}, fmt.Errorf("prepare callback: encode body: %w", err)
	}
	m := Message{URL: cb.URL, ID: cb.id(), Body: body, Secrets: cb.Secrets, At: cb.At}
	var marks [][2]string
	if cb.Test {
		marks = append(marks, [2]string{HeaderTest, "true"})
	}
	if cb.Trace != "" {
		marks = append(marks, [2]string{tracing.Header, cb.Trace})
	}
	return c.prepare(m, marks)
}

// Message is a signed POST that is no callback of a session, such as a notice to the operator.
type Message struct {
	URL     urlpolicy.URL
	ID      string // webhook-id: letters, digits and underscores
	Body    []byte // JSON
	Secrets []string
	At      time.Time
}

// PrepareMessage makes the exact bytes of a message, which goes out through the same guard as callbacks.
// Errors are lasting: no URL, or no usable signing secret.
func (c *Client) PrepareMessage(m Message) (Request, error) {
	if m.URL == (urlpolicy.URL{}) || m.ID == "" {
		return Request{}, errors.New("prepare message: no URL or no id")
	}
	return c.prepare(m, nil)
}

func (c *Client) prepare(m Message, marks [][2]string) (Request, error) {
	signature, err := c.sign(m)
	if err != nil {
		return Request{}, fmt.Errorf("prepare callback: %w", err)
	}
	return Request{destination: m.URL.HostPort(), bytes: c.write(m, signature, marks)}, nil
}

// write makes the request (RFC 9112 §3). Every value is known to be a single line of ASCII: the URL by its
// rules, the ids and the signature by their alphabets, the agent by its construction.
func (c *Client) write(m Message, signature string, marks [][2]string) []byte {
	b := make([]byte, 0, 512+len(m.Body))
	b = append(b, "POST "...)
	b = append(b, m.URL.RequestURI()...)
	b = append(b, " HTTP/1.1\r\n"...)
	field := func(name, value string) {
		b = append(append(append(append(b, name...), ": "...), value...), "\r\n"...)
	}
	field("Host", m.URL.HostHeader())
	field("User-Agent", c.config.UserAgent)
	field("Content-Length", strconv.Itoa(len(m.Body)))
	field("Content-Type", "application/json")
	field(HeaderID, m.ID)
	field(HeaderTimestamp, strconv.FormatInt(m.At.Unix(), 10))
	field(HeaderSignature, signature)
	for _, mark := range marks {
		field(mark[0], mark[1])
	}
	return append(append(b, "\r\n"...), m.Body...)
}

// sign returns one signature for each secret, separated by spaces.
func (c *Client) sign(m Message) (string, error) {
	signatures := make([]string, 0, len(m.Secrets))
	for _, secret := range m.Secrets {
		s, err := c.signers.of(secret)
		if err != nil {
			return "", err
		}
		signature, err := s.Sign(m.ID, m.At, m.Body)
		if err != nil {
			return "", errors.New("sign callback: the secret signs nothing")
		}
		signatures = append(signatures, signature)
	}
	if len(signatures) == 0 {
		return "", errors.New("sign callback: no signing secret")
	}
	return strings.Join(signatures, " "), nil
}
