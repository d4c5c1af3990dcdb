package dispatcher

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"verifyd/natsconf/once"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
	"verifyd/sessions/records"
)

// This file is a model of one delivery, with everything that may happen to it; package modelcheck visits all
// its states. Decisions are made by the code's own functions (decisions), on facts that went through the
// code's own codecs. A step is what the code does between two reads or writes:
//
//	step of the model   stands for
//	fetch               fetcher.dispatch, registry.enqueue
//	begin               attempt.run, up to its first read
//	read                Reader.Attempts, one fact after the other
//	judge               attempt.decide, and what attempt.run does with it
//	readResend          attempt.orRequested
//	readOutcome         the end of attempt.decide
//	acquire             attempt.send up to its claim, shared.outlives, attempt.notSent
//	publish, look       Writer.Once (package once), in Writer.Claim and Writer.StoreResult
//	claimed             attempt.claim, attempt.releaseUnconfirmed
//	begins, write       connSender.send, Conn.Send
//	ended, giveBack     attempt.conclude, attempt.finish, attempt.release
//	stored              attempt.storeResult
//	schedule, ack       shared.dispose, shared.schedule
//	person              Writer.Resend
//	loss                Recovery.CloseLost
//	reconcile           reconciler.handIn
//
// TestModelNamesTheCode holds these names, TestModelAllowsWhatWasSeen the order of the facts.
//
// What may happen: a publish is stored, refused, or unanswered, and an unanswered one is stored then, later,
// or never, also after its writer has ended; reads fail; a message is redelivered at any time, also to two
// workers at once, and all messages again; acknowledgements are lost; a worker is killed or paused anywhere,
// also between its check of the clock and the first byte; clocks differ by 10 s or by an hour (more than the
// store's time does, by which processes judge); a connection breaks before the first byte; the receiver gets
// the POST or half of it, and answers or not; something that verifyd did not write is stored in a fact's
// place, or as a hint; the service is stopped, its store has lost any of the facts, is recovered, and gives
// everything anew; the store loses a hint, and the facts of the last attempt with it, and goes on;
// the outcome leaves the store at the end of its life, and its facts with it, whatever a
// worker has read before.
//
// What it leaves out: pauses of hosts, listeners, breakers, shares and queues, which decide when something
// begins and not whether; the two minutes for which a dispatcher that has just started tries in any case;
// erased users; an hour's forgetting of unconfirmed claims; a store that has lost the outcome. Timeouts end
// nothing by themselves, and time passes independently for claims, retry deadlines and pauses: so the model
// allows more than can really happen. One process never works twice on a delivery at once (heldSet).

// decisions are the functions that decide, and what else the delivery's safety depends on. Faults replace
// them.
type decisions struct {
	neverTried     func(first bool, completed, now time.Time) bool
	attempts       func(facts.AttemptFacts) ([]facts.Attempt, error)
	releasesOwn    func(attempts []facts.Attempt, worker string, unconfirmed bool) bool
	decide         func(sessions.Completion, []facts.Attempt, time.Time) decision
	mayBeRequested func(decision, []facts.Attempt) bool
	published      func(*once.Write, error) once.Next
	looked         func(*once.Write, bool, error) once.Next
	ownerAfter     func(error) owner
	outlives       func(*shared, sessions.Completion, time.Time) bool
	mayBegin       func(now, deadline time.Time) bool
	sendsAgain     func(sessions.Policy, facts.Result, time.Duration) bool
	releaseAs      func(int, time.Duration) facts.Verdict
	abandoned      func(decision) facts.Verdict
	earlier        func(facts.Result, *facts.Result) facts.Result
	lastResult     func([]facts.Attempt) (*facts.Result, int)
	standing       func(facts.Result, time.Time) disposition
	acknowledges   func(disposition, bool) bool
	afterLoss      func(facts.AttemptFacts, sessions.Outcome, int) (facts.Delivery, []int, error)
	mayHaveSent    func(facts.Delivery, bool) bool

	looksAgain  bool // for a request, once a presumed result is stored
	overwrites  bool // a publish does not expect its subject to be empty
	keepsDoubt  bool // a claim that was confirmed still counts as unconfirmed
	givesUpOpen bool // giving up takes no claim
	missesEnd   bool // it is not looked for whether the outcome is still there
	// whether a message that names an attempt counts as a request for the next one; nil: it never does
	believes func(named, next int) bool
}

