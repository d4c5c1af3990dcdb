package notice

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"verifyd/natsconf/natstest"
)

func TestMain(m *testing.M) {
	natstest.Parallel(6)
	goleak.VerifyTestMain(natstest.Budget(m, 60*time.Second))
}
