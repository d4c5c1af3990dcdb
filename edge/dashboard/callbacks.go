package dashboard

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"verifyd/edge/account"
	"verifyd/sessions"
)

// Callback is a callback to be drafted or sent.
type Callback struct {
	URL                     string
	ID                      string // what follows cb_ or cbtest_ in the webhook-id
	PlatformUserID, GuildID string
	Verified                bool
	Test                    bool
	Secrets                 []string
	At                      time.Time
}

// Exchange is a request and what came of it.
type Exchange struct {
	Request string           `json:"request"` // as it went over the wire, or would have
	Verdict sessions.Verdict `json:"verdict"` // VerdictReleased: nothing was sent
	Class   sessions.Class   `json:"class"`
	Status  int              `json:"status"`
	Detail  string           `json:"detail"`
	Address string           `json:"address"`
	Answer  string           `json:"answer"` // the first bytes of its body
	Timing  sessions.Timing  `json:"timing"`
}

// Callbacks makes callbacks as the service's own sender does. A URL that may not be called back is a *target.Fault.
type Callbacks interface {
	// Draft gives a request as it would go over the wire.
	Draft(c Callback) (string, error)
	// Send sends it once, through the same guard and client as every callback.
	Send(ctx context.Context, c Callback) (Exchange, error)
}

// signing gives the values of the secrets that sign now.
func signing(a account.Account, now time.Time) []string {
	var values []string
	for _, s := range a.Signing(now) {
		values = append(values, s.Value)
	}
	return values
}

// curl writes a session's callback as a command line, signed as of now; empty where it has none.
func (h *Handler) curl(s sessions.View, a account.Account) string {
	if s.Delivery.State == sessions.DeliveryNone || h.Callbacks == nil {
		return ""
	}
	raw, err := h.Callbacks.Draft(Callback{
		URL: s.CallbackURL, ID: string(s.ID), PlatformUserID: s.PlatformUserID, GuildID: s.GuildID, Verified: s.Verified(), Test: s.Test,
		Secrets: signing(a, h.Now()), At: h.Now(),
	})
	if err != nil {
		return ""
	}
	return curlOf(s.CallbackURL, raw)
}

// curlOf writes a request as a command line for a POSIX shell.
func curlOf(to, raw string) string {
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
	if err != nil {
		return ""
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return ""
	}
	lines := []string{"curl -i " + quote(to)}
	for name, values := range r.Header {
		if name == "Content-Length" {
			continue // curl counts by itself
		}
		for _, value := range values {
			lines = append(lines, "-H "+quote(strings.ToLower(name)+": "+value))
		}
	}
	slices.Sort(lines[1:])
	return strings.Join(append(lines, "--data-binary "+quote(string(body))), " \\\n  ")
}

// quote makes one word of a POSIX shell out of any text.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
