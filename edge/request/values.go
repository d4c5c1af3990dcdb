package request

import (
	"slices"
	"strings"

	"verifyd/edge/problem"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Only notes a fault for every member whose name is not one of these, in the order of their names.
func (m *Members) Only(names ...string) {
	var others []string
	for name := range m.values {
		if !slices.Contains(names, name) {
			others = append(others, name)
		}
	}
	slices.Sort(others)
	for _, name := range others {
		shown := name
		if len(shown) > MaxShownName {
			shown = ""
		}
		m.Faultf(shown, problem.FaultUnknown, "there is no such field; the fields are %s",
			strings.Join(names, ", "))
	}
}

// Null reports whether a member is present and null.
func (m *Members) Null(name string) bool {
	value, given := m.values[name]
	return given && value.Kind() == jsontext.KindNull
}

// Flag returns a member that is true or false; given is false if it is missing or of another type, which is a
// fault already.
func (m *Members) Flag(name string) (is, given bool) {
	value, given := m.values[name]
	if !given {
		return false, false
	}
	if kind := value.Kind(); kind != jsontext.KindTrue && kind != jsontext.KindFalse {
		m.Faultf(name, problem.FaultType, "the field is %s; it must be true or false", kindWord(kind))
		return false, false
	}
	return value.Kind() == jsontext.KindTrue, true
}

// Int is Flag for an integer.
func (m *Members) Int(name string) (n int64, given bool) {
	value, given := m.values[name]
	if !given {
		return 0, false
	}
	if kind := value.Kind(); kind != jsontext.KindNumber {
		m.Faultf(name, problem.FaultType, "the field is %s; it must be a whole number", kindWord(kind))
		return 0, false
	}
	if err := json.Unmarshal(value, &n); err != nil {
		m.Faultf(name, problem.FaultValue,
			"the field is %.40s; it must be a whole number of at most 19 digits", value)
		return 0, false
	}
	return n, true
}
