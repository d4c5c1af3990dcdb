package embedded_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
)

// acknowledgedOf is how many of the messages that a consumer gets are acknowledged before the damage.
const messagesOf, acknowledgedOf = 20, 15

// settingsSample is a store whose consumers of completions and of the audit log have acknowledged some of
// their messages, as a clean stop and as a kill have left it.
func settingsSample(t *testing.T) (clean, unclean string) {
	t.Helper()
	clean, unclean = filepath.Join(t.TempDir(), "clean"), filepath.Join(t.TempDir(), "unclean")
	conn, stop := openStore(t, clean)
	for _, c := range sampledConsumers {
		for i := range messagesOf {
			if _, err := conn.JS.Publish(t.Context(), fmt.Sprintf(c.subject, i), nil); err != nil {
				t.Fatal(err)
			}
		}
		acknowledge(t, conn, c.stream, c.name)
	}
	natstest.Await(t, "the witness knows all of it", func() bool {
		return !slices.ContainsFunc(sampledConsumers, func(c sampledConsumer) bool {
			return embedded.WitnessFloor(clean, c.stream, c.name) != acknowledgedOf
		})
	})
	copyTree(t, clean, unclean)
	stop()
	return clean, unclean
}

func acknowledge(t *testing.T, conn *natsconf.Conn, stream, consumer string) {
	t.Helper()
	c := must(conn.JS.Consumer(t.Context(), stream, consumer))
	for range acknowledgedOf {
		m := must(c.Next(jetstream.FetchMaxWait(natstest.TestTimeout)))
		if err := m.DoubleAck(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

type sampledConsumer struct{ stream, name, subject string }

// sampledConsumers begin at the start of their stream and, of the audit log, with what is new when they are
// made.
var sampledConsumers = []sampledConsumer{
	{topology.StreamCompletions, topology.ConsumerDispatcher, "completion.t%d"},
	{topology.StreamAudit, topology.ConsumerAudit, "audit.a.%d"},
}

// One byte of the settings of a consumer, or of a stream, or of their checksums, is flipped, after a clean
// stop and after a kill. The start makes them anew, nothing is lost, and the consumer goes on where it was.
func TestDamagedSettingsAreMadeAnew(t *testing.T) {
	natstest.NeedsEmbedded(t, "what its files hold")
	t.Parallel()
	clean, unclean := settingsSample(t)
	for state, sample := range map[string]string{"clean": clean, "unclean": unclean} {
		for _, c := range sampledConsumers {
			for _, part := range []string{"", filepath.Join("obs", c.name)} {
				for file, at := range map[string]float64{"meta.inf": 0.4, "meta.sum": 0.5} {
					t.Run(fmt.Sprintf("%s/%s/%s/%s", state, c.stream, part, file), func(t *testing.T) {
						t.Parallel()
						dir := filepath.Join(t.TempDir(), "store")
						copyTree(t, sample, dir)
						path := filepath.Join(embedded.StreamFolder(dir, c.stream), part, file)
						change(t, path, func(b []byte) []byte { b[int(at*float64(len(b)))] ^= 1; return b })
						startAnew(t, dir, c)
					})
				}
			}
		}
	}
}

// startAnew starts a store in which something of a consumer or its stream is damaged.
func startAnew(t *testing.T, dir string, c sampledConsumer) {
	t.Helper()
	told, err := embedded.Inspect(dir, embedded.SyncAlways)
	if err != nil || len(told) != 1 || !strings.Contains(told[0], c.stream) {
		t.Errorf("it is told as %q, %v", told, err)
	}
	conn, stop := openStore(t, dir)
	defer stop()
	state, err := conn.ConsumerState(t.Context(), c.stream, c.name)
	if err != nil || state.Waiting != messagesOf-acknowledgedOf {
		t.Errorf("%d messages wait, want %d; %v", state.Waiting, messagesOf-acknowledgedOf, err)
	}
	if n := len(contents(t, conn, c.stream)); n != messagesOf {
		t.Errorf("%d messages are left", n)
	}
	if told, err := embedded.Inspect(dir, embedded.SyncAlways); err != nil || len(told) > 0 {
		t.Errorf("after the start it is told as %q, %v", told, err)
	}
	if kept := must(filepath.Glob(filepath.Join(dir, "damaged", "*", c.stream))); len(kept) != 1 {
		t.Errorf("what was damaged is kept in %q", kept)
	}
}

// The position of a consumer cannot be read, and no witness knows it. The consumer begins at the beginning of
// its stream, and not with what is new.
func TestUnreadablePositionIsSetToTheBeginning(t *testing.T) {
	natstest.NeedsEmbedded(t, "what its files hold")
	t.Parallel()
	clean, _ := settingsSample(t)
	for name, harm := range map[string]func([]byte) []byte{
		"empty":  func([]byte) []byte { return nil },
		"head":   func(b []byte) []byte { b[0] ^= 1; return b },
		"torn":   func(b []byte) []byte { return b[:len(b)-1] },
		"counts": func(b []byte) []byte { b[len(b)-2] = 3; return b },
	} {
		for _, c := range sampledConsumers {
			t.Run(c.stream+"/"+name, func(t *testing.T) {
				t.Parallel()
				dir := filepath.Join(t.TempDir(), "store")
				copyTree(t, clean, dir)
				if err := os.Remove(filepath.Join(dir, embedded.WitnessFile)); err != nil {
					t.Fatal(err)
				}
				change(t, filepath.Join(embedded.StreamFolder(dir, c.stream), "obs", c.name, "o.dat"), harm)
				conn, stop := openStore(t, dir)
				defer stop()
				state, err := conn.ConsumerState(t.Context(), c.stream, c.name)
				if err != nil || state.Waiting != messagesOf {
					t.Errorf("%d messages wait, want %d; %v", state.Waiting, messagesOf, err)
				}
			})
		}
	}
}

// A command that makes the settings of a stream anew lets no messages go that the service kept.
func TestCommandKeepsMessagesAsBefore(t *testing.T) {
	natstest.NeedsEmbedded(t, "what its files hold")
	t.Parallel()
	clean, _ := settingsSample(t)
	change(t, filepath.Join(embedded.StreamFolder(clean, topology.StreamCompletions), "meta.inf"),
		func(b []byte) []byte { b[7] ^= 1; return b })
	e := open(t, clean)
	natstest.Serve(t, e)
	<-e.Ready()
	streams := topology.New(topology.Options{Embedded: true, KeepResults: time.Hour}).Streams
	e.KeepAsBefore(streams)
	for _, s := range streams {
		want := time.Hour
		if s.Name == topology.StreamCompletions {
			want = topology.DefaultKeepResults
		}
		if (s.Name == topology.StreamCompletions || s.Name == topology.StreamRetries) && s.MaxAge != want {
			t.Errorf("%s keeps its messages for %s, want %s", s.Name, s.MaxAge, want)
		}
	}
}
