package soak

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"verifyd/edge/client"
	"verifyd/natsconf/natstest/prove"
)

// A test binary also runs as the NATS servers of its site.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == ServerCommand {
		if err := Serve(context.Background(), os.Args[2]); err != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// A short run: processes are killed, and everything that users were told is true.
func TestRun(t *testing.T) {
	prove.Only(t, "soak", "it runs a whole site")
	t.Parallel()
	var out bytes.Buffer
	o := Options{For: 20 * time.Second, Rate: 5, Seed: 3, Dir: t.TempDir(), Self: os.Args[0], Out: &out}
	if err := Run(t.Context(), o); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{" sessions, ", "kept sessions", "a receiver went away", "memory"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}

func TestRunIsCutShort(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := Run(ctx, Options{For: time.Hour, Rate: 1, Dir: t.TempDir(), Self: os.Args[0], Out: io.Discard})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v", err)
	}
}

func line(from, to float64) *series {
	s := &series{Name: "memory", Of: "edge0", Unit: "MiB", Slack: 24}
	for i := range 100 {
		s.add(time.Duration(i)*sampleEvery, from+(to-from)*float64(i)/100)
	}
	return s
}

// A leak is found; a steady figure, and one that is proportional to the kept sessions, is none.
func TestGrowthIsFound(t *testing.T) {
	t.Parallel()
	steady := line(1000, 1000)
	for name, c := range map[string]struct {
		of, kept *series
		perKept  bool
		grows    bool
	}{
		"steady":                    {line(100, 100), steady, false, false},
		"a leak":                    {line(50, 400), steady, false, true},
		"shrinks":                   {line(400, 50), steady, false, false},
		"a disk as what is kept":    {line(100, 1000), line(100, 1000), true, false},
		"a disk beyond what is":     {line(100, 1000), steady, true, true},
		"memory as what is kept is": {line(100, 1000), line(100, 1000), false, true},
	} {
		c.of.PerKept = c.perKept
		if err := c.of.grown(c.kept); errors.Is(err, ErrGrown) != c.grows {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPlotIsADrawing(t *testing.T) {
	t.Parallel()
	w := &watch{kept: line(0, 100), all: []*series{line(50, 60)}}
	d := xml.NewDecoder(bytes.NewReader(w.plot()))
	lines := 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "polyline" {
			lines++
		}
	}
	if lines != 2 {
		t.Errorf("%d lines for 2 figures", lines)
	}
}

// Whatever is wrong with a session is found.
func TestJudge(t *testing.T) {
	t.Parallel()
	const token = "tok"
	for name, c := range map[string]struct {
		answer   string
		status   int
		posts    int
		verified bool
		want     func(*tally) int
		broken   bool
	}{
		"delivered": {answer: `{"id":"i","state":"verified","delivery":{"state":"delivered"}}`, posts: 1,
			verified: true, want: func(t *tally) int { return t.Delivered }},
		"nobody knows": {answer: `{"id":"i","state":"verified","delivery":{"state":"unknown"}}`, posts: 1,
			verified: true, want: func(t *tally) int { return t.Unknown }},
		"left": {answer: `{"id":"i","state":"pending","delivery":{"state":"none"}}`,
			want: func(t *tally) int { return t.Left }},
		"a second POST": {answer: `{"id":"i","state":"verified","delivery":{"state":"delivered"}}`, posts: 2,
			verified: true, want: func(t *tally) int { return t.Duplicates }, broken: true},
		"told verified, and failed": {answer: `{"id":"i","state":"failed","delivery":{"state":"delivered"}}`,
			posts: 1, verified: true, want: func(t *tally) int { return t.ReportedFalsely }, broken: true},
		"said delivered, and never came": {
			answer:   `{"id":"i","state":"verified","delivery":{"state":"delivered"}}`,
			verified: true, want: func(t *tally) int { return t.ReportedFalsely }, broken: true},
		"said undeliverable, and came": {
			answer: `{"id":"i","state":"verified","delivery":{"state":"undeliverable"}}`, posts: 1,
			verified: true, want: func(t *tally) int { return t.ReportedFalsely }, broken: true},
		"gone": {answer: `{"code":"session_not_found","status":404}`, status: http.StatusNotFound,
			want: func(t *tally) int { return t.Lost }, broken: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if c.status != 0 {
					w.WriteHeader(c.status)
				}
				_, _ = io.WriteString(w, c.answer)
			}))
			defer service.Close()
			crowd := &crowd{s: &site{receivers: &receivers{posts: map[string]int{webhookID(token): c.posts}}}}
			var err error
			const key = "vfy_0123456789abcdefghijklmnopqrstuvwxyzAB"
			if crowd.c, err = client.New(service.URL, key); err != nil {
				t.Fatal(err)
			}
			crowd.judge(t.Context(), client.Started{Session: token}, c.verified)
			if c.want(&crowd.tally) != 1 || errors.Is(crowd.tally.err(), ErrBroken) != c.broken {
				t.Errorf("%s: %v", crowd.tally.String(), crowd.tally.err())
			}
		})
	}
}
