package once

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"verifyd/natsconf/natstest"
)

func TestMain(m *testing.M) {
	natstest.Parallel(8)
	goleak.VerifyTestMain(natstest.Budget(m, 30*time.Second))
}
