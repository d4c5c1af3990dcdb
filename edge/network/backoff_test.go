package network

import (
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	for failures, want := range map[int]time.Duration{
		0: time.Second, 1: 2 * time.Second, 5: 32 * time.Second, 6: time.Minute, 7: time.Minute,
		1000: time.Minute,
	} {
		if got := backoff(failures); got != want {
			t.Errorf("after %d failures %s, want %s", failures, got, want)
		}
	}
	for range 1000 {
		if d := jitter(time.Minute); d < 54*time.Second || d >= 66*time.Second {
			t.Fatalf("jitter gives %s", d)
		}
	}
}
