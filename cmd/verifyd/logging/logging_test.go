package logging_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"

	"verifyd/cmd/verifyd/logging"
)

// line is the part of a log line that the tests read.
type line struct {
	Level, Message, Error string
	Suppressed, Dropped   int
}

func lines(t *testing.T, b *bytes.Buffer) (all []line) {
	t.Helper()
	for raw := range strings.Lines(b.String()) {
		var l line
		if err := json.Unmarshal([]byte(raw), &l); err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		all = append(all, l)
	}
	return all
}

// An outage writes the same warning for every delivery: five are written, the others are counted, and the
// count is logged once. Other causes, requests, and lines below warnings are always written.
func TestRepeatsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		j := logging.New(&out, zerolog.InfoLevel, "request")
		registry := prometheus.NewRegistry()
		j.Measure(registry)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- j.Serve(ctx) }()
		log := j.Log()
		for i := range 100 {
			log.Warn().Err(fmt.Errorf("read session k3v7q2m5zt4yd6n2xw7p2c4hf2jb5r%02d: try %d", i, i)).
				Msg("a delivery has to wait")
			log.Error().Err(errors.New("away")).Msg("request")
			log.Info().Int("i", i).Msg("callback attempt")
		}
		log.Warn().Err(errors.New("another cause")).Msg("a delivery has to wait")
		count := func(message string) (n, suppressed int) {
			for _, l := range lines(t, &out) {
				if l.Message == message {
					n++
					suppressed += l.Suppressed
				}
			}
			return n, suppressed
		}
		if n, _ := count("a delivery has to wait"); n != 6 {
			t.Errorf("%d warnings were written, want 5 and the one of another cause", n)
		}
		for _, message := range []string{"request", "callback attempt"} {
			if n, _ := count(message); n != 100 {
				t.Errorf("%d of 100 lines %q were written", n, message)
			}
		}
		time.Sleep(2 * time.Minute) // of the bubble: it costs no time
		synctest.Wait()
		if n, suppressed := count("a delivery has to wait"); n != 7 || suppressed != 95 {
			t.Errorf("%d lines tell of %d withheld, want 7 and 95", n, suppressed)
		}
		log.Warn().Err(errors.New("read session: try 1")).Msg("a delivery has to wait")
		if n, _ := count("a delivery has to wait"); n != 8 {
			t.Error("the next minute's first line was withheld")
		}
		if err := testutil.GatherAndCompare(registry, strings.NewReader(
			"# HELP verifyd_log_suppressed_lines_total Log lines that were withheld, since the same "+
				"message with the same cause had just been written.\n"+
				"# TYPE verifyd_log_suppressed_lines_total counter\nverifyd_log_suppressed_lines_total "+
				"95\n")); err != nil {
			t.Error(err)
		}
		cancel()
		<-done
	})
}

// What was withheld is also logged at a stop, and the number of distinguished causes is bounded whatever the
// errors are.
func TestCausesAreBounded(t *testing.T) {
	var out bytes.Buffer
	j := logging.New(&out, zerolog.InfoLevel)
	log := j.Log()
	letters := "abcdefghijklmnopqrstuvwxyz"
	for i := range 10_000 {
		log.Warn().Err(errors.New(string([]byte{letters[i%26], letters[i/26%26], letters[i/26/26]}))).
			Msg("noise")
	}
	if n := len(lines(t, &out)); n > 600*5 {
		t.Errorf("%d lines", n)
	}
	before := len(lines(t, &out))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = j.Serve(ctx)
	told := 0
	for _, l := range lines(t, &out) {
		told += l.Suppressed
	}
	if told+before != 10_000 {
		t.Errorf("%d written, %d told as withheld, want 10,000 together", before, told)
	}
}

func TestLevelChangesWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		j := logging.New(&out, zerolog.InfoLevel)
		log := j.Log().With().Str("room", "edge").Logger() // as in a package, created before the change
		wrote := func() bool {
			n := out.Len()
			log.Debug().Msg("detail")
			return out.Len() > n
		}
		if wrote() {
			t.Error("debug is written at info")
		}
		if err := j.SetLevel("debug", 10*time.Minute); err != nil || !wrote() {
			t.Errorf("debug is not written at debug: %v", err)
		}
		if level, until := j.Level(); level != "debug" || time.Until(until) != 10*time.Minute {
			t.Errorf("level %s until %s", level, until)
		}
		time.Sleep(10*time.Minute + time.Second) // of the bubble
		synctest.Wait()
		if level, until := j.Level(); wrote() || level != "info" || !until.IsZero() {
			t.Errorf("the level is %s after its while, until %s", level, until)
		}
		if err := j.SetLevel("debug", time.Minute); err != nil {
			t.Fatal(err)
		}
		if err := j.SetLevel("debug", 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // of the bubble
		synctest.Wait()
		if !wrote() {
			t.Error("a change for good was ended by the one before it")
		}
		for _, bad := range []string{"", "loud", "fatal", "disabled", "7"} {
			if err := j.SetLevel(bad, 0); err == nil ||
				!strings.Contains(err.Error(), "trace, debug, info, warn or error") {
				t.Errorf("%q: %v", bad, err)
			}
		}
	})
}
