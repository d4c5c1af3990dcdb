package store_test

import (
	"flag"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/lists"
	"verifyd/sessions/store"
)

// The sessions of the account that is searched, and of others; a million in total takes two minutes and a
// gigabyte:
//
//	go test ./sessions/store -run '^$' -bench Search -benchtime 20x -args -sessions 100000 -others 900000
var (
	benchSessions = flag.Int("sessions", 20_000, "sessions of the account that BenchmarkSearch searches")
	benchOthers   = flag.Int("others", 0, "sessions of other accounts beside them")
)

// BenchmarkSearch measures how long a search for sessions takes: the first time, when nothing of the account
// is in memory, and from then on. p50-ms is the median, cpu-ms/op what the process used, the server included.
func BenchmarkSearch(b *testing.B) {
	conn, key := natstest.Start(b), secretbox.NewKey()
	open := func() *store.Store {
		return store.New(store.Config{
			Conn: conn, Key: key,
			Pending:     natstest.Writer(b, conn, topology.BucketStream(topology.BucketSessions)),
			Completions: natstest.Writer(b, conn, topology.StreamCompletions),
		})
	}
	st := open()
	all := *benchSessions + *benchOthers
	var starting sync.WaitGroup
	var middle sessions.ID
	for w := range 128 {
		starting.Go(func() {
			for i := w; i < all; i += 128 {
				r := request
				if r.PlatformUserID = fmt.Sprintf("sailor_%d", i); i%all >= *benchSessions {
					r.Account = fmt.Sprintf("acc_other_%d", i%100)
				}
				s, _, err := st.Create(b.Context(), r)
				if err == nil && i%10 != 0 {
					o := verified
					if i == 3 {
						o = sessions.Outcome{State: sessions.Failed, Reason: sessions.Declined}
					}
					_, err = st.Complete(b.Context(), s, o)
				}
				if err != nil {
					b.Error(err)
					return
				}
				if i == 1 {
					middle = s.ID
				}
			}
		})
	}
	starting.Wait()
	queries := map[string]lists.Query{
		"id":             {ID: middle},
		"newest":         {},
		"user":           {Text: "sailor_12"},
		"user-of-one":    {PlatformUserID: "sailor_3"},
		"nobody":         {Text: "nobody"},
		"network":        {Networks: []string{"default"}},
		"reason-of-one":  {Reasons: []sessions.Reason{sessions.Declined}},
		"reason-of-none": {Reasons: []sessions.Reason{sessions.Unconfirmed}},
	}
	for name, q := range queries {
		q.Account, q.Limit = request.Account, 25
		queries[name] = q
		for _, warm := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/held=%t", name, warm), func(b *testing.B) {
				var took []time.Duration
				held := open()
				if warm {
					search(b, held, q)
				}
				used := processorTime(b)
				for b.Loop() {
					if !warm {
						b.StopTimer()
						held = open()
						b.StartTimer()
					}
					begun := time.Now()
					search(b, held, q)
					took = append(took, time.Since(begun))
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2])/float64(time.Millisecond), "p50-ms")
				cost := (processorTime(b) - used) / time.Duration(len(took))
				b.ReportMetric(float64(cost)/float64(time.Millisecond), "cpu-ms/op")
				if warm {
					runtime.GC()
				}
			})
		}
	}
	b.Run("read-ahead", func(b *testing.B) { benchmarkReadAhead(b, open, queries) })
}

// benchmarkReadAhead measures a first search, which answers before it has read all, how long it takes until
// the account is read, what that costs, and the searches after it.
func benchmarkReadAhead(b *testing.B, open func() *store.Store, queries map[string]lists.Query) {
	var first, until, cost []time.Duration
	var size int64
	for b.Loop() {
		b.StopTimer()
		st := open()
		heap, used, begun := heapInUse(), processorTime(b), time.Now()
		stop := natstest.Serve(b, lists.NewAhead(st.Lists))
		b.StartTimer()
		search(b, st, queries["nobody"])
		first = append(first, time.Since(begun))
		for {
			p, err := st.List(b.Context(), queries["reason-of-none"])
			if err != nil {
				b.Fatal(err)
			}
			if p.Reading == nil && p.Next == "" {
				break
			}
		}
		until, cost = append(until, time.Since(begun)), append(cost, processorTime(b)-used)
		b.StopTimer()
		size = heapInUse() - heap
		stop()
		b.StartTimer()
	}
	median := func(of []time.Duration) time.Duration {
		slices.Sort(of)
		return of[len(of)/2]
	}
	b.ReportMetric(float64(median(first))/float64(time.Millisecond), "ms-first")
	b.ReportMetric(median(until).Seconds(), "s-until-read")
	b.ReportMetric(float64(median(cost).Microseconds())/float64(*benchSessions), "cpu-µs/session")
	b.ReportMetric(float64(size)/float64(*benchSessions), "B/session")
}

func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// processorTime returns what the process, its server included, has used.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// search reads one page, as a user does with one press of the button.
func search(b *testing.B, st *store.Store, q lists.Query) {
	b.Helper()
	p, err := st.List(b.Context(), q)
	if err != nil {
		b.Fatal(err)
	}
	if q.ID != "" && len(p.Sessions) != 1 {
		b.Fatalf("%d sessions", len(p.Sessions))
	}
}
