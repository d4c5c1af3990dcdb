package simulation_test

import (
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"verifyd/natsconf/fleet"
	"verifyd/natsconf/simtest"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
)

// faultsFor is how long faults begin in a schedule; one that has begun may last a little longer.
const faultsFor = 40 * time.Second

// maxOutage is the maximum time for which a server or a leader is away.
const maxOutage = 6 * time.Second

// skews are by how much a machine's clock may be off.
var skews = []time.Duration{
	0, 3 * time.Second, 7 * time.Second, 25 * time.Second, 40 * time.Second, 2 * time.Minute, time.Hour,
	8 * 24 * time.Hour,
}

// clockError is by how much the store's time may be wrong in a process, from the time that an answer takes.
const clockError = time.Second

// scheduleLost is the kind of fault by which the store loses a schedule that it has confirmed.
const scheduleLost = "schedule lost by the store"

// world is one schedule: what its seed decides, and what is observed.
type world struct {
	t       *testing.T
	seed    uint64
	begun   time.Time // of the schedule
	broker  *simtest.Broker
	workers []*worker
	// the goroutines of receivers, identity networks and requests; a bubble waits for them, since time in it
	// ends with its first goroutine
	serving sync.WaitGroup

	mu            sync.Mutex
	calm          bool   // no more faults
	unreachable   string // a receiver that cannot be reached, even in the calm; empty: none
	reachableOnce bool   // that receiver can be reached until it gets its first POST
	names         map[string]string
	drawn         map[string]int // how often something was drawn
	kinds         map[string]int // how often each kind of fault happened
	rates         map[string]float64
	trace         []string
	whole         hash.Hash64 // of everything that happened, and when
	broken        []string    // what did not hold
	received      map[string]*received
	roundTrips
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, seed: seed, begun: time.Now(), names: map[string]string{}, drawn: map[string]int{},
		kinds: map[string]int{}, rates: map[string]float64{}, received: map[string]*received{},
		whole: fnv.New64a(), roundTrips: newRoundTrips(),
	}
	w.broker = simtest.New(simtest.Options{
		Unknown: func(what string) { w.fail("the simulated broker does not know: %s", what) },
		Fault:   w.fault,
	})
	if r := w.draw("deaf receiver"); r.Float64() < 0.1 {
		w.unreachable, w.reachableOnce = receiverAt(r.IntN(receivers)), r.IntN(2) == 0
		w.kinds["receiver away for good"]++
	}
	return w
}

// draw returns the random source of a thing: the same each time that the schedule is run. If the thing
// happens several times, each time has a source of its own.
func (w *world) draw(format string, args ...any) *rand.Rand {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.drawLocked(fmt.Sprintf(format, args...))
}

