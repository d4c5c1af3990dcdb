package soak

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf/topology"
)

const (
	// killEvery is the interval between two kills, and a killed process stays away for up to awayFor.
	killEvery, awayFor = 15 * time.Second, 4 * time.Second
	// stepDownEvery is the interval between two orders to change a leader.
	stepDownEvery = time.Minute
	// fullEvery is the interval between two times that the disk of the last server is full, for fullFor.
	fullEvery, fullFor = 5 * time.Minute, 20 * time.Second
	// receiverEvery is the interval between two receivers that go away, for receiverAway.
	receiverEvery, receiverAway = 20 * time.Second, 15 * time.Second
)

// actions counts what was done to the site.
type actions map[string]int

func (d actions) String() string {
	var all []string
	for _, what := range slices.Sorted(maps.Keys(d)) {
		all = append(all, fmt.Sprintf("%s %d times", what, d[what]))
	}
	return strings.Join(all, ", ")
}

// torment injects all faults in turn, until loaded ends. What it stopped is running again when it returns,
// except for a receiver.
func (s *site) torment(ctx, loaded context.Context, rng *rand.Rand) error {
	s.done = actions{}
	due := map[string]time.Time{}
	began := time.Now()
	for what, every := range map[string]time.Duration{
		"kill": killEvery, "step down": stepDownEvery, "full disk": fullEvery, "receiver": receiverEvery,
	} {
		due[what] = began.Add(every / 2)
	}
	for loaded.Err() == nil {
		next := slices.MinFunc(slices.Collect(maps.Keys(due)), func(a, b string) int {
			return due[a].Compare(due[b])
		})
		if !wait(loaded, time.Until(due[next])) {
			break
		}
		var err error
		switch next {
		case "kill":
			err = s.kill(ctx, rng)
			due[next] = time.Now().Add(killEvery)
		case "step down":
			s.stepDown(ctx, rng)
			due[next] = time.Now().Add(stepDownEvery)
		case "full disk":
			err = s.fill(ctx)
			due[next] = time.Now().Add(fullEvery)
		case "receiver":
			r := s.receivers.servers[rng.IntN(hosts)]
			r.leave()
			s.done["a receiver went away"]++
			s.wg.Go(func() { wait(loaded, receiverAway); err := r.come(); s.note(err) })
			due[next] = time.Now().Add(receiverEvery)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// note reports what is wrong with the rig itself.
func (s *site) note(err error) {
	if err != nil {
		s.say("%v", err)
	}
}

// heal waits until everything is running again.
func (s *site) heal(ctx context.Context) error {
	var all error
	for _, r := range s.receivers.servers {
		all = errors.Join(all, r.come())
	}
	for _, v := range s.services() {
		all = errors.Join(all, within(ctx, readyWithin, v.name+" is not ready", func() error {
			response, err := http.Get("http://" + v.admin + "/readyz")
			if err == nil {
				err = response.Body.Close()
			}
			if err == nil && response.StatusCode != http.StatusOK {
				err = fmt.Errorf("it answers %d", response.StatusCode)
			}
			return err
		}))
	}
	return all
}

// kill kills an edge, a dispatcher or a server that is not spared, and starts it again.
func (s *site) kill(ctx context.Context, rng *rand.Rand) error {
	away := time.Duration(rng.Int64N(int64(awayFor)))
	switch rng.IntN(3) {
	case 0:
		s.edges[1].process.Kill()
		wait(ctx, away)
		s.done["an edge was killed"]++
		return s.startService(ctx, s.edges[1])
	case 1:
		s.senders[1].process.Kill()
		wait(ctx, away)
		s.done["a dispatcher was killed"]++
		return s.startService(ctx, s.senders[1])
	default:
		n := s.nodes[1+rng.IntN(servers-1)]
		n.process.Kill()
		wait(ctx, away)
		s.done["a server was killed"]++
		return s.startNode(n)
	}
}

// stepDown makes the leaders of two streams step down.
func (s *site) stepDown(ctx context.Context, rng *rand.Rand) {
	nc, err := nats.Connect(s.urls)
	if err != nil {
		s.note(err)
		return
	}
	defer nc.Close()
	streams := []string{topology.StreamCompletions, topology.BucketStream(topology.BucketSessions)}
	stream := streams[rng.IntN(len(streams))]
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := nc.RequestWithContext(ctx, jetstream.DefaultAPIPrefix+"STREAM.LEADER.STEPDOWN."+stream,
		nil); err == nil {
		s.done["a leader stepped down"]++
	}
}

// fill fills the disk of the last server, frees it again, and restarts that server, as its operator does.
func (s *site) fill(ctx context.Context) error {
	if s.disk == nil {
		return nil
	}
	n := s.nodes[servers-1]
	if err := s.disk.fill(); err != nil {
		return err
	}
	wait(ctx, fullFor)
	s.done["a disk was full"]++
	if err := s.disk.free(); err != nil {
		return err
	}
	n.process.Kill()
	return s.startNode(n)
}
