package limit

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
)

// booked records the results of the increments.
type booked struct {
	publisher

	mu       sync.Mutex
	sure     int64 // the sum of what was acknowledged
	up, down int64 // the sums of what was not answered
	unheard  int   // how many were not
}

func (b *booked) Publish(ctx context.Context, m *nats.Msg) (natsconf.Ack, error) {
	n, err := strconv.ParseInt(m.Header.Get(incrHeader), 10, 64)
	if err != nil {
		return natsconf.Ack{}, err
	}
	ack, err := b.publisher.Publish(ctx, m)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err == nil && !ack.Duplicate: // of which the first was not answered
		b.sure += n
	case errors.Is(err, natsconf.ErrUncertain):
		b.unheard++
		b.up, b.down = b.up+max(n, 0), b.down+min(n, 0)
	} // otherwise the error means that nothing is counted
	return ack, err
}

// The leader of the counters changes repeatedly, and one is killed, while two edges count: what was
// acknowledged is in the counter, what was refused is not, and no more than the quota is granted.
func TestQuotaAcrossLeaderChanges(t *testing.T) {
	t.Parallel()
	const quota, leaderChanges = 9_000, 4
	trio := natstest.StartTrio(t)
	conn := trio.Connect(t)
	natstest.Ensure(t, conn)
	books := make([]*booked, 2)
	edges := make([]*Quota, 2)
	stops := make([]func(), 2)
	for i := range edges {
		edges[i] = NewQuota(natstest.Writer(t, trio.Connect(t), topology.StreamUsage), quota)
		books[i] = &booked{publisher: edges[i].counter}
		edges[i].counter = books[i]
		stops[i] = natstest.Serve(t, edges[i])
	}
	var granted, failed atomic.Int64
	begun := time.Now()
	taking, done := context.WithCancel(t.Context())
	defer done()
	var crowd sync.WaitGroup
	for c := range 24 {
		crowd.Go(func() {
			for taking.Err() == nil {
				switch _, err := edges[c%2].Take(t.Context(), acme, 0, june.Add(time.Since(begun))); {
				case err == nil:
					granted.Add(1)
				case errors.Is(err, ErrQuotaExceeded):
					done()
				default:
					failed.Add(1)
				}
				<-time.After(10 * time.Millisecond) // 2,400 a second at most
			}
		})
	}
	for range leaderChanges {
		natstest.StepDown(t, conn, topology.StreamUsage)
	}
	leader := natstest.Leader(t, conn, topology.StreamUsage)
	trio.Kill(leader)
	natstest.Leader(t, conn, topology.StreamUsage)
	trio.Start(t, leader)
	select {
	case <-taking.Done():
	case <-time.After(natstest.TestTimeout):
		t.Error("the quota is not used up")
		done()
	}
	crowd.Wait()
	for _, stop := range stops {
		stop()
	}
	var sure, up, down int64
	unheard := 0
	for _, b := range books {
		sure, up, down, unheard = sure+b.sure, up+b.up, down+b.down, unheard+b.unheard
	}
	var counter struct {
		Val int64 `json:"val,string"`
	}
	if err := json.Unmarshal([]byte(used(t, conn, acme, june)), &counter); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d leader changes and a kill; %d granted, %d failed; acknowledged %d, not answered %d (%+d "+
		"%+d); the counter is %d",
		leaderChanges, granted.Load(), failed.Load(), sure, unheard, up, down, counter.Val)
	if granted.Load() > quota {
		t.Errorf("%d sessions were granted on a quota of %d", granted.Load(), quota)
	}
	if counter.Val < granted.Load() {
		t.Errorf("the counter is %d, %d sessions were granted", counter.Val, granted.Load())
	}
	if counter.Val < sure+down || counter.Val > sure+up {
		t.Errorf("the counter is %d, what was acknowledged is %d, what was not answered %+d and %+d",
			counter.Val, sure, up, down)
	}
}
