package facts

import (
	"strconv"
	"strings"

	"verifyd/sessions"
)

// Key is a subject of StreamCompletions, parsed.
type Key struct {
	Kind string // the subject's first word
	ID   sessions.ID
	N    int // of the attempt; 0 for a completion, whose subject names none
}

// Subject formats it.
func (p Key) Subject() string { return p.Kind + "." + string(p.ID) + "." + strconv.Itoa(p.N) }

// ParseSubject parses a subject. It is not ok for a subject that no build uses. Nor is it for one of another
// stream, which somebody may have made a consumer deliver here: a message stored there belongs to no session.
func ParseSubject(subject string) (p Key, ok bool) {
	parts := strings.Split(subject, ".")
	if len(parts) < 2 {
		return p, false
	}
	id, err := sessions.ParseID(parts[1])
	p = Key{Kind: parts[0], ID: id}
	if err != nil || string(id) != parts[1] {
		return p, false
	}
	switch p.Kind {
	case "completion":
		return p, len(parts) == 2
	case "claim", "result", "resend":
		if len(parts) != 3 {
			return p, false
		}
		p.N, err = strconv.Atoi(parts[2])
		return p, err == nil && p.N > 0 && strconv.Itoa(p.N) == parts[2]
	default:
		return p, false
	}
}

// OfFact returns the session that a fact is about, from its subject.
func OfFact(subject string) sessions.ID {
	_, rest, _ := strings.Cut(subject, ".")
	name, _, _ := strings.Cut(rest, ".")
	return sessions.ID(name)
}

// OfEvent returns the session that an event is about, from its subject.
func OfEvent(subject string) sessions.ID {
	return sessions.ID(subject[strings.LastIndexByte(subject, '.')+1:])
}
