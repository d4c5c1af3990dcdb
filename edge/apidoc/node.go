package apidoc

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

// node is a part of the document, with the order of its members. The zero value is a part that is not there.
type node struct {
	root, at *yaml.Node
}

// member is a named part of a mapping.
type member struct {
	name  string
	value node
}

// get returns a member, or the part that is not there. References are followed.
func (n node) get(names ...string) node {
	for _, name := range names {
		n = n.follow()
		found := node{root: n.root}
		for _, m := range n.members() {
			if m.name == name {
				found = m.value
			}
		}
		n = found
	}
	return n
}

// follow returns what a reference refers to, and anything else as it is.
func (n node) follow() node {
	for _, m := range n.members() {
		if path, ok := strings.CutPrefix(m.value.text(), "#/"); ok && m.name == "$ref" {
			return node{n.root, n.root}.get(strings.Split(path, "/")...).follow()
		}
	}
	return n
}

// members returns the members of a mapping, in order.
func (n node) members() []member {
	if n.at == nil || n.at.Kind != yaml.MappingNode {
		return nil
	}
	var all []member
	for i := 0; i+1 < len(n.at.Content); i += 2 {
		all = append(all, member{n.at.Content[i].Value, node{n.root, n.at.Content[i+1]}})
	}
	return all
}

// items returns the items of a list, in order.
func (n node) items() []node {
	if n.at == nil || n.at.Kind != yaml.SequenceNode {
		return nil
	}
	var all []node
	for _, c := range n.at.Content {
		all = append(all, node{n.root, c})
	}
	return all
}

// text returns a scalar as it is written; empty for anything else.
func (n node) text() string {
	if n.at == nil || n.at.Kind != yaml.ScalarNode {
		return ""
	}
	return n.at.Value
}

func (n node) missing() bool { return n.at == nil }

// note returns a description: the part's own, before that of what it refers to.
func (n node) note() string {
	for _, m := range n.members() {
		if m.name == "description" {
			return m.value.text()
		}
	}
	return n.get("description").text()
}

// json writes a value as JSON, its members in the order of the document, two spaces deep for each level.
func (n node) json(indent string) string {
	deeper := indent + "  "
	var parts []string
	switch {
	case n.missing():
		return "null"
	case n.at.Kind == yaml.MappingNode:
		for _, m := range n.members() {
			parts = append(parts, deeper+quoted(m.name)+": "+m.value.json(deeper))
		}
		return "{\n" + strings.Join(parts, ",\n") + "\n" + indent + "}"
	case n.at.Kind == yaml.SequenceNode:
		for _, item := range n.items() {
			parts = append(parts, deeper+item.json(deeper))
		}
		return "[\n" + strings.Join(parts, ",\n") + "\n" + indent + "]"
	case n.at.Tag == "!!str" || n.at.Tag == "!!timestamp":
		return quoted(n.at.Value)
	default:
		return n.at.Value // a number, a boolean or null
	}
}

func quoted(s string) string {
	b, _ := jsontext.AppendQuote(nil, s) // fails for text that is not UTF-8 only, which YAML is
	return string(b)
}
