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

// note is something about how a command was called that does not stop it and that its caller should fix.
type note struct{ Wrong, Right string }

// Notes are all of one command line.
type Notes []note

// tell writes the notes as lines.
func (n Notes) tell(w io.Writer) {
	for _, said := range n {
		_, _ = fmt.Fprintf(w, "verifyd: warning: %s; %s\n", said.Wrong, said.Right)
	}
}

// Log writes them into the log of a service, which others may read as JSON.
func (n Notes) Log(log zerolog.Logger) {
	for _, said := range n {
		log.Warn().Msg(said.Wrong + "; " + said.Right)
	}
}

// NotesOn looks at how a command was called. A service and its check are told of variables that nothing
// reads, too: for them a variable is how they are told what to do. They tell the notes themselves; those
// of other commands are written to standard error.
func NotesOn(called *kong.Context, errOut io.Writer) Notes {
	said := secretsShown(called)
	switch called.Selected().Name {
	case "serve", "check":
		return append(said, unknownNotes(called.Model, os.Environ())...)
	default:
		said.tell(errOut)
		return nil
	}
}

func unknownNotes(app *kong.Application, environ []string) (said Notes) {
	for _, s := range Unknowns(app, environ) {
		right := "take it out, or look for its name in the list of settings"
		if s.Nearest != "" {
			right = "did you mean " + s.Nearest + "?"
		}
		said = append(said, note{s.Name + " is set, and no setting has this name", right})
	}
	return said
}

// SecretTag marks flags whose values are secrets. They have a variable, also if they are no settings.
const SecretTag = "secret"

// secretsShown tells of secrets that stand on the command line, where everybody on the machine can read
// them, and the shell keeps them.
func secretsShown(called *kong.Context) (said Notes) {
	for _, at := range called.Path {
		if at.Flag == nil || at.Resolved {
			continue
		}
		value := fmt.Sprint(called.FlagValue(at.Flag))
		if at.Flag.Tag.Has(SecretTag) && value != "" || withPassword.MatchString(value) {
			wrong := fmt.Sprintf("--%s: the command line shows a secret to everybody on this machine",
				at.Flag.Name)
			said = append(said, note{wrong, insteadOf(at.Flag, called.Selected())})
		}
	}
	return said
}

// withPassword is a URL with a password in it, also if the rest of it is wrong.
var withPassword = regexp.MustCompile(`://[^/?#,]*:[^/?#,]*@`)

// insteadOf names what a secret is to be given by: its variable, or a flag for a file with it.
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
