package config

import (
	"errors"
	"fmt"
	"os"
	"regexp"

	"verifyd/cmd/verifyd/flags"
)

// UsageError marks an error in the command line or the settings.
type UsageError struct{ err error }

// Usage marks an error as a usage error.
func Usage(err error) error { return UsageError{err} }

// Error returns the text of the marked error.
func (e UsageError) Error() string { return e.err.Error() }

// Unwrap returns the marked error.
func (e UsageError) Unwrap() error { return e.err }

// Faults collects what is wrong with the settings, so that all of it is reported at once.
type Faults []error

// Add names the setting in all its forms, what is wrong with its value, and what would be valid.
func (f *Faults) Add(flag, wrong, right string) {
	*f = append(*f, fmt.Errorf("%s (--%s): %s; %s", flags.VariableOf(flag), flag, wrong, right))
}

// outOfRange names a setting whose value is out of range, and what would be valid.
func (f *Faults) outOfRange(flag string, value any, right string) {
	f.Add(flag, fmt.Sprintf("%v is out of range", value), right)
}

// Err returns all faults as one error, a line each; nil if there are none.
func (f *Faults) Err() error { return errors.Join(*f...) }

// Plain returns an error of the os package without its operation and path, which the setting's own line has.
func Plain(err error) string {
	if path, ok := errors.AsType[*os.PathError](err); ok {
		return path.Err.Error()
	}
	return err.Error()
}

// settingForms formats the name of a setting for Add.
var settingForms = regexp.MustCompile(`\bVERIFYD_[A-Z_]+ \((--[a-z-]+)\)`)

// OwnErr is Err for a command whose flags are not settings: no variable sets them.
func (f *Faults) OwnErr() error {
	if err := f.Err(); err != nil {
		return errors.New(settingForms.ReplaceAllString(err.Error(), "$1"))
	}
	return nil
}
