package signin

import (
	"errors"
	"flag"
	"testing"
	"time"

	"verifyd/edge/flow"
	"verifyd/natsconf"
	"verifyd/natsconf/natstest/prove"
	"verifyd/natsconf/once"
	"verifyd/sessions"
	"verifyd/sessions/modelcheck"
	"verifyd/sessions/proof"
	"verifyd/sessions/store"
)

// This file is a model of how one session ends, with everything that may happen to it; package modelcheck
// visits all its states. Two sign-ins have begun for the session: one that the identity network verifies, one
// that its rules refuse. Each returns as often as somebody reloads, on either of two edges. Integrators
// cancel, read, and, if the session requires a code, send right and wrong ones.
//
//	step of the model   stands for
//	read                Handler.spend up to Handler.checkStep; api.session, api.cancel and confirmable
//	redeem              Writer.Redeem (package once)
//	ask                 judge.verdict
//	awaitCode           verdicts.goOn, Proofs.AwaitCode
//	try                 Proofs.Confirm up to its judgement
//	guard               Writer.Complete up to its write, Writer.ended
//	complete            Writer.Complete (package once), verdicts.offer
//
// What may happen: a write is stored, refused, or unanswered, and then stored at once, later, or never; an
// edge is killed anywhere, or paused for any time; the clocks of the edges pass the expiry at any distance;
// the network gives no answer.
//
// What it leaves out: the lease of browsers, which is a convenience and decides nothing; the level "account";
// a decline on the page, which is a cancel by another name; erased users; messages that verifyd did not
// write. A progress is changed in one step: it has no facts.
//
// That somebody gets "expired" from a clock that is ahead, or during a write that is stored later, and reads
// an outcome afterwards, is no fault here: the instant decides by the clock of the edge that completes.

// judgements are the functions that decide. Faults replace them.
type judgements struct {
	published func(*once.Write, error) once.Next
	looked    func(*once.Write, bool, error) once.Next
	redeemed  func(once.Next) bool
	goesOn    func(sessions.Session, flow.Flow, sessions.Outcome) bool
	expired   func(sessions.Session, time.Time) bool // for readers
	tooLate   func(sessions.Session, time.Time) bool // for those who complete
	proves    func(sessions.Outcome, proof.Level) bool
	try       func(proof.Progress, []byte, time.Time) (proof.Progress, error)
	judge     func(proof.Progress) (sessions.Outcome, bool)

	overwrites bool // a write does not expect its subject to be empty
	toldOwn    bool // the second one gets what it sent
}

func realJudgements() judgements {
	return judgements{
		published: (*once.Write).Published, looked: (*once.Write).Looked,
		redeemed: func(n once.Next) bool { return n == once.Stored },
		goesOn:   goesOn, proves: sessions.Outcome.Proves,
		expired: sessions.Session.Expired, tooLate: sessions.Session.Expired,
		try: proof.Progress.Try, judge: store.Judge,
	}
}

// outcomes of the model, by their codes.
var outcomes = [...]sessions.Outcome{
	1: {State: sessions.Verified, Network: "n"},
	2: {State: sessions.Failed, Reason: sessions.Refused, Network: "n"},
	3: {State: sessions.Canceled, Reason: sessions.CanceledReason},
	4: {State: sessions.Verified, Network: "n", Reached: proof.Code},
	5: {State: sessions.Failed, Reason: sessions.Unconfirmed, Network: "n", Reached: proof.Link},
}

const (
	verifiedByLink uint8 = iota + 1
	refused
	canceled
	verifiedByCode
	unconfirmed
	toldExpired
)

// what an edge does next
const (
	free uint8 = iota
	read
	redeem
	lookRedeemed
	ask
	awaitCode
	try
	guard
	complete
	lookCompleted
)

// requests: the returns of two sign-ins, and what integrators ask
const (
	returnVouched uint8 = iota + 1
	returnRefused
	cancelIt
	readIt
	giveRight
	giveWrong
)

var requestNames = [...]string{"", "the vouched return", "the refused return", "cancel", "GET",
	"the right code", "a wrong code"}

type endState struct {
	done     uint8    // outcome; its writer during the write: shifted by 4
	redeemed [3]uint8 // by sign-in: 0, 1, or 1 plus the edge that is writing
	posted   uint8    // bits: the network got the sign-in's code
	proven   bool     // an identity is proven, and the code is awaited
	right    bool     // the right code was given
	wrong    uint8    // codes that were stored
	judged   uint8    // wrong codes that were given, stored or not
	told     uint8    // bits, by outcome
	sealed   bool     // somebody was told "expired" when nothing could change that any more
	broken   uint8
	late     [2]bool // clocks that are past the expiry
	left     uint8   // requests
	kills    uint8
	silent   uint8 // writes that may be unanswered
	limbo    [2]landing
	edge     [2]edgeState
}

