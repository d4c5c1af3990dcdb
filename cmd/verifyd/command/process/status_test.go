package process

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"verifyd/cmd/verifyd/service"
	"verifyd/natsconf/fleet"
	"verifyd/natsconf/provision"
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

// A change of the master key that has not ended is not well: the old key still opens the store.
func TestStatusShowsAnUnfinishedChangeOfTheMasterKey(t *testing.T) {
	t.Parallel()
	p := fleet.Process{Host: "a", Ready: true, Roles: []string{"dispatcher", "edge"}}
	for _, waits := range []bool{false, true} {
		p.KeyWaits = waits
		doc := &StatusDoc{At: time.Now(), Processes: []fleet.Process{p, p}}
		doc.judge(provision.Health{})
		if told := strings.Contains(strings.Join(doc.Problems, "\n"), "--finish"); told != waits ||
			len(doc.Problems) > 1 {
			t.Errorf("%t: %q", waits, doc.Problems)
		}
	}
}

// Deliveries that no dispatcher had are not well for a while, although they have been handed in.
func TestStatusShowsStrayDeliveries(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	p := fleet.Process{Host: "a", Ready: true, Roles: []string{"dispatcher", "edge"}}
	for ago, want := range map[time.Duration]int{time.Minute: 1, service.QuietAfter: 0} {
		p.Strays = &fleet.Strays{Found: 3, Session: "s", Last: now.Add(-ago)}
		doc := &StatusDoc{At: now, Processes: []fleet.Process{p}}
		if doc.judge(provision.Health{}); len(doc.Problems) != want {
			t.Errorf("%s after the last: %q", ago, doc.Problems)
		}
	}
}
