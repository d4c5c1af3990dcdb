package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
)

// yamlFile gives settings from a YAML file of plain keys: callback_timeout: 10s.
type yamlFile map[string]any

// loadYAML reads the file that --config names.
func loadYAML(r io.Reader) (kong.Resolver, error) {
	values := yamlFile{}
	if err := yaml.NewDecoder(r).Decode(&values); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("not a YAML map of settings: %w", err)
	}
	return values, nil
}

// Validate refuses keys that no setting has: a slip must not be silently without effect.
func (y yamlFile) Validate(app *kong.Application) error {
	known := map[string]bool{}
	for _, command := range app.Leaves(false) {
		for _, group := range command.AllFlags(false) {
			for _, flag := range group {
				known[yamlKey(flag)] = true
			}
		}
	}
	for key := range y {
		if !known[key] {
			return fmt.Errorf("configuration file: %q is not a setting; settings are written as in the list of variables, in lower case without VERIFYD_, for example callback_timeout", key)
		}
	}
	return nil
}

// Resolve gives a flag's value. The library lets flags win over it, but not variables, which do here: what is set for one process
// is nearer to it than a file.
func (y yamlFile) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	v, ok := y[yamlKey(flag)]
	if !ok || slices.ContainsFunc(flag.Envs, isSet) {
		return nil, nil //nolint:nilnil // the library's word for "not set here"
	}
	switch v := v.(type) {
	case []any:
		texts := make([]string, len(v))
		for i, item := range v {
			texts[i] = fmt.Sprint(item)
		}
		return strings.Join(texts, ","), nil
	case yamlFile, map[string]any: // nested maps take the outer one's type
		return nil, fmt.Errorf("configuration file: %s takes a value or a list, not a map", yamlKey(flag))
	default:
		return fmt.Sprint(v), nil
	}
}

func isSet(variable string) bool {
	_, ok := os.LookupEnv(variable)
	return ok
}

func yamlKey(flag *kong.Flag) string { return strings.ReplaceAll(flag.Name, "-", "_") }
