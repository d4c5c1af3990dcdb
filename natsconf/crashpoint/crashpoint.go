// Package crashpoint names the places, before and after every write, send and acknowledgement in the life of
// a session, at which tests end the process. In a running service a point costs one nil check.
//
// The law: wherever the process ends, a receiver gets at most one POST per session, and every answer to a
// user or an integrator stays true. The tests of cmd/verifyd kill the real binary at each point and count at
// a real receiver.
package crashpoint

// The points that every session passes, in that order.
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
	Answered       = "answered"    // the verdict is known
	BeforeResult   = "before-result"
	AfterResult    = "after-result"
	BeforeAck      = "before-ack"
	AfterAck       = "after-ack"
)

// The points that only a delivery passes whose next try is far off.
const (
	BeforeSchedule = "before-schedule"
	AfterSchedule  = "after-schedule"
)

// The points that only a start under an idempotency key passes, before that of its session.
const (
	BeforeReservation = "before-reservation"
	AfterReservation  = "after-reservation"
)

// The points that only a session that is confirmed with a code passes, before that of its outcome.
const (
	BeforeConfirm = "before-confirm" // the try, which is stored before it is judged
	AfterConfirm  = "after-confirm"
)

// The points that a move of a store passes (verifyd move), most of them only if it finishes.
const (
	MovePage     = "move-page"     // some messages are copied
	MoveLeaving  = "move-leaving"  // no new delivery begins
	MoveSealed   = "move-sealed"   // the old store accepts nothing any more
	MoveCompared = "move-compared" // both sides hold the same
	MoveLeft     = "move-left"     // the old store is closed, the new one not open yet
)

// The points that a change of the master key passes (verifyd secret rekey), the last with --finish.
const (
	RekeyWritten  = "rekey-written"  // the new key is in its file, and opens nothing yet
	RekeyAdmitted = "rekey-admitted" // both keys open the store
	RekeyAlone    = "rekey-alone"    // the new one alone does; accounts' secrets are not sealed anew yet
)

// hook is nil outside tests.
var hook func(point string)

// Hook sets the function that is called with each point that is reached. Only tests call it, before anything
// is started.
func Hook(h func(point string)) { hook = h }

// Reach marks a point.
func Reach(point string) {
	if hook != nil {
		hook(point)
	}
}
