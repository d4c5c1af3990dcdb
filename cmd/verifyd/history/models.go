package history

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"
)

// model returns a model from an initial state and a step.
func model[S any](first S, step func(s S, in input, out output) (S, bool)) *porcupine.Model {
	return &porcupine.Model{
		Init: func() any { return first },
		Step: func(state, in, out any) (bool, any) {
			next, ok := step(as[S](state), as[input](in), as[output](out))
			return ok, next
		},
		DescribeOperation: func(in, out any) string { return describe(as[input](in), as[output](out)) },
		DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
	}
}

// as converts a value: porcupine passes back what it was given.
func as[T any](v any) T {
	t, ok := v.(T)
	if !ok {
		panic(fmt.Sprintf("%T", v))
	}
	return t
}

func describe(in input, out output) string {
	asked := in.do
	if in.want != "" {
		asked += " " + in.want
	}
	if !out.known {
		return asked + ": no answer"
	}
	return fmt.Sprintf("%s: %s %d", asked, out.text, out.n)
}

const (
	doStart  = "start"
	doRead   = "read"
	doEnd    = "end"
	doExpire = "expire"
	doTake   = "take"
	doCount  = "count"
	doUse    = "use"
	doRevoke = "revoke"
)

// asks reports whether calls change nothing.
func asks(do string) bool { return do == doRead || do == doCount || do == doUse }

// The states of a session in the model, and its answer to an end if another was faster.
const (
	pending = "pending"
	expired = "expired"
	// Other is what an end saw if the session had already ended in another way.
	Other = "other"
)

type sessionState struct{ id, is string }

// Session begins the history of a session: of one idempotency key. However often it is started, there is one
// session, which ends once.
func (l *Log) Session(name string) *Part { return l.part("session "+name, sessions) }

var sessions = model(sessionState{}, func(s sessionState, in input, out output) (sessionState, bool) {
	there := s.is != ""
	switch in.do {
	case doStart:
		switch {
		case !there:
			return sessionState{out.text, pending}, true // a lost answer names none
		case s.id == "" && out.known:
			return sessionState{out.text, s.is}, true
		default:
			return s, !out.known || out.text == s.id
		}
	case doRead: // one that has expired may be forgotten
		return s, !out.known || out.text == s.is || out.text == "" && s.is == expired ||
			in.behind && (out.text == pending || out.text == "")
	case doEnd:
		if s.is == pending {
			return sessionState{s.id, in.want}, !out.known || out.text == in.want
		}
		return s, !out.known || out.text == s.is || out.text == Other && there && s.is != in.want
	case doExpire:
		if s.is == pending {
			s.is = expired
		}
		return s, true
	default:
		return s, false
	}
})

// Start begins a start of the session, which ends with its id.
func (p *Part) Start() *Call { return p.begin(doStart, "") }

// Read begins a read, which ends with the session's state.
func (p *Part) Read() *Call { return p.begin(doRead, "") }

// End begins a call that is to end the session in a state. It ends with the session's state then, or with
// Other.
func (p *Part) End(in string) *Call { return p.begin(doEnd, in) }

// Expires says that the session may expire by itself from an instant on.
func (p *Part) Expires(at time.Time) {
	if c := p.begin(doExpire, ""); c != nil {
		c.in.call = int64(at.Sub(p.log.began))
	}
}

// The answers about a quota and a key.
const (
	Taken   = "taken"
	Refused = "refused"
)

type quotaState struct{ taken, lost int64 }

// Quota begins the history of an account's quota: no more sessions than that are started, and what was
// counted stays counted. Its units are taken one by one, as the service does below 32 a second. If a start
// was not answered, a unit may be taken, permanently or for a while.
func (l *Log) Quota(name string, limit int64) *Part {
	return l.part("quota of "+name, model(quotaState{}, func(s quotaState, in input,
		out output) (quotaState, bool) {
		switch {
		case in.do == doCount:
			return s, !out.known || out.n >= s.taken && out.n <= limit
		case in.do != doTake:
			return s, false
		case !out.known:
			s.lost++
			return s, true
		case out.text == Taken:
			s.taken++
			return s, s.taken <= limit
		default:
			return s, s.taken+s.lost >= limit
		}
	}))
}

// Take begins a start of a session of the account, which ends with Taken or Refused.
func (p *Part) Take() *Call { return p.begin(doTake, "") }

// Count begins a read of the used units.
func (p *Part) Count() *Call { return p.begin(doCount, "") }

type keyState struct {
	revoked bool
	at      int64 // when the revocation was acknowledged; never, if the answer was lost
}

// Key begins the history of an API key, which is refused to requests later than within after its revocation
// was acknowledged. Until then it may be accepted by one process and refused by another.
func (l *Log) Key(name string, within time.Duration) *Part {
	return l.part("key "+name, model(keyState{}, func(s keyState, in input, out output) (keyState, bool) {
		switch {
		case in.do == doRevoke:
			if !s.revoked {
				s = keyState{true, never}
			}
			s.at = min(s.at, in.ret)
			return s, true
		case in.do != doUse:
			return s, false
		case out.known && out.text == Refused:
			return s, s.revoked
		default:
			return s, !out.known || !s.revoked || s.at == never || in.call <= s.at+int64(within)
		}
	}))
}

// Use begins a use of the key, which ends with Taken or Refused.
func (p *Part) Use() *Call { return p.begin(doUse, "") }

// Revoke begins the revocation of the key, which ends with Taken.
func (p *Part) Revoke() *Call { return p.begin(doRevoke, "") }