func (w *world) drawLocked(thing string) *rand.Rand {
	w.drawn[thing]++
	if *alone {
		fmt.Fprintln(w.whole, time.Since(w.begun), thing, w.drawn[thing])
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%d|%s|%d", w.seed, thing, w.drawn[thing])
	return rand.New(rand.NewPCG(h.Sum64(), w.seed))
}

// happens reports whether a kind of fault happens to a thing. In each schedule some kinds never happen, and
// others often.
func (w *world) happens(r *rand.Rand, kind string) bool {
	return w.occurs(r, kind, func(of *rand.Rand) float64 { return 0.5 * of.Float64() * of.Float64() })
}

// occurs does what happens does, with another distribution of the rate.
func (w *world) occurs(r *rand.Rand, kind string, drawn func(of *rand.Rand) float64) bool {
	rate, ok := w.rates[kind]
	if !ok {
		of := w.drawLocked("rate of " + kind)
		if of.Float64() < 0.5 {
			rate = drawn(of)
		}
		w.rates[kind] = rate
	}
	if r.Float64() >= rate {
		return false
	}
	w.kinds[kind]++
	return true
}

// fault decides the fault of a message of the broker.
func (w *world) fault(e simtest.Event) (f simtest.Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	thing := fmt.Sprintf("%s %s by %s", e.Kind, w.named(e.Subject), e.Client)
	if e.Kind == simtest.KindAck {
		thing += " " + string(e.Data[:min(len(e.Data), 4)])
	}
	r, kind := w.drawLocked(thing), string(e.Kind)+" "
	// Each message has its own latency: chance would decide the order of two at the same instant.
	latency := time.Duration(r.Int64N(int64(time.Millisecond)))
	defer func() {
		f.Late += latency
		if ordinary := (simtest.Fault{Late: latency}); f != ordinary {
			w.noteLocked("%s: %s", thing, describe(f))
		} else if e.Kind == simtest.KindPublish {
			w.noteLocked("%s", thing)
		}
	}()
	if w.calm {
		return f
	}
	lasting := func(limit time.Duration) time.Duration {
		return time.Millisecond + time.Duration(r.Float64()*float64(limit)).Truncate(time.Millisecond)
	}
	switch {
	case w.happens(r, kind+"lost"):
		f.Lost = true
	case e.Kind == simtest.KindDeliver && w.happens(r, "deliver again"):
		f.Again = lasting([]time.Duration{time.Second, topology.AckWait}[r.IntN(2)])
	case e.Kind == simtest.KindDeliver, e.Kind == simtest.KindAck:
		if w.happens(r, kind+"late") {
			f.Late = lasting(40 * time.Second)
		}
	case e.Kind == simtest.KindPublish && strings.HasPrefix(e.Subject, "schedule.") &&
		w.happens(r, scheduleLost):
		f.Forgotten = true
	case w.happens(r, kind+"unanswered"):
		f.Unanswered = true
	case w.happens(r, kind+"late"):
		f.Late = lasting(8 * time.Second)
	case w.happens(r, kind+"answered late"):
		f.AnswerLate = lasting(7 * time.Second)
	case w.happens(r, kind+"nobody there"):
		f.NoResponders = true
	}
	return f
}

// odd reports whether a user, a browser or an identity network does something unusual, as long as there are
// faults. That is more frequent than the faults of messages, of which there are many more.
func (w *world) odd(r *rand.Rand, kind string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.calm && w.occurs(r, kind, func(of *rand.Rand) float64 { return 0.6 * of.Float64() })
}

// isCalm reports whether there are no more faults.
func (w *world) isCalm() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calm
}

// pauseOf pauses a worker between its claim and its first byte, for up to some seconds longer than others
// leave its claim alone.
func (w *world) pauseOf(worker string) {
	r := w.draw("pause of %s before the first byte", worker)
	w.mu.Lock()
	paused := !w.calm && w.happens(r, "dispatcher paused")
	pause := time.Duration(r.Int64N(int64(20 * time.Second)))
	if paused {
		w.noteLocked("%s is paused for %s", worker, pause)
	}
	w.mu.Unlock()
	if paused {
		time.Sleep(pause) // in virtual time
	}
}

// noteStrays checks that dispatchers take no delivery for stray whose hints are stored.
func (w *world) noteStrays(s *fleet.Strays) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s != nil && w.kinds[scheduleLost] == 0 {
		w.broken = append(w.broken, fmt.Sprintf("%d deliveries were taken for stray", s.Found))
	}
}

