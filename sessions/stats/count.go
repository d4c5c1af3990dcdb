// Package stats counts what accounts do, for people: a meter gathers counts in memory and adds them to the
// counters of StreamUsage, and Statistics reads these. No promise depends on a count; the quota is counted
// elsewhere, exactly.
package stats

import (
	"maps"
	"slices"
	"strings"

	"verifyd/sessions/timeline"
)

// Count names what is counted of an account, per UTC day, live and test sessions apart.
type Count string

// What is counted about sessions, on the day on which the session was started, so that a day's numbers add
// up: each started session is verified, declined, refused, canceled, expired or still open. The steps count
// each session once.
const (
	CountStarted  Count = "started"
	CountOpened   Count = Count(timeline.EventOpened)
	CountSignIn   Count = Count(timeline.EventSignIn)
	CountReturned Count = Count(timeline.EventReturned)
	CountFinished Count = Count(timeline.EventFinished)
	CountPlatform Count = Count(timeline.EventPlatform) // the platform account is proven
	CountCode     Count = Count(timeline.EventCode)     // the code was shown
	CountVerified Count = "verified"
	CountDeclined Count = "failed_declined"
	CountRefused  Count = "failed_refused"
	// CountUnconfirmed: as many wrong codes were entered as may be
	CountUnconfirmed Count = "failed_unconfirmed"
	CountCanceled    Count = "canceled"
	CountExpired     Count = "expired"
)

// CountNetworkError is counted for networks alone (Count.Of), as are tries with CountSignIn and CountReturned
// there: each of them, however many a session has.
const CountNetworkError Count = Count(timeline.EventNetworkError)

// What is counted on the day on which it happened. Ended callbacks are counted by verdict, one for each
// attempt that is final.
const (
	CountDelivered     Count = "callback_delivered"
	CountRejected      Count = "callback_rejected"
	CountUnknown       Count = "callback_unknown"
	CountUndeliverable Count = "callback_undeliverable"
	CountRateLimited   Count = "rate_limited"
	CountQuotaExceeded Count = "quota_exceeded"
	CountReplayed      Count = "replayed" // repeats of a start under an idempotency key
)

// Of is a count of the sign-ins at one identity network alone.
func (c Count) Of(network string) Count { return c + networkMark + Count(network) }

// networkMark stands between a count and the id of a network, and in neither.
const networkMark = ":"

// Networks returns the ids of the networks in counts, in their order.
func Networks(counts map[Count]int64) []string {
	seen := map[string]bool{}
	for c := range counts {
		if _, network, ok := strings.Cut(string(c), networkMark); ok {
			seen[network] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// Open returns how many sessions of some counts are still open: started, and neither completed, taken back
// nor expired.
func Open(counts map[Count]int64) int64 { return max(unended(counts)-counts[CountExpired], 0) }

// unended returns how many of the sessions that were started were not completed or taken back.
func unended(counts map[Count]int64) int64 {
	ended := counts[CountVerified] + counts[CountDeclined] + counts[CountRefused] +
		counts[CountUnconfirmed] + counts[CountCanceled]
	return max(counts[CountStarted]-ended, 0)
}
