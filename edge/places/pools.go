package places

import (
	"math"
	"time"
)

// Pool is how many bounded places there are, and how many of them somebody may hold.
type Pool struct {
	Size int // all of them, in a process
	Each int // of one owner, person or address
	Part int // of one key, account or person, where those of an owner count, too
	Last int // the last ones, for those who hold none
	Kept int // for requests that must pass, beside those
	// Aged is how long a place is held before it counts; zero: it counts at once.
	Aged time.Duration
}

// Sized returns a pool of another size, with the same parts for all.
func (p Pool) Sized(n int) Pool {
	p.Each, p.Last, p.Kept, p.Size = max(p.Each*n/p.Size, 1), p.Last*n/p.Size, p.Kept*n/p.Size, n
	return p
}

// DefaultWaiting is how many requests of a process wait for the store at once.
const DefaultWaiting = 1000

// Pools is the table of the edge's bounded places. A comment says what they protect, by what they are
// counted, and what those see who get none.
var Pools = struct {
	Store, Changed, Lists, PageLists, OperatorLists, Exports, ExportPages, Listeners, LivePages, Uploads,
	Logos, Managing, NewKeys, Notices, Turns Pool
}{
	// Requests that wait for a store that does not answer, at up to 80 KB each; by owner, or by address
	// where no account is known. 503. A start, a press, a return, a change and an operator must pass.
	// Without faults a request takes milliseconds, so that no crowd comes near the bound.
	Store: Pool{Size: DefaultWaiting, Each: 500, Last: 125, Kept: 125, Aged: 500 * time.Millisecond},

	// Requests that wait for a session to change (?wait=), a tenth of the connections that a server takes
	// by default; by owner. 429.
	Changed: Pool{Size: 1000, Each: 250, Last: 250},
	// Lists that are read for the API. Each may look through the store for as long as a request waits, and
	// those of all edges do so at the same leader, in competition with the completion of sessions. By
	// owner: 429 for one who has used the share, 503 for others.
	Lists: Pool{Size: 32, Each: 8, Last: 8},
	// The same for the dashboard's pages; by owner and by person. 429.
	PageLists: Pool{Size: 32, Each: 8, Last: 8},
	// The same for operators, who look for the reason when all others are taken; all of them together. 429.
	OperatorLists: Pool{Size: 8},
	// Exports under way, each with a page of some hundred kilobytes in memory, by the API and on the
	// dashboard each; by owner and by person. 429, or 503 by the API if others have them.
	Exports: Pool{Size: 200, Each: 4, Last: 50},
	// Pages of those that are read from the store at once; by owner and by person. They wait in order.
	ExportPages: Pool{Size: 8, Each: 4, Last: 2},
	// Listeners for test callbacks, each a connection and a subscription; by key and by owner. 429.
	Listeners: Pool{Size: 500, Each: 50, Part: 5, Last: 125},
	// Pages of the dashboard that are kept up to date; by person and by owner. 204: they work as without a
	// script.
	LivePages: Pool{Size: 200, Each: 50, Part: 10, Last: 50},

	// Forms with files that are read, each with some megabytes in memory; by owner and by person. 429.
	Uploads: Pool{Size: 8, Each: 1},
	// Logos that are decoded, each with some tens of megabytes for a moment; of the uploads. They wait in
	// order.
	Logos: Pool{Size: 1},
	// Requests to the management interface, each with reads of the store's leader before its token is known
	// to be valid; by address, so that who guesses tokens does not keep others out. 503.
	Managing: Pool{Size: 32, Each: 8, Last: 8},
	// Requests whose key is not known, and may be in a moment; by address. 401.
	NewKeys: Pool{Size: 256, Each: 64, Last: 64},
	// POSTs of notices, each for as long as its receiver takes; by account and by owner. They wait.
	Notices: Pool{Size: 8, Each: 2, Part: 1},

	// Changes of an account under way: hundreds at once would race for each number of its audit log. They
	// wait in order; what takes a right away needs no place.
	Turns: Pool{Size: math.MaxInt, Each: 1},
}
