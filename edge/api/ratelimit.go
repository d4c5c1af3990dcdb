package api

import (
	"fmt"
	"net/http"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/limit"
	"verifyd/edge/web"
)

// The fields of draft-ietf-httpapi-ratelimit-headers-11, both of them lists of strings with parameters (RFC
// 9651): the policy means q units in w seconds, the limit r units within the next t seconds. Names are ours:
// "key" is the rate of the API key, "month" the account's quota. A month has no constant length, so its
// policy names no window.
const (
	headerPolicy = "RateLimit-Policy"
	headerLimit  = "RateLimit"
)

// rateHeaders reports the state of the key's rate. The policy's window is the time from empty to full, which
// makes q/w the sustained rate and q the burst. On a refusal t is when the next request is allowed, the same
// as Retry-After, which must not point into the window (§6); otherwise it is when the whole burst is
// available again.
func rateHeaders(h http.Header, r account.Rate, d limit.Decision) {
	t := d.ResetAfter
	if !d.Allowed {
		t = d.RetryAfter
	}
	h.Set(headerPolicy, fmt.Sprintf(`"key";q=%d;w=%d`, r.Burst, web.Seconds(limit.Window(r))))
	h.Set(headerLimit, fmt.Sprintf(`"key";r=%d;t=%d`, d.Remaining, web.Seconds(t)))
}

// quotaHeaders adds the state of the account's monthly quota, if it is known.
func quotaHeaders(h http.Header, u limit.Usage, now time.Time) {
	if u.ResetAt.IsZero() {
		return
	}
	h.Set(headerPolicy, h.Get(headerPolicy)+fmt.Sprintf(`, "month";q=%d`, max(u.Limit, 0)))
	h.Set(headerLimit, h.Get(headerLimit)+
		fmt.Sprintf(`, "month";r=%d;t=%d`, max(u.Limit-u.Used, 0), web.Seconds(u.ResetAt.Sub(now))))
}
