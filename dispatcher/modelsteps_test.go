package dispatcher

import (
	"time"

	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/modelcheck"
)

// brokenTexts are the invariants that a step may break.
var brokenTexts = [...]string{
	1: "a second POST goes out that nobody asked for",
	2: "a POST begins under a claim that was settled",
	3: "a POST goes out under an attempt that one went out under before",
	4: "two workers hold one attempt",
	5: "a fact was replaced by another",
}

var workerNames = [...]string{"A", "B", "C"}

// stepper yields what follows one state.
type stepper struct {
	m     *model
	s     deliveryState
	yield func(modelcheck.Event, deliveryState)
}

func (m *model) steps(s deliveryState, yield func(modelcheck.Event, deliveryState)) {
	if s.beyond {
		return
	}
	st := stepper{m, s, yield}
	for w := range m.workers {
		st.worker(w)
	}
	st.world()
}

// does yields a step: from s, changed by change.
func (st *stepper) does(e modelcheck.Event, change func(*deliveryState)) {
	to := st.s
	change(&to)
	st.m.normalize(&to)
	st.yield(e, to)
}

func by(w int, text string, n uint8) modelcheck.Event {
	return modelcheck.Event{From: workerNames[w], Text: text, Number: int(n)}
}

func toStream(w int, text string, n uint8) modelcheck.Event {
	return modelcheck.Event{From: workerNames[w], To: "Stream", Text: text, Number: int(n)}
}

func chance(e modelcheck.Event) modelcheck.Event { e.Chance = true; return e }

// world yields the steps that happen without a worker.
func (st *stepper) world() {
	m, s := st.m, &st.s
	world := func(text string, n uint8) modelcheck.Event {
		return modelcheck.Event{From: "World", Text: text, Number: int(n)}
	}
	if st.clockMatters() {
		st.does(world("10 s pass", 0), func(s *deliveryState) { s.tick(m.oldest) })
	}
	if s.phase == 0 {
		st.does(world("the completion is a minute old", 0), func(s *deliveryState) { s.phase = 1 })
	}
	if s.phase == 1 {
		st.does(world("the retry deadline passes", 0), func(s *deliveryState) { s.phase = 2 })
	}
	if m.ages && s.phase == 2 && !s.gone() {
		text := [...]string{"the outcome's life is nearly over", "the outcome leaves, and its facts"}[s.life]
		st.does(chance(world(text, 0)), func(s *deliveryState) { s.nextLife(m.oldest) })
	}
	if s.resend != 0 && !s.resendLate {
		st.does(world("the resend's retry deadline passes", 0),
			func(s *deliveryState) { s.resendLate = true })
	}
	if n := m.last(s); !s.nextDue && n > 0 && s.result[n]&hasNext != 0 {
		st.does(world("the next attempt is due", 0), func(s *deliveryState) { s.nextDue = true })
	}
	if s.schedule != 0 {
		st.does(modelcheck.Event{From: "Stream", Text: "a schedule comes due"}, func(s *deliveryState) {
			s.retry, s.schedule = s.schedule, 0
			for w := range s.worker {
				if s.worker[w].msg == msgRetry {
					s.worker[w].msg = msgOldRetry
				}
			}
		})
	}
	if s.replays > 0 && s.completion != 1 && !s.gone() {
		st.does(chance(modelcheck.Event{From: "Stream", Text: "gives everything anew"}),
			func(s *deliveryState) {
				s.replays--
				s.completion, s.resendMsg = 1, s.resend|s.resendJunk
			})
	}
	for i, u := range s.limbo {
		if u.kind != 0 {
			st.landing(i, u)
		}
	}
	st.junk()
	st.person()
	if s.losses > 0 {
		st.loss()
	}
	st.lose()
	if m.lostHints > 0 && m.stray(s) {
		st.does(modelcheck.Event{From: "Reconciler", To: "Stream", Text: "hands a stray delivery in"},
			m.reconcile)
	}
}

