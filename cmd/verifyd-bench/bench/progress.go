package bench

import (
	"fmt"
	"io"
	"time"
)

// progress tells on standard error what is being measured: on a terminal in one line that is written anew,
// otherwise in a line each.
type progress struct {
	out      io.Writer
	terminal bool
	began    time.Time
}

func newProgress(o Options) *progress {
	return &progress{out: o.Err, terminal: o.Terminal, began: time.Now()}
}

// The line's beginning, and the end of what stood there.
const (
	lineStart = "\r"
	lineErase = "\x1b[K"
)

func (p *progress) step(what string) {
	line := fmt.Sprintf("%5.0f s  %s", time.Since(p.began).Seconds(), what)
	if p.terminal {
		_, _ = fmt.Fprint(p.out, lineStart+line+lineErase)
		return
	}
	_, _ = fmt.Fprintln(p.out, line)
}

// end leaves a clean line behind.
func (p *progress) end() {
	if p.terminal {
		_, _ = fmt.Fprint(p.out, lineStart+lineErase)
	}
}
