package dashboard

import (
	"errors"
	"net/http"
	"net/url"
	"slices"

	"verifyd/edge/account"
	"verifyd/edge/page"
)

// form is a form as it is drawn: what was typed, and what is wrong with it.
type form struct {
	values url.Values
	faults map[string]string // by the field's name
	order  []string          // the names of faulty fields, as they were found
}

func newForm(r *http.Request) *form { return &form{values: r.PostForm, faults: map[string]string{}} }

// text gives a field as it was typed.
func (f *form) text(name string) string { return page.Single(f.values, name) }

// wrong notes what is wrong with a field, and what would be right. The first word counts.
func (f *form) wrong(name, fault string) {
	if _, known := f.faults[name]; !known {
		f.faults[name] = fault
		f.order = append(f.order, name)
	}
}

// take notes an error of a change that is about a field, and says whether it was one.
func (f *form) take(err error) bool {
	input, ok := errors.AsType[*account.InputError](err)
	if ok {
		f.wrong(input.Field, input.Detail)
	}
	return ok
}

func (f *form) ok() bool { return len(f.faults) == 0 }

// field is one field as a template draws it.
type field struct {
	Name, Label, Hint string
	Value             string
	Fault             string
	Focus             bool // it is the first that is wrong
}

// Field gives a field for the template of that name.
func (f *form) Field(name, label, hint string) field {
	d := field{Name: name, Label: label, Hint: hint}
	if f != nil {
		d.Value, d.Fault = f.text(name), f.faults[name]
		d.Focus = len(f.order) > 0 && f.order[0] == name
	}
	return d
}

// Chosen says whether a choice is the one that was made, or, where none was, the standard one.
func (f *form) Chosen(name, value string, standard bool) bool {
	if f == nil || f.text(name) == "" {
		return standard
	}
	return f.text(name) == value
}

// query writes pairs of names and values for an address; those without a value are left out.
func query(pairs ...string) string {
	q := url.Values{}
	for pair := range slices.Chunk(pairs, 2) {
		if len(pair) == 2 && pair[1] != "" {
			q.Set(pair[0], pair[1])
		}
	}
	return q.Encode()
}
