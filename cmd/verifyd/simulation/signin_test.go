package simulation_test

import (
	"slices"
	"time"

	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/proof"
)

// roundTrips are the sign-ins of all browsers at identity networks, under the world's lock.
type roundTrips struct {
	attempts map[string]*attempt // by their code challenge (RFC 7636)
	grants   map[string]*grant   // by their code
	holders  map[string]string   // the session of each identity that is limited to one user
}

func newRoundTrips() roundTrips {
	return roundTrips{
		attempts: map[string]*attempt{}, grants: map[string]*grant{}, holders: map[string]string{},
	}
}

// visits are what the users of one session did and saw at its pages, under the world's lock.
type visits struct {
	attempts  []*attempt
	pressed   []*press
	told      []sessions.State // the ends that pages showed
	completed time.Time        // when a caller was first told how it was completed
	proven    time.Time        // when a page first showed that only its code is missing
}

// press is a press on one of the page's buttons.
type press struct {
	s       *session
	cookie  string // identifies the browser
	action  string
	began   time.Time
	done    time.Time // zero: the edge has not finished it
	granted bool      // the browser was sent to an identity network
}

// attempt is one sign-in of a browser at an identity network.
type attempt struct {
	s            *session
	name         string
	network      *identityNetwork
	state, nonce string
	cookie       string // identifies the browser that began it

	returns  []arrival
	posts    []time.Time // of a code, with its verifier
	vouched  bool        // the network has answered who the user is
	subject  string      // who that is
	declined bool        // the user declined at the network
	unsaved  bool        // a page said that its verdict is not stored
}

// arrival is the moment when an edge begins to handle a return of an attempt.
type arrival struct {
	at     time.Time
	cookie string // identifies the browser
	calm   bool
}

// beginPress records that a press begins.
func (s *session) beginPress(cookie, action string) *press {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	p := &press{s: s, cookie: cookie, action: action, began: time.Now()}
	s.pressed = append(s.pressed, p)
	return p
}

// end records that the edge has finished a press.
func (p *press) end() {
	p.s.w.mu.Lock()
	defer p.s.w.mu.Unlock()
	p.done = time.Now()
}

// returned records that an edge begins to handle a return.
func (a *attempt) returned(b *browser) {
	known := b.cookie(browserKnown)
	a.s.w.mu.Lock()
	defer a.s.w.mu.Unlock()
	a.returns = append(a.returns, arrival{time.Now(), known, a.s.w.calm})
}

// recordPage records what a page shows that was requested at an instant.
func (s *session) recordPage(a answer, asked time.Time) {
	state, known := pageStates[a.title]
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.w.kinds["page "+a.title]++
	switch {
	case !known:
		s.w.failLocked("%s: a user sees the page %q", s.name, a.title)
	case state == "":
		return
	case s.proven.IsZero() && (a.title == pageConfirm || a.title == pageCode):
		s.proven = time.Now()
	case !s.completed.IsZero() && asked.After(s.completed) && !a.over():
		s.w.failLocked("%s: a user sees %q, and others know that it has ended", s.name, a.title)
	case !s.completed.IsZero() && asked.After(s.completed) && state == sessions.Expired:
		s.w.failLocked("%s: a user is told that it has expired, and others know how it ended", s.name)
	case state == sessions.Pending && asked.After(s.started.ExpiresAt.Add(clockError)):
		s.w.failLocked("%s: a user sees %q, and it has expired", s.name, a.title)
	case state == sessions.Expired && time.Now().Before(s.started.ExpiresAt.Add(-clockError)):
		s.w.failLocked("%s: a user is told that it has expired, before it has", s.name)
	}
	if !a.over() {
		return
	}
	s.told = append(s.told, state)
	if state != sessions.Expired {
		s.endKnown()
	}
}

// endKnown records that a caller knows how the session was completed.
func (s *session) endKnown() {
	if s.completed.IsZero() {
		s.completed = time.Now()
	}
}

