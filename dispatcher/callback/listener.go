package callback

import (
	"strings"

	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
)

// A callback to a developer's own machine does not go through a connection of this package. It has the same
// bytes and the same verdicts.

// Message returns the fields of a request, except those that belong to one connection, and its body.
func (r Request) Message() (fields map[string]string, body string) {
	head, body, _ := strings.Cut(string(r.bytes), "\r\n\r\n")
	fields = map[string]string{}
	for _, line := range strings.Split(head, "\r\n")[1:] {
		if name, value, ok := strings.Cut(line, ": "); ok && name != "Host" && name != "Content-Length" {
			fields[name] = value
		}
	}
	return fields, body
}

// ClassifyStatus returns the verdict of a final status that another program has read. A number that is not a
// final status counts as no answer.
func ClassifyStatus(status int) Answer {
	if status < 200 || status > 999 {
		return Answer{
			Verdict: facts.VerdictUnknown, Class: failure.Protocol,
			Detail: "the listener named a status that is none",
		}
	}
	return answerOf(status)
}
