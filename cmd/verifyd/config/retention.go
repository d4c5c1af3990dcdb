package config

import "time"

// retentionSpare is RetentionSpare as time.ParseDuration reads it. A build for long runs, in which what is
// kept is to age out, sets less by -ldflags.
var retentionSpare = "1h"

// RetentionSpare is by how much results are kept for longer than callbacks are tried. Half of it before an
// outcome leaves the store, dispatchers bring its delivery to an end.
var RetentionSpare = func() time.Duration {
	d, err := time.ParseDuration(retentionSpare)
	if err != nil {
		panic("retentionSpare: " + err.Error()) // of a build that was made wrong
	}
	return d
}()
