package integrator

import "testing"

func TestRoundUp(t *testing.T) {
	for n, want := range map[int64]int64{
		0: 2, 1: 2, 3: 4, 5: 6, 9: 10, 11: 20, 21: 30, 41: 50, 51: 60, 99: 100, 203: 300, 1001: 2000,
	} {
		if got := roundUp(n); got != want || got%2 != 0 {
			t.Errorf("%d: %d, want %d", n, got, want)
		}
	}
}