func realDecisions() decisions {
	return decisions{
		neverTried: neverTried,
		attempts:   facts.AttemptFacts.Attempts,
		releasesOwn: func(attempts []facts.Attempt, worker string, unconfirmed bool) bool {
			return ownOpen(attempts, worker) && unconfirmed
		},
		decide: decide, mayBeRequested: mayBeRequested, looksAgain: true,
		published: (*once.Write).Published, looked: (*once.Write).Looked,
		ownerAfter: ownerAfter, outlives: (*shared).outlives, mayBegin: mayBegin, sendsAgain: sendsAgain,
		releaseAs:  releaseAs,
		abandoned:  func(s decision) facts.Verdict { return abandoned(s).Verdict },
		earlier:    withEarlierVerdict,
		lastResult: lastResult, standing: standing, acknowledges: disposition.acknowledges,
		afterLoss: facts.AttemptFacts.AfterLoss, mayHaveSent: mayHaveSent,
	}
}

const (
	modelWorkers  = 3 // space in a state
	modelAttempts = 4
	modelLimbo    = 2
	modelID       = sessions.ID("aaaaaaaaaaaaaaaaaaaaaaaaaa")
)

// bounds of the model.
type world struct {
	workers    int // 0: as the flag says
	room       int // for attempts; the last one can only be given up
	releases   int // attempts that were released before
	policy     sessions.Policy
	unanswered uint8 // how many publishes may be
	kills      uint8
	replays    uint8
	resends    uint8
	junk       uint8
	losses     uint8
	schedules  bool    // a pause may be kept by a message schedule
	ages       bool    // the outcome and its facts may leave the store
	lostHints  uint8   // how often the store may lose hints
	losesFacts bool    // with them it loses the facts of the last attempt, as by a power cut
	skews      []uint8 // of the second worker's clock: 0, 1 (10 s ahead), 2 (an hour ahead)
}

// model is a delivery in a world, decided by decisions.
type model struct {
	world
	decisions
	shared  *shared
	claims  [modelAttempts + 1][256][len(ages)][3]facts.Claim
	results [modelAttempts + 1][256][2]facts.Result
	oldest  uint8 // age: nobody waits for more
}

// deliveryState is everything that determines what may follow. Attempts are numbered from 1.
type deliveryState struct {
	claim, result [modelAttempts + 1]uint8 // of claimCode and resultCode; 0: there is none
	resend        uint8                    // bits, by attempt
	resendJunk    uint8
	sent          uint8 // a byte of the attempt may have reached the receiver
	ok, no        uint8 // the receiver answered 200, 503

	age, dated  uint8 // of the open claim, and by whose clock its instants are
	phase       uint8 // of the completion: young, old, beyond its retry deadline
	resendLate  bool  // the resend is beyond its retry deadline
	life        uint8 // of lives
	nextDue     bool  // the pause after the last result is over
	broken      uint8 // of brokenTexts
	beyond      bool  // more attempts would follow than the model has space for
	completion  uint8 // message: 0 acknowledged, 1 never given, 2 given
	resendMsg   uint8 // bits of those that are not acknowledged
	schedule    uint8 // 0: none; 1 plus the requested attempt that it was due for
	retry       uint8 // the same, once it has come due
	person      uint8 // the attempt that somebody is about to request
	kills       uint8 // what is left
	replays     uint8
	resendsLeft uint8
	junk        uint8
	unanswered  uint8
	losses      uint8
	lostHints   uint8
	before      uint8 // the last attempt that was made, or may have been, before the last loss
	limbo       [modelLimbo]inFlight
	worker      [modelWorkers]workerState
}

// inFlight is a publish that may be stored yet.
type inFlight struct{ kind, n, code, age, dated uint8 }

// kinds of facts and hints.
const (
	aClaim uint8 = iota + 1
	aResult
	aResend
	aSchedule
)

