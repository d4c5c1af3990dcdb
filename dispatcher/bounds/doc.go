// Package bounds keeps deliveries out of each other's way: how many places an account may hold, what waits
// for each account, and what waits for a place. It knows accounts by their names, and nothing of deliveries.
//
// Its law: places are divided among accounts, so that no account can use up what another needs, and nothing
// has to be removed from its holder. Nothing here starts a goroutine; a waiter is signalled by a token in a
// channel of one.
package bounds

// Signal leaves a token, unless there is one.
func Signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
