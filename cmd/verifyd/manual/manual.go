// Package manual generates the man page of a program's command line and its shell completions, which packages
// install with a binary. It makes them from the same model as the help pages.
package manual

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"verifyd/cmd/verifyd/flags"
)

// Program is a program and its command line.
type Program struct {
	App      *kong.Application
	Version  string
	Examples map[string]string // a command line of each command, by its path; "" is the program's own
}

// Write writes the man page, for man, or the completions of bash, zsh or fish.
func (p Program) Write(w io.Writer, format string) error {
	made := map[string]func() string{"man": p.man, "bash": p.bash, "zsh": p.zsh, "fish": p.fish}[format]
	if made == nil {
		return fmt.Errorf("there is no format %s; use man, bash, zsh or fish", format)
	}
	_, err := io.WriteString(w, made())
	return err
}

// command has the data for completions of a command, or of the program itself.
type command struct {
	path     string // "key create"; empty: the program
	help     string
	children []*kong.Node
	flags    []*kong.Flag
}

// commands returns the program and all its commands, each before those below it.
func (p Program) commands() (all []command) {
	var add func(n *kong.Node)
	add = func(n *kong.Node) {
		c := command{path: n.Path(), help: n.Help}
		for _, f := range slices.Concat(n.Flags, p.App.Flags, ownOf(n.DefaultCmd)) {
			if !f.Hidden && !slices.Contains(c.flags, f) {
				c.flags = append(c.flags, f)
			}
		}
		c.children = visible(n.Children)
		below := c.children
		if c.path == "help" {
			c.children = visible(p.App.Children) // the command that it explains
		}
		all = append(all, c)
		for _, child := range below {
			add(child)
		}
	}
	add(p.App.Node)
	return all
}

func visible(nodes []*kong.Node) []*kong.Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n *kong.Node) bool { return n.Hidden })
}

// ownOf returns the flags of the command that runs if none is named.
func ownOf(n *kong.Node) []*kong.Flag {
	if n == nil {
		return nil
	}
	return n.Flags
}

// takesFile reports whether a flag's value is a file or a folder.
func takesFile(f *kong.Flag) bool {
	place := strings.ToUpper(f.FormatPlaceHolder())
	return strings.HasSuffix(f.Name, "-file") || strings.HasSuffix(f.Name, "-dir") || place == "FILE" ||
		place == "DIR"
}

// values returns what a flag accepts, if that is a list.
func values(f *kong.Flag) []string {
	if f.Enum == "" {
		return nil
	}
	return f.EnumSlice()
}

// settings returns the flags of a group of settings, from the command that has most of them.
func (p Program) settings(group string) (found []*kong.Flag) {
	for _, leaf := range p.App.Leaves(true) {
		var of []*kong.Flag
		for _, f := range leaf.Flags {
			if !f.Hidden && f.Group != nil && f.Group.Key == group {
				of = append(of, f)
			}
		}
		if len(of) > len(found) {
			found = of
		}
	}
	return found
}

// own returns the flags of a command that are not settings.
func own(n *kong.Node) []*kong.Flag {
	return slices.DeleteFunc(slices.Clone(n.Flags), func(f *kong.Flag) bool {
		return f.Hidden || flags.IsSetting(f)
	})
}
