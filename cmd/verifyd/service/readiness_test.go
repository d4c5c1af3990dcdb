package service

import (
	"errors"
	"testing"
	"time"

	"verifyd/edge/account"
)

func TestKeysState(t *testing.T) {
	t.Parallel()
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	for name, c := range map[string]struct {
		since   time.Time
		inDoubt bool
		state   string
		err     error
	}{
		"as stored":              {state: "as they are stored now"},
		"in doubt for a moment":  {inDoubt: true, state: "as they are stored now"},
		"in doubt for a while":   {since: ago(5 * time.Second), inDoubt: true, state: "as of 5s ago"},
		"in doubt for too long":  {since: ago(time.Minute), inDoubt: true, err: account.ErrNotReady},
		"no answer for a minute": {since: ago(time.Minute), state: "as of 1m0s ago"},
	} {
		if state, err := keysState(c.since, c.inDoubt, 12*time.Second); state != c.state ||
			!errors.Is(err, c.err) {
			t.Errorf("%s: %q, %v", name, state, err)
		}
	}
}
