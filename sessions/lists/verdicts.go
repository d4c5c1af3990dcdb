package lists

import (
	"context"
	"errors"
	"fmt"
	"time"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
	"verifyd/sessions/facts"
	"verifyd/sessions/records"
)

// maxVerdictFacts is how many of the newest facts are read: a few MiB of results, and a fraction of a
// second.
const maxVerdictFacts = 30_000

// Verdicts counts the verdicts of recent attempts.
type Verdicts struct {
	// the start of the count: the requested instant, or a later one if there are more facts since then than
	// are read
	Since time.Time
	By    map[facts.Verdict]int
}

// Verdicts counts the attempts that ended since an instant. Its error is natsconf.ErrUnavailable.
func (st *Lists) Verdicts(ctx context.Context, since time.Time) (Verdicts, error) {
	v := Verdicts{Since: since, By: map[facts.Verdict]int{}}
	from, err := st.Conn.SequenceAt(ctx, topology.StreamCompletions, since)
	if err != nil {
		return Verdicts{}, fmt.Errorf("count verdicts: %w", err)
	}
	_, last, err := st.Conn.Bounds(ctx, topology.StreamCompletions)
	if err != nil {
		return Verdicts{}, fmt.Errorf("count verdicts: %w", err)
	}
	if last < from || last == 0 {
		return v, nil
	}
	if last >= from+maxVerdictFacts {
		from = last - maxVerdictFacts + 1
		m, err := st.Conn.Next(ctx, topology.StreamCompletions, ">", from)
		switch {
		case err == nil:
			v.Since = m.Time
		case !errors.Is(err, natsconf.ErrNotFound):
			return Verdicts{}, fmt.Errorf("count verdicts: %w", err)
		}
	}
	msgs, err := st.Conn.Range(ctx, topology.StreamCompletions, "result.*.*", from, last)
	if err != nil {
		return Verdicts{}, fmt.Errorf("count verdicts: %w", err)
	}
	for _, m := range msgs {
		p, ok := facts.ParseSubject(m.Subject())
		if !ok {
			continue
		}
		r, err := records.DecodeResult(p.ID, p.N, m.Data())
		if errors.Is(err, natsconf.ErrNewer) {
			r.Verdict = records.DecodeVerdict(m.Data())
		}
		if errors.Is(err, facts.ErrUnreadable) ||
			r.Verdict == "" { // or a newer build writes it in another form
			r.Verdict = facts.VerdictUnknown
		}
		v.By[r.Verdict]++
	}
	return v, nil
}
