package natsconf

import (
	"testing"
	"testing/synctest"
	"time"
)

// A small batch waits a moment for more messages; a few messages, a full batch and a counter do not.
func TestSmallBatchesWaitAMoment(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		single         bool
		waiting, later int // later: those that come a millisecond after the first ones
		want           int
		took           time.Duration
	}{
		"few are written at once":          {waiting: minBatch - 1, later: 1, want: minBatch - 1},
		"a full batch is written at once":  {waiting: fullBatch, later: 1, want: fullBatch},
		"all that wait make one batch":     {waiting: 3 * fullBatch, want: 3 * fullBatch},
		"no batch is larger than the most": {waiting: maxBatch + 1, want: maxBatch},
		"counters are written at once":     {single: true, waiting: minBatch, later: 1, want: minBatch},
		"a small one is filled": {waiting: minBatch, later: fullBatch - minBatch, want: fullBatch,
			took: time.Millisecond},
		"or waits no longer": {waiting: minBatch, later: 1, want: minBatch + 1, took: fillBatch},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := &Writer{single: test.single, mailbox: make(chan *pendingPublish, mailboxSize)}
				put := func(n int) {
					for range n {
						w.mailbox <- &pendingPublish{}
					}
				}
				put(test.waiting)
				time.AfterFunc(time.Millisecond, func() { put(test.later) })
				began := time.Now()
				batch := w.gather(<-w.mailbox)
				if took := time.Since(began); len(batch) != test.want || took != test.took {
					t.Errorf("%d messages after %s, want %d after %s", len(batch), took, test.want, test.took)
				}
			})
		})
	}
}