// describe describes what is unusual about a fault.
func describe(f simtest.Fault) string {
	var all []string
	for word, is := range map[string]bool{
		"lost": f.Lost, "unanswered": f.Unanswered, "nobody there": f.NoResponders, "forgotten": f.Forgotten,
	} {
		if is {
			all = append(all, word)
		}
	}
	for word, d := range map[string]time.Duration{
		"late by": f.Late, "answered later by": f.AnswerLate, "again after": f.Again,
	} {
		if d >= time.Millisecond {
			all = append(all, fmt.Sprint(word, " ", d))
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// named replaces the parts of a subject that no seed decides: ids of sessions by their names, others by a
// star.
func (w *world) named(subject string) string {
	words := strings.Split(subject, ".")
	for i, word := range words {
		consumer := i > 0 && strings.HasPrefix(subject, "$JS.API.CONSUMER.") &&
			(words[i-1] == topology.StreamRetries || words[i-1] == topology.StreamCompletions)
		if name, ok := w.names[word]; ok {
			words[i] = name
		} else if len(word) >= 16 || consumer && word != topology.ConsumerRetries &&
			word != topology.ConsumerDispatcher {
			words[i] = "*"
		}
	}
	return strings.Join(words, ".")
}

// name stores the name of a session, which is made of its number, and returns it.
func (w *world) name(id sessions.ID, number int) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names[string(id)] = fmt.Sprint("s", number)
	return w.names[string(id)]
}

// note adds a line to the trace.
func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noteLocked(format, args...)
}

func (w *world) noteLocked(format string, args ...any) {
	at, what := time.Since(w.begun), fmt.Sprintf(format, args...)
	w.trace = append(w.trace, fmt.Sprintf("%9.3f %s", at.Seconds(), what))
	fmt.Fprintln(w.whole, at, what)
}

// counts adds a line to the trace, and counts the schedules in which things of its kind happened.
func (w *world) counts(kind, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kinds[kind]++
	w.noteLocked(format, args...)
}

// fail records a rule that did not hold.
func (w *world) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failLocked(format, args...)
}

func (w *world) failLocked(format string, args ...any) {
	w.broken = append(w.broken, fmt.Sprintf(format, args...))
	w.noteLocked("BROKEN: "+format, args...)
}

// storm makes the faults of servers and processes happen, and returns when all faults have ended.
func (w *world) storm(dispatchers, edges []*worker) {
	type event struct {
		at time.Duration
		do func()
	}
	var events []event
	plan := func(kind string, maxTimes int, prepare func(r *rand.Rand, at time.Duration) func()) {
		r := w.draw("plan of %s", kind)
		for range r.IntN(2) * r.IntN(maxTimes+1) {
			at := time.Duration(r.Float64() * float64(faultsFor))
			do := prepare(r, at)
			events = append(events, event{at, func() {
				w.mu.Lock()
				w.kinds[kind]++
				w.noteLocked("%s", kind)
				w.mu.Unlock()
				do()
			}})
		}
	}
	for i, kind := range []string{"dispatcher", "edge"} {
		of := [][]*worker{dispatchers, edges}[i]
		plan(kind+" killed", 3, func(r *rand.Rand, _ time.Duration) func() {
			k, pause := of[r.IntN(len(of))], time.Duration(r.IntN(5000))*time.Millisecond
			return func() { k.replace(pause) }
		})
		plan(kind+" cut off", 4, func(r *rand.Rand, _ time.Duration) func() {
			return of[r.IntN(len(of))].cut
		})
	}
	machines := slices.Concat(dispatchers, edges)
	plan("clock set", 4, func(r *rand.Rand, _ time.Duration) func() {
		k, ahead := machines[r.IntN(len(machines))], skews[r.IntN(len(skews))]
		if r.IntN(2) == 0 {
			ahead = -ahead
		}
		return func() { k.ahead.Store(int64(ahead)) }
	})
	plan("broker restarted", 2, func(r *rand.Rand, _ time.Duration) func() {
		down := time.Duration(r.Int64N(int64(maxOutage)))
		return func() { w.broker.Restart(down) }
	})
	plan("leader changed", 4, func(r *rand.Rand, at time.Duration) func() {
		stream := []string{topology.StreamCompletions, topology.StreamRetries, "KV_sessions"}[r.IntN(3)]
		lasting := time.Duration(r.Int64N(int64(maxOutage)))
		// for longer than a dispatcher tries to store a result, but not beyond the other faults
		if r.IntN(3) == 0 {
			lasting = min(time.Duration(r.Int64N(int64(faultsFor))), faultsFor+maxOutage-at)
		}
		return func() { w.broker.Leaderless(stream, lasting) }
	})
	for _, e := range events {
		time.AfterFunc(e.at, e.do)
	}
	time.Sleep(faultsFor) // in virtual time
	w.mu.Lock()
	w.calm = true
	w.mu.Unlock()
	for _, k := range machines {
		k.ahead.Store(0)
	}
	time.Sleep(maxOutage + 2*time.Second) // for connections to be opened again
}

var errRefused = syscall.ECONNREFUSED

var errGone = errors.New("the process is gone")
