package client

import (
	"context"
	"net/http"
	"time"
)

// Usage is what the key's account did in a UTC month. The quota counts live sessions, with either kind of
// key, and is exact; the days are statistics of the key's own kind, live or test, which lag by a few seconds.
type Usage struct {
	Month     string     `json:"month"`     // as in "2026-11"
	Test      bool       `json:"test"`      // the days are those of test sessions
	Quota     int64      `json:"quota"`     // as it is now, for past months too
	Used      int64      `json:"used"`      // of the quota
	Remaining int64      `json:"remaining"` // of the quota
	ResetsAt  time.Time  `json:"resets_at"` // when the month ends
	Total     UsageDay   `json:"total"`     // the sums of the days
	Days      []UsageDay `json:"days"`      // up to today
}

// UsageDay counts what happened on a UTC day. The counts of a session are on the day on which it was started,
// so that each started session is verified, failed, canceled, expired or still open.
type UsageDay struct {
	Day     string `json:"day"`     // as in "2026-11-21"; empty in a total
	Started int64  `json:"started"` // sessions
	// Steps counts sessions by how far their users came, each once at each step: where two numbers fall
	// apart, users dropped off.
	Steps struct {
		Opened   int64 `json:"opened"`   // the page; previews in chats are not counted
		SignIn   int64 `json:"sign_in"`  // pressed Continue, and was sent to an identity network
		Returned int64 `json:"returned"` // from there
		Platform int64 `json:"platform"` // proved the platform account first (binding "account")
		Code     int64 `json:"code"`     // was shown the code that confirms the session (binding "code")
		Finished int64 `json:"finished"` // was shown the outcome
	} `json:"steps"`
	Verified int64       `json:"verified"`
	Failed   UsageFailed `json:"failed"`
	Canceled int64       `json:"canceled"`
	// nobody finished them in time; those still open are not among them
	Expired   int64          `json:"expired"`
	Networks  []UsageNetwork `json:"networks"` // those that there were tries at
	Callbacks struct {
		Delivered     int64 `json:"delivered"`
		Rejected      int64 `json:"rejected"`
		Unknown       int64 `json:"unknown"`
		Undeliverable int64 `json:"undeliverable"`
	} `json:"callbacks"` // attempts, on the day on which they ended
	Limited struct {
		RateLimited   int64 `json:"rate_limited"`
		QuotaExceeded int64 `json:"quota_exceeded"`
	} `json:"limited"` // starts that were answered 429, on the day of that
	Replayed int64 `json:"replayed"` // repeats of a start under an idempotency key, on the day of that
}

// UsageFailed counts failed sessions by reason.
type UsageFailed struct {
	Declined    int64 `json:"declined"`
	Refused     int64 `json:"refused"`
	Unconfirmed int64 `json:"unconfirmed"` // too many wrong codes were given
}

// UsageNetwork counts tries at one identity network, of which a session may have several, and the sessions
// that it decided.
type UsageNetwork struct {
	Network  string      `json:"network"`  // its id in the settings of the service
	SignIn   int64       `json:"sign_in"`  // times that a user was sent there
	Returned int64       `json:"returned"` // times that one came back
	Trouble  int64       `json:"trouble"`  // tries without a verdict: it did not answer, or not as it should
	Verified int64       `json:"verified"` // sessions
	Failed   UsageFailed `json:"failed"`   // sessions
}

// Usage reads what the key's account did in the UTC month that an instant is in; the zero instant means now.
// It changes nothing, so a repeat is harmless. Its errors are *Error (CodeInvalidRequest for a month that has
// not begun) and *NoAnswer.
func (c *Client) Usage(ctx context.Context, month time.Time) (Usage, error) {
	path := "/usage"
	if !month.IsZero() {
		path += "?month=" + month.UTC().Format("2006-01")
	}
	var u Usage
	err := c.service.Call(ctx, http.MethodGet, path, nil, &u)
	return u, err
}
