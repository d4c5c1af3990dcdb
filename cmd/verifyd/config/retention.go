package config

import "time"

// retentionSpare is RetentionSpare as time.ParseDuration reads it. A build for long runs, in which records
// are to age out, sets less by -ldflags.
var retentionSpare = "1h"

// RetentionSpare is how much longer results are kept than callbacks are tried. When an outcome has half of it
// left in the store, dispatchers end its delivery.
var RetentionSpare = func() time.Duration {
	d, err := time.ParseDuration(retentionSpare)
	if err != nil {
		panic("retentionSpare: " + err.Error()) // of a wrong build
	}
	return d
}()
