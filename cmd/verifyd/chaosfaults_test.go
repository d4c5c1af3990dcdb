package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"verifyd/natsconf/topology"
)

// fault is something that happens to one process.
type fault struct {
	name        string
	weight      int
	whom        func(f *deployment) []*victim
	least, most time.Duration // of the fault
	do          func(ctx context.Context, v *victim, d time.Duration) error
}

func dispatchersOf(f *deployment) []*victim { return f.dispatchers }
func edgeOf(f *deployment) []*victim        { return []*victim{f.edge} }
func storeOf(f *deployment) []*victim       { return []*victim{f.store} }

// edgePause bounds a pause of an edge, which cannot learn meanwhile that a key was revoked.
const edgePause = 2 * time.Second

var faultTable = []fault{
	{"dispatcher killed", 8, dispatchersOf, 0, 0, killOnce},
	{"dispatcher killed while it starts", 3, dispatchersOf, 0, 400 * time.Millisecond, killTwice},
	{"dispatcher paused", 4, dispatchersOf, 50 * time.Millisecond, 3 * time.Second, pause},
	{"dispatcher paused and killed", 2, dispatchersOf, 50 * time.Millisecond, 2 * time.Second, pauseAndKill},
	{"edge killed", 2, edgeOf, 0, 0, killOnce},
	{"edge paused", 1, edgeOf, 50 * time.Millisecond, edgePause, pause},
	{"store killed", 3, storeOf, 0, 0, killOnce},
	{"store killed while it starts", 1, storeOf, 0, 300 * time.Millisecond, killTwice},
	// publishers give up after 5 s, and the message may be stored later
	{"store paused", 2, storeOf, time.Second, 8 * time.Second, pause},
}

func killOnce(ctx context.Context, v *victim, _ time.Duration) error { return v.killed(ctx) }

func killTwice(ctx context.Context, v *victim, d time.Duration) error {
	if err := v.killed(ctx); err != nil {
		return err
	}
	pass(ctx, d)
	return v.killed(ctx)
}

func pause(ctx context.Context, v *victim, d time.Duration) error {
	if err := v.stopped(); err != nil {
		return err
	}
	pass(ctx, d)
	return v.continued()
}

func pauseAndKill(ctx context.Context, v *victim, d time.Duration) error {
	if err := v.stopped(); err != nil {
		return err
	}
	pass(ctx, d)
	v.kill()
	v.kills++
	return v.run()
}

// demon injects the faults.
type demon struct {
	f        *deployment
	rng      *rand.Rand
	wg       sync.WaitGroup
	long     int // pauses of a dispatcher that are longer than the ack wait
	absences int // of the store, longer than storing a result is retried

	mu  sync.Mutex
	err error // of the test itself: a process that cannot be started
}

// torment injects faults on several processes at once, and returns when all of them have recovered.
func (d *demon) torment(ctx context.Context, until time.Time) error {
	stop, away := time.Now().Add(firstLongStop), time.Now().Add(firstAbsence)
	for time.Now().Before(until) && d.failed() == nil &&
		pass(ctx, d.between(150*time.Millisecond, 650*time.Millisecond)) {
		now, of := time.Now(), d.f.dispatchers
		// The first ends after the other faults; later ones affect both dispatchers more.
		if now.After(stop) && (d.long == 0 || now.Add(longStop).Before(until)) &&
			d.ambush(ctx, of[d.long%2], of[(d.long+1)%2]) {
			stop = now.Add(longStopEvery)
			d.long++
		}
		if now.After(away) && now.Add(absence+topology.AckWait).Before(until) &&
			d.takeStore(ctx, of[d.absences%2], of[(d.absences+1)%2]) {
			away = now.Add(absenceEvery)
			d.absences++
		}
		d.hurt(ctx)
	}
	d.wg.Wait()
	return errors.Join(d.failed(), ctx.Err())
}

// hurt begins one fault, unless the processes that it could hit still have others.
func (d *demon) hurt(ctx context.Context) {
	f := d.choose()
	lasts, whom := d.between(f.least, f.most), slices.Clone(f.whom(d.f))
	d.rng.Shuffle(len(whom), func(i, j int) { whom[i], whom[j] = whom[j], whom[i] })
	free := slices.IndexFunc(whom, func(v *victim) bool { return v.TryLock() })
	if free < 0 {
		return
	}
	v := whom[free]
	d.wg.Go(func() {
		defer v.Unlock()
		if err := f.do(ctx, v, lasts); err != nil {
			d.fail(fmt.Errorf("%s: %w", f.name, err))
			return
		}
		d.recovers(ctx, v)
	})
}

func (d *demon) choose() fault {
	sum := 0
	for _, f := range faultTable {
		sum += f.weight
	}
	n := d.rng.IntN(sum)
	for _, f := range faultTable {
		if n -= f.weight; n < 0 {
			return f
		}
	}
	panic("no fault")
}

func (d *demon) recovers(ctx context.Context, v *victim) {
	if err := v.comesUp(ctx); err != nil {
		d.fail(err)
		return
	}
	pass(ctx, v.rest)
}

