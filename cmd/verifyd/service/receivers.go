package service

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"verifyd/cmd/verifyd/alarm"
	"verifyd/dispatcher"
	"verifyd/edge/account/notice"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
)

// receivers is what this process's dispatcher learns about receivers. The dispatcher reports, the alarms ask.
type receivers struct {
	now   func() time.Time
	offer func(notice.Notice) // notifies an account of an outcome; nil: not notified

	mu      sync.Mutex
	hosts   failingHosts // of all accounts, for operators
	ofEach  failingHosts // of each account's callbacks, for the account
	unknown unknown
}

// destination is a receiver's host and port, and the account whose callbacks go there; no account: those of
// all.
type destination struct{ account, receiver string }

// failingHosts are the destinations that have accepted nothing lately.
type failingHosts struct {
	failures int // in how many sessions make a destination a failing one
	limit    int // destinations of one account that are watched at once
	failing  map[destination]*failing
	worked   map[destination]time.Time // when those that were failing accepted a callback again
}

// failing is a destination that has accepted nothing lately.
type failing struct {
	sessions map[sessions.ID]bool  // whose callback it did not accept, up to as many as it needs
	end      dispatcher.AttemptEnd // the last trouble
	last     time.Time             // when that was
}

// unknown is the recent deliveries whose end is not known, and that are not sent again by themselves.
type unknown struct {
	count    int
	session  sessions.ID // the last of them
	receiver string
	last     time.Time
}

func newReceivers(failures int, now func() time.Time) *receivers {
	return &receivers{
		now:    now,
		hosts:  newFailingHosts(failures, maxReceivers),
		ofEach: newFailingHosts(failures, maxOfAccount),
	}
}

func newFailingHosts(failures, limit int) failingHosts {
	return failingHosts{failures, limit, map[destination]*failing{}, map[destination]time.Time{}}
}

// receiversOwn are the classes of failure that the receiver causes: another owner of the claim, our proxy and
// our settings are not.
var receiversOwn = []failure.Class{
	failure.DNS, failure.Connect, failure.TLS, failure.Timeout, failure.Reset, failure.Protocol,
	failure.Status,
}

// Ended records the end of a try; the dispatcher calls it.
func (r *receivers) Ended(e dispatcher.AttemptEnd) {
	now := r.now()
	if n, ok := outcomeNotice(e, now); ok && r.offer != nil {
		r.offer(n)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Verdict == facts.VerdictUnknown && !e.Again {
		r.unknown = unknown{r.unknown.count + 1, e.Session, e.Receiver, now}
	}
	r.hosts.ended(destination{"", e.Receiver}, e, now)
	r.ofEach.ended(destination{e.Account, e.Receiver}, e, now)
}

func (t *failingHosts) ended(to destination, e dispatcher.AttemptEnd, now time.Time) {
	if e.Verdict == facts.VerdictDelivered {
		if f := t.failing[to]; f != nil && len(f.sessions) >= t.failures && len(t.worked) < maxReceivers {
			t.worked[to] = now
		}
		delete(t.failing, to)
		return
	}
	if !slices.Contains(receiversOwn, e.Class) {
		return
	}
	f := t.failing[to]
	if f == nil {
		if t.full(to.account) {
			return
		}
		f = &failing{sessions: map[sessions.ID]bool{}}
		t.failing[to] = f
	}
	if f.end, f.last = e, now; len(f.sessions) < t.failures {
		f.sessions[e.Session] = true
	}
	delete(t.worked, to)
}

// full reports whether as many destinations of an account are watched as may be.
func (t *failingHosts) full(account string) bool {
	if len(t.failing) >= maxReceivers {
		return true
	}
	n := 0
	for to := range t.failing {
		if to.account == account {
			n++
		}
	}
	return n >= t.limit
}

// each forgets the destinations that no longer fail, and calls do for those that do.
func (t *failingHosts) each(now time.Time, do func(destination, *failing)) {
	maps.DeleteFunc(t.worked, func(_ destination, at time.Time) bool { return now.Sub(at) >= workedFor })
	for to, f := range t.failing {
		switch {
		case now.Sub(f.last) >= QuietAfter:
			delete(t.failing, to)
		case len(f.sessions) >= t.failures:
			do(to, f)
		}
	}
}

// conditions forgets the failures that are over, and returns what operators should know.
func (r *receivers) conditions(context.Context) []alarm.Condition {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []alarm.Condition
	r.hosts.each(now, func(to destination, f *failing) {
		all = append(all, alarm.Condition{
			Type: alarm.ReceiverFailing, About: to.receiver,
			Detail: fmt.Sprintf("the receiver did not accept the callbacks of %d sessions in a "+
				"row; the last failure: %s", r.hosts.failures, lastFailure(f.end)),
			Data: map[string]any{"receiver": to.receiver, "class": f.end.Class},
		})
	})
	if u := r.unknown; u.count > 0 {
		if now.Sub(u.last) >= QuietAfter {
			r.unknown = unknown{}
			return all
		}
		all = append(all, alarm.Condition{
			Type: alarm.DeliveriesUnknown, Detail: fmt.Sprintf("nobody knows whether %s got a "+
				"callback; it is not sent again by itself", u.receiver),
			Data: map[string]any{"count": u.count, "session": u.session, "receiver": u.receiver},
		})
	}
	return all
}

// lastFailure returns what went wrong in a try, for people.
func lastFailure(e dispatcher.AttemptEnd) string {
	if e.Status != 0 {
		return "HTTP status " + strconv.Itoa(e.Status)
	}
	return string(e.Class)
}

// worked reports whether this process saw an account's receiver accept a callback after its last failure.
func (r *receivers) worked(account, receiver string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.ofEach.worked[destination{account, receiver}].IsZero()
}

// ofAccounts forgets the failures that are over, and returns what each account should know about its
// receivers.
func (r *receivers) ofAccounts(context.Context) []alarm.Condition {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []alarm.Condition
	r.ofEach.each(now, func(to destination, f *failing) {
		all = append(all, alarm.Condition{
			Type: alarm.ReceiverFailing, About: to.account + " " + to.receiver, Until: now.Add(failingFor),
			Detail: fmt.Sprintf("%s did not accept the callbacks of %d sessions in a row; the last failure: "+
				"%s, of session %s.", to.receiver, r.ofEach.failures, lastFailure(f.end), f.end.Session),
			Data: map[string]any{"account": to.account, "receiver": to.receiver, "class": f.end.Class,
				"sessions": r.ofEach.failures, "session": f.end.Session, "status": f.end.Status},
		})
	})
	return all
}
