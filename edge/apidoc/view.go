package apidoc

import (
	"net/url"
	"slices"
	"strings"
)

// view is what the page's template is given.
type view struct {
	Base, Prefix, Style, Script string
	Title, Summary, Description string
	Groups                      []group
	Callback                    operation
	Codes                       []code
}

// group are the operations of one tag.
type group struct {
	Name, Description string
	Operations        []operation
}

type operation struct {
	ID, Method, Path, Summary, Description string
	Parameters                             []field
	Body                                   []field
	BodyExample                            string
	Samples                                []sample
	Responses                              []response
}

// field is one row of a table of parameters or members.
type field struct {
	Name, Where, Type, Description string
	Required                       bool
}

type response struct {
	Status, Description, Example string
	Codes                        []string
	Fields                       []field
}

type code struct{ Code, Status, Action string }

var methods = []string{"get", "post", "put", "patch", "delete"}

func newView(root node, base string) view {
	v := view{
		Title: root.get("info", "title").text(), Summary: root.get("info", "summary").text(),
		Description: root.get("info").note(),
		Callback:    newOperation("POST", "callback_url", root.get("webhooks", "result", "post"), nil),
	}
	for _, tag := range root.get("tags").items() {
		g := group{Name: tag.get("name").text(), Description: tag.note()}
		for _, path := range root.get("paths").members() {
			for _, m := range path.value.members() {
				if slices.Contains(methods, m.name) && m.value.get("tags").items()[0].text() == g.Name {
					shared := path.value.get("parameters").items()
					o := newOperation(strings.ToUpper(m.name), path.name, m.value, shared)
					o.Samples = samplesOf(callOf(base, o, m.value, shared))
					g.Operations = append(g.Operations, o)
				}
			}
		}
		v.Groups = append(v.Groups, g)
	}
	for _, c := range root.get("x-problem-codes").items() {
		v.Codes = append(v.Codes, code{c.get("code").text(), c.get("status").text(), c.get("action").text()})
	}
	return v
}

// callOf is an operation as somebody would call it: with the examples of what its path and its body hold.
func callOf(base string, o operation, n node, shared []node) call {
	c := call{Method: o.Method, URL: base + o.Path, Keyed: n.get("security").missing(),
		Body: o.BodyExample}
	for _, p := range slices.Concat(shared, n.get("parameters").items()) {
		if p.get("in").text() == "path" {
			c.URL = strings.ReplaceAll(c.URL, "{"+p.get("name").text()+"}",
				url.PathEscape(p.get("example").text()))
		}
	}
	c.Stream = !n.get("responses", "200", "content", "application/x-ndjson").missing()
	return c
}

func newOperation(method, path string, n node, shared []node) operation {
	o := operation{
		ID: n.get("operationId").text(), Method: method, Path: path, Summary: n.get("summary").text(),
		Description: n.note(),
	}
	for _, p := range slices.Concat(shared, n.get("parameters").items()) {
		o.Parameters = append(o.Parameters, field{
			Name: p.get("name").text(), Where: p.get("in").text(), Type: typeOf(p.get("schema")),
			Description: p.note(),
			Required:    p.get("required").text() == "true",
		})
	}
	for _, media := range n.get("requestBody", "content").members() {
		o.Body = fieldsOf("", media.value.get("schema"))
		o.BodyExample = exampleOf(media.value)
	}
	for _, r := range n.get("responses").members() {
		o.Responses = append(o.Responses, newResponse(r))
	}
	return o
}

func newResponse(r member) response {
	v := response{Status: r.name, Description: r.value.note()}
	for _, c := range r.value.get("x-codes").items() {
		v.Codes = append(v.Codes, c.text())
	}
	for _, media := range r.value.get("content").members() {
		v.Example = exampleOf(media.value)
		if len(v.Codes) == 0 { // problems are all of one kind, described once
			v.Fields = fieldsOf("", media.value.get("schema"))
		}
	}
	return v
}

// exampleOf writes the first example of a body; empty if there is none.
func exampleOf(media node) string {
	for _, e := range media.get("examples").members() {
		return e.value.get("value").json("")
	}
	return ""
}

// fieldsOf lists the members of an object, and those of the objects in it under their whole names.
func fieldsOf(prefix string, schema node) []field {
	var required []string
	for _, r := range schema.get("required").items() {
		required = append(required, r.text())
	}
	var fields []field
	for _, p := range schema.get("properties").members() {
		fields = append(fields, field{
			Name: prefix + p.name, Type: typeOf(p.value), Description: p.value.note(),
			Required: slices.Contains(required, p.name),
		})
		if item := p.value.get("items"); !item.missing() {
			fields = append(fields, fieldsOf(prefix+p.name+"[].", item)...)
			continue
		}
		fields = append(fields, fieldsOf(prefix+p.name+".", p.value)...)
	}
	return fields
}

// typeOf names a schema's type: its values, if it has few, its form, or the plain type.
func typeOf(schema node) string {
	if values := schema.get("enum").items(); len(values) > 0 {
		var texts []string
		for _, v := range values {
			texts = append(texts, v.json(""))
		}
		return strings.Join(texts, " | ")
	}
	if item := schema.get("items"); !item.missing() {
		return "list of " + typeOf(item)
	}
	name := schema.get("type").text()
	if format := schema.get("format").text(); format != "" {
		name = format
	}
	for _, t := range schema.get("type").items() {
		switch {
		case t.text() == "null":
			name += " | null"
		case name == "":
			name = t.text()
		}
	}
	return name
}
