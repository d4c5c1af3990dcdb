package netsettings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ParseFile reads VERIFYD_NETWORKS_FILE: a YAML list with one mapping per identity network, its keys the
// settings' names. Unknown and repeated keys, keys without a value, wrong types, repeated ids and anything
// that New would refuse are errors; each names the network, the setting and what is valid. A secret file is
// not read before New.
func ParseFile(yamlBytes []byte) ([]Settings, error) {
	list, err := parseList(yamlBytes)
	if err != nil {
		return nil, err
	}
	var (
		all  []Settings
		errs []error
		seen = map[string]bool{}
	)
	for i, entry := range list {
		s, err := parseEntry(entry, i+1)
		id := s.ID
		if err == nil {
			var full Settings
			full, err = s.Checked()
			id = full.ID
		}
		if err == nil && seen[id] {
			err = s.wrong("id", "another network in the list has the id %s; each needs its own", id)
		}
		seen[id] = true
		errs = append(errs, err)
		all = append(all, s)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return all, nil
}

// example ends the errors about the file's overall form.
const example = `right would be a list: "- id: example", then "kind: oidc", "issuer: …" and so on below it`

func parseList(yamlBytes []byte) ([]*yaml.Node, error) {
	var doc, more yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(yamlBytes))
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, errors.New("networks file: empty; " + example)
	case err != nil:
		return nil, fmt.Errorf("networks file: %w", err)
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("networks file: more than one YAML document; keep one list and no further ---")
	}
	list := doc.Content[0]
	if list.Kind != yaml.SequenceNode || len(list.Content) == 0 {
		return nil, fmt.Errorf("networks file: line %d: not a list of networks; %s", list.Line, example)
	}
	return list.Content, nil
}

// parseEntry reads one network. It walks the mapping itself, since the decoder's own errors name lines and Go
// types, not networks and settings.
func parseEntry(entry *yaml.Node, number int) (Settings, error) {
	if entry.Kind != yaml.MappingNode {
		return Settings{}, fmt.Errorf("networks file: line %d: network %d is not a mapping of settings; %s",
			entry.Line, number, example)
	}
	var (
		s       Settings
		errs    []error
		targets = s.targets()
		seen    = map[string]bool{}
	)
	for i := 0; i < len(entry.Content); i += 2 {
		key, value := entry.Content[i], entry.Content[i+1]
		target, known := targets[key.Value]
		switch {
		case !known:
			errs = append(errs, fmt.Errorf("%q is not a setting; the settings are %s", key.Value,
				settingNames()))
		case seen[key.Value]:
			errs = append(errs, fmt.Errorf("%s: set twice (line %d)", key.Value, key.Line))
		case value.ShortTag() == "!!null":
			errs = append(errs, fmt.Errorf("%s: has no value (line %d); give one or leave the key out",
				key.Value, key.Line))
		default:
			if value.Decode(target) != nil { // its error would repeat the value, which may be a secret
				errs = append(errs, fmt.Errorf("%s: must be %s (line %d)", key.Value, wanted(target),
					value.Line))
			}
		}
		seen[key.Value] = true
	}
	if err := errors.Join(errs...); err != nil {
		return s, fmt.Errorf("network %q (number %d in the list): %w", s.ID, number, err)
	}
	return s, nil
}

// targets maps each setting's name to its field. The names are in the struct's tags and nowhere else.
func (s *Settings) targets() map[string]any {
	out := map[string]any{}
	addTargets(out, reflect.ValueOf(s).Elem())
	return out
}

func addTargets(out map[string]any, v reflect.Value) {
	for i := range v.NumField() {
		if field := v.Type().Field(i); field.Anonymous {
			addTargets(out, v.Field(i)) // inline
		} else {
			out[field.Tag.Get("yaml")] = v.Field(i).Addr().Interface()
		}
	}
}

func settingNames() string {
	var names []string
	for name := range new(Settings).targets() {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// wanted describes what a setting's value must be.
func wanted(target any) string {
	switch target.(type) {
	case *bool:
		return "true or false"
	case *[]string:
		return "a list of words, for instance [openid, profile]"
	case *Span:
		return "a span of time in whole days, hours, minutes or seconds, for instance 30d or 72h"
	default:
		return "a text"
	}
}