// judgeVisits compares what happened at the pages with what is stored.
func (s *session) judgeVisits(v facts.View) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	for _, state := range s.told {
		// a page that is requested after the expiry, while a completion of the last moment is in flight,
		// says "expired"
		if state != v.State && state != sessions.Expired {
			s.w.failLocked("%s is %s, and a page said that it is %s", s.name, v.State, state)
		}
	}
	var vouched []*attempt
	for _, a := range s.attempts {
		s.judgeAttempt(a)
		if a.vouched && a.network.id == v.Network {
			vouched = append(vouched, a)
		}
	}
	declined := slices.ContainsFunc(s.attempts, func(a *attempt) bool { return a.declined })
	switch {
	case v.State == sessions.Verified && len(vouched) == 0,
		v.State == sessions.Failed && v.Reason == sessions.Refused && len(vouched) == 0,
		v.State == sessions.Failed && v.Reason == sessions.Declined && v.Network != "" && !declined:
		s.w.failLocked("%s is %s, %s, by %s, which has not said so", s.name, v.State, v.Reason, v.Network)
	}
	if len(vouched) == 1 && v.State == sessions.Verified {
		s.checkIdentity(vouched[0])
	}
	stored := v.State == sessions.Verified || v.Reason == sessions.Refused
	if len(vouched) == 1 && vouched[0].unsaved && stored && v.Level == proof.Link {
		s.w.failLocked("%s is %s by %s, and its user was told that this is not stored", s.name, v.State,
			vouched[0].name)
	}
}

// checkIdentity records that an identity has verified the session, and checks that it may. If the network's
// rules limit it to one user, it verifies no other session.
func (s *session) checkIdentity(a *attempt) {
	if slices.Contains(a.network.rules.DenySubjects, a.subject) {
		s.w.failLocked("%s is verified by %s, which is refused", s.name, a.subject)
	}
	if a.network.rules.OneIdentityPer == "" {
		return
	}
	identity := s.started.Account + " " + a.network.id + " " + a.subject
	if other := s.w.holders[identity]; other != "" {
		s.w.failLocked("%s and %s are verified, both by %s", other, s.name, identity)
	}
	s.w.holders[identity] = s.name
}

// judgeAttempt judges what an edge did with the returns of an attempt.
func (s *session) judgeAttempt(a *attempt) {
	if len(a.posts) > 1 {
		s.w.failLocked("%s: %d codes were posted", a.name, len(a.posts))
	}
	for _, at := range a.posts {
		var reasons []string
		allowed := false
		for _, r := range a.returns {
			if r.at.After(at) {
				continue
			}
			reason := s.forbids(a, r)
			allowed = allowed || reason == ""
			reasons = append(reasons, reason)
		}
		if !allowed {
			s.w.failLocked("%s: its code was posted, and no return may have that: %q", a.name, reasons)
		}
	}
}

// forbids returns why a code must not be posted for a return; empty if it may.
func (s *session) forbids(a *attempt, r arrival) string {
	switch {
	case r.cookie != a.cookie:
		return "another browser"
	case r.at.After(s.started.ExpiresAt.Add(clockError)):
		return "expired"
	case !s.completed.IsZero() && r.at.After(s.completed):
		return "has ended"
	case !s.proven.IsZero() && r.at.After(s.proven):
		return "its code is all that is left"
	case s.takenOver(a, r.at):
		return "another browser has taken over"
	case slices.ContainsFunc(a.returns, func(o arrival) bool {
		return o.calm && o.cookie != a.cookie && o.at.Before(r.at)
	}):
		return "it came to another browser before"
	}
	return ""
}

// takenOver reports whether it is certain that another browser was signing in when a return of an attempt
// arrived: it was sent to an identity network after everything that the attempt's browser did, and there was
// no other press or return since.
func (s *session) takenOver(a *attempt, at time.Time) bool {
	return slices.ContainsFunc(s.pressed, func(p *press) bool {
		if p.cookie == a.cookie || !p.granted || p.done.IsZero() || !p.done.Before(at) {
			return false
		}
		pressed := slices.ContainsFunc(s.pressed, func(o *press) bool {
			return o != p && o.began.Before(at) && (o.done.IsZero() || !o.done.Before(p.began))
		})
		returned := slices.ContainsFunc(s.attempts, func(o *attempt) bool {
			return o.cookie != a.cookie && slices.ContainsFunc(o.returns, func(r arrival) bool {
				return r.at.After(p.began) && !r.at.After(at)
			})
		})
		return !pressed && !returned
	})
}