// lose yields the loss of hints and, by a power cut, of the last attempt's facts, after the messages that
// led to them were acknowledged.
func (st *stepper) lose() {
	m, s := st.m, &st.s
	n := m.last(s)
	switch {
	case s.lostHints == 0:
	case m.losesFacts && n > 0 && s.completion == 0 && s.resendMsg == 0:
		st.does(chance(modelcheck.Event{From: "Stream", Text: "loses what was not synced"}),
			func(s *deliveryState) {
				s.lostHints--
				s.schedule, s.retry, s.limbo = 0, 0, [modelLimbo]inFlight{}
				s.claim[n], s.result[n] = 0, 0
				for w := range s.worker {
					s.forget(w, byNobody, byNobody)
					s.worker[w] = workerState{skew: s.worker[w].skew}
				}
			})
	case !m.losesFacts && (s.schedule != 0 || s.retry != 0):
		st.does(chance(modelcheck.Event{From: "Stream", Text: "loses a hint"}), func(s *deliveryState) {
			s.lostHints--
			s.schedule, s.retry = 0, 0
		})
	}
}

// stray reports whether a delivery has not ended, and nothing brings it to a worker.
func (m *model) stray(s *deliveryState) bool {
	return s.completion == 0 && s.resendMsg&^s.resendJunk == 0 && s.schedule == 0 && s.retry == 0 &&
		m.deliveryOf(s).Open()
}

// reconcile is reconciler.handIn. Its claim can be settled at once.
func (m *model) reconcile(s *deliveryState) {
	d := m.deliveryOf(s)
	n := len(d.Attempts) + 1 - m.releases
	switch {
	case !m.mayHaveSent(d, m.losesFacts):
	case n > m.room:
		s.beyond = true
	default:
		s.claim[n], s.age, s.dated = byNobody, m.oldest, 0
	}
	s.schedule = 1
}

// nextLife brings the outcome nearer to the end of its life, or lets it leave with its facts. By then a claim
// that was made while the end was not near is beyond its deadline.
func (s *deliveryState) nextLife(oldest uint8) {
	if s.life++; !s.gone() {
		return
	}
	for range oldest {
		s.tick(oldest)
	}
	s.claim, s.result = [modelAttempts + 1]uint8{}, [modelAttempts + 1]uint8{}
	s.completion, s.resendMsg, s.resendJunk = 0, 0, 0
}

// clockMatters reports whether anything depends on a claim's age.
func (st *stepper) clockMatters() bool {
	s, last := &st.s, st.m.oldest
	if n := st.m.last(s); n > 0 && s.age < last && (s.result[n] == 0 || missedBySomebody(s, n)) {
		return true
	}
	for w := range s.worker {
		if ws := &s.worker[w]; ws.ownsTime() && ws.age < last {
			return true
		}
	}
	for _, u := range s.limbo {
		if u.kind == aClaim && u.age < last {
			return true
		}
	}
	return false
}

// ownsTime reports whether a worker holds a claim.
func (ws *workerState) ownsTime() bool { return ws.at >= publishClaim && ws.at <= write }

func (s *deliveryState) tick(oldest uint8) {
	older := func(age *uint8) { *age = min(*age+1, oldest) }
	older(&s.age)
	for w := range s.worker {
		older(&s.worker[w].age)
	}
	for i := range s.limbo {
		if s.limbo[i].kind == aClaim {
			older(&s.limbo[i].age)
		}
	}
}

// landing yields the steps in which an unanswered publish is stored after all, or lost.
func (st *stepper) landing(i int, u inFlight) {
	kinds := [...]string{aClaim: "claim", aResult: "result", aResend: "resend", aSchedule: "schedule"}
	net := modelcheck.Event{From: "Network", To: "Stream", Text: "a late " + kinds[u.kind], Number: int(u.n)}
	if st.m.overwrites || u.kind == aSchedule || st.free(u.kind, u.n) {
		st.does(net, func(s *deliveryState) { s.limbo[i] = inFlight{}; s.put(u) })
	}
	st.does(modelcheck.Event{From: "Network", Text: "loses the " + kinds[u.kind], Number: int(u.n)},
		func(s *deliveryState) { s.limbo[i] = inFlight{} })
}

func (st *stepper) free(kind, n uint8) bool {
	s := &st.s
	switch kind {
	case aClaim:
		return s.claim[n] == 0
	case aResult:
		return s.result[n] == 0
	default:
		return (s.resend|s.resendJunk)&(1<<n) == 0
	}
}

