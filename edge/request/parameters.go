package request

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"verifyd/edge/problem"
)

// Parameters reads a query's parameters, and collects what is wrong with them.
type Parameters struct {
	Values url.Values
	Known  []string
	faults []problem.Fault
}

// Faultf notes what is wrong with a parameter.
func (p *Parameters) Faultf(name, format string, args ...any) {
	p.faults = append(p.faults, problem.Fault{
		Field: name, Code: problem.FaultParameter, Detail: fmt.Sprintf(format, args...),
	})
}

// Problem returns what is wrong, including names that were not read.
func (p *Parameters) Problem() *problem.Problem {
	for name := range p.Values {
		if !slices.Contains(p.Known, name) {
			shown := name
			if len(shown) > MaxShownName || !utf8.ValidString(shown) { // JSON has no other text
				shown = ""
			}
			p.Faultf(shown, "there is no such parameter; the parameters are %s", strings.Join(p.Known, ", "))
		}
	}
	return Invalid(p.faults...)
}

// Single returns a parameter that may occur once; empty if it is missing.
func (p *Parameters) Single(name string) string {
	p.Known = append(p.Known, name)
	values, given := p.Values[name]
	switch {
	case !given:
		return ""
	case len(values) > 1:
		p.Faultf(name, "it occurs %d times; send it once", len(values))
	case values[0] == "":
		p.Faultf(name, "it is empty; leave it out, or give it a value")
	}
	return values[0]
}

// Number returns a parameter that is a whole number from 1 on; standard if it is missing.
func (p *Parameters) Number(name string, standard, maximum int) int {
	s := p.Single(name)
	if s == "" {
		return standard
	}
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil || n < 1 || n > uint64(maximum) { //nolint:gosec // a constant
		p.Faultf(name, "it must be a whole number from 1 to %d", maximum)
	}
	return int(n)
}
