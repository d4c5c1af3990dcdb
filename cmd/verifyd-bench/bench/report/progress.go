package report

import (
	"fmt"
	"io"
	"time"
)

// Progress shows on standard error what is being measured: on a terminal in one line that is rewritten,
// otherwise one a line.
type Progress struct {
	out      io.Writer
	terminal bool
	began    time.Time
}

// NewProgress begins to count the time.
func NewProgress(out io.Writer, terminal bool) *Progress {
	return &Progress{out: out, terminal: terminal, began: time.Now()}
}

// Return to the line's beginning, and clear the line.
const (
	lineStart = "\r"
	lineErase = "\x1b[K"
)

// Step shows the next step.
func (p *Progress) Step(what string) {
	line := fmt.Sprintf("%5.0f s  %s", time.Since(p.began).Seconds(), what)
	if p.terminal {
		_, _ = fmt.Fprint(p.out, lineStart+line+lineErase)
		return
	}
	_, _ = fmt.Fprintln(p.out, line)
}

// End clears the line.
func (p *Progress) End() {
	if p.terminal {
		_, _ = fmt.Fprint(p.out, lineStart+lineErase)
	}
}