// put stores a fact or a hint.
func (s *deliveryState) put(u inFlight) {
	switch u.kind {
	case aClaim:
		if s.claim[u.n] != 0 {
			s.broken = 5
		}
		s.claim[u.n], s.age, s.dated = u.code, u.age, u.dated
	case aResult:
		if s.result[u.n] != 0 {
			s.broken = 5
		}
		s.result[u.n], s.nextDue = u.code, false
	case aResend:
		s.resend |= 1 << u.n
		s.resendMsg |= 1 << u.n
		s.resendLate = false
	case aSchedule:
		s.schedule = u.code
	}
}

// junk yields the steps in which something that verifyd did not write is stored in a fact's place.
func (st *stepper) junk() {
	if st.s.junk == 0 || st.s.gone() {
		return
	}
	stranger := func(text string, n int) modelcheck.Event {
		return modelcheck.Event{From: "Stranger", To: "Stream", Text: text, Number: n, Chance: true}
	}
	for n := 1; n <= st.m.room; n++ {
		if st.s.claim[n] == 0 {
			st.does(stranger("what is no claim", n), func(s *deliveryState) {
				s.junk--
				s.claim[n] = unreadable
				if st.m.last(&st.s) == n-1 {
					s.age, s.dated = 0, 0
				}
			})
		}
		if st.s.result[n] == 0 {
			st.does(stranger("what is no result", n), func(s *deliveryState) {
				s.junk--
				s.result[n] = resultJunk
			})
		}
		if n > 1 && (st.s.resend|st.s.resendJunk)&(1<<n) == 0 {
			st.does(stranger("what is no resend", n), func(s *deliveryState) {
				s.junk--
				s.resendJunk |= 1 << n
				s.resendMsg |= 1 << n
			})
		}
		if n > 1 && st.s.retry == 0 {
			st.does(stranger("a hint that names attempt", n), func(s *deliveryState) {
				s.junk--
				s.retry = uint8(n) + 1
				s.resendLate = s.resendLate || s.resend == 0 // it is as old as it says
			})
		}
	}
}

// person yields the steps in which somebody requests one more attempt. What they saw may be outdated.
func (st *stepper) person() {
	m, s := st.m, &st.s
	they := func(text string, n uint8) modelcheck.Event {
		return modelcheck.Event{From: "Person", To: "Stream", Text: text, Number: int(n), Chance: true}
	}
	if s.person == 0 && s.resendsLeft > 0 && !s.gone() {
		if n, err := m.deliveryOf(s).Again(); err == nil && n-m.releases <= m.room {
			st.does(modelcheck.Event{From: "Stream", To: "Person", Text: "shows an end", Chance: true},
				func(s *deliveryState) {
					s.person = uint8(n - m.releases)
					s.resendsLeft--
				})
		}
	}
	if n := s.person; n != 0 {
		if st.free(aResend, n) {
			st.does(they("resend", n), func(s *deliveryState) {
				s.person = 0
				s.put(inFlight{kind: aResend, n: n})
			})
		}
		st.intoLimbo(they("resend, unanswered,", n), inFlight{kind: aResend, n: n},
			func(s *deliveryState) { s.person = 0 })
		st.does(modelcheck.Event{From: "Person", Text: "gives up"},
			func(s *deliveryState) { s.person = 0 })
	}
}

// intoLimbo yields an unanswered publish, if one more is allowed.
func (st *stepper) intoLimbo(e modelcheck.Event, u inFlight, change func(*deliveryState)) {
	for i := range st.s.limbo {
		if st.s.limbo[i].kind == 0 && st.s.unanswered > 0 {
			st.does(chance(e), func(s *deliveryState) {
				s.limbo[i] = u
				s.unanswered--
				change(s)
			})
			return
		}
	}
}

