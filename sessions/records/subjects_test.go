package records

import (
	"testing"

	"verifyd/natsconf/topology"
)

// Only the subject of a session's record names an account: what is stored next to records does not.
func TestAccountOf(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"acc_a.sid": "acc_a", "older.sid": "older", "redeemed.attempt": "", "progress.proof.sid": "",
		"seat.browser.sid": "", "acc_a": "", "": "",
	} {
		if got := AccountOf(topology.BucketSubject(topology.BucketSessions, key)); got != want {
			t.Errorf("the key %q is of account %q, want %q", key, got, want)
		}
	}
}
