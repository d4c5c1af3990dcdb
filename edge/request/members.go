package request

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"verifyd/edge/problem"
)

// Members holds the raw members of the body, and collects what is wrong with them.
type Members struct {
	Faults []problem.Fault

	values map[string]jsontext.Value
}

// ReadMembers reads a text that is exactly one JSON object, or returns what is wrong with it. The text is
// validated as a whole first: if it were read member by member, a text that ends within an array would be
// reported as a wrong type.
func ReadMembers(body []byte) (*Members, *problem.Fault) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(body))
	value, err := dec.ReadValue()
	switch {
	case errors.Is(err, io.EOF):
		return nil, &problem.Fault{Code: problem.FaultSyntax,
			Detail: "the body is empty; it must be a JSON object"}
	case err != nil:
		return nil, syntaxFault(body, err)
	case value.Kind() != jsontext.KindBeginObject:
		return nil, &problem.Fault{
			Code:   problem.FaultType,
			Detail: "the body is JSON but not an object; it must start with { and end with }",
		}
	}
	m := &Members{}
	if err := json.Unmarshal(value, &m.values); err != nil {
		return nil, syntaxFault(body, err)
	}
	end := dec.InputOffset()
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, &problem.Fault{
			Code: problem.FaultTrailing, Detail: fmt.Sprintf(
				"after the object, from byte %d on, nothing but white space may follow", end),
		}
	}
	return m, nil
}

func syntaxFault(body []byte, err error) *problem.Fault {
	var s *jsontext.SyntacticError
	if !errors.As(err, &s) {
		return &problem.Fault{Code: problem.FaultSyntax, Detail: "the body is not JSON"}
	}
	f := &problem.Fault{Field: memberOf(s.JSONPointer)}
	switch {
	case bytes.HasPrefix(body, []byte("\ufeff")):
		f.Code, f.Detail = problem.FaultSyntax,
			"the body begins with a byte order mark (U+FEFF); leave it out (RFC 8259 §8.1)"
	case errors.Is(err, jsontext.ErrDuplicateName):
		f.Code, f.Detail = problem.FaultDuplicate, "the name occurs twice in one object; each may occur once"
	case onlyEncoding(body, s.ByteOffset):
		f.Code = problem.FaultEncoding
		f.Detail = fmt.Sprintf("at or after byte %d is text that is not UTF-8, or half of a surrogate "+
			"pair (\\ud800 to \\udfff)", s.ByteOffset)
	case errors.Is(err, io.ErrUnexpectedEOF):
		f.Code, f.Detail = problem.FaultSyntax, "the body ends in the middle of its JSON"
	default:
		f.Code, f.Detail = problem.FaultSyntax,
			fmt.Sprintf("the body is not JSON (RFC 8259) at or after byte %d", s.ByteOffset)
	}
	return f
}

// onlyEncoding reports whether the fault at offset is one of encoding: a reader that ignores those gets
// further.
func onlyEncoding(body []byte, offset int64) bool {
	_, err := jsontext.NewDecoder(bytes.NewReader(body), jsontext.AllowInvalidUTF8(true)).ReadValue()
	var s *jsontext.SyntacticError
	return err == nil || errors.As(err, &s) && s.ByteOffset > offset
}

// Problem returns what is wrong; nil if nothing is.
func (m *Members) Problem() *problem.Problem { return Invalid(m.Faults...) }

// Invalid returns the problem of a request with faults; nil if there are none.
func Invalid(faults ...problem.Fault) *problem.Problem {
	if len(faults) == 0 {
		return nil
	}
	return &problem.Problem{Code: problem.CodeInvalidRequest, Detail: summary(faults), Faults: faults}
}

func summary(faults []problem.Fault) string {
	first := faults[0]
	text := first.Detail
	if first.Field != "" {
		text = first.Field + ": " + text
	}
	if more := len(faults) - 1; more > 0 {
		return fmt.Sprintf("%s; and %d more, see errors.", text, more)
	}
	return text + "."
}

// MaxShownName bounds how much of a client's member name is echoed to it.
const MaxShownName = 64

// memberOf returns the member of the body that a JSON pointer refers to; empty for the body itself, and for
// names that are too long to be a field.
func memberOf(p jsontext.Pointer) string {
	for name := range p.Tokens() {
		if len(name) <= MaxShownName {
			return name
		}
		break
	}
	return ""
}

// Faultf notes what is wrong with a member.
func (m *Members) Faultf(field, code, format string, args ...any) {
	m.Faults = append(m.Faults, problem.Fault{Field: field, Code: code, Detail: fmt.Sprintf(format, args...)})
}

// Text returns a member that is a string; ok is false if it is missing or of another type, which is a fault
// already.
func (m *Members) Text(name string, required bool) (s string, ok bool) {
	value, given := m.values[name]
	if !given {
		if required {
			m.Faultf(name, problem.FaultMissing, "the field is required%s", m.hint(name))
		}
		return "", false
	}
	switch kind := value.Kind(); {
	case kind == jsontext.KindNull && !required:
		m.Faultf(name, problem.FaultType, "the field is null; leave it out, or it must be a string")
		return "", false
	case kind != jsontext.KindString:
		m.Faultf(name, problem.FaultType, "the field is %s; it must be a string", kindWord(kind))
		return "", false
	}
	text, err := jsontext.AppendUnquote(nil, value)
	if err != nil {
		m.Faultf(name, problem.FaultSyntax, "the field is not a JSON string")
		return "", false
	}
	return string(text), true
}

// hint names a member that is nearly a missing one.
func (m *Members) hint(missing string) string {
	if others := m.lookalikes(missing); len(others) > 0 {
		return fmt.Sprintf("; did you mean it by %q? names are compared exactly, in lower case", others[0])
	}
	return ""
}

func kindWord(k jsontext.Kind) string {
	switch k {
	case jsontext.KindNull:
		return "null"
	case jsontext.KindTrue, jsontext.KindFalse:
		return "a boolean"
	case jsontext.KindString:
		return "a string"
	case jsontext.KindNumber:
		return "a number"
	case jsontext.KindBeginArray:
		return "an array"
	default:
		return "an object"
	}
}