type landing struct{ completes, n, by uint8 }

type edgeState struct {
	at, request, outcome, tried uint8
	uncertain                   bool
}

var endTexts = [...]string{
	1: "a sign-in's code is posted twice",
	2: "somebody was told an outcome that does not stand",
	3: "a session was completed after it had expired",
	4: "a session was verified below what it asks for",
	5: "more codes were taken than may be",
	6: "an outcome was replaced by another",
}

type endModel struct {
	judgements
	level  proof.Level
	starts []endState
}

var (
	edgeNames = [...]string{"Edge1", "Edge2"}
	expiry    = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	rightCode = []byte("right")
	wrongCode = [...][]byte{{1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}}
)

func (m *endModel) session() sessions.Session {
	return sessions.Session{ExpiresAt: expiry, Request: sessions.Request{Level: m.level}}
}

func (m *endModel) now(s *endState, e int) time.Time {
	if s.late[e] {
		return expiry
	}
	return expiry.Add(-time.Millisecond)
}

func progressOf(s *endState) (p proof.Progress) {
	if s.proven {
		p.Network, p.Code = "n", rightCode
	}
	for i := range s.wrong {
		p.Tried = append(p.Tried, wrongCode[i])
	}
	if s.right {
		p.Tried = append(p.Tried, rightCode)
	}
	return p
}

func (m *endModel) steps(s endState, yield func(modelcheck.Event, endState)) {
	does := func(e modelcheck.Event, change func(*endState)) {
		to := s
		change(&to)
		if rank(to.limbo[0]) > rank(to.limbo[1]) {
			to.limbo[0], to.limbo[1] = to.limbo[1], to.limbo[0]
		}
		yield(e, to)
	}
	for i, l := range s.limbo {
		if l == (landing{}) {
			continue
		}
		late := modelcheck.Event{From: "Network", To: "Stream", Text: "a late redemption", Number: int(l.n)}
		if l.completes != 0 {
			late.Text = "a late completion"
		}
		if m.overwrites || s.vacant(l) {
			does(late, func(s *endState) { s.limbo[i] = landing{}; s.put(l) })
		}
		does(modelcheck.Event{From: "Network", Text: "loses a write"},
			func(s *endState) { s.limbo[i] = landing{} })
	}
	for e := range s.edge {
		if !s.late[e] {
			does(modelcheck.Event{From: edgeNames[e], Text: "the expiry passes, by its clock"},
				func(s *endState) { s.late[e] = true })
		}
		if s.kills > 0 && s.edge[e].at != free {
			does(modelcheck.Event{From: edgeNames[e], Text: "is killed", Chance: true}, func(s *endState) {
				s.kills--
				s.ends(e)
			})
		}
		m.edge(&s, e, does)
	}
}

func rank(l landing) int { return int(l.completes)<<16 | int(l.n)<<8 | int(l.by) }

// vacant reports whether the subject of a write is empty.
func (s *endState) vacant(l landing) bool {
	if l.completes != 0 {
		return s.done == 0
	}
	return s.redeemed[l.n] == 0
}

func (s *endState) put(l landing) {
	switch {
	case l.completes == 0:
		s.redeemed[l.n] = l.by + 1
	case s.done != 0:
		s.broken = 6
	default:
		if s.sealed {
			s.broken = 3
		}
	}
	if l.completes != 0 {
		s.done = l.completes | l.by<<4
	}
}

// ends ends a request: what it wrote belongs to no open request any more.
func (s *endState) ends(e int) {
	s.edge[e] = edgeState{}
	s.disown(e)
}

func (s *endState) disown(e int) {
	if s.done>>4 == uint8(e+1) {
		s.done &= 0x0f
	}
	for n := range s.redeemed {
		if s.redeemed[n] == uint8(e+2) {
			s.redeemed[n] = 1
		}
	}
	for i := range s.limbo {
		if s.limbo[i].by == uint8(e+1) {
			s.limbo[i].by = 0
		}
	}
}

// tell ends a request with its answer.
func (s *endState) tell(e int, outcome uint8) {
	s.told |= 1 << outcome
	if outcome == toldExpired {
		under := s.limbo[0].completes|s.limbo[1].completes != 0
		for o := range s.edge {
			at := s.edge[o].at
			under = under || o != e && (at == complete || at == lookCompleted)
		}
		s.sealed = s.sealed || s.late[0] && s.late[1] && !under
	}
	s.ends(e)
}

