package dispatcher

import (
	"time"

	"verifyd/natsconf"
	"verifyd/natsconf/once"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/modelcheck"
)

// left returns how long a worker's delivery is before its retry deadline.
func (m *model) left(s *deliveryState, ws *workerState) time.Duration {
	dl := delivery{Completion: m.completionOf(s)}
	dl.due = dl.CompletedAt
	if ws.due != 0 {
		dl.due = modelNow.Add(-phases[0])
		if s.resendLate {
			dl.due = modelNow.Add(-phases[2])
		}
	}
	return m.shared.giveUpAt(&dl).Sub(m.nowOf(ws))
}

// deadline is until when the claim that a worker makes, or holds, allows it to write.
func (m *model) deadline(ws *workerState, w int) time.Time {
	return m.claims[ws.n][byNow(w)][ws.age][ws.skew].Deadline
}

func (st *stepper) acquire(w int) {
	ws := st.s.worker[w]
	ws.age = 0
	c := st.m.completionOf(&st.s)
	if int(ws.n) < st.m.room && st.m.outlives(st.m.shared, c, st.m.deadline(&ws, w)) {
		st.does(modelcheck.Event{From: workerNames[w], To: "Receiver", Text: "connects"},
			func(s *deliveryState) { s.worker[w].begins(publishClaim, 0) })
	}
	st.does(modelcheck.Event{From: workerNames[w], To: "Receiver", Text: "cannot connect"},
		func(s *deliveryState) {
			ws := &s.worker[w]
			switch {
			case st.m.left(s, ws) > 0:
				st.dispose(s, w, retryIn(time.Minute))
			case st.m.givesUpOpen:
				st.givenUp(s, w)
			default:
				ws.begins(publishClaim, givesUp)
			}
		})
}

// begins makes a worker begin to write a fact.
func (ws *workerState) begins(at, code uint8) {
	ws.at, ws.writes, ws.age, ws.tried, ws.uncertain = at, code, 0, 0, false
}

// fact is what a worker writes.
func (ws *workerState) fact(w int) inFlight {
	if ws.at == publishClaim || ws.at == lookForClaim {
		return inFlight{aClaim, ws.n, ws.writes | byNow(w), ws.age, ws.skew}
	}
	return inFlight{kind: aResult, n: ws.n, code: ws.writes | uint8(w+1)<<4}
}

func (st *stepper) publish(w int) {
	u := st.s.worker[w].fact(w)
	text := "claim"
	if u.kind == aResult {
		text = "result " + string(modelVerdicts[u.code&verdictMask])
		if ws := &st.s.worker[w]; ws.tried == 0 && !ws.uncertain {
			st.does(chance(by(w, "cannot store the result", 0)), func(s *deliveryState) { s.rest(w) })
		}
	}
	told := func(err error) func(*deliveryState) {
		return func(s *deliveryState) {
			ws := &s.worker[w]
			write := once.Write{Tried: int(ws.tried), Uncertain: ws.uncertain}
			st.next(s, w, st.m.published(&write, err), &write)
		}
	}
	free := st.free(u.kind, u.n)
	if free || st.m.overwrites {
		st.does(toStream(w, text, u.n), func(s *deliveryState) {
			s.put(u)
			told(nil)(s)
		})
		st.intoLimbo(toStream(w, text+" (unanswered)", u.n), u, told(natsconf.ErrUncertain))
	} else if st.s.unanswered > 0 {
		st.does(chance(toStream(w, text+" (refused, unanswered)", u.n)), func(s *deliveryState) {
			s.unanswered--
			told(natsconf.ErrUncertain)(s)
		})
	}
	if !free && !st.m.overwrites || st.s.underWay(u) {
		st.does(toStream(w, text+" (conflicts)", u.n), told(natsconf.ErrConflict))
	}
	st.does(chance(toStream(w, text+" (no server)", u.n)), told(natsconf.ErrUnavailable))
}

// underWay reports whether a publish to the same subject is unanswered.
func (s *deliveryState) underWay(u inFlight) bool {
	for _, other := range s.limbo {
		if other.kind == u.kind && other.n == u.n {
			return true
		}
	}
	return false
}

