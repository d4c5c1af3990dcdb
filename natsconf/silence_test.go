package natsconf

import (
	"testing"
	"testing/synctest"
	"time"
)

// Three writes to a rarely used stream are not answered while the server is down. If nothing more is
// published, nothing shows that the server is back: the silence ends by itself.
func TestSilenceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWriter(&Conn{Reader: &Reader{metrics: newMetrics()}}, "stream")
		for range silentFrom {
			if w.Silent() {
				t.Error("silent too soon")
			}
			w.recordResult(ErrUncertain)
		}
		if !w.Silent() {
			t.Error("three unanswered publishes do not count")
		}
		if time.Sleep(time.Second); w.SilentFor() != ackTimeout+time.Second { // of the bubble
			t.Errorf("it has not answered for %s", w.SilentFor())
		}
		time.Sleep(silentFor) // of the bubble: it costs no time
		if w.Silent() {
			t.Error("silent forever")
		}
		w.recordResult(ErrUncertain)
		if !w.Silent() {
			t.Error("one more does not count")
		}
		w.recordResult(nil)
		if w.Silent() {
			t.Error("silent although it answered")
		}
	})
}
