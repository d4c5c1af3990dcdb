package dispatcher

import (
	"fmt"
	"strings"

	"verifyd/sessions"
	"verifyd/sessions/modelcheck"
)

// factBits are the bits of an attempt's facts in a set of facts: claim, result, resend.
const factBits = 3

// lossTexts describe what is lost, by the set of it.
var lossTexts = func() (texts [1 << (factBits * (modelAttempts - 1))]string) {
	for set := range texts {
		var lost []string
		for i := range factBits * (modelAttempts - 1) {
			if kinds := []string{"claim", "result", "resend"}; set&(1<<i) != 0 {
				lost = append(lost, fmt.Sprint(kinds[i%factBits], " ", i/factBits+1))
			}
		}
		if lost == nil {
			lost = []string{"nothing of this"}
		}
		texts[set] = "loses " + strings.Join(lost, ", ") + ", and is recovered"
	}
	return texts
}()

// facts returns the set of the facts that are there.
func (s *deliveryState) facts(room int) (set uint) {
	for n := 1; n <= room; n++ {
		for i, there := range []bool{s.claim[n] != 0, s.result[n] != 0, s.resend&(1<<n) != 0} {
			if there {
				set |= 1 << (factBits*(n-1) + i)
			}
		}
	}
	return set
}

// lose takes facts away.
func (s *deliveryState) lose(set uint) {
	for n := 1; set != 0; n, set = n+1, set>>factBits {
		if set&1 != 0 {
			s.claim[n] = 0
		}
		if set&2 != 0 {
			s.result[n] = 0
		}
		if set&4 != 0 {
			s.resend &^= 1 << n
		}
	}
}

// loss yields the steps in which the service is stopped, and its store has lost any of the facts, or none of
// this delivery, and is recovered.
func (st *stepper) loss() {
	there := st.s.facts(st.m.room)
	for lost := there; ; lost = (lost - 1) & there {
		st.does(chance(modelcheck.Event{From: "Store", Text: lossTexts[lost]}), func(s *deliveryState) {
			s.losses--
			for w := range s.worker {
				s.forget(w, byNobody, byNobody)
				s.worker[w] = workerState{skew: s.worker[w].skew}
			}
			s.limbo, s.person = [modelLimbo]inFlight{}, 0
			s.lose(lost)
			st.m.recovered(s)
			s.completion, s.resendMsg = 1, s.resend|s.resendJunk
		})
		if lost == 0 {
			return
		}
	}
}

// recovered is what Recovery.CloseLost does with an outcome.
func (m *model) recovered(s *deliveryState) {
	last := 0
	for n := 1; n <= m.room; n++ {
		unread := s.claim[n]&^unreadable == 0 && (s.result[n] == 0 || s.result[n] == resultJunk)
		if !unread || s.resend&(1<<n) != 0 {
			last = n
		}
	}
	_, closed, err := m.afterLoss(m.read(s, m.room, 0), sessions.Outcome{State: sessions.Verified},
		last+m.releases)
	if err != nil {
		panic(err)
	}
	s.before = uint8(last)
	for _, n := range closed {
		if n -= m.releases; n > m.room {
			s.beyond = true
			continue
		}
		s.before = max(s.before, uint8(n))
		if s.claim[n] == 0 {
			s.claim[n] = byNobody
		}
		if s.result[n] == 0 {
			s.result[n] = resultUnknown
		}
	}
	if known := uint8(1)<<(s.before+1) - 1; s.before > 0 && s.sent&^known != 0 {
		s.sent = s.sent&known | 1<<s.before // its number is free again, for whoever requests an attempt
	}
}
