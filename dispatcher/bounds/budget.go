package bounds

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Budget bounds all attempts that a process has under way, and grants each account a fair share of them: an
// attempt holds a goroutine, memory and a connection for as long as its receiver takes. A caller that may
// have no more for one account waits, goes on with other accounts' attempts, and is granted a place when one
// is free. Waiting accounts are served round-robin, and so are the callers that wait for each.
type Budget struct {
	mu      sync.Mutex
	share   Share
	waiting map[string][]*Waiter // the waiters, by account
	order   []string             // the accounts in waiting, in round-robin order
}

// Waiter is a caller that asks for places.
type Waiter struct {
	Ready chan<- struct{} // gets a token when there is a place that was waited for

	// Under the budget's lock: the accounts for which it waits, and those for which it was granted a place.
	waitsFor map[string]bool
	granted  []string
}

// NewBudget returns a budget of total attempts, of which one account has at most each.
func NewBudget(total, each int) *Budget {
	return &Budget{share: NewShare(total, each), waiting: map[string][]*Waiter{}}
}

// Acquire reports whether w may begin an attempt for the account. If it may not yet, w gets a token when it
// should ask again.
func (b *Budget) Acquire(account string, w *Waiter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(w.granted, account); i >= 0 {
		w.granted = slices.Delete(w.granted, i, i+1)
		return true
	}
	if len(b.waiting[account]) == 0 && b.share.Allows(account) {
		b.share.Add(account)
		return true
	}
	b.queue(account, w)
	return false
}

func (b *Budget) queue(account string, w *Waiter) {
	if w.waitsFor[account] {
		return
	}
	if w.waitsFor == nil {
		w.waitsFor = map[string]bool{}
	}
	w.waitsFor[account] = true
	if b.waiting[account] == nil {
		b.order = append(b.order, account)
	}
	b.waiting[account] = append(b.waiting[account], w)
}

// Release ends an attempt of the account.
func (b *Budget) Release(account string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.share.Drop(account)
	b.grant()
}

// grant assigns free attempts to waiters, one account after another.
func (b *Budget) grant() {
	for passed := 0; passed < len(b.order) && b.share.used < b.share.total; passed++ {
		account := b.order[0]
		b.order = append(b.order[1:], account)
		if b.share.Allows(account) {
			w := b.waiting[account][0]
			b.unqueue(account, w)
			b.share.Add(account)
			w.granted = append(w.granted, account)
			Signal(w.Ready)
			passed = -1
		}
	}
}

func (b *Budget) unqueue(account string, w *Waiter) {
	delete(w.waitsFor, account)
	line := b.waiting[account]
	if line[0] == w {
		line = line[1:]
	} else {
		line = slices.DeleteFunc(line, func(o *Waiter) bool { return o == w })
	}
	if b.waiting[account] = line; len(line) == 0 {
		delete(b.waiting, account)
		b.order = slices.DeleteFunc(b.order, func(a string) bool { return a == account })
	}
}

// ReleaseUnused takes back the places that w was granted and does not need at this moment. It asks again when
// it does.
func (b *Budget) ReleaseUnused(w *Waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.releaseGranted(w)
}

func (b *Budget) releaseGranted(w *Waiter) {
	if len(w.granted) == 0 {
		return
	}
	for _, account := range w.granted {
		b.share.Drop(account)
	}
	w.granted = nil
	b.grant()
}

// Remove ends w's waiting.
func (b *Budget) Remove(w *Waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for account := range w.waitsFor {
		b.unqueue(account, w)
	}
	b.releaseGranted(w)
}

// IsWaiting reports whether deliveries of the account wait for others of it to end.
func (b *Budget) IsWaiting(account string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting[account]) > 0
}

// Measure registers the gauges that show how much of the budget is used.
func (b *Budget) Measure(r prometheus.Registerer) {
	if r == nil {
		return
	}
	const name, help = "verifyd_delivery_attempts_limit",
		"Attempts that this process may have under way: in all, and of one account."
	for of, bound := range map[string]int{"process": b.share.total, "account": b.share.each} {
		limit := prometheus.NewGauge(prometheus.GaugeOpts{
			Name: name, Help: help, ConstLabels: prometheus.Labels{"of": of},
		})
		limit.Set(float64(bound))
		r.MustRegister(limit)
	}
	r.MustRegister(
		b.gauge("verifyd_delivery_account_in_flight",
			"Deliveries being dialled or sent of the account that has most.", func() int {
				return b.share.largest()
			}),
		b.gauge("verifyd_delivery_accounts_waiting",
			"Accounts whose deliveries wait for others of the same account to end.", func() int {
				return len(b.order)
			}),
	)
}

func (b *Budget) gauge(name, help string, read func() int) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
		b.mu.Lock()
		defer b.mu.Unlock()
		return float64(read())
	})
}