func (m *endModel) edge(s *endState, e int, does func(modelcheck.Event, func(*endState))) {
	es := s.edge[e]
	say := func(text string) modelcheck.Event { return modelcheck.Event{From: edgeNames[e], Text: text} }
	write := func(text string) modelcheck.Event {
		return modelcheck.Event{From: edgeNames[e], To: "Stream", Text: text, Number: int(es.request)}
	}
	switch es.at {
	case free:
		if s.left == 0 {
			return
		}
		for request := returnVouched; request <= giveWrong; request++ {
			if request >= giveRight && m.level != proof.Code {
				break
			}
			does(modelcheck.Event{
				From: "Client", To: edgeNames[e], Text: requestNames[request], Chance: true,
			}, func(s *endState) {
				s.left--
				s.edge[e] = edgeState{at: read, request: request}
			})
		}
	case read:
		does(write("reads the session, for request"), func(s *endState) { m.read(s, e) })
	case redeem, lookRedeemed, complete, lookCompleted:
		m.write(s, e, write, does)
	case ask:
		does(modelcheck.Event{From: edgeNames[e], To: "IdP", Text: "posts the code of sign-in",
			Number: int(es.request)}, func(s *endState) {
			s.post(es.request)
			o := outcomes[es.request]
			s.edge[e].outcome, s.edge[e].at = es.request, guard
			if m.goesOn(m.session(), flow.Flow{}, o) {
				s.edge[e].at = awaitCode
			}
		})
		does(modelcheck.Event{From: edgeNames[e], To: "IdP", Text: "gets no answer", Chance: true},
			func(s *endState) {
				s.post(es.request)
				s.ends(e)
			})
	case awaitCode:
		does(write("stores that the identity is proven"), func(s *endState) { s.proven = true; s.ends(e) })
	case try:
		does(write("stores the try"), func(s *endState) { m.try1(s, e) })
	case guard:
		does(say("looks at the clock, and completes"), func(s *endState) { m.guard(s, e) })
	}
}

// post records that the network got a sign-in's code.
func (s *endState) post(n uint8) {
	if s.posted&(1<<n) != 0 {
		s.broken = 1
	}
	s.posted |= 1 << n
}

// read is what a request reads first, and its consequences.
func (m *endModel) read(s *endState, e int) {
	es := &s.edge[e]
	switch {
	case s.done != 0:
		s.tell(e, s.done&0x0f)
	case m.expired(m.session(), m.now(s, e)):
		s.tell(e, toldExpired)
	case es.request == readIt:
		s.ends(e) // pending
	case es.request == cancelIt:
		es.outcome, es.at = canceled, guard
	case es.request >= giveRight:
		es.at = try
	case s.proven: // Handler.checkStep
		s.ends(e)
	default:
		es.at = redeem
	}
}

func (m *endModel) try1(s *endState, e int) {
	es := &s.edge[e]
	code := rightCode
	if es.request == giveWrong {
		code = wrongCode[s.judged]
	}
	before := progressOf(s)
	p, err := m.try(before, code, expiry)
	if errors.Is(err, proof.ErrNothingToConfirm) {
		s.ends(e)
		return
	}
	s.right = s.right || es.request == giveRight && len(p.Tried) > len(before.Tried)
	if es.request == giveWrong {
		s.wrong += uint8(len(p.Tried) - len(before.Tried))
		if err == nil {
			s.judged++
		}
	}
	if s.judged > proof.MaxTries {
		s.broken = 5
	}
	o, over := m.judge(p)
	switch {
	case !over:
		s.ends(e)
	case o.Verified():
		es.outcome, es.at = verifiedByCode, guard
	default:
		es.outcome, es.at = unconfirmed, guard
	}
}

func (m *endModel) guard(s *endState, e int) {
	es := &s.edge[e]
	switch o := outcomes[es.outcome]; {
	case !m.proves(o, m.level):
		s.ends(e)
	case !m.tooLate(m.session(), m.now(s, e)):
		es.at = complete
	case s.done != 0:
		s.tell(e, s.done&0x0f)
	default:
		s.tell(e, toldExpired)
	}
}

