package flags

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Given is where a command line got its settings from. By it texts for people, which name variables and
// commands, name what the reader has: the members of the file of --config, and commands on the same store.
type Given struct {
	app    *kong.Application
	file   string            // of --config; empty: none
	keys   []string          // that it may have
	typed  []string          // the flags on the command line
	repeat map[string]string // of these, the ones that a command on the same store needs, with their values
	order  []string          // of repeat
}

// GivenTo returns that of a command line that was parsed. Secrets are not repeated.
func GivenTo(called *kong.Context) Given {
	g := Given{app: called.Model, repeat: map[string]string{}}
	if !TakesSettings(called.Selected()) {
		return g
	}
	for _, flag := range called.Model.Flags {
		if file, ok := called.FlagValue(flag).(ConfigFile); ok && file != "" {
			g.file, g.keys = string(file), SettingKeys(called.Model)
		}
	}
	for _, at := range called.Path {
		if at.Flag == nil || at.Resolved {
			continue
		}
		g.typed = append(g.typed, at.Flag.Name)
		value := fmt.Sprint(called.FlagValue(at.Flag))
		opens := at.Flag.Name == "config" ||
			at.Flag.Group != nil && slices.Contains([]string{groupStore, "server"}, at.Flag.Group.Key)
		if opens && !at.Flag.Tag.Has(SecretTag) && !withPassword.MatchString(value) {
			if _, twice := g.repeat[at.Flag.Name]; !twice {
				g.order = append(g.order, at.Flag.Name)
			}
			g.repeat[at.Flag.Name] = value
		}
	}
	return g
}

// Text rewords a text for people.
func (g Given) Text(text string) string {
	if g.file != "" {
		text = namedSetting.ReplaceAllStringFunc(text, g.asKey)
	}
	if len(g.order) > 0 {
		text = namedCommand.ReplaceAllStringFunc(text, g.complete)
	}
	return text
}

var (
	// namedSetting is a variable, perhaps with its flag, as faults name it, or with a value.
	namedSetting = regexp.MustCompile(`\bVERIFYD_([A-Z_]*[A-Z])(?: \((--[a-z-]+)\)|=(\S+))?`)
	// namedCommand is a command, perhaps with words of the text behind it.
	namedCommand = regexp.MustCompile(`\bverifyd(?: [a-z][a-z-]*)+`)
)

// asKey names a setting as the file does, unless it is given otherwise.
func (g Given) asKey(named string) string {
	part := namedSetting.FindStringSubmatch(named)
	key := strings.ToLower(part[1])
	switch {
	case !slices.Contains(g.keys, key), isSet(variablePrefix + part[1]),
		slices.Contains(g.typed, strings.ReplaceAll(key, "_", "-")):
		return named
	case part[2] != "":
		return fmt.Sprintf("%s in %s (%s%s, %s)", key, g.file, variablePrefix, part[1], part[2])
	case part[3] != "":
		return key + ": " + part[3]
	default:
		return key
	}
}

// complete adds to a command what it needs to be about the same store.
func (g Given) complete(named string) string {
	words := strings.Fields(named)
	at, n := g.app.Node, 1
	for ; n < len(words); n++ {
		i := slices.IndexFunc(at.Children, func(child *kong.Node) bool { return child.Name == words[n] })
		if i < 0 {
			break
		}
		at = at.Children[i]
	}
	if len(at.Children) > 0 || !TakesSettings(at) {
		return named
	}
	line := slices.Clone(words[:n])
	for _, name := range g.order {
		has := slices.ContainsFunc(at.Flags, func(f *kong.Flag) bool { return f.Name == name && !f.Hidden })
		if has || name == "config" {
			line = append(line, "--"+name, shellQuoted(g.repeat[name]))
		}
	}
	return strings.Join(append(line, words[n:]...), " ")
}

// shellQuoted returns a word as a shell, and a JSON text, may have it.
func shellQuoted(word string) string {
	if bareWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

var bareWord = regexp.MustCompile(`^[A-Za-z0-9_./:,@%+=-]+$`)

// Writer returns a writer that rewords each text before it is written to w.
func (g Given) Writer(w io.Writer) io.Writer {
	if g.file == "" && len(g.order) == 0 {
		return w
	}
	return rewording{g, w}
}

type rewording struct {
	Given
	w io.Writer
}

// Write is part of io.Writer.
func (r rewording) Write(text []byte) (int, error) {
	if _, err := io.WriteString(r.w, r.Text(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// Reworded returns an error with its text reworded.
func (g Given) Reworded(err error) error { return rewordedError{err, g.Text(err.Error())} }

type rewordedError struct {
	error

	text string
}

// Error returns the reworded text.
func (e rewordedError) Error() string { return e.text }

// Unwrap returns the error itself.
func (e rewordedError) Unwrap() error { return e.error }