// worker yields what a worker may do, or suffer.
func (st *stepper) worker(w int) {
	ws := &st.s.worker[w]
	if st.s.kills > 0 && (ws.at != idle || ws.doubt != 0) {
		st.does(chance(by(w, "is killed, and started again", 0)), func(s *deliveryState) {
			s.kills--
			s.forget(w, byNobody, byNobody)
			s.worker[w] = workerState{skew: ws.skew}
		})
	}
	switch ws.at {
	case idle:
		st.fetch(w)
	case begin:
		st.begin(w)
	case read, readResend, readOutcome:
		st.does(chance(by(w, "cannot read", 0)), func(s *deliveryState) { s.rest(w) })
		st.read(w)
	case acquire:
		st.acquire(w)
	case publishClaim, publishResult:
		st.publish(w)
	case lookForClaim, lookForResult:
		st.look(w)
	case begins:
		st.begins(w)
	case write:
		st.write(w)
	case toSchedule:
		st.schedule(w)
	case ack:
		st.ack(w)
	}
}

// rest ends a worker's work on its message, which is redelivered unless it was acknowledged.
func (s *deliveryState) rest(w int) {
	s.worker[w] = workerState{doubt: s.worker[w].doubt, skew: s.worker[w].skew}
}

// forget marks what a worker wrote as written by an earlier write.
func (s *deliveryState) forget(w int, now, before uint8) {
	change := func(code *uint8) {
		switch *code & whoMask {
		case byNow(w):
			*code = *code&^whoMask | now
		case byBefore(w):
			*code = *code&^whoMask | before
		}
	}
	for n := range s.claim {
		change(&s.claim[n])
	}
	for n := range s.result {
		if s.result[n]>>4 == uint8(w+1) {
			s.result[n] &= verdictMask | hasNext
		}
	}
	for i := range s.limbo {
		switch u := &s.limbo[i]; {
		case u.kind == aClaim:
			change(&u.code)
		case u.kind == aResult && u.code>>4 == uint8(w+1):
			u.code &= verdictMask | hasNext
		}
	}
}

func (st *stepper) fetch(w int) {
	take := func(text string, n uint8, ws workerState) {
		st.does(modelcheck.Event{From: "Stream", To: workerNames[w], Text: text, Number: int(n)},
			func(s *deliveryState) {
				ws.at, ws.doubt, ws.skew = begin, s.worker[w].doubt, s.worker[w].skew
				if s.gone() {
					ws.at = ack
				}
				if ws.msg == msgCompletion {
					s.completion = 2
				}
				s.worker[w] = ws
			})
	}
	if c := st.s.completion; c != 0 {
		take("completion", 0, workerState{msg: msgCompletion, first: c == 1})
	}
	if r := st.s.retry; r != 0 {
		take("retry", 0, workerState{msg: msgRetry, due: r - 1})
	}
	for n := uint8(2); int(n) <= st.m.room; n++ {
		switch {
		case st.s.resendMsg&(1<<n) == 0:
		case st.s.resendJunk&(1<<n) != 0:
			st.does(by(w, "terminates what is no resend", n),
				func(s *deliveryState) { s.resendMsg &^= 1 << n })
		default:
			take("resend", n, workerState{msg: msgResend + n, due: n})
		}
	}
}

func (m *model) nowOf(ws *workerState) time.Time { return modelNow.Add(skews[ws.skew]) }

func (st *stepper) begin(w int) {
	ws, c := &st.s.worker[w], st.m.completionOf(&st.s)
	if st.m.neverTried(ws.first, c.CompletedAt, st.m.nowOf(ws)) {
		s := st.m.decide(c, nil, st.m.nowOf(ws))
		st.does(by(w, "nobody can have tried it", 0), func(to *deliveryState) { st.judged(to, w, s) })
		return
	}
	st.read(w)
}

