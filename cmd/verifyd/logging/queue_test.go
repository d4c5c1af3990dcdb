package logging_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"

	"verifyd/cmd/verifyd/logging"
)

// stuck is a writer that takes nothing until it is released, as a full pipe does.
type stuck struct {
	bytes.Buffer

	release chan error
}

func (s *stuck) Write(b []byte) (int, error) {
	if err := <-s.release; err != nil {
		return 0, err
	}
	return s.Buffer.Write(b)
}

// While nobody reads the log, nobody who logs waits. Lines are kept within a bound, in their order, and the
// others are counted, in a metric and, once there is a reader, in a line.
func TestNobodyWaitsForTheReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &stuck{release: make(chan error)}
		queue := logging.NewQueue(out)
		j := logging.New(queue, zerolog.InfoLevel, "request")
		j.Queue = queue
		registry := prometheus.NewRegistry()
		j.Measure(registry)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- j.Serve(ctx) }()
		log := j.Log()
		const logged = 50_000
		for i := range logged {
			log.Info().Int("i", i).Msg("request")
		}
		queue.Flush(time.Second)
		time.Sleep(time.Minute) // of the bubble: what was dropped is not reported while that would be dropped
		synctest.Wait()
		close(out.release)
		synctest.Wait()
		written := strings.Count(out.String(), `"request"`)
		if written == 0 || written == logged {
			t.Errorf("%d of %d lines are written", written, logged)
		}
		time.Sleep(time.Minute) // of the bubble
		synctest.Wait()
		told := 0
		for _, l := range lines(t, &out.Buffer) {
			told += l.Dropped
		}
		if count := int(dropped(t, registry)); count != logged-written || told != count {
			t.Errorf("%d of %d lines are written, %d are said to be dropped, %d are counted", written, logged,
				told, count)
		}
		cancel()
		<-done
	})
}

func dropped(t *testing.T, r *prometheus.Registry) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "verifyd_log_dropped_lines_total" {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatal("there is no metric of dropped lines")
	return 0
}

// A reader that is gone ends nothing, and what it does not get is counted.
func TestAReaderThatIsGone(t *testing.T) {
	t.Parallel()
	out := &stuck{release: make(chan error, 1)}
	out.release <- errors.New("broken pipe")
	queue := logging.NewQueue(out)
	j := logging.New(queue, zerolog.InfoLevel)
	j.Queue = queue
	r := prometheus.NewRegistry()
	j.Measure(r)
	log := j.Log()
	log.Info().Msg("one")
	queue.Flush(time.Minute)
	if n, err := testutil.GatherAndCount(r); n != 2 || err != nil || dropped(t, r) != 1 {
		t.Errorf("%d metrics, %v, %v are dropped", n, err, dropped(t, r))
	}
	close(out.release)
	log.Info().Msg("two")
	queue.Flush(time.Minute)
	if !strings.Contains(out.String(), `"two"`) {
		t.Errorf("written: %s", out.String())
	}
}
