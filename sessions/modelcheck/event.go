package modelcheck

import (
	"fmt"
	"slices"
	"strings"
)

// Event describes a step: an actor does something, or sends something to another. It holds constants, since
// one is made for each step of each state.
type Event struct {
	From, To string // To is empty if only From is involved
	Text     string
	Number   int // after the text, as in "claim 2"; 0: none
	// Chance: the step may never happen
	Chance bool
}

// String returns the event in one line.
func (e Event) String() string {
	if e.To == "" {
		return e.From + ": " + e.what()
	}
	return e.From + " to " + e.To + ": " + e.what()
}

func (e Event) what() string {
	if e.Number == 0 {
		return e.Text
	}
	return fmt.Sprint(e.Text, " ", e.Number)
}

// Diagram draws events as a sequence diagram, in the language of Mermaid. What may never happen is drawn with
// a broken line.
func Diagram(events []Event) string {
	var b strings.Builder
	b.WriteString("sequenceDiagram\n")
	var known []string
	for _, e := range events {
		for _, who := range []string{e.From, e.To} {
			if who != "" && !slices.Contains(known, who) {
				known = append(known, who)
				fmt.Fprintf(&b, "    participant %s\n", who)
			}
		}
	}
	for _, e := range events {
		switch {
		case e.To == "" && e.Chance:
			fmt.Fprintf(&b, "    Note over %s: %s (by chance)\n", e.From, e.what())
		case e.To == "":
			fmt.Fprintf(&b, "    Note over %s: %s\n", e.From, e.what())
		case e.Chance:
			fmt.Fprintf(&b, "    %s-->>%s: %s\n", e.From, e.To, e.what())
		default:
			fmt.Fprintf(&b, "    %s->>%s: %s\n", e.From, e.To, e.what())
		}
	}
	return b.String()
}
