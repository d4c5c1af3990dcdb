package callbacks

import (
	"context"
	"time"

	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
)

// Callback is a callback to be drafted or sent.
type Callback struct {
	URL                     string
	ID                      string // what follows cb_ or cbtest_ in the webhook-id
	PlatformUserID, GuildID string
	Verified                bool
	Test                    bool
	Secrets                 []string // as callback.Callback has them
	At                      time.Time
}

// Exchange is a request and its result.
type Exchange struct {
	Request string        `json:"request"` // as it went over the wire, or would have
	Verdict facts.Verdict `json:"verdict"` // VerdictReleased: nothing was sent
	Class   failure.Class `json:"class"`
	Status  int           `json:"status"`
	Detail  string        `json:"detail"`
	Address string        `json:"address"`
	Answer  string        `json:"answer"` // the first bytes of its body
	Timing  facts.Timing  `json:"timing"`
}

// Sender builds and sends callbacks as the dispatcher does. A URL that may not be called back is a
// *target.Fault.
type Sender interface {
	// Draft returns a request as it would go over the wire.
	Draft(c Callback) (string, error)
	// Send sends it once, through the same guard and client as every callback.
	Send(ctx context.Context, c Callback) (Exchange, error)
}
