// Package failure names what went wrong, in bounded words: the rule that refused an identity, and why an
// attempt at a callback was not delivered.
package failure

// Class is what went wrong, in one bounded word; empty for a delivered attempt.
type Class string

// The classes of an attempt that was not delivered.
const (
	None           Class = ""
	DNS            Class = "dns"             // the name did not resolve
	RefusedAddress Class = "refused_address" // every address is one that the operator does not allow
	Connect        Class = "connect"         // no TCP connection
	// Proxy: the egress proxy opened no tunnel, for a reason that is not the receiver's
	Proxy    Class = "proxy"
	TLS      Class = "tls"      // no TLS session, or a certificate that does not verify
	Timeout  Class = "timeout"  // bytes left and the deadline passed
	Reset    Class = "reset"    // bytes left and the connection ended
	Protocol Class = "protocol" // the answer is not HTTP/1
	Status   Class = "status"   // a final status line other than 2xx
	Unsigned Class = "unsigned" // no usable signing secret for the account
	Crash    Class = "crash"    // the process that held the claim ended before it wrote a result
	// Late: no connection came free, the claim's deadline passed, or the outcome was about to leave the
	// store, before the first byte
	Late   Class = "late"
	Paused Class = "paused" // the receiver host was paused until the outcome had to end
	// Restored: the store was restored from a backup in which the delivery had not ended
	Restored Class = "restored"
	Lost     Class = "lost" // a damaged store has lost the session's key and callback URL
	// Unreadable: the message in the place of its claim or its result cannot be read
	Unreadable Class = "unreadable"
)
