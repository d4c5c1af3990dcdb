package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"time"

	"verifyd/dispatcher/callback"
	"verifyd/natsconf"
	"verifyd/natsconf/crashpoint"
	"verifyd/sessions"
)

const (
	// settleFor is how long storing a result is tried; after it the claim speaks, and the attempt is settled as unknown.
	settleFor = 20 * time.Second
	// settlePause lies between two tries to store a result.
	settlePause = 250 * time.Millisecond
	// scheduleWait bounds the wait for a schedule to be stored. It and a whole AckWait's progress leave the message ours.
	scheduleWait = 5 * time.Second
	// troublePause is after how long a delivery comes again that failed for a reason of our own.
	troublePause = 5 * time.Second
)

// fate is what becomes of the message of a delivery: this value alone decides, and answer alone acts on it.
type fate struct {
	final bool          // the result is stored: acknowledge
	after time.Duration // otherwise: give it out again after this long
}

var settled = fate{final: true}

func again(after time.Duration) fate { return fate{after: after} }

// deliver brings one delivery as far as it gets now, and gives its place back. It owns conn.
func (d *Dispatcher) deliver(ctx context.Context, dl *delivery, p *place, conn *callback.Conn) {
	a := &attempt{d: d, delivery: dl, place: p, conn: conn}
	f := again(troublePause)
	defer func() {
		if p := recover(); p != nil {
			// The claim, if one was made, speaks: this attempt is settled as unknown later.
			d.c.Log.Error().Str("sid", string(dl.ID)).Str("panic", fmt.Sprint(p)).Bytes("stack", debug.Stack()).Msg("a delivery panicked")
			a.closeConn()
		}
		a.leave()
		d.destinations.done(dl)
		d.answer(dl, f)
	}()
	f = a.run(ctx)
}

// answer is the one place that acknowledges. Acknowledgements are hints: the facts decide what a redelivery meets. What waits long
// becomes a message schedule, so that the consumer need not carry it; where that cannot be stored, the consumer does.
func (d *Dispatcher) answer(dl *delivery, f fate) {
	if !f.final && (f.after < d.c.ScheduleFrom || !d.schedule(dl, f.after)) {
		_ = dl.msg.NakWithDelay(max(f.after, time.Millisecond))
		return
	}
	crashpoint.Reach(crashpoint.BeforeAck)
	_ = dl.msg.Ack()
	crashpoint.Reach(crashpoint.AfterAck)
}

func (d *Dispatcher) schedule(dl *delivery, after time.Duration) (stored bool) {
	ctx, cancel := context.WithTimeout(context.Background(), scheduleWait)
	defer cancel()
	err := d.c.Sessions.Schedule(ctx, sessions.Retry{
		Session: dl.ID, Asked: dl.asked, Tries: dl.tries, Since: dl.due, At: d.c.Now().Add(after),
	})
	if err != nil {
		d.c.Log.Warn().Err(err).Str("sid", string(dl.ID)).Msg("a delivery waits with its consumer")
	}
	return err == nil
}

// attempt is one delivery under way.
type attempt struct {
	d *Dispatcher
	*delivery
	place  *place
	conn   *callback.Conn
	number int
	// last is the result of the last attempt that was sent, or given up, and releases how many were released since.
	last     *sessions.Result
	releases int

	contact contact
}

// run follows the order that is the law of this package: facts, connection, claim, write, result.
func (a *attempt) run(ctx context.Context) fate {
	s, err := a.step(ctx)
	if err != nil {
		return a.trouble("read the facts", err)
	}
	switch s.do {
	case send:
		a.number = s.attempt
		return a.send(ctx)
	case wait:
		return again(s.wait)
	case release:
		a.number = s.attempt
		return a.release(callback.Answer{Class: sessions.ClassLate, Detail: "the claim's acknowledgement was lost, so nothing was sent under it"})
	case settle:
		a.number = s.attempt
		return a.end(a.carry(abandoned(a.ID, s, a.d.worker, a.d.now())), 0)
	case drop:
		return settled
	default:
		return settled
	}
}

