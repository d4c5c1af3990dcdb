package embedded

import (
	"fmt"
	"strings"
	"time"
)

// Damage is something that the embedded store must have and does not have.
type Damage struct {
	Stream string `json:"stream"`
	What   string `json:"what"` // for people
	Lost   uint64 `json:"lost"` // messages, at most; 0: it is not known how many
	// the first sequence that may be lost; 0: not known
	First uint64 `json:"first,omitempty"`
	// when the first was stored, as far as the messages before it show; zero: not known
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to,omitzero"`    // and the last
	File string    `json:"file,omitempty"` // empty: no single one
}

func (d Damage) String() string {
	lost := "an unknown number of messages is lost"
	if d.Lost > 0 {
		lost = fmt.Sprintf("up to %d messages are lost", d.Lost)
	}
	where := ""
	if d.File != "" {
		where = " of " + d.File
	}
	return fmt.Sprintf("%s: %s%s; %s, stored %s", d.Stream, d.What, where, lost, between(d.From, d.To))
}

// flaw is something in the files that is damaged, and that a start makes anew: no message is lost with it.
type flaw struct {
	stream, consumer string        // no consumer: of the stream itself
	position         bool          // not the settings
	keep             time.Duration // how long the stream has kept its messages; 0: not known
}

func (f flaw) String() string {
	switch {
	case f.position:
		return fmt.Sprintf("%s: the position of consumer %s cannot be read; a start removes it, "+
			"and no message is lost", f.stream, f.consumer)
	case f.consumer != "":
		return fmt.Sprintf("%s: the settings of consumer %s do not match their checksum; a start "+
			"makes them anew, and no message is lost", f.stream, f.consumer)
	default:
		return fmt.Sprintf("%s: its settings do not match their checksum; a start makes them anew, "+
			"and no message is lost", f.stream)
	}
}

func between(from, to time.Time) string {
	text := func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
	switch {
	case from.IsZero() && to.IsZero():
		return "at an unknown time"
	case from.IsZero():
		return "before " + text(to)
	case to.IsZero():
		return "after " + text(from)
	default:
		return "between " + text(from) + " and " + text(to)
	}
}

// DamageError reports that the embedded store lacks what was acknowledged. Such a store is not served.
type DamageError struct{ Damages []Damage }

func (e *DamageError) Error() string {
	var b strings.Builder
	b.WriteString("the store is damaged and is not served:")
	for _, d := range e.Damages {
		b.WriteString("\n  " + d.String())
	}
	b.WriteString("\nPut back the files if you have them, restore a copy into another data directory " +
		"(verifyd restore), or run verifyd recover, " +
		"which keeps what is left and ends what is no longer known")
	return b.String()
}