// write yields the steps of a write-once message.
func (m *endModel) write(s *endState, e int, event func(string) modelcheck.Event,
	does func(modelcheck.Event, func(*endState))) {
	es := s.edge[e]
	l, text := landing{n: es.request, by: uint8(e + 1)}, "redeems sign-in"
	publish, look := redeem, lookRedeemed
	if es.at == complete || es.at == lookCompleted {
		l, text = landing{completes: es.outcome, by: uint8(e + 1)}, "completes"
		publish, look = complete, lookCompleted
	}
	then := func(judge func(*once.Write) once.Next) func(*endState) {
		return func(s *endState) {
			es := &s.edge[e]
			w := once.Write{Tried: int(es.tried), Uncertain: es.uncertain, Err: natsconf.ErrConflict}
			next := judge(&w)
			es.tried, es.uncertain = uint8(w.Tried), w.Uncertain
			switch next {
			case once.Publish:
				es.at = publish
			case once.Read:
				es.at = look
			default:
				es.tried, es.uncertain = 0, false
				m.written(s, e, l.completes != 0, next)
			}
		}
	}
	told := func(err error) func(*endState) {
		return then(func(w *once.Write) once.Next { return m.published(w, err) })
	}
	found := func(own bool, err error) func(*endState) {
		return then(func(w *once.Write) once.Next { return m.looked(w, own, err) })
	}
	chance := func(text string) modelcheck.Event { ev := event(text); ev.Chance = true; return ev }
	vacant := s.vacant(l)
	if es.at == look {
		does(chance(text+": looks, and gets no answer,"), found(false, natsconf.ErrUnavailable))
		own := s.done>>4 == l.by
		if l.completes == 0 {
			own = s.redeemed[l.n] == l.by+1
		}
		if vacant {
			does(event(text+": looks, and finds nothing,"), found(false, natsconf.ErrNotFound))
		} else {
			does(event(text+": looks, and finds a write,"), found(own, nil))
		}
		return
	}
	if vacant || m.overwrites {
		does(event(text), func(s *endState) { s.put(l); told(nil)(s) })
	} else {
		does(event(text+" (conflicts)"), told(natsconf.ErrConflict))
	}
	does(chance(text+" (no server)"), told(natsconf.ErrUnavailable))
	for i := range s.limbo {
		if s.limbo[i] == (landing{}) && s.silent > 0 {
			does(chance(text+" (unanswered)"), func(s *endState) {
				s.silent--
				if vacant {
					s.limbo[i] = l
				}
				told(natsconf.ErrUncertain)(s)
			})
			break
		}
	}
}

// written is what follows the end of a write.
func (m *endModel) written(s *endState, e int, completes bool, next once.Next) {
	es := &s.edge[e]
	switch {
	case !completes && m.redeemed(next):
		s.disown(e)
		es.at = ask
	case !completes:
		s.ends(e) // without a clear success no code is posted
	case next == once.Stored, next == once.Taken && m.toldOwn:
		s.tell(e, es.outcome)
	case next == once.Taken:
		s.tell(e, s.done&0x0f)
	default: // verdicts.offer tries again, for a while
		s.disown(e)
		es.at = guard
	}
}

func (m *endModel) broken(s endState) string {
	if s.broken != 0 {
		return endTexts[s.broken]
	}
	stands := s.done & 0x0f
	if s.told&^(1<<stands|1<<toldExpired) != 0 {
		return endTexts[2]
	}
	if m.level == proof.Code && (stands == verifiedByLink || stands == verifiedByCode && !s.right) {
		return endTexts[4]
	}
	return ""
}

func (m *endModel) ended(s endState) bool {
	return (s.done != 0 || s.late[0] && s.late[1]) && s.edge == [2]edgeState{} && s.limbo == [2]landing{}
}

// fold numbers the edges so that the one that does less comes first.
func (m *endModel) fold(s endState) endState {
	o := s
	o.edge[0], o.edge[1], o.late[0], o.late[1] = s.edge[1], s.edge[0], s.late[1], s.late[0]
	swap := func(by uint8) uint8 {
		if by != 0 {
			return 3 - by
		}
		return 0
	}
	o.done = s.done&0x0f | swap(s.done>>4)<<4
	for n, by := range s.redeemed {
		if by > 1 {
			o.redeemed[n] = swap(by-1) + 1
		}
	}
	for i := range s.limbo {
		o.limbo[i].by = swap(s.limbo[i].by)
	}
	if rank(o.limbo[0]) > rank(o.limbo[1]) {
		o.limbo[0], o.limbo[1] = o.limbo[1], o.limbo[0]
	}
	if less(o, s) {
		return o
	}
	return s
}

