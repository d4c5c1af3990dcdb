package notice

import (
	"context"
	"fmt"
	"time"

	"verifyd/edge/account"
	"verifyd/sessions/timeline"
)

const (
	// lookEvery is how often the sources are asked. They answer from memory.
	lookEvery = 10 * time.Second
	// expiryLead is how long before a key's end its account is notified; a quarter of the key's life if that
	// is less.
	expiryLead = 7 * 24 * time.Hour
	// notifyExpiredFor is how long after its end a key's expiry still causes a notice: longer than a service
	// is down.
	notifyExpiredFor = 3 * 24 * time.Hour
)

// Watch is the actor that asks sources which causes there are now.
type Watch struct {
	Queue   *Queue
	Sources []func() []Notice
}

// String names the actor in the supervisor's log.
func (w *Watch) String() string { return "notice watch" }

// Serve asks until ctx ends.
func (w *Watch) Serve(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		for _, source := range w.Sources {
			for _, n := range source() {
				w.Queue.Offer(n)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// OfKey returns an account's notice about a key at an instant: that it is about to expire, or has. It is
// pure. A revoked key needs no notice: somebody has revoked it.
func OfKey(k account.Key, now time.Time) (n Notice, ok bool) {
	if k.ExpiresAt.IsZero() || !k.RevokedAt.IsZero() {
		return Notice{}, false
	}
	cause := k.ID + " " + k.ExpiresAt.UTC().Format(time.RFC3339)
	name := k.ID
	if k.Name != "" {
		name = timeline.Legible(k.Name) + " (" + k.ID + ")"
	}
	data := map[string]any{"key": k.ID, "name": k.Name, "expires_at": k.ExpiresAt.UTC(),
		"rolled": k.ReplacedBy != ""}
	lead := min(expiryLead, k.ExpiresAt.Sub(k.CreatedAt)/4)
	switch left := k.ExpiresAt.Sub(now); {
	case left <= -notifyExpiredFor, left > lead:
		return Notice{}, false
	case left <= 0:
		return New(k.Account, KeyExpired, cause, now, "The API key "+name+
			" has expired: calls with it are refused.", data), true
	default:
		return New(k.Account, KeyExpiring, cause, now, fmt.Sprintf("The API key %s expires on %s UTC. %s",
			name, k.ExpiresAt.UTC().Format("2 January 2006, 15:04"), whatToDo(k)), data), true
	}
}

func whatToDo(k account.Key) string {
	if k.ReplacedBy != "" {
		return "Use the key that replaces it from now on."
	}
	return "Roll it, or create another one, before then."
}

// quotaSteps are the shares of its quota at which an account is notified, in percent, the highest first.
var quotaSteps = []int64{100, 80, 50}

// OfQuota returns an account's notice about the use of its quota, which resets at an instant: the highest
// step that it has reached. It is pure.
func OfQuota(account string, used, limit int64, resets, now time.Time) (n Notice, ok bool) {
	for _, step := range quotaSteps {
		if limit <= 0 || 100*used < step*limit {
			continue
		}
		detail := fmt.Sprintf("%d %% of this month's quota is used: %d of %d sessions. It resets on %s.",
			step, used, limit, resets.UTC().Format("2 January 2006"))
		if step == 100 {
			detail = fmt.Sprintf("This month's quota of %d sessions is used up: no session can be started "+
				"until %s.", limit, resets.UTC().Format("2 January 2006"))
		}
		cause := fmt.Sprintf("%s %d %d", resets.UTC().Format("2006-01"), limit, step)
		return New(account, QuotaReached, cause, now, detail, map[string]any{
			"percent": step, "used": used, "limit": limit, "resets_at": resets.UTC(),
		}), true
	}
	return Notice{}, false
}
