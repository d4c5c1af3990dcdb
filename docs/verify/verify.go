// Package verify holds the guides to verifying a callback, one for each language, as text: the files of this
// folder, for programs that show them elsewhere. The code in them is the code that the tests here run,
// against real callbacks.
//
// It is small: a Go file embeds only what is in its own folder, or below.
package verify

import (
	"embed"
	"strings"
)

//go:embed *.md
var files embed.FS

// Guide is how a callback is verified in one language.
type Guide struct {
	ID       string // name of the file without its ending: "go"
	Language string // "Go"
	Text     string // the whole guide, in Markdown
	Receiver Code   // an HTTP server that asks Standard, Library or Public, which are exchangeable
	Standard Code   // with nothing but the language's own library
	Library  Code   // with the official library of Standard Webhooks
	Public   Code   // by the public key, which that library does not know
	Install  string // the command that gets that library
}

// Code is one file of a guide.
type Code struct {
	File   string // the name under which the others know it
	Syntax string // as highlighters know it
	Text   string
}

// languages are in the order in which they are shown.
var languages = []struct{ id, name string }{
	{"go", "Go"}, {"javascript", "JavaScript"}, {"python", "Python"}, {"php", "PHP"}, {"ruby", "Ruby"},
}

// Guides returns all guides, in the order in which they are shown.
func Guides() []Guide {
	guides := make([]Guide, 0, len(languages))
	for _, l := range languages {
		text, err := files.ReadFile(l.id + ".md")
		if err != nil {
			panic(err) // it is embedded
		}
		g := Guide{ID: l.id, Language: l.name, Text: string(text)}
		g.read()
		guides = append(guides, g)
	}
	return guides
}

// The headings under which a guide has its code.
const (
	underReceiver = "## The receiver"
	underStandard = "## Verify, with the standard library"
	underLibrary  = "## Verify, with the official library"
	underPublic   = "## Verify, with the public key"
)

// read takes the code out of the text. Below each heading a fenced block holds one file; it is opened with
// its syntax and the file's name, as in "go verify.go".
func (g *Guide) read() {
	under := ""
	for i, block := range strings.Split(g.Text, "\n```") {
		if i%2 == 0 { // between the fences
			if at := strings.LastIndex(block, "\n## "); at >= 0 {
				under, _, _ = strings.Cut(block[at+1:], "\n")
			}
			continue
		}
		info, code, _ := strings.Cut(block, "\n")
		syntax, file, _ := strings.Cut(info, " ")
		if file != "" {
			g.put(under, Code{File: file, Syntax: syntax, Text: code + "\n"})
		} else if under == underLibrary {
			g.Install = code
		}
	}
}

func (g *Guide) put(under string, c Code) {
	switch under {
	case underReceiver:
		g.Receiver = c
	case underStandard:
		g.Standard = c
	case underLibrary:
		g.Library = c
	case underPublic:
		g.Public = c
	}
}