// step reads the facts, except for a young completion that nobody can have tried: it has none, and if it had, the claim
// would meet them. An old one may come from a replayed stream; its receiver should not be dialled for nothing.
func (a *attempt) step(ctx context.Context) (step, error) {
	if a.first && a.d.now().Sub(a.CompletedAt) < natsconf.AckWait {
		return decide(a.Completion, nil, 0, a.d.now()), nil
	}
	attempts, err := a.d.c.Sessions.Attempts(ctx, a.ID)
	if err != nil {
		return step{}, err
	}
	a.last, a.releases = ended(attempts)
	if n := len(attempts); n > 0 {
		// Another who saw this claim would have to call its end unknown.
		if last := attempts[n-1]; last.Result == nil && last.Claim.Worker == a.d.worker && a.d.held.wasVain(a.ID, n) {
			return step{do: release, attempt: n}, nil
		}
	}
	s := decide(a.Completion, attempts, a.asked, a.d.now())
	if s.do == drop && a.asked == 0 && len(attempts) > 0 {
		return a.wished(ctx, len(attempts)+1)
	}
	return s, nil
}

// wished looks whether somebody has asked for one more attempt: their wish may have been told by a message that this one replaced.
func (a *attempt) wished(ctx context.Context, number int) (step, error) {
	r, err := a.d.c.Sessions.Asked(ctx, a.ID, number)
	if err != nil || r == nil {
		return step{do: drop}, err
	}
	a.asked, a.due = number, r.At
	return step{do: send, attempt: number}, nil
}

// send makes everything ready before the claim is spent: the exact bytes, and a connection that is alive. Whatever fails until then
// has sent nothing. Where the destination's connections are all in use, and it sends so fast that one will be free in a moment, the
// claim goes ahead of the connection, and is released should none come.
func (a *attempt) send(ctx context.Context) fate {
	request, notSent := a.prepare()
	if notSent == nil && a.place.held {
		notSent = a.connect(ctx)
	}
	if notSent != nil {
		return a.notSent(ctx, notSent)
	}
	crashpoint.Reach(crashpoint.Connected)
	now := a.d.now()
	claim := sessions.Claim{
		Session: a.ID, Number: a.number, Worker: a.d.worker, At: now,
		Deadline: now.Add(claimBegin), SettleAfter: now.Add(claimBegin + a.d.c.Timeout + claimMargin),
	}
	if f, ok := a.claim(ctx, claim); !ok {
		return f
	}
	if !a.place.held {
		if unused := a.follow(ctx); unused != nil {
			return a.release(*unused)
		}
	}
	if !a.d.c.Now().Before(claim.Deadline) {
		return a.release(callback.Answer{Class: sessions.ClassLate, Detail: "the claim's deadline passed before the first byte"})
	}
	return a.conclude(a.conn.Send(ctx, request))
}

// follow gets the connection of a claim that went ahead. The answer says why the claim was not used; nil: it can be.
func (a *attempt) follow(ctx context.Context) (unused *callback.Answer) {
	conn, ok := a.place.take(ctx)
	if !ok {
		return &callback.Answer{Class: sessions.ClassLate, Detail: "no connection became free in time"}
	}
	a.conn = conn
	if n := a.connect(ctx); n != nil {
		a.contact = contactOf(n.Class)
		return &callback.Answer{Class: n.Class, Detail: n.Detail, Address: n.Address, Timing: n.Timing}
	}
	return nil
}

// leave gives the place back, with the connection where it may be used again.
func (a *attempt) leave() {
	a.place.give(a.conn, a.contact)
	a.conn = nil
}

// prepare makes the exact bytes.
func (a *attempt) prepare() (callback.Request, *callback.NotSent) {
	if a.refused != nil {
		return callback.Request{}, &callback.NotSent{Class: sessions.ClassRefusedAddress, Detail: a.refused.Error(), Err: a.refused}
	}
	secrets, ok := a.d.c.Secrets.SigningSecrets(a.Account)
	if !ok {
		return callback.Request{}, &callback.NotSent{Class: sessions.ClassUnsigned, Detail: "the account is not known here"}
	}
	request, err := a.d.c.Client.Prepare(callback.Callback{
		URL: a.target, Session: a.ID, PlatformUserID: a.PlatformUserID, GuildID: a.GuildID, Verified: a.Verified(),
		Secrets: secrets, At: a.d.now(),
	})
	if err != nil { // the account has no signing secret that signs
		return callback.Request{}, &callback.NotSent{Class: sessions.ClassUnsigned, Detail: err.Error(), Err: err}
	}
	return request, nil
}

