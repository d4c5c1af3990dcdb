package integrator

import (
	"testing"

	"verifyd/sessions/stats"
)

func TestRoundUp(t *testing.T) {
	for n, want := range map[int64]int64{
		0: 2, 1: 2, 3: 4, 5: 6, 9: 10, 11: 20, 21: 30, 41: 50, 51: 60, 99: 100, 203: 300, 1001: 2000,
	} {
		if got := roundUp(n); got != want || got%2 != 0 {
			t.Errorf("%d: %d, want %d", n, got, want)
		}
	}
}

// No step has more sessions than the one before it, whatever was counted.
func TestStepsNeverRise(t *testing.T) {
	rows := stepsOf(map[stats.Count]int64{
		stats.CountStarted: 10, stats.CountOpened: 8, stats.CountSignIn: 3, stats.CountReturned: 4,
		stats.CountFinished: 5, stats.CountCode: 2,
	})
	for i, want := range []stepRow{{Count: 10, Percent: 100}, {Count: 8, Percent: 80, Lost: 2},
		{Count: 3, Percent: 30, Lost: 5}, {Count: 3, Percent: 30}, {Count: 3, Percent: 30}} {
		if want.Name = rows[i].Name; rows[i] != want {
			t.Errorf("%+v, want %+v", rows[i], want)
		}
	}
}
