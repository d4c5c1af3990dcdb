// Package form holds the forms of the dashboard: what was typed, what is wrong with it, and the choices.
package form

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"verifyd/edge/account/access"
	"verifyd/edge/account/input"
	"verifyd/edge/page"
)

// Form is a form with what was typed and what is wrong with it.
type Form struct {
	Values url.Values
	faults map[string]string // by the field's name
	order  []string          // the names of faulty fields, as they were found
}

// New returns the form that a request has sent.
func New(r *http.Request) *Form { return &Form{Values: r.PostForm, faults: map[string]string{}} }

// Of returns the form with the fields of a query.
func Of(values url.Values) *Form { return &Form{Values: values, faults: map[string]string{}} }

// Text returns a field as it was typed.
func (f *Form) Text(name string) string { return page.Single(f.Values, name) }

// Wrong notes what is wrong with a field, and what would be valid. The first note on a field is kept.
func (f *Form) Wrong(name, fault string) {
	if _, known := f.faults[name]; !known {
		f.faults[name] = fault
		f.order = append(f.order, name)
	}
}

// Take notes the error of a change if it is about a field, and reports whether it is.
func (f *Form) Take(err error) bool {
	input, ok := errors.AsType[*input.Error](err)
	if ok {
		f.Wrong(input.Field, input.Detail)
	}
	return ok
}

// Member returns whom an address or a form names: by a member's address, or by the identity, as pages that an
// older build has drawn do. A browser may have changed the identity: it sends another line end.
func Member(values url.Values) access.Identity {
	if address := page.Single(values, "member"); address != "" {
		return access.Addressed(address)
	}
	return access.Identity{Network: page.Single(values, "network"), Subject: page.Single(values, "subject")}
}

// OK reports whether nothing is wrong.
func (f *Form) OK() bool { return len(f.faults) == 0 }

// Field is one field as a template draws it.
type Field struct {
	Name, Label, Hint string
	Value             string
	Fault             string
	Focus             bool // it is the first invalid one
}

// Field returns a field for the template of that name.
func (f *Form) Field(name, label, hint string) Field {
	d := Field{Name: name, Label: label, Hint: hint}
	if f != nil {
		d.Value, d.Fault = f.Text(name), f.faults[name]
		d.Focus = len(f.order) > 0 && f.order[0] == name
	}
	return d
}

// Chosen reports whether a choice is the one that was made, or, if none was, the standard one.
func (f *Form) Chosen(name, value string, standard bool) bool {
	if f == nil || f.Text(name) == "" {
		return standard
	}
	return f.Text(name) == value
}

// Query encodes pairs of names and values for an address; pairs without a value are left out.
func Query(pairs ...string) string {
	q := url.Values{}
	for pair := range slices.Chunk(pairs, 2) {
		if len(pair) == 2 && pair[1] != "" {
			q.Set(pair[0], pair[1])
		}
	}
	return q.Encode()
}

// Choice is one entry of a filter or a list of options.
type Choice struct{ Value, Name string }

// Choices returns the choices for pairs of a value and a name.
func Choices(pairs ...string) []Choice {
	choices := make([]Choice, 0, len(pairs)/2)
	for pair := range slices.Chunk(pairs, 2) {
		choices = append(choices, Choice{pair[0], pair[1]})
	}
	return choices
}

// Choose returns the value that an address or a form has under a name, if it is one of the choices.
func Choose(q url.Values, name string, choices []Choice) string {
	value := page.Single(q, name)
	if !slices.ContainsFunc(choices, func(c Choice) bool { return c.Value == value }) {
		return ""
	}
	return value
}

// Sentence returns a text as a sentence, with a capital letter and a full stop.
func Sentence(words string) string {
	if words == "" {
		return ""
	}
	return strings.ToUpper(words[:1]) + strings.TrimSuffix(words[1:], ".") + "."
}