func (st *stepper) look(w int) {
	ws := &st.s.worker[w]
	u := ws.fact(w)
	told := func(own bool, err error) func(*deliveryState) {
		return func(s *deliveryState) {
			ws := &s.worker[w]
			write := once.Write{Tried: int(ws.tried), Uncertain: ws.uncertain, Err: natsconf.ErrConflict}
			if ws.uncertain {
				write.Err = natsconf.ErrUncertain
			}
			st.next(s, w, st.m.looked(&write, own, err), &write)
		}
	}
	st.does(chance(toStream(w, "looks, and gets no answer,", u.n)), told(false, natsconf.ErrUnavailable))
	switch {
	case st.free(u.kind, u.n):
		st.does(toStream(w, "looks, and finds none of attempt", u.n), told(false, natsconf.ErrNotFound))
	case u.kind == aClaim && st.s.claim[u.n]&whoMask == byNow(w),
		u.kind == aResult && st.s.result[u.n]>>4 == uint8(w+1):
		st.does(toStream(w, "looks, and finds its own of attempt", u.n), told(true, nil))
	default:
		st.does(toStream(w, "looks, and finds another's of attempt", u.n), told(false, nil))
	}
}

// next is what Writer.Claim and Writer.StoreResult do with the result of package once.
func (st *stepper) next(s *deliveryState, w int, next once.Next, write *once.Write) {
	ws := &s.worker[w]
	ws.tried, ws.uncertain = uint8(write.Tried), write.Uncertain
	claims := ws.at == publishClaim || ws.at == lookForClaim
	publish, look := publishResult, lookForResult
	if claims {
		publish, look = publishClaim, lookForClaim
	}
	if next == once.Publish || next == once.Read {
		ws.at = publish
		if next == once.Read {
			ws.at = look
		}
		return
	}
	s.forget(w, byBefore(w), byBefore(w)) // its write is over: the next one has another nonce
	ws.tried, ws.uncertain = 0, false
	switch {
	case claims && next == once.Stored:
		st.claimed(s, w, nil)
	case claims && next == once.Taken:
		st.claimed(s, w, facts.ErrClaimed)
	case claims:
		st.claimed(s, w, write.Err)
	case next == once.Failed:
		ws.begins(publishResult, ws.writes) // storeResult tries again
	default:
		st.stored(s, w, next == once.Taken)
	}
}

// claimed is the end of attempt.claim.
func (st *stepper) claimed(s *deliveryState, w int, err error) {
	ws := &s.worker[w]
	switch st.m.ownerAfter(err) {
	case ours:
		if !st.m.keepsDoubt {
			ws.doubt &^= 1 << ws.n
		}
		if ws.writes&givesUp != 0 {
			st.givenUp(s, w)
			return
		}
		// once the first claim has left the store, a late one is stored; it allows no write
		late := s.gone() && !st.m.mayBegin(st.m.nowOf(ws), st.m.deadline(ws, w))
		for o := range s.worker {
			if other := &s.worker[o]; o != w && !late && other.n == ws.n &&
				(other.at == begins || other.at == write) {
				s.broken = 4
			}
		}
		ws.at = begins
	case others:
		s.rest(w) // and takes the message again, after a short time
	case unconfirmed:
		ws.doubt |= 1 << ws.n
		s.rest(w)
	}
}

func (st *stepper) begins(w int) {
	ws := &st.s.worker[w]
	if !st.m.mayBegin(st.m.nowOf(ws), st.m.deadline(ws, w)) {
		st.does(by(w, "finds its deadline passed", ws.n), func(s *deliveryState) { st.giveBack(s, w) })
		return
	}
	st.does(by(w, "may begin attempt", ws.n), func(s *deliveryState) {
		s.worker[w].at = write
		near := true // clocks, so that no process settles before the deadline
		for o := range s.worker {
			near = near && s.worker[o].skew < 2
		}
		if s.result[ws.n] != 0 && s.result[ws.n] != resultJunk && near && st.s.claim[ws.n] != unreadable {
			s.broken = 2
		}
	})
}

