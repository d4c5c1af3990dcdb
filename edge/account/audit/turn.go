package audit

import (
	"context"
	"fmt"

	"verifyd/edge/limit"
	"verifyd/natsconf"
)

// Turn waits until this process has no other change of an account under way. Changes of other processes meet
// in the compare-and-set; without turns, hundreds at once here would race for each number of an account's
// audit log. What takes a right away takes no turn: it is among the few that race, and waits for nobody.
func (l *Log) Turn(ctx context.Context, account string) (done func(), err error) {
	if done, err = l.turns.Wait(ctx, limit.Request{Of: account}); err != nil {
		return nil, fmt.Errorf("wait for another change: %w: %w", natsconf.ErrUnavailable, err)
	}
	return done, nil
}