// read reads the stored facts, up to the first missing one: stored facts do not change, and may as well be
// read in one step.
func (st *stepper) read(w int) {
	ws := &st.s.worker[w]
	if ws.at == readOutcome {
		st.does(toStream(w, "looks for the outcome", 0), func(s *deliveryState) {
			if s.worker[w].at = acquire; s.gone() {
				s.worker[w].at = ack
			}
		})
		return
	}
	if n := ws.seen + 1; ws.at == readResend {
		asked := st.s.resend&(1<<n) != 0 && !st.s.gone()
		st.does(toStream(w, "looks for resend", n), func(s *deliveryState) {
			ws := &s.worker[w]
			if !asked {
				attempts := st.m.factsOf(s, int(ws.seen), ws.missed)
				st.judged(s, w, st.m.decide(st.m.completionOf(s), attempts, st.m.nowOf(ws)))
				return
			}
			ws.due, ws.n = n, n
			st.sending(s, w)
		})
		return
	}
	s := st.s
	ws = &s.worker[w]
	for ws.at = read; ; {
		n := ws.seen + 1
		if int(n) > st.m.room || s.claim[n] == 0 {
			st.does(toStream(w, "reads the facts before attempt", n), func(to *deliveryState) {
				*to = s
				st.judge(to, w)
			})
			return
		}
		ws.seen = n
		if len(st.m.factsOf(&s, int(n), ws.missed)) < int(n)+st.m.releases { // an unreadable claim
			st.does(toStream(w, "reads the facts before what is no claim", n), func(to *deliveryState) {
				*to = s
				to.worker[w].seen--
				st.judge(to, w)
			})
			return
		}
		if s.result[n] == 0 {
			ws.missed |= 1 << n
			st.does(toStream(w, "reads that there is a claim, and no result, of attempt", n),
				func(to *deliveryState) { *to = s })
			return
		}
	}
}

// judge is attempt.decide, after it has read the facts.
func (st *stepper) judge(s *deliveryState, w int) {
	m, ws := st.m, &s.worker[w]
	attempts := m.factsOf(s, int(ws.seen), ws.missed)
	n := len(attempts)
	inDoubt := n > m.releases && ws.doubt&(1<<(n-m.releases)) != 0
	if m.releasesOwn(attempts, workerNameOf(byNow(w)), inDoubt) {
		st.judged(s, w, decision{do: doRelease, attempt: n})
		return
	}
	d := m.decide(m.completionOf(s), attempts, m.nowOf(ws))
	switch next := n - m.releases + 1; {
	case m.believes != nil && ws.due != 0 && m.believes(int(ws.due), next):
		st.judged(s, w, decision{do: doSend, attempt: n + 1})
	case m.mayBeRequested(d, attempts) && next <= m.room:
		ws.at = readResend
	default:
		st.judged(s, w, d)
	}
}

// judged is what attempt.run does with a decision.
func (st *stepper) judged(s *deliveryState, w int, d decision) {
	ws := &s.worker[w]
	ws.n = uint8(max(d.attempt-st.m.releases, 0))
	switch d.do {
	case doSend:
		st.sending(s, w)
		if int(ws.n) > st.m.room {
			s.beyond = true
		}
	case doWait:
		st.dispose(s, w, retryIn(d.wait))
	case doRelease:
		st.giveBack(s, w)
	case doSettle:
		st.ended(s, w, st.m.abandoned(d))
		ws.presumed = d.unreadable
	case doDrop:
		ws.at = ack
	}
}

// sending is the end of attempt.decide if the attempt is due.
func (st *stepper) sending(s *deliveryState, w int) {
	ws := &s.worker[w]
	old := phases[s.phase] > st.m.shared.c.EndBefore
	if ws.at = acquire; st.m.ages && !st.m.missesEnd && (old || ws.due != 0) {
		ws.at = readOutcome
	}
}

// last returns the newest claimed attempt.
func (m *model) last(s *deliveryState) int {
	n := 0
	for n < m.room && s.claim[n+1] != 0 {
		n++
	}
	return n
}

func (m *model) deliveryOf(s *deliveryState) facts.Delivery {
	d, _ := facts.NewDelivery(sessions.Outcome{State: sessions.Verified}, m.factsOf(s, m.room, 0),
		func(n int) (bool, error) { return n-m.releases <= m.room && s.resend&(1<<(n-m.releases)) != 0, nil })
	return d
}

func missedBySomebody(s *deliveryState, n int) bool {
	for w := range s.worker {
		if s.worker[w].missed&(1<<n) != 0 {
			return true
		}
	}
	return false
}

// fold returns the representative of all states that differ only in the numbering of workers.
func (m *model) fold(s deliveryState) deliveryState {
	least := s
	for _, order := range orders[m.workers] {
		if other := s.renamed(order); other.less(&least) {
			least = other
		}
	}
	return least
}