func (st *stepper) write(w int) {
	n := st.s.worker[w].n
	post := func(text string, ok, no bool, verdict facts.Verdict) {
		st.does(modelcheck.Event{From: workerNames[w], To: "Receiver", Text: text, Number: int(n)},
			func(s *deliveryState) {
				st.m.sends(s, n)
				if ok {
					s.ok |= 1 << n
				}
				if no {
					s.no |= 1 << n
				}
				st.ended(s, w, verdict)
			})
	}
	post("POST, answered 200, of attempt", true, false, facts.VerdictDelivered)
	post("POST, answered 503, of attempt", false, true, facts.VerdictRejected)
	post("POST, or half of it, without an answer, of attempt", false, false, facts.VerdictUnknown)
	st.does(chance(by(w, "finds the connection broken before the first byte", 0)),
		func(s *deliveryState) { st.giveBack(s, w) })
}

// sends records a POST, and whether it is allowed.
func (m *model) sends(s *deliveryState, n uint8) {
	if s.sent&(1<<n) != 0 {
		s.broken = 3
	}
	for before := uint8(1); before < n; before++ {
		if s.sent&(1<<before) == 0 {
			continue
		}
		allowed := m.policy == sessions.PolicyAtLeastOnce && s.result[before]&hasNext != 0 &&
			before > s.before
		for asked := max(before, s.before) + 1; asked <= n; asked++ {
			allowed = allowed || s.resend&(1<<asked) != 0
		}
		if !allowed {
			s.broken = 1
		}
	}
	s.sent |= 1 << n
}

// ended is attempt.finish: after a POST, or for an owner that vanished.
func (st *stepper) ended(s *deliveryState, w int, verdict facts.Verdict) {
	ws := &s.worker[w]
	r := facts.Result{Verdict: verdict}
	if verdict == facts.VerdictRejected {
		r.Status = 503
	}
	if ws.at != write {
		last, _ := st.m.lastResult(st.m.factsOf(s, int(ws.seen), ws.missed))
		r = st.m.earlier(r, last)
	}
	if st.m.sendsAgain(st.m.policy, r, st.m.left(s, ws)) {
		r.Next = modelNow.Add(time.Minute)
	}
	ws.begins(publishResult, codeOf(r))
}

// giveBack is attempt.release.
func (st *stepper) giveBack(s *deliveryState, w int) {
	ws := &s.worker[w]
	_, releases := st.m.lastResult(st.m.factsOf(s, int(ws.seen), ws.missed))
	if st.m.releaseAs(releases, st.m.left(s, ws)) != facts.VerdictReleased {
		st.givenUp(s, w)
		return
	}
	ws.begins(publishResult, codeOf(facts.Result{Verdict: facts.VerdictReleased}))
}

// givenUp is the end of attempt.notSent, and of attempt.release if no other attempt follows.
func (st *stepper) givenUp(s *deliveryState, w int) {
	ws := &s.worker[w]
	last, _ := st.m.lastResult(st.m.factsOf(s, int(ws.seen), ws.missed))
	r := st.m.earlier(facts.Result{Verdict: facts.VerdictUndeliverable}, last)
	ws.begins(publishResult, codeOf(r))
}

// stored is the end of attempt.storeResult: the worker's own result is stored, or another's.
func (st *stepper) stored(s *deliveryState, w int, taken bool) {
	ws := &s.worker[w]
	f := ended
	if taken {
		due := 0
		if s.nextDue {
			due = 1
		}
		f = st.m.standing(st.m.results[ws.n][s.result[ws.n]&(verdictMask|hasNext)][due], st.m.nowOf(ws))
	}
	if f.final && ws.presumed && st.m.looksAgain {
		f = retryIn(settleLook)
	}
	if f.final && st.m.results[ws.n][ws.writes&(verdictMask|hasNext)][0].LeavesDue() {
		f = retryIn(time.Minute)
	}
	st.dispose(s, w, f)
}

// dispose is shared.dispose, up to its first write.
func (st *stepper) dispose(s *deliveryState, w int, f disposition) {
	if f.final {
		s.worker[w].at = ack
		return
	}
	s.worker[w].at = toSchedule
}

