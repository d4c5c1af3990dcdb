package sessions

import "time"

// Claim is the fact "worker W is about to send attempt N". It is the fence of the single POST: written once, before the first
// byte, by whoever sends; who does not hold it never sends.
type Claim struct {
	Session ID     `json:"-"`
	Number  int    `json:"n"`      // the attempt, from 1
	Worker  string `json:"worker"` // the process that claims, for people
	// GiveUp marks a claim that is taken in order to end the delivery as undeliverable: whoever holds it sends nothing, and
	// nobody else can send any more.
	GiveUp bool      `json:"give_up,omitempty"`
	At     time.Time `json:"at"`
	// Deadline is the last instant at which the owner may begin to write. An owner that finds it passed releases the claim.
	Deadline time.Time `json:"deadline"`
	// SettleAfter is the instant from which anyone may settle an open claim: Deadline plus a whole attempt and a margin.
	SettleAfter time.Time `json:"settle_after"`
	// Unreadable marks what stands in a claim's place and is none (ErrUnreadable). Of the rest only At is set then, to when it was stored.
	Unreadable bool `json:"-"`
}

// Resend is the fact "somebody asked for attempt N", after the attempts before it had come to an end.
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
	ClassProxy          Class = "proxy"           // the egress proxy gave no tunnel, for a reason that is not the receiver's
	ClassTLS            Class = "tls"             // no TLS session, or a certificate that does not verify
	ClassTimeout        Class = "timeout"         // bytes left and the deadline passed
	ClassReset          Class = "reset"           // bytes left and the connection ended
	ClassProtocol       Class = "protocol"        // what came back is not HTTP/1
	ClassStatus         Class = "status"          // a final status line other than 2xx
	ClassUnsigned       Class = "unsigned"        // no usable signing secret for the account
	ClassCrash          Class = "crash"           // the process that held the claim ended before it wrote a result
	ClassLate           Class = "late"            // the claim's deadline had passed before the first byte
	ClassRestored       Class = "restored"        // the store was restored from a backup in which the delivery had not ended
	ClassUnreadable     Class = "unreadable"      // what stands in the place of its claim or its result cannot be read
)

// Timing holds how long each step of an attempt took; zero where the step did not happen.
type Timing struct {
	DNS       time.Duration `json:"dns,omitempty"`
	Connect   time.Duration `json:"connect,omitempty"`
	TLS       time.Duration `json:"tls,omitempty"`
	FirstByte time.Duration `json:"first_byte,omitempty"` // from the write to the first byte of the status line
	Total     time.Duration `json:"total,omitempty"`
}

// Result is the fact "attempt N ended so". Written once, by the claim's owner or, after Claim.SettleAfter, by whoever sees it.
type Result struct {
	Session ID      `json:"-"`
	Number  int     `json:"n"`
	Verdict Verdict `json:"verdict"`
	Class   Class   `json:"class,omitempty"`
	Status  int     `json:"status,omitempty"`  // the receiver's final status; 0 where none was read
	Detail  string  `json:"detail,omitempty"`  // one sentence for people, without URL or secrets
	Address string  `json:"address,omitempty"` // the address dialled, ip:port
	Answer  string  `json:"answer,omitempty"`  // the first 1 KiB of the answer's body, escaped by whoever shows it
	Timing  Timing  `json:"timing,omitzero"`
	// Next is from when the next attempt is due, where the policy sends such a result again; zero where the result is final.
	Next time.Time `json:"next,omitzero"`
	By   string    `json:"by"` // the worker that wrote this fact
	At   time.Time `json:"at"`
}
