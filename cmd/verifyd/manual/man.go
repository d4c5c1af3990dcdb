package manual

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/alecthomas/kong"

	"verifyd/cmd/verifyd/flags"
)

// man returns the man page, in the macros of man(7), which every system's man reads.
func (p Program) man() string {
	var b strings.Builder
	name := p.App.Name
	fmt.Fprintf(&b, ".TH %s 1 \"\" %s \"User Commands\"\n", strings.ToUpper(roff(name)),
		quoted(name+" "+p.Version))
	b.WriteString(".nh\n.ad l\n") // words and lines of commands are not changed
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(name), roff(strings.TrimSuffix(p.App.Help, ".")))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", roff(strings.TrimSpace(name+" "+p.App.Summary())))
	example(&b, p.Examples[""])
	b.WriteString(".SH COMMANDS\n")
	for _, leaf := range p.App.Leaves(true) {
		p.manCommand(&b, leaf)
	}
	b.WriteString(".SH FLAGS OF EVERY COMMAND\n")
	for _, f := range p.App.Flags {
		manFlag(&b, f)
	}
	p.manSettings(&b)
	b.WriteString(".SH EXIT STATUS\n0 for success, 1 for a failure, 2 for an error in the command line or " +
		"a setting.\n")
	return b.String()
}

// manCommand writes the purpose of a command, its arguments, its own flags and an example.
func (p Program) manCommand(b *strings.Builder, n *kong.Node) {
	fmt.Fprintf(b, ".SS %s\n%s\n", quoted(strings.Join(strings.Fields(p.App.Name+" "+n.Summary()), " ")),
		roff(n.Help))
	for _, a := range n.Positional {
		fmt.Fprintf(b, ".TP\n.I %s\n%s\n", roff(a.Name), roff(a.Help))
	}
	for _, f := range own(n) {
		manFlag(b, f)
	}
	example(b, p.Examples[n.Path()])
	var groups []string
	for _, g := range flags.SettingGroups {
		for _, f := range n.Flags {
			if f.Group != nil && f.Group.Key == g.Key {
				groups = append(groups, groupTitle(g))
				break
			}
		}
	}
	if len(groups) > 0 {
		fmt.Fprintf(b, ".PP\nIt takes the settings of %s.\n", roff(strings.Join(groups, ", ")))
	}
}

// manSettings writes the settings, which are flags, variables and keys of a file.
func (p Program) manSettings(b *strings.Builder) {
	begun := false
	for _, g := range flags.SettingGroups {
		found := p.settings(g.Key)
		if len(found) > 0 && !begun {
			begun = true
			b.WriteString(".SH SETTINGS\nA setting is a flag, a variable, and a key of the YAML file of " +
				"\\-\\-config: \\-\\-data\\-dir, VERIFYD_DATA_DIR and data_dir. The flag takes precedence " +
				"over the variable, the variable over the file.\n")
		}
		if len(found) > 0 {
			title := groupTitle(g)
			fmt.Fprintf(b, ".SS %s\n", quoted(strings.ToUpper(title[:1])+title[1:]))
		}
		for _, f := range found {
			manFlag(b, f)
		}
	}
}

// groupTitle returns what a group of settings is about: "the store".
func groupTitle(g kong.Group) string {
	title := strings.TrimSuffix(strings.TrimPrefix(g.Title, "Settings of "), ":")
	title, _, _ = strings.Cut(title, ", the same as")
	return title
}

// manFlag writes a flag, its variable and its help.
func manFlag(b *strings.Builder, f *kong.Flag) {
	name, value, ok := strings.Cut(f.Summary(), "=")
	b.WriteString(".TP\n")
	if f.Short != 0 {
		fmt.Fprintf(b, "\\fB\\-%c\\fR, ", f.Short)
	}
	fmt.Fprintf(b, "\\fB%s\\fR", roff(name))
	if ok {
		fmt.Fprintf(b, "=\\fI%s\\fR", roff(value))
	}
	if len(f.Envs) > 0 {
		fmt.Fprintf(b, ", %s", roff(strings.Join(f.Envs, " or ")))
	}
	fmt.Fprintf(b, "\n%s\n", roff(f.Help))
}

// example writes a command line as it is.
func example(b *strings.Builder, line string) {
	if line != "" {
		fmt.Fprintf(b, ".PP\nFor example:\n.PP\n.RS 4\n%s\n.RE\n", roff(line))
	}
}

// roff escapes text for man: nothing in it is a request, and other characters than ASCII are written by their
// code points, since not every man knows the encoding of its file.
func roff(text string) string {
	var b strings.Builder
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		b.WriteString(`\&`)
	}
	for _, r := range strings.Join(strings.Fields(text), " ") {
		switch {
		case r == '\\':
			b.WriteString(`\e`)
		case r == '-':
			b.WriteString(`\-`)
		case r > unicode.MaxASCII:
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// quoted returns text as one argument of a macro.
func quoted(text string) string { return `"` + strings.ReplaceAll(roff(text), `"`, `\(dq`) + `"` }