func (st *stepper) schedule(w int) {
	ws := &st.s.worker[w]
	ends := func(s *deliveryState, f disposition, scheduled bool) {
		if st.m.acknowledges(f, scheduled) {
			s.worker[w].at = ack
			return
		}
		s.rest(w)
	}
	st.does(by(w, "waits with its message", 0),
		func(s *deliveryState) { ends(s, retryIn(time.Second), false) })
	if !st.m.schedules {
		return
	}
	u := inFlight{kind: aSchedule, code: ws.due + 1}
	st.does(toStream(w, "schedules a retry", 0), func(s *deliveryState) {
		s.put(u)
		ends(s, retryIn(time.Minute), true)
	})
	st.does(chance(toStream(w, "schedules a retry, which is not stored", 0)),
		func(s *deliveryState) { ends(s, retryIn(time.Minute), false) })
	st.intoLimbo(toStream(w, "schedules a retry (unanswered)", 0), u,
		func(s *deliveryState) { ends(s, retryIn(time.Minute), false) })
}

func (st *stepper) ack(w int) {
	ws := st.s.worker[w]
	st.does(toStream(w, "acknowledges", 0), func(s *deliveryState) {
		switch {
		case ws.msg == msgCompletion:
			s.completion = 0
		case ws.msg == msgRetry:
			s.retry = 0
		case ws.msg > msgResend:
			s.resendMsg &^= 1 << (ws.msg - msgResend)
		}
		s.rest(w)
	})
	st.does(chance(toStream(w, "acknowledges, and that is lost", 0)),
		func(s *deliveryState) { s.rest(w) })
}

// brokenBy returns the invariant that a state violates.
func (m *model) brokenBy(s deliveryState) string {
	if s.broken != 0 {
		return brokenTexts[s.broken]
	}
	if s.gone() {
		return ""
	}
	segment := 1 // the first attempt since the delivery last ended
	for n := 1; n <= m.room; n++ {
		code := s.result[n]
		if n <= int(s.before) { // it was judged before the loss
			segment = n + 1
			continue
		}
		if n > 1 && s.claim[n] != 0 && s.claim[n] != unreadable {
			before := m.results[n-1][s.result[n-1]&(verdictMask|hasNext)][0]
			switch {
			case s.result[n-1] == 0:
				return "an attempt was claimed before the one before it had ended"
			case !before.LeavesDue() && s.resend&(1<<n) == 0:
				return "a delivery that was at an end was taken up again"
			}
		}
		if code == resultJunk { // it is final, and says nothing
			segment = n + 1
		}
		if code == 0 || code == resultJunk {
			continue
		}
		if text := m.falseVerdict(&s, segment, n, modelVerdicts[code&verdictMask]); text != "" {
			return text
		}
		if !m.results[n][code&(verdictMask|hasNext)][0].LeavesDue() {
			segment = n + 1
		}
	}
	if m.lostHints == 0 && m.stray(&s) {
		return "a delivery has no verdict, and nothing leads to one"
	}
	return ""
}

// falseVerdict returns what is false about a verdict.
func (m *model) falseVerdict(s *deliveryState, segment, n int, v facts.Verdict) string {
	since := uint8(0)
	for k := segment; k <= n; k++ {
		since |= 1 << k
	}
	switch {
	case v == facts.VerdictReleased && s.sent&(1<<n) != 0:
		return "an attempt is called released under which something was sent"
	case v == facts.VerdictUndeliverable && s.sent&since != 0:
		return "a delivery is called undeliverable of which something was sent"
	case v == facts.VerdictDelivered && s.ok&since == 0:
		return "a delivery is called delivered that nobody answered so"
	case v == facts.VerdictRejected && s.no&since == 0:
		return "a delivery is called rejected that nobody answered so"
	}
	return ""
}

// endedState reports whether nothing is left to do.
func (m *model) endedState(s deliveryState) bool {
	if s.beyond {
		return true
	}
	for w := range s.worker {
		if s.worker[w].at != idle {
			return false
		}
	}
	return s.completion == 0 && s.resendMsg == 0 && s.schedule == 0 && s.retry == 0 &&
		s.limbo == [modelLimbo]inFlight{} && s.person == 0 && (s.gone() || !m.deliveryOf(&s).Open())
}

func (m *model) check() modelcheck.Model[deliveryState] {
	return modelcheck.Model[deliveryState]{
		Initial: m.initial(), Steps: m.steps, Fold: m.fold, Broken: m.brokenBy, Ended: m.endedState,
	}
}
