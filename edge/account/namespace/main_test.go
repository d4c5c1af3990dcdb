package namespace_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"verifyd/natsconf/natstest"
)

func TestMain(m *testing.M) {
	natstest.Parallel(8)
	goleak.VerifyTestMain(natstest.Budget(m, 15*time.Second))
}