// normalize returns the representative of all states that differ only in values that are no longer used, and
// in the order of unanswered publishes.
func (m *model) normalize(s *deliveryState) {
	young := s.completion == 1
	for w := range s.worker {
		ws := &s.worker[w]
		young = young || ws.at == begin && ws.first
		if !ws.ownsTime() {
			ws.age = 0
		}
		if ws.at == idle { // it will read these results before it claims again
			for n := range s.result {
				if s.result[n] != 0 {
					ws.doubt &^= 1 << n
				}
			}
		}
	}
	if !young {
		s.phase = max(s.phase, 1)
	}
	for n := 1; n <= m.room; n++ {
		if who := s.claim[n] & whoMask; who > byNobody {
			w := int(who-2) / 2
			ws := &s.worker[w]
			writing := ws.n == uint8(n) && (ws.at == publishClaim || ws.at == lookForClaim)
			if ws.doubt&(1<<n) == 0 && !writing {
				s.claim[n] = s.claim[n]&^whoMask | byNobody
			}
		}
	}
	n := m.last(s)
	if n == 0 || s.result[n] != 0 && !missedBySomebody(s, n) {
		s.age, s.dated = 0, 0
	}
	if n == 0 || s.result[n]&hasNext == 0 {
		s.nextDue = false
	}
	for i := range s.limbo {
		if s.limbo[i].kind == 0 {
			s.limbo[i] = inFlight{}
		}
	}
	if s.limbo[0].rank() > s.limbo[1].rank() {
		s.limbo[0], s.limbo[1] = s.limbo[1], s.limbo[0]
	}
}

func (u inFlight) rank() uint64 {
	return uint64(u.kind)<<32 | uint64(u.n)<<24 | uint64(u.code)<<16 | uint64(u.age)<<8 | uint64(u.dated)
}

// orders are the permutations of the workers, except the identity.
var orders = [modelWorkers + 1][][modelWorkers]int{
	2: {{1, 0, 2}}, 3: {{0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}},
}

// renamed calls the worker w order[w].
func (s *deliveryState) renamed(order [modelWorkers]int) deliveryState {
	to := *s
	for w := range s.worker {
		to.worker[order[w]] = s.worker[w]
	}
	who := func(code uint8) uint8 {
		if of := code & whoMask; of > byNobody {
			return code&^whoMask | uint8(2+2*order[(of-2)/2]) + of&1
		}
		return code
	}
	result := func(code uint8) uint8 {
		if w := code >> 4; w > 0 {
			return code&0x0f | uint8(order[w-1]+1)<<4
		}
		return code
	}
	for n := range s.claim {
		to.claim[n], to.result[n] = who(s.claim[n]), result(s.result[n])
	}
	for i, u := range s.limbo {
		switch u.kind {
		case aClaim:
			to.limbo[i].code = who(u.code)
		case aResult:
			to.limbo[i].code = result(u.code)
		}
	}
	if to.limbo[0].rank() > to.limbo[1].rank() {
		to.limbo[0], to.limbo[1] = to.limbo[1], to.limbo[0]
	}
	return to
}

func (s *deliveryState) less(o *deliveryState) bool {
	for w := range s.worker {
		if a, b := s.worker[w].rank(), o.worker[w].rank(); a != b {
			return a < b
		}
	}
	for n := range s.claim {
		if s.claim[n] != o.claim[n] {
			return s.claim[n] < o.claim[n]
		}
		if s.result[n] != o.result[n] {
			return s.result[n] < o.result[n]
		}
	}
	for i := range s.limbo {
		if a, b := s.limbo[i].rank(), o.limbo[i].rank(); a != b {
			return a < b
		}
	}
	return false
}

func (ws *workerState) rank() uint64 {
	flags := uint64(0)
	if ws.first {
		flags |= 1
	}
	if ws.uncertain {
		flags |= 2
	}
	if ws.presumed {
		flags |= 4
	}
	return uint64(ws.at)<<60 | uint64(ws.msg)<<56 | flags<<53 |
		uint64(ws.seen)<<48 | uint64(ws.missed)<<43 | uint64(ws.n)<<40 | uint64(ws.writes)<<32 |
		uint64(ws.age)<<28 | uint64(ws.tried)<<26 | uint64(ws.doubt)<<20 | uint64(ws.due)<<8 |
		uint64(ws.skew)
}
