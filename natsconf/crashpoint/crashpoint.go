// Package crashpoint names the places, before and after every write, send and acknowledgement on the way of
// a session, at which tests end the process. In a running service a point costs one nil check.
//
// The law: wherever the process ends, a receiver gets at most one POST per session, and every answer to a
// user or an integrator stays true. The tests of cmd/verifyd kill the real binary at each point and count at
// a real receiver.
package crashpoint

// The points, in the order in which a session passes them.
const (
	BeforeCount    = "before-count" // the quota's counter
	AfterCount     = "after-count"
	BeforeCreate   = "before-create" // the session's record
	AfterCreate    = "after-create"
	BeforeRedeem   = "before-redeem" // the sign-in attempt
	AfterRedeem    = "after-redeem"
	BeforeComplete = "before-complete" // the one write that is the outcome
	AfterComplete  = "after-complete"
	Taken          = "taken"     // a dispatcher has the completion
	Connected      = "connected" // the connection is ready, nothing is claimed
	BeforeClaim    = "before-claim"
	AfterClaim     = "after-claim"
	BeforeSend     = "before-send" // the last moment before the first byte
	AfterSend      = "after-send"  // the bytes have left, no answer was read
	Answered       = "answered"    // the verdict has fallen
	BeforeSettle   = "before-settle"
	AfterSettle    = "after-settle"
	BeforeAck      = "before-ack"
	AfterAck       = "after-ack"
)

// The points that only a delivery passes that has to wait long for its next try.
const (
	BeforeSchedule = "before-schedule"
	AfterSchedule  = "after-schedule"
)

// The points that only a start under an idempotency key passes, before that of its session.
const (
	BeforeReservation = "before-reservation"
	AfterReservation  = "after-reservation"
)

// The points that only a session passes that is confirmed with a code, before that of its outcome.
const (
	BeforeConfirm = "before-confirm" // the try, which is stored before it is judged
	AfterConfirm  = "after-confirm"
)

// The points that a move of a store passes (verifyd move), most of them only where it finishes.
const (
	MovePage     = "move-page"     // some messages are brought
	MoveLeaving  = "move-leaving"  // no delivery begins any more
	MoveSealed   = "move-sealed"   // the store that is left takes nothing any more
	MoveCompared = "move-compared" // both sides hold the same
	MoveLeft     = "move-left"     // the old store is closed, the new one not open yet
)

// All lists the points that every session passes.
var All = []string{
	BeforeCount, AfterCount, BeforeCreate, AfterCreate, BeforeRedeem, AfterRedeem, BeforeComplete,
	AfterComplete, Taken, Connected,
	BeforeClaim, AfterClaim, BeforeSend, AfterSend, Answered, BeforeSettle, AfterSettle, BeforeAck, AfterAck,
}

// Waiting lists the points that only a delivery passes that has to wait long for its next try.
var Waiting = []string{BeforeSchedule, AfterSchedule}

// Keyed lists the points that only a start under an idempotency key passes.
var Keyed = []string{BeforeReservation, AfterReservation}

// Confirmed lists the points that only a session passes that is confirmed with a code.
var Confirmed = []string{BeforeConfirm, AfterConfirm}

// Moving lists the points that only a move passes.
var Moving = []string{MovePage, MoveLeaving, MoveSealed, MoveCompared, MoveLeft}

// hook is nil outside tests.
var hook func(point string)

// Hook sets what is told each point that is reached. It is called before anything is started, by tests
// alone.
func Hook(h func(point string)) { hook = h }

// Reach marks a point.
func Reach(point string) {
	if hook != nil {
		hook(point)
	}
}