type workerState struct {
	at        uint8 // what it does next, of the steps below
	msg       uint8 // its message
	first     bool
	due       uint8 // the requested attempt since which it is due; 0: since the completion
	seen      uint8 // how many claims it has read
	missed    uint8 // bits: attempts without a result when it was read
	n         uint8 // its attempt
	writes    uint8 // code of the claim or result that it writes
	age       uint8 // of its claim
	tried     uint8
	uncertain bool
	presumed  bool  // the result that it stores was presumed before
	doubt     uint8 // bits: attempts that it claimed without an answer (unconfirmedClaims)
	skew      uint8
}

// what a worker does next
const (
	idle uint8 = iota
	begin
	read
	readResend
	readOutcome
	acquire
	publishClaim
	lookForClaim
	begins
	write
	publishResult
	lookForResult
	toSchedule
	ack
)

// messages
const (
	msgCompletion uint8 = 1
	msgRetry      uint8 = 2
	msgOldRetry   uint8 = 3 // it was replaced
	msgResend     uint8 = 4 // plus its attempt
)

// A claimCode identifies the claimer: 1 for a process that is gone, then two for each worker: by the current
// write, and by an earlier one.
const (
	byNobody      uint8 = 1
	givesUp       uint8 = 0x40
	unreadable    uint8 = 0x80
	whoMask       uint8 = 0x0f
	resultJunk    uint8 = 7
	resultUnknown uint8 = 3 // of modelVerdicts
	verdictMask   uint8 = 0x07
	hasNext       uint8 = 0x08
)

func byNow(w int) uint8    { return uint8(2 + 2*w) }
func byBefore(w int) uint8 { return uint8(3 + 2*w) }

// verdicts of a resultCode.
var modelVerdicts = [...]facts.Verdict{"", facts.VerdictDelivered, facts.VerdictRejected,
	facts.VerdictUnknown, facts.VerdictUndeliverable, facts.VerdictReleased}

// modelNow is the true time, to which all ages are relative.
var modelNow = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

var (
	ages   = [...]time.Duration{0, 10 * time.Second, 20 * time.Second, 30 * time.Second, 3 * time.Hour}
	skews  = [...]time.Duration{0, 10 * time.Second, time.Hour}
	phases = [...]time.Duration{5 * time.Second, time.Minute, 4 * time.Hour}
	// what is left of the outcome's life: much, too little to send, nothing
	lives = [...]time.Duration{10 * time.Hour, time.Minute, -time.Hour}
)

func workerNameOf(who uint8) string { return "w" + strconv.Itoa(int(who)/2) }

// newModel returns a model, and all facts that may occur in it: each is encoded and decoded.
func newModel(w world, d decisions) *model {
	m := &model{world: w, decisions: d, shared: &shared{c: Config{Worker: "w", Now: time.Now}.withDefaults()}}
	m.oldest = 2 + slices.Max(w.skews)
	for n := 1; n <= w.room; n++ {
		number := w.releases + n
		for who := byNobody; who <= byBefore(modelWorkers-1); who++ {
			for age := range ages {
				for dated := range skews {
					at := modelNow.Add(skews[dated] - ages[age])
					sends := facts.NewClaim(modelID, number, workerNameOf(who), at, claimBegin,
						m.shared.c.Timeout+claimMargin)
					m.claims[n][who][age][dated] = recoded(sends)
					ends := facts.NewClaim(modelID, number, workerNameOf(who), at, 0, claimMargin)
					ends.GiveUp = true
					m.claims[n][who|givesUp][age][dated] = recoded(ends)
				}
			}
		}
		for code := range m.results[n] {
			for due := range m.results[n][code] {
				m.results[n][code][due] = m.newResult(uint8(code), number, due == 1)
			}
		}
	}
	return m
}

func recoded(c facts.Claim) facts.Claim {
	data, err := records.EncodeClaim(c)
	if err == nil {
		c, err = records.DecodeClaim(c.Session, c.Number, data)
	}
	if err != nil {
		panic(err)
	}
	return c
}

