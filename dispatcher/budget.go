package dispatcher

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// budget bounds the attempts that this process has under way in all, and gives each account a fair share
// of them: an attempt holds a goroutine, memory and a connection for as long as its receiver takes. A
// destination asks before it begins one. Where the account may have no more, its deliveries stay in the
// mailbox, the destination goes on with other accounts', and it is granted a place when one is free: waiting
// accounts are served round-robin, and so are the destinations of each.
type budget struct {
	mu      sync.Mutex
	share   share
	waiting map[string][]*destination // who waits, by account
	order   []string                  // the accounts in waiting, in round-robin order
}

func newBudget(total, each int) *budget {
	return &budget{share: newShare(total, each), waiting: map[string][]*destination{}}
}

// acquire reports whether t may begin an attempt for the account. Where it may not yet, its mailbox signals
// when to ask again.
func (b *budget) acquire(account string, t *destination) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(t.granted, account); i >= 0 {
		t.granted = slices.Delete(t.granted, i, i+1)
		return true
	}
	if len(b.waiting[account]) == 0 && b.share.allows(account) {
		b.share.add(account)
		return true
	}
	b.queue(account, t)
	return false
}

func (b *budget) queue(account string, t *destination) {
	if t.waitsFor[account] {
		return
	}
	if t.waitsFor == nil {
		t.waitsFor = map[string]bool{}
	}
	t.waitsFor[account] = true
	if b.waiting[account] == nil {
		b.order = append(b.order, account)
	}
	b.waiting[account] = append(b.waiting[account], t)
}

// release ends an attempt of the account.
func (b *budget) release(account string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.share.drop(account)
	b.grant()
}

// grant returns free attempts to those that wait, one account after the other.
func (b *budget) grant() {
	for passed := 0; passed < len(b.order) && b.share.used < b.share.total; passed++ {
		account := b.order[0]
		b.order = append(b.order[1:], account)
		if b.share.allows(account) {
			t := b.waiting[account][0]
			b.unqueue(account, t)
			b.share.add(account)
			t.granted = append(t.granted, account)
			signal(t.mailbox.ready)
			passed = -1
		}
	}
}

func (b *budget) unqueue(account string, t *destination) {
	delete(t.waitsFor, account)
	line := b.waiting[account]
	if line[0] == t {
		line = line[1:]
	} else {
		line = slices.DeleteFunc(line, func(d *destination) bool { return d == t })
	}
	if b.waiting[account] = line; len(line) == 0 {
		delete(b.waiting, account)
		b.order = slices.DeleteFunc(b.order, func(a string) bool { return a == account })
	}
}

// releaseUnused takes back what t was granted and has no use for at this moment. It asks again when it has.
func (b *budget) releaseUnused(t *destination) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.releaseGranted(t)
}

func (b *budget) releaseGranted(t *destination) {
	if len(t.granted) == 0 {
		return
	}
	for _, account := range t.granted {
		b.share.drop(account)
	}
	t.granted = nil
	b.grant()
}

// remove ends t's waiting, as its actor does that stops.
func (b *budget) remove(t *destination) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for account := range t.waitsFor {
		b.unqueue(account, t)
	}
	b.releaseGranted(t)
}

// isWaiting reports whether deliveries of the account wait for others of it to end.
func (b *budget) isWaiting(account string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting[account]) > 0
}

// measure registers the gauges that show how much of it is used.
func (b *budget) measure(r prometheus.Registerer) {
	if r == nil {
		return
	}
	const name, help = "verifyd_delivery_attempts_limit",
		"Attempts that this process may have under way: in all, and of one account."
	for of, most := range map[string]int{"process": b.share.total, "account": b.share.each} {
		limit := prometheus.NewGauge(prometheus.GaugeOpts{
			Name: name, Help: help, ConstLabels: prometheus.Labels{"of": of},
		})
		limit.Set(float64(most))
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

func (b *budget) gauge(name, help string, read func() int) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
		b.mu.Lock()
		defer b.mu.Unlock()
		return float64(read())
	})
}
