package process

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"verifyd/natsconf/fleet"
)

// On a terminal each reading overwrites the one before: every line is cleared after its end, and the screen
// is not.
func TestStatusOnATerminal(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	doc := &StatusDoc{
		At: time.Unix(0, 0), OK: true, Processes: []fleet.Process{
			{Host: "a\x1b[2Jb", Since: time.Unix(0, 0), Ready: true},
		},
	}
	if err := (Status{}).show(&b, doc, true); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	if !strings.HasPrefix(text, termHome) || !strings.HasSuffix(text, termClearRest) ||
		strings.Contains(text, termClear) {
		t.Errorf("%q", text)
	}
	if strings.Count(text, "\n") != strings.Count(text, termClearLine+"\n") {
		t.Errorf("a line is not cleared behind its end: %q", text)
	}
}