// ambush pauses a dispatcher for longer than the ack wait, in the middle of many deliveries: while it is down
// and the other one is paused, completions accumulate; it starts, takes them, and pauses itself once some of
// them hold their claims and have not been sent. Only then does the other one continue, and gets what it
// holds. It returns false if no process was caught: while one of them still has another fault, or if the
// store was down meanwhile.
func (d *demon) ambush(ctx context.Context, v, other *victim) bool {
	if !lockAll(v, other) {
		return false
	}
	v.ask(ctx)
	v.kill()
	v.kills++
	err := other.stopped()
	pass(ctx, d.between(time.Second, 2*time.Second))
	caughtBefore := v.caught()
	v.env = append(v.env, pauseVariable+"=1")
	err = errors.Join(err, v.run())
	v.env = v.env[:len(v.env)-1]
	for waited := time.Duration(0); v.caught() == caughtBefore && waited < bootAndGather &&
		pass(ctx, lookAgain); waited += lookAgain {
	}
	caught := v.caught() > caughtBefore
	err = errors.Join(err, other.continued())
	other.Unlock()
	lasts, late := longStop+d.between(0, 5*time.Second), 0
	d.wg.Go(func() {
		defer v.Unlock()
		if caught {
			v.stops++
			pass(ctx, lasts)
			// it wakes up while the store is up, from which it learns what happened to its deliveries
			d.f.store.Lock()
			defer d.f.store.Unlock()
			late = d.lateOwners()
			err = errors.Join(err, v.continued())
		} else { // it would pause itself at some other time
			v.kill()
			v.kills++
			err = errors.Join(err, v.run())
		}
		if err != nil {
			d.fail(fmt.Errorf("long pause: %w", err))
			return
		}
		d.recovers(ctx, v)
		pass(ctx, afterLongStop) // and survives it, however long it takes to find the store again
		for waited := time.Duration(0); caught && d.lateOwners() == late && waited < maxWake &&
			pass(ctx, lookAgain); waited += lookAgain {
		}
	})
	return caught
}

// takeStore kills the store in the middle of many deliveries and keeps it down for long, so that what was
// sent cannot be recorded by the sender. One dispatcher keeps running, to meet its own claims again. It
// returns false, and does nothing, while one of the processes still has another fault.
func (d *demon) takeStore(ctx context.Context, spared, other *victim) bool {
	v := d.f.store
	if !lockAll(v, spared, other) {
		return false
	}
	err := each(d.f.dispatchers, (*victim).stopped)
	pass(ctx, d.between(time.Second, 2*time.Second))
	err = errors.Join(err, each(d.f.dispatchers, (*victim).continued))
	pass(ctx, d.between(20*time.Millisecond, 200*time.Millisecond))
	v.kill()
	v.kills++
	other.Unlock()
	lasts := absence + d.between(0, 5*time.Second)
	d.wg.Go(func() {
		defer spared.Unlock()
		defer v.Unlock()
		pass(ctx, lasts)
		if err := errors.Join(err, v.run()); err != nil {
			d.fail(fmt.Errorf("long absence: %w", err))
			return
		}
		d.recovers(ctx, v)
		pass(ctx, topology.AckWait)
	})
	return true
}

func lockAll(all ...*victim) bool {
	for i, v := range all {
		if v.TryLock() {
			continue
		}
		for _, locked := range all[:i] {
			locked.Unlock()
		}
		return false
	}
	return true
}

func each(all []*victim, do func(*victim) error) (err error) {
	for _, v := range all {
		err = errors.Join(err, do(v))
	}
	return err
}

const (
	// bootAndGather is longer than a dispatcher takes to start and to claim the waiting deliveries, even on a
	// busy machine.
	bootAndGather = 15 * time.Second
	// maxWake bounds the wait for the log line of a dispatcher that woke up with open claims: it has to find
	// the store again first.
	maxWake = time.Minute
	// lookAgain is how long a reading of a process's log is used.
	lookAgain = 20 * time.Millisecond
)

func (d *demon) between(least, most time.Duration) time.Duration {
	return least + time.Duration(d.rng.Int64N(int64(most-least)+1))
}

func (d *demon) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = errors.Join(d.err, err)
}

func (d *demon) failed() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// conflicts returns how many claims were lost to the other dispatcher, at least.
func (d *demon) conflicts() (n int) {
	for _, v := range d.f.dispatchers {
		n += v.conflicts
	}
	return n
}

// lateOwners counts the deliveries whose owner came back after the deadline of its claim, or after another
// had settled it.
func (d *demon) lateOwners() int { return d.f.logged(`"class":"late"`) + d.f.logged(`"settled_by"`) }

func (d *demon) report() string {
	var b strings.Builder
	kills, stops := 0, 0
	for _, v := range d.f.all() {
		kills, stops = kills+v.kills, stops+v.stops
		fmt.Fprintf(&b, "%s %d and %d, ", v.name, v.kills, v.stops)
		if v.exits > 0 {
			fmt.Fprintf(&b, "started again after it had ended by itself %d times, ", v.exits)
		}
	}
	return fmt.Sprintf("%d kills, %d stops (%s%d stops of a dispatcher and %d absences of the store "+
		"were long); "+
		"at least %d claims lost to the other dispatcher, %d late owners", kills, stops, &b, d.long,
		d.absences, d.conflicts(), d.lateOwners())
}
