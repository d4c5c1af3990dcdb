package stats

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
)

// Statistics counts what accounts do, and reads it.
type Statistics struct {
	conn  *natsconf.Conn
	meter *Meter
	now   func() time.Time
}

// NewStatistics returns statistics that count on a meter; nil: nothing is counted.
func NewStatistics(conn *natsconf.Conn, meter *Meter, now func() time.Time) *Statistics {
	return &Statistics{conn: conn, meter: meter, now: now}
}

// Count counts something about an account now.
func (st *Statistics) Count(account string, test bool, what Count) {
	st.meter.Count(account, test, what, st.now())
}

// CountResult counts the end of an attempt, unless it is to be followed by another one.
func (st *Statistics) CountResult(s sessions.Session, r facts.Result) {
	what, counted := map[facts.Verdict]Count{
		facts.VerdictDelivered: CountDelivered, facts.VerdictRejected: CountRejected,
		facts.VerdictUnknown:       CountUnknown,
		facts.VerdictUndeliverable: CountUndeliverable,
	}[r.Verdict]
	if counted && r.Next.IsZero() {
		st.Count(s.Account, s.Test, what)
	}
}

// Usage is what an account did in a UTC month.
type Usage struct {
	// Used counts towards the quota: exact, except for units that an edge holds ahead for about a second.
	Used int64
	Days []UsageDay // every day of the month, the first one first
}

// UsageDay is the statistics of a UTC day. A missing count is zero.
type UsageDay struct {
	Day        time.Time // 00:00 UTC
	Live, Test map[Count]int64
}

// Usage reads a month of an account, given by any instant of it. Months of more than 400 days ago are empty.
// Statistics lag by a few seconds. Its error is natsconf.ErrUnavailable.
func (st *Statistics) Usage(ctx context.Context, account string, month time.Time) (Usage, error) {
	year, m, _ := month.UTC().Date()
	first := time.Date(year, m, 1, 0, 0, 0, 0, time.UTC)
	var u Usage
	var subjects []string
	byDay := map[string]*UsageDay{}
	for day := first; day.Month() == m; day = day.AddDate(0, 0, 1) {
		u.Days = append(u.Days, UsageDay{Day: day, Live: map[Count]int64{}, Test: map[Count]int64{}})
		subjects = append(subjects, statSubject(account, day, "*"))
	}
	for i, s := range subjects {
		byDay[strings.TrimSuffix(s, "*")] = &u.Days[i]
	}
	msgs, err := st.conn.Newest(ctx, topology.StreamUsage, subjects...)
	if err != nil {
		return Usage{}, fmt.Errorf("read usage: %w", err)
	}
	for _, m := range msgs {
		if err := add(byDay, m); err != nil {
			return Usage{}, err
		}
	}
	for i := range u.Days {
		over := st.now().After(u.Days[i].Day.AddDate(0, 0, 1).Add(sessions.Lifetime + expiredLag))
		settleExpired(u.Days[i].Live, over)
		settleExpired(u.Days[i].Test, over)
	}
	u.Used, err = st.used(ctx, account, first)
	return u, err
}

// expiredLag is how long after the last lifetime of a day its counts may still be on their way.
const expiredLag = time.Minute

// settleExpired corrects the count of expired sessions, which loses up to a lifetime's worth if a process is
// killed. On a day that is over, every session that has no other end has expired; on one that is not, no more
// than those can have expired.
func settleExpired(counts map[Count]int64, over bool) {
	open := unended(counts)
	n := min(max(counts[CountExpired], 0), open)
	if over {
		n = open
	}
	delete(counts, CountExpired)
	if n > 0 {
		counts[CountExpired] = n
	}
}

// Total sums the days' counts of sessions of one kind.
func (u Usage) Total(test bool) map[Count]int64 {
	total := map[Count]int64{}
	for _, day := range u.Days {
		for what, n := range day.Counts(test) {
			total[what] += n
		}
	}
	return total
}

// Counts returns the day's counts of live sessions, or of test ones.
func (d UsageDay) Counts(test bool) map[Count]int64 {
	if test {
		return d.Test
	}
	return d.Live
}

// add puts a counter where it belongs.
func add(days map[string]*UsageDay, m jetstream.Msg) error {
	at := strings.LastIndexByte(m.Subject(), '.') + 1
	day, what := days[m.Subject()[:at]], m.Subject()[at:]
	n, err := counterValue(m.Data())
	if err != nil {
		return fmt.Errorf("read the counter %s: %w", m.Subject(), err)
	}
	if name, ok := strings.CutPrefix(what, kindOf(true)); ok {
		day.Test[Count(name)] = n
	} else if name, ok := strings.CutPrefix(what, kindOf(false)); ok {
		day.Live[Count(name)] = n
	}
	return nil
}

// used reads the quota's counter.
func (st *Statistics) used(ctx context.Context, account string, month time.Time) (int64, error) {
	m, err := st.conn.Last(ctx, topology.StreamUsage, QuotaSubject(account, month))
	if errors.Is(err, natsconf.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read usage: %w", err)
	}
	n, err := counterValue(m.Data)
	if err != nil {
		return 0, fmt.Errorf("read the counter %s: %w", m.Subject, err)
	}
	return max(n, 0), nil
}

// counterValue reads the total that a counter stream keeps in each message.
func counterValue(data []byte) (int64, error) {
	var c struct {
		Val string `json:"val"`
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return 0, err
	}
	return strconv.ParseInt(c.Val, 10, 64)
}
