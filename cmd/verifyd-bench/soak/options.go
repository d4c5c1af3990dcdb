package soak

import (
	"io"
	"time"
)

// Options are what to run.
type Options struct {
	For  time.Duration // of the load; judging the last sessions takes longer
	Rate int           // sessions a second
	Seed uint64        // of the faults and of the users
	Dir  string        // where the stores are made, and the plots written
	Self string        // this program's file: it is the NATS servers, too
	Out  io.Writer     // for what happens, a line each
}
