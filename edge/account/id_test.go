package account_test

import (
	"crypto/sha256"
	"testing"

	"verifyd/edge/account"
	"verifyd/sessions"
)

// A session's token leads to an account by the form of its id, without which each lookup of a page would cost
// more with each account.
func TestTokensLeadToAccounts(t *testing.T) {
	t.Parallel()
	mask := func(random []byte) []byte {
		sum := sha256.Sum256(random)
		return sum[:]
	}
	for _, id := range []string{account.NewID(), account.IDOf("Harbor Guild")} {
		if got := sessions.NewToken(id, mask).Account(mask); got != id {
			t.Errorf("the token for %s leads to %q", id, got)
		}
	}
}
