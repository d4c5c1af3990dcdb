package manual

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// The completions of each shell are a table of commands and their flags. A word is part of the command if the
// table has it below the words before it; below help, the table is that of the program.

// function returns the name of a shell function that no other program has.
func (p Program) function() string { return "_" + strings.ReplaceAll(p.App.Name, "-", "_") }

// paths returns the pattern of a shell's case that matches every command: "key|key create".
func (p Program) paths() string {
	var all []string
	for _, c := range p.commands()[1:] {
		all = append(all, single(c.path))
	}
	return strings.Join(all, "|")
}

func (p Program) bash() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Completions of %s for bash.\n%s() {\n", p.App.Name, p.function())
	b.WriteString(`  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} at= below word
  if [ "$current" = = ]; then
    current=
  elif [ "$before" = = ]; then
    before=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  for word in "${COMP_WORDS[@]:1:COMP_CWORD - 1}"; do
    below=$at
    [ "$at" != help ] || below=
    case "${below:+$below }$word" in
`)
	fmt.Fprintf(&b, "      %s) at=\"${below:+$below }$word\" ;;\n    esac\n  done\n", p.paths())
	b.WriteString("  local commands= flags=\n  case $at in\n")
	for _, c := range p.commands() {
		var names, all []string
		for _, child := range c.children {
			names = append(names, child.Name)
		}
		for _, f := range c.flags {
			all = append(all, "--"+f.Name)
		}
		fmt.Fprintf(&b, "    %s) commands=%s flags=%s ;;\n", single(c.path), single(strings.Join(names, " ")),
			single(strings.Join(all, " ")))
	}
	b.WriteString("  esac\n  case $before in\n")
	for _, f := range p.unlike() {
		switch {
		case takesFile(f):
			fmt.Fprintf(&b, "    --%s) COMPREPLY=($(compgen -f -- \"$current\")); return ;;\n", f.Name)
		case values(f) != nil:
			fmt.Fprintf(&b, "    --%s) COMPREPLY=($(compgen -W %s -- \"$current\")); return ;;\n", f.Name,
				single(strings.Join(values(f), " ")))
		}
	}
	b.WriteString(`  esac
  case $current in
    -*) COMPREPLY=($(compgen -W "$flags" -- "$current")) ;;
    *) COMPREPLY=($(compgen -W "$commands" -- "$current")) ;;
  esac
}
`)
	fmt.Fprintf(&b, "complete -o default -F %s %s\n", p.function(), p.App.Name)
	return b.String()
}

// unlike returns the flags without repeated names, the first of each.
func (p Program) unlike() (all []*kong.Flag) {
	seen := map[string]bool{}
	for _, c := range p.commands() {
		for _, f := range c.flags {
			if !seen[f.Name] {
				seen[f.Name] = true
				all = append(all, f)
			}
		}
	}
	return all
}

func (p Program) zsh() string {
	var b strings.Builder
	fmt.Fprintf(&b, "#compdef %s\n# Completions of %[1]s for zsh.\n%s() {\n", p.App.Name, p.function())
	b.WriteString(`  local at= below word
  local -a commands flags
  for word in "${(@)words[2,CURRENT-1]}"; do
    below=$at
    [[ $at != help ]] || below=
    case "${below:+$below }$word" in
`)
	fmt.Fprintf(&b, "      (%s) at=\"${below:+$below }$word\" ;;\n    esac\n  done\n", p.paths())
	b.WriteString("  case $at in\n")
	for _, c := range p.commands() {
		fmt.Fprintf(&b, "    (%s)\n", single(c.path))
		b.WriteString("      commands=(")
		for _, child := range c.children {
			b.WriteString("\n        " + single(described(child.Name, child.Help)))
		}
		b.WriteString(")\n      flags=(")
		for _, f := range c.flags {
			b.WriteString("\n        " + single(described("--"+f.Name, f.Help)))
		}
		b.WriteString(")\n      ;;\n")
	}
	b.WriteString("  esac\n  case ${words[CURRENT-1]} in\n")
	for _, f := range p.unlike() {
		if values(f) != nil {
			fmt.Fprintf(&b, "    (--%s) compadd -- %s; return ;;\n", f.Name, strings.Join(values(f), " "))
		}
	}
	b.WriteString(`  esac
  if [[ $PREFIX == -* ]]; then
    _describe -o flag flags
  elif (( $#commands )); then
    _describe command commands
  else
    _files
  fi
}
`)
	fmt.Fprintf(&b, "if [ \"$funcstack[1]\" = %s ]; then\n  %[1]s \"$@\"\nelse\n  compdef %[1]s %s\nfi\n",
		p.function(), p.App.Name)
	return b.String()
}

// described is an entry of zsh's _describe.
func described(name, help string) string {
	return strings.ReplaceAll(name, ":", `\:`) + ":" + strings.ReplaceAll(help, ":", `\:`)
}

func (p Program) fish() string {
	var b strings.Builder
	name, at := p.App.Name, "_"+p.function()+"_at"
	fmt.Fprintf(&b, "# Completions of %s for fish.\nfunction %s\n", name, at)
	b.WriteString("  set -l at\n  for word in (commandline -opc)[2..-1]\n" +
		"    set -l below $at\n    test \"$at\" = help; and set below\n" +
		"    switch \"$below $word\"\n      case")
	for _, c := range p.commands()[1:] {
		path := c.path
		if !strings.Contains(path, " ") {
			path = " " + path // at the top level
		}
		b.WriteString(" " + single(path))
	}
	fmt.Fprintf(&b, "\n        set at (string trim \"$below $word\")\n    end\n  end\n"+
		"  test \"$at\" = \"$argv[1]\"\nend\n")
	for _, c := range p.commands() {
		when := fmt.Sprintf("complete -c %s -n %s", name, single(at+" "+`"`+c.path+`"`))
		for _, child := range c.children {
			fmt.Fprintf(&b, "%s -f -a %s -d %s\n", when, child.Name, fishQuoted(child.Help))
		}
		for _, f := range c.flags {
			fmt.Fprintf(&b, "%s -l %s", when, f.Name)
			if f.Short != 0 {
				fmt.Fprintf(&b, " -s %c", f.Short)
			}
			switch {
			case takesFile(f):
				b.WriteString(" -rF")
			case values(f) != nil:
				fmt.Fprintf(&b, " -xa %s", fishQuoted(strings.Join(values(f), " ")))
			case !f.IsBool():
				b.WriteString(" -x")
			}
			fmt.Fprintf(&b, " -d %s\n", fishQuoted(f.Help))
		}
	}
	return b.String()
}

// single returns text in the single quotes of bash and zsh.
func single(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// fishQuoted returns text in the single quotes of fish.
func fishQuoted(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(text) + "'"
}
