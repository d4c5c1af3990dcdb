package sessions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"verifyd/natsconf"
)

// maxVerdictFacts is how many of the newest facts are read: a few MiB of results, and a fraction of a
// second.
const maxVerdictFacts = 30_000

// Verdicts counts how attempts ended lately.
type Verdicts struct {
	// the start of the count: what was asked for, or later, where there are more facts since then than are read
	Since time.Time
	By    map[Verdict]int
}

// Verdicts counts the attempts that ended since an instant. Its error is natsconf.ErrUnavailable.
func (st *Store) Verdicts(ctx context.Context, since time.Time) (Verdicts, error) {
	v := Verdicts{Since: since, By: map[Verdict]int{}}
	from, err := st.conn.SequenceAt(ctx, natsconf.StreamCompletions, since)
	if err != nil {
		return Verdicts{}, fmt.Errorf("count verdicts: %w", err)
	}
	_, last, err := st.conn.Bounds(ctx, natsconf.StreamCompletions)
	if err != nil {
		return Verdicts{}, fmt.Errorf("count verdicts: %w", err)
	}
	if last < from || last == 0 {
		return v, nil
	}
	if last >= from+maxVerdictFacts {
		from = last - maxVerdictFacts + 1
		m, err := st.conn.Next(ctx, natsconf.StreamCompletions, ">", from)
		switch {
		case err == nil:
			v.Since = m.Time
		case !errors.Is(err, natsconf.ErrNotFound):
			return Verdicts{}, fmt.Errorf("count verdicts: %w", err)
		}
	}
	msgs, err := st.conn.Range(ctx, natsconf.StreamCompletions, "result.*.*", from, last)
	if err != nil {
		return Verdicts{}, fmt.Errorf("count verdicts: %w", err)
	}
	for _, m := range msgs {
		p, ok := parseFactSubject(m.Subject())
		if !ok {
			continue
		}
		r, err := decodeResult(p.id, p.n, m.Data())
		if errors.Is(err, ErrNewer) {
			r.Verdict = decodeVerdict(m.Data())
		}
		if errors.Is(err, ErrUnreadable) || r.Verdict == "" { // or a newer build writes it in another shape
			r.Verdict = VerdictUnknown
		}
		v.By[r.Verdict]++
	}
	return v, nil
}
