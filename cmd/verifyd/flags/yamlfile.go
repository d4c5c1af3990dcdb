package flags

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
)

// yamlFile has the settings of a YAML file of plain keys: callback_timeout: 10s.
type yamlFile map[string]any

// LoadYAML reads the file that --config names.
func LoadYAML(r io.Reader) (kong.Resolver, error) {
	values := yamlFile{}
	file := yaml.NewDecoder(r)
	if err := file.Decode(&values); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("not a YAML map of settings: %w", err)
	}
	if err := file.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("it holds more than one YAML document; put all settings into one")
	}
	return values, nil
}

// Validate refuses members that are no settings of serve, whichever command reads the file: a typo must not
// be ignored silently, and the file does not control what other commands do.
func (y yamlFile) Validate(app *kong.Application) error {
	known := SettingKeys(app)
	var unknown []error
	for _, key := range slices.Sorted(maps.Keys(y)) {
		if !slices.Contains(known, key) {
			const text = "configuration file: %q is not a setting of verifyd serve; %s"
			unknown = append(unknown, fmt.Errorf(text, key, meant(nearest(key, known))))
		}
	}
	return errors.Join(unknown...)
}

// meant suggests what an unknown name was probably meant to be.
func meant(key string) string {
	if key == "" {
		return "settings are written as the variables are, in lower case without " + variablePrefix +
			", for example callback_timeout"
	}
	return "did you mean " + key + "?"
}

// SettingKeys returns the members that the file may have.
func SettingKeys(app *kong.Application) (keys []string) {
	for flag, command := range AllFlags(app) {
		if command.Name == "serve" && IsSetting(flag) {
			keys = append(keys, YAMLKey(flag))
		}
	}
	return keys
}

// Resolve returns a setting's value. The library lets flags win over it, but not variables, which do here: a
// variable is closer to the process than a file.
func (y yamlFile) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	v, ok := y[YAMLKey(flag)]
	if !ok || !IsSetting(flag) || slices.ContainsFunc(flag.Envs, isSet) {
		return nil, nil //nolint:nilnil // the library's convention for "not set here"
	}
	switch v := v.(type) {
	case nil:
		return nil, fmt.Errorf("configuration file: %s has no value; give it one, or leave it out",
			YAMLKey(flag))
	case []any:
		texts := make([]string, len(v))
		for i, item := range v {
			texts[i] = fmt.Sprint(item)
		}
		return strings.Join(texts, ","), nil
	case yamlFile, map[string]any: // nested maps take the outer one's type
		return nil, fmt.Errorf("configuration file: %s takes a value or a list, not a map", YAMLKey(flag))
	default:
		return fmt.Sprint(v), nil
	}
}

func isSet(variable string) bool {
	_, ok := os.LookupEnv(variable)
	return ok
}

// YAMLKey returns the member of the file for a flag.
func YAMLKey(flag *kong.Flag) string { return strings.ReplaceAll(flag.Name, "-", "_") }
