package flags

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/rs/zerolog"
)

// note is a warning about how a command was called.
type note struct{ Wrong, Right string }

// Notes are the warnings about one command line.
type Notes []note

// write prints the notes, one a line.
func (n Notes) write(w io.Writer) {
	for _, notes := range n {
		_, _ = fmt.Fprintf(w, "verifyd: warning: %s; %s\n", notes.Wrong, notes.Right)
	}
}

// Log writes them into the log of a service, which others may read as JSON.
func (n Notes) Log(log zerolog.Logger) {
	for _, notes := range n {
		log.Warn().Msg(notes.Wrong + "; " + notes.Right)
	}
}

// NotesOn looks at how a command was called. For a service and its check, which are configured by variables,
// variables that nothing reads are noted, too. They report the notes themselves; those of other commands are
// written to standard error.
func NotesOn(called *kong.Context, errOut io.Writer) Notes {
	notes := secretsShown(called)
	switch called.Selected().Name {
	case "serve", "check":
		return append(notes, unknownNotes(called.Model, os.Environ())...)
	default:
		notes.write(errOut)
		return nil
	}
}

func unknownNotes(app *kong.Application, environ []string) (notes Notes) {
	for _, s := range Unknowns(app, environ) {
		right := "remove it, or look for its name in the list of settings"
		if s.Nearest != "" {
			right = "did you mean " + s.Nearest + "?"
		}
		notes = append(notes, note{s.Name + " is set, but no setting has this name", right})
	}
	return notes
}

// SecretTag marks flags whose values are secrets. They have a variable, also if they are no settings.
const SecretTag = "secret"

// secretsShown notes secrets on the command line, where everybody on the machine can read them, and the shell
// keeps them.
func secretsShown(called *kong.Context) (notes Notes) {
	for _, at := range called.Path {
		if at.Flag == nil || at.Resolved {
			continue
		}
		value := fmt.Sprint(called.FlagValue(at.Flag))
		if at.Flag.Tag.Has(SecretTag) && value != "" || withPassword.MatchString(value) {
			wrong := fmt.Sprintf("--%s: the command line shows a secret to everybody on this machine",
				at.Flag.Name)
			notes = append(notes, note{wrong, insteadOf(at.Flag, called.Selected())})
		}
	}
	return notes
}

// withPassword is a URL with a password in it, also if the rest of it is wrong.
var withPassword = regexp.MustCompile(`://[^/?#,]*:[^/?#,]*@`)

// insteadOf names a better way to pass a secret: its variable, or a flag for a file with it.
func insteadOf(flag *kong.Flag, command *kong.Node) string {
	var ways []string
	for _, variable := range flag.Envs {
		ways = append(ways, "set "+variable)
	}
	for _, file := range []string{flag.Name + "-file", strings.TrimSuffix(flag.Name, "-url") + "-creds"} {
		if slices.ContainsFunc(command.Flags, func(f *kong.Flag) bool { return f.Name == file }) {
			ways = append(ways, "name a file with --"+file)
		}
	}
	if ways == nil {
		return "leave it out"
	}
	return strings.Join(ways, ", or ")
}
