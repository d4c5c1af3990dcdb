package notice

import (
	"testing"

	"go.uber.org/goleak"

	"verifyd/natsconf/natstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(natstest.Tests(m)) }
