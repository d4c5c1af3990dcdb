package sessions

import "time"

// Claim is the fact "worker W is about to send attempt N". It is the fence of the single POST: written once,
// before the first byte, by the process that sends; a process that does not own it never sends.
type Claim struct {
	Session ID     `json:"-"`
	Number  int    `json:"n"`      // the attempt, from 1
	Worker  string `json:"worker"` // the process that claims, for people
	// GiveUp marks a claim that is taken in order to end the delivery as undeliverable: its owner sends
	// nothing, and nobody else can send any more.
	GiveUp bool      `json:"give_up,omitzero"`
	At     time.Time `json:"at"`
	// Deadline is the last instant at which the owner may begin to write. An owner that finds it passed
	// releases the claim.
	Deadline time.Time `json:"deadline"`
	// SettleAfter is the instant from which anyone may settle an open claim: Deadline plus a whole attempt
	// and a margin.
	SettleAfter time.Time `json:"settle_after"`
	// Unreadable marks what is stored in a claim's place and is none (ErrUnreadable). Of the rest only At is
	// set then, to when it was stored.
	Unreadable bool `json:"-"`
}

// NewClaim returns the claim of an attempt. Its owner may begin to write until begin has passed, and anyone
// may settle it when settle has passed after that: how long an attempt may take, and a margin. Where nothing
// is to be sent, begin is 0.
func NewClaim(id ID, number int, worker string, at time.Time, begin, settle time.Duration) Claim {
	deadline := at.Add(begin)
	return Claim{
		Session: id, Number: number, Worker: worker, At: at, Deadline: deadline,
		SettleAfter: deadline.Add(settle),
	}
}

// Resend is the fact "attempt N was requested", after the attempts before it had come to an end.
type Resend struct {
	Session ID        `json:"-"`
	Number  int       `json:"n"`  // the attempt that is asked for, from 2
	By      string    `json:"by"` // who asked, for people: a key's id, or "operator"
	At      time.Time `json:"at"`
}

// Verdict is how one attempt ended.
type Verdict string

// The verdicts of a result. VerdictReleased leaves the delivery due; the others are final.
const (
	VerdictDelivered     Verdict = "delivered"
	VerdictRejected      Verdict = "rejected"
	VerdictUnknown       Verdict = "unknown"
	VerdictUndeliverable Verdict = "undeliverable"
	VerdictReleased      Verdict = "released" // claimed, but not one byte was written: attempt N+1 may follow
)

// Class says what went wrong, in one bounded word; empty for a delivered attempt.
type Class string

// The classes of an attempt that was not delivered.
const (
	ClassNone           Class = ""
	ClassDNS            Class = "dns"             // the name did not resolve
	ClassRefusedAddress Class = "refused_address" // every address is one that the operator does not allow
	ClassConnect        Class = "connect"         // no TCP connection
	ClassProxy          Class = "proxy"           // the egress proxy opened no tunnel, for a reason that is not the receiver's
	ClassTLS            Class = "tls"             // no TLS session, or a certificate that does not verify
	ClassTimeout        Class = "timeout"         // bytes left and the deadline passed
	ClassReset          Class = "reset"           // bytes left and the connection ended
	ClassProtocol       Class = "protocol"        // what came back is not HTTP/1
	ClassStatus         Class = "status"          // a final status line other than 2xx
	ClassUnsigned       Class = "unsigned"        // no usable signing secret for the account
	ClassCrash          Class = "crash"           // the process that held the claim ended before it wrote a result
	ClassLate           Class = "late"            // no connection came free, or the claim's deadline passed, before the first byte
	ClassPaused         Class = "paused"          // the receiver host was paused until the outcome had to end
	ClassRestored       Class = "restored"        // the store was restored from a backup in which the delivery had not ended
	ClassLost           Class = "lost"            // a damaged store has lost the session's key and callback URL
	ClassUnreadable     Class = "unreadable"      // what stands in the place of its claim or its result cannot be read
)

// Timing holds how long each step of an attempt took; zero where the step did not happen.
type Timing struct {
	DNS     time.Duration `json:"dns,omitzero"`
	Connect time.Duration `json:"connect,omitzero"`
	TLS     time.Duration `json:"tls,omitzero"`
	// from the write to the first byte of the status line
	FirstByte time.Duration `json:"first_byte,omitzero"`
	Total     time.Duration `json:"total,omitzero"`
}

// Result is the fact "attempt N ended so". Written once, by the claim's owner or, after Claim.SettleAfter,
// by whoever sees it.
type Result struct {
	Session ID      `json:"-"`
	Number  int     `json:"n"`
	Verdict Verdict `json:"verdict"`
	Class   Class   `json:"class,omitempty"`
	Status  int     `json:"status,omitzero"` // the receiver's final status; 0 where none was read
	// one sentence for people, without URL or secrets; sealed in storage, as what follows (Of)
	Detail  string `json:"detail,omitempty"`
	Address string `json:"address,omitempty"` // the address dialled, ip:port
	// the first 1 KiB of the answer's body, escaped by whoever shows it
	Answer string `json:"answer,omitempty"`
	Timing Timing `json:"timing,omitzero"`
	// Next is from when the next attempt is due, where the policy sends such a result again; zero where the
	// result is final.
	Next time.Time `json:"next,omitzero"`
	By   string    `json:"by"` // the worker that wrote this fact
	At   time.Time `json:"at"`

	key    keyRef // of its session, which what the receiver said is stored under
	sealed string // that, still sealed
}

// NewResult returns the result of an attempt. The sender sets what the receiver answered and how long it
// took.
func NewResult(id ID, number int, verdict Verdict, class Class, by string, at time.Time) Result {
	return Result{Session: id, Number: number, Verdict: verdict, Class: class, By: by, At: at}
}

// Of returns the result as one of a session: what the receiver answered is stored sealed under the session's
// key, as the callback URL is.
func (r Result) Of(s Session) Result {
	r.key = s.key
	return r
}