func less(a, b endState) bool {
	weigh := func(s endState) (w [2]uint64) {
		for e, es := range s.edge {
			w[e] = uint64(es.at)<<32 | uint64(es.request)<<24 | uint64(es.outcome)<<16 | uint64(es.tried)<<8
			if es.uncertain {
				w[e]++
			}
			if s.late[e] {
				w[e] += 2
			}
		}
		return w
	}
	x, y := weigh(a), weigh(b)
	return x[0] < y[0] || x[0] == y[0] && a.done < b.done
}

func (m *endModel) check() modelcheck.Model[endState] {
	return modelcheck.Model[endState]{
		Initial: m.starts, Steps: m.steps, Fold: m.fold, Broken: m.broken, Ended: m.ended,
	}
}

var flagEndStates = flag.Int("model-states", prove.Size("simulation", 20_000, 500_000),
	"about how many states of each level of the model of a completion are visited; 0: all")

func exploreEnd(level proof.Level, j judgements, states int) modelcheck.Report {
	begun := endState{left: 3, kills: 1, silent: 2}
	m := endModel{judgements: j, level: level, starts: []endState{begun}}
	if level == proof.Code { // or somebody has signed in, and only two tries are left
		begun.proven, begun.wrong, begun.judged = true, proof.MaxTries-2, proof.MaxTries-2
		m.starts = append(m.starts, begun)
	}
	return modelcheck.Explore(m.check(), states)
}

// Whatever happens between any two steps of those that complete a session, in any order: it gets one outcome,
// every answer with an outcome has that one, no sign-in's code is posted twice, and every state leads to an
// end.
func TestModelOfACompletion(t *testing.T) {
	for _, level := range []proof.Level{proof.Link, proof.Code} {
		r := exploreEnd(level, realJudgements(), *flagEndStates)
		t.Logf("figures: %s: %s", level, r)
		if r.Broken != "" {
			t.Errorf("%s: %s\n%s", level, r.Broken, modelcheck.Diagram(r.Trace))
		}
	}
}

// Each deciding check is needed: without it an invariant breaks, and the model finds it.
func TestModelFindsFaultsOfACompletion(t *testing.T) {
	for _, f := range []struct {
		name  string
		level proof.Level
		drop  func(*judgements)
		want  string
	}{
		{"a sign-in that was redeemed before counts as redeemed now", proof.Link, func(j *judgements) {
			j.redeemed = func(n once.Next) bool { return n == once.Stored || n == once.Taken }
		}, endTexts[1]},
		{"who does not know whether a sign-in is redeemed posts its code", proof.Link, func(j *judgements) {
			j.redeemed = func(n once.Next) bool { return n == once.Stored || n == once.Failed }
		}, endTexts[1]},
		{"whatever is found counts as one's own", proof.Link, func(j *judgements) {
			j.looked = func(w *once.Write, own bool, err error) once.Next {
				return w.Looked(own || err == nil, err)
			}
		}, endTexts[1]},
		{"a write that was not answered counts as stored", proof.Link, func(j *judgements) {
			j.published = func(w *once.Write, err error) once.Next {
				if next := w.Published(err); next != once.Read || !w.Uncertain {
					return next
				}
				return once.Stored
			}
		}, endTexts[2]},
		{"a write does not expect its subject to be empty", proof.Link,
			func(j *judgements) { j.overwrites = true }, endTexts[6]},
		{"who comes second is told what it brought", proof.Link,
			func(j *judgements) { j.toldOwn = true }, endTexts[2]},
		{"who completes does not look at the clock", proof.Link, func(j *judgements) {
			j.tooLate = func(sessions.Session, time.Time) bool { return false }
		}, endTexts[3]},
		{"nothing asks for the code", proof.Code, func(j *judgements) {
			j.judge = func(p proof.Progress) (sessions.Outcome, bool) {
				o, _ := store.Judge(p)
				o.State = sessions.Verified
				return o, true
			}
		}, endTexts[4]},
		{"a try is judged and not stored", proof.Code, func(j *judgements) {
			j.try = func(p proof.Progress, _ []byte, _ time.Time) (proof.Progress, error) { return p, nil }
		}, endTexts[5]},
	} {
		t.Run(f.name, func(t *testing.T) {
			j := realJudgements()
			f.drop(&j)
			r := exploreEnd(f.level, j, 1_000_000)
			if r.Broken != f.want {
				t.Fatalf("found %q in %s, want %q\n%s", r.Broken, r, f.want, modelcheck.Diagram(r.Trace))
			}
			t.Logf("%s, after %d steps, in %s\n%s", r.Broken, len(r.Trace), r, modelcheck.Diagram(r.Trace))
		})
	}
}