func (m *model) newResult(code uint8, number int, due bool) facts.Result {
	v := code & verdictMask
	if v == resultJunk {
		return facts.UnreadableResult(modelID, number, modelNow)
	}
	if v == 0 || int(v) >= len(modelVerdicts) {
		return facts.Result{}
	}
	r := facts.NewResult(modelID, number, modelVerdicts[v], "", "w", modelNow)
	if r.Verdict == facts.VerdictRejected {
		r.Status = 503
	}
	if code&hasNext != 0 {
		r.Next = modelNow.Add(time.Minute)
		if due {
			r.Next = modelNow.Add(-2 * time.Hour)
		}
	}
	data, err := records.EncodeResult(r, records.Sealer{})
	if err == nil {
		r, err = records.DecodeResult(modelID, number, data)
	}
	if err != nil {
		panic(err)
	}
	return r
}

// codeOf is the resultCode of a result.
func codeOf(r facts.Result) uint8 {
	for v, verdict := range modelVerdicts {
		if verdict == r.Verdict && v > 0 {
			if !r.Next.IsZero() {
				return uint8(v) | hasNext
			}
			return uint8(v)
		}
	}
	panic(fmt.Sprintf("no code for verdict %q", r.Verdict))
}

func (m *model) initial() (states []deliveryState) {
	for _, skew := range m.skews {
		s := deliveryState{completion: 1, kills: m.kills, replays: m.replays, resendsLeft: m.resends,
			junk: m.junk, unanswered: m.unanswered, losses: m.losses,
			lostHints: m.lostHints}
		if m.releases > 0 {
			s.completion = 2
		}
		if m.workers > 1 {
			s.worker[1].skew = skew
		}
		m.normalize(&s)
		states = append(states, s)
	}
	return states
}

// completionOf returns the completion of an age.
func (m *model) completionOf(s *deliveryState) sessions.Completion {
	c := sessions.Completion{
		Session: sessions.Session{ID: modelID, Request: sessions.Request{Policy: m.policy}},
		Outcome: sessions.Outcome{State: sessions.Verified}, CompletedAt: modelNow.Add(-phases[s.phase]),
	}
	if m.ages {
		c.KeptUntil = modelNow.Add(lives[s.life])
	}
	return c
}

// gone reports whether the outcome has left the store, and its facts with it.
func (s *deliveryState) gone() bool { return int(s.life) == len(lives)-1 }

// factsOf returns the facts as they are stored, or as a worker has read them: the first attempts, without the
// results that it missed.
func (m *model) factsOf(s *deliveryState, seen int, missed uint8) []facts.Attempt {
	attempts, _ := m.attempts(m.read(s, seen, missed))
	return attempts
}

func (m *model) read(s *deliveryState, seen int, missed uint8) facts.AttemptFacts {
	var again uint8 // results that were read once
	return facts.AttemptFacts{
		Claim: func(n int) (*facts.Claim, error) {
			if n -= m.releases; n <= 0 {
				c := facts.NewClaim(modelID, n+m.releases, "before", modelNow, 0, 0)
				return &c, nil
			}
			if n > seen || n > m.room || s.claim[n] == 0 {
				return nil, nil // there is none
			}
			if s.claim[n] == unreadable {
				c := facts.UnreadableClaim(modelID, n+m.releases, modelNow)
				return &c, nil
			}
			return &m.claims[n][s.claim[n]][s.age][s.dated], nil
		},
		Result: func(n int) (*facts.Result, error) {
			if n -= m.releases; n <= 0 {
				r := facts.NewResult(modelID, n+m.releases, facts.VerdictReleased, failure.Late, "before",
					modelNow)
				return &r, nil
			}
			if s.result[n] == 0 || missed&^again&(1<<n) != 0 {
				again |= 1 << n
				return nil, nil // there is none
			}
			due := 0
			if s.nextDue {
				due = 1
			}
			return &m.results[n][s.result[n]&(verdictMask|hasNext)][due], nil
		},
		ResendRequested: func(n int) (bool, error) {
			n -= m.releases
			return n > 0 && s.resend&(1<<n) != 0, nil
		},
	}
}