// connect makes sure of a connection that is alive.
func (a *attempt) connect(ctx context.Context) *callback.NotSent {
	if a.conn != nil && a.conn.Alive() {
		a.contact = reached
		return nil
	}
	a.closeConn()
	conn, err := a.d.c.Client.Dial(ctx, a.target)
	a.place.dialled(err == nil)
	if err != nil {
		if notSent, ok := errors.AsType[*callback.NotSent](err); ok {
			return notSent
		}
		return &callback.NotSent{Class: sessions.ClassConnect, Detail: err.Error(), Err: err}
	}
	a.conn, a.contact = conn, reached
	return nil
}

// claim takes the attempt. Only ok allows a write.
func (a *attempt) claim(ctx context.Context, c sessions.Claim) (f fate, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, claimWait)
	defer cancel()
	a.d.claims.enter()
	err := a.d.c.Sessions.Claim(ctx, c)
	a.d.claims.leave()
	switch {
	case err == nil:
		a.d.held.forgetVain(c)
		return fate{}, true
	case errors.Is(err, sessions.ErrClaimed):
		a.d.metrics.conflicts.Inc()
		return again(settleLook), false // the facts tell what the other owner is doing
	default:
		// The claim may be stored, or may be yet. Nothing is sent under it; this process, while it lives, knows that.
		a.d.held.inVain(c)
		return a.trouble("claim", err), false
	}
}

// ended gives the newest result that is not a release, or nil, and how many releases came after it.
func ended(attempts []sessions.Attempt) (last *sessions.Result, releases int) {
	for _, a := range slices.Backward(attempts) {
		switch {
		case a.Result == nil:
		case a.Result.Verdict == sessions.VerdictReleased:
			releases++
		default:
			return a.Result, releases
		}
	}
	return nil, releases
}

// conclude stores how a sent attempt ended.
func (a *attempt) conclude(answer callback.Answer) fate {
	if !answer.Reusable {
		a.closeConn()
	}
	if answer.Verdict == sessions.VerdictReleased {
		return a.release(answer)
	}
	a.leave() // others send while the result is stored
	a.d.metrics.took.Observe(a.d.now().Sub(a.due).Seconds())
	return a.end(a.result(answer), answer.RetryAfter)
}

// end stores how an attempt ended, and when the next one is due where the policy sends such a result again.
func (a *attempt) end(r sessions.Result, retryAfter time.Duration) fate {
	left := a.d.giveUpAt(a.delivery).Sub(r.At)
	if left <= 0 || !sendsAgain(a.d.policyOf(a.Completion), r) {
		return a.record(r)
	}
	pause := min(max(backoff(a.tries, rand.Float64()), retryAfter), left) //nolint:gosec // jitter
	r.Next = r.At.Add(pause)
	if f := a.record(r); !f.final {
		return f
	}
	return again(pause)
}

// release records that the claim's owner wrote nothing, so that the next attempt may follow, but not without end: a receiver
// that breaks each connection between the claim and the write would cost two facts a time until the retry deadline.
func (a *attempt) release(answer callback.Answer) fate {
	answer.Verdict = sessions.VerdictReleased
	a.closeConn()
	a.leave()
	if a.releases+1 >= mostReleases || !a.d.now().Before(a.d.giveUpAt(a.delivery)) {
		answer.Verdict = sessions.VerdictUndeliverable // the claim is ours already, and nothing was sent
		return a.record(a.carry(a.result(answer)))
	}
	if f := a.record(a.result(answer)); !f.final {
		return f
	}
	return again(backoff(a.number, rand.Float64())) //nolint:gosec // jitter
}

func (a *attempt) result(answer callback.Answer) sessions.Result {
	return sessions.Result{
		Session: a.ID, Number: a.number, Verdict: answer.Verdict, Class: answer.Class, Status: answer.Status,
		Detail: answer.Detail, Address: answer.Address, Answer: answer.Body, Timing: answer.Timing,
		By: a.d.worker, At: a.d.now(),
	}
}

