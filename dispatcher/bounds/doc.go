// Package bounds holds what keeps deliveries from each other's way: how much of what there is an account may
// have, what waits of which account, and what waits for a place. It knows accounts by their names, and
// nothing of deliveries.
//
// Its law: what is divided is divided among accounts, so that no account can use up what another needs, and
// nobody has to take anything away from who holds it. Nothing here starts a goroutine; whoever waits is
// signalled by a token in a channel of one.
package bounds

// Signal leaves a token, unless there is one.
func Signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