// notSent plans the next try or, once the retry deadline has passed, ends the delivery. Giving up takes the claim first: a
// paused process that still holds this delivery must not send after it was called undeliverable.
func (a *attempt) notSent(ctx context.Context, n *callback.NotSent) fate {
	a.d.metrics.notSent.WithLabelValues(string(n.Class)).Inc()
	a.contact = contactOf(n.Class)
	a.leave()
	now := a.d.now()
	if left := a.d.giveUpAt(a.delivery).Sub(now); left > 0 {
		pause := min(backoff(a.tries, rand.Float64()), left) //nolint:gosec // jitter
		a.d.c.Log.Info().Str("sid", string(a.ID)).Str("account", a.Account).Int("attempt", a.number).Int("tries", a.tries).
			Str("class", string(n.Class)).Str("detail", n.Detail).Dur("took", n.Timing.Total).Dur("next", pause).Msg("callback not sent")
		a.d.c.Sessions.Emit(sessions.Event{
			Name: sessions.EventNotSent, Session: a.ID, At: now, Attempt: a.number, Class: n.Class, Detail: n.Detail,
			Address: n.Address, Timing: n.Timing, Next: pause,
		})
		return again(pause)
	}
	claim := sessions.Claim{Session: a.ID, Number: a.number, Worker: a.d.worker, GiveUp: true, At: now, Deadline: now, SettleAfter: now.Add(claimMargin)}
	if f, ok := a.claim(ctx, claim); !ok {
		return f
	}
	return a.record(a.carry(sessions.Result{
		Session: a.ID, Number: a.number, Verdict: sessions.VerdictUndeliverable, Class: n.Class, Detail: n.Detail,
		Address: n.Address, Timing: n.Timing, By: a.d.worker, At: now,
	}))
}

// carry turns the result of giving up into how the attempt before ended, where that one was sent and was to be sent again:
// "undeliverable" says that nothing ever was.
func (a *attempt) carry(r sessions.Result) sessions.Result {
	if r.Verdict == sessions.VerdictUndeliverable && a.last != nil && !a.last.Next.IsZero() {
		r.Verdict, r.Class, r.Status = a.last.Verdict, a.last.Class, a.last.Status
	}
	return r
}

// record stores a result, whatever happens around it: nothing cancels it but its own time.
func (a *attempt) record(r sessions.Result) fate {
	ctx, cancel := context.WithTimeout(context.Background(), settleFor)
	defer cancel()
	for {
		standing, err := a.d.c.Sessions.Settle(ctx, r)
		if err == nil || errors.Is(err, sessions.ErrSettled) {
			a.log(standing, err)
			return settled
		}
		select {
		case <-time.After(settlePause):
		case <-ctx.Done():
			return a.trouble("store the result", err)
		}
	}
}

// log writes the one wide line of an attempt.
func (a *attempt) log(r sessions.Result, err error) {
	a.d.metrics.attempts.WithLabelValues(string(r.Verdict), string(r.Class)).Inc()
	line := a.d.c.Log.Info().Str("sid", string(a.ID)).Str("account", a.Account).Int("attempt", r.Number).
		Str("verdict", string(r.Verdict)).Str("class", string(r.Class)).Int("status", r.Status).Str("address", r.Address).
		Dur("took", r.Timing.Total).Dur("since_completion", r.At.Sub(a.CompletedAt))
	if r.Detail != "" {
		line = line.Str("detail", r.Detail)
	}
	if err != nil {
		line = line.Str("settled_by", r.By)
	}
	line.Msg("callback attempt")
}

// trouble ends this try for a reason that is not the receiver's.
func (a *attempt) trouble(doing string, err error) fate {
	a.d.c.Log.Warn().Err(err).Str("sid", string(a.ID)).Str("account", a.Account).Str("doing", doing).Msg("a delivery has to wait")
	return again(troublePause)
}

func (a *attempt) closeConn() {
	if a.conn != nil {
		_ = a.conn.Close()
		a.conn = nil
	}
}
