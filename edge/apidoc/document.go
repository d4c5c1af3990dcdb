package apidoc

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"verifyd/edge/page"
)

//go:embed openapi.yaml
var source []byte

//go:embed web
var webFiles embed.FS

// sourceServer is the address in the document that a service replaces with its own.
const sourceServer = "https://verify.example.com"

// Document is the description of one service's interface, drawn and ready to be served.
type Document struct {
	yaml, page    []byte
	style, script page.Asset
}

// New draws the document of a service with a base URL, and the path prefix in it.
func New(base, prefix string) (*Document, error) {
	text := bytes.ReplaceAll(source, []byte(sourceServer), []byte(base))
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil || len(root.Content) != 1 {
		return nil, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	style, err := page.LoadStyle(webFiles, "web/docs.css")
	if err != nil {
		return nil, err
	}
	script, err := page.LoadAsset(webFiles, "web/samples.js", "text/javascript; charset=utf-8")
	if err != nil {
		return nil, err
	}
	d := &Document{yaml: text, style: style, script: script}
	d.page, err = d.draw(node{root.Content[0], root.Content[0]}, base, prefix)
	return d, err
}

// Entry is a place on the page.
type Entry struct {
	ID    string // its anchor
	Title string // "POST /verify/init", or the code of a problem
	About string // a line
	Text  string // what else is said there
}

// Contents returns the places on the page: the operations, the callback last, and the problems.
func Contents() (operations, problems []Entry, err error) {
	var root yaml.Node
	if err := yaml.Unmarshal(source, &root); err != nil || len(root.Content) != 1 {
		return nil, nil, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	v := newView(node{root.Content[0], root.Content[0]}, sourceServer)
	var all []operation
	for _, g := range v.Groups {
		all = append(all, g.Operations...)
	}
	for _, o := range append(all, v.Callback) {
		text := []string{o.Description}
		for _, f := range slices.Concat(o.Parameters, o.Body) {
			text = append(text, f.Name, f.Description)
		}
		operations = append(operations, Entry{
			o.ID, o.Method + " " + o.Path, o.Summary, strings.Join(text, " "),
		})
	}
	for _, c := range v.Codes {
		problems = append(problems, Entry{"problem-" + c.Code, c.Code, c.Action, c.Status})
	}
	return operations, problems, nil
}

func (d *Document) draw(root node, base, prefix string) ([]byte, error) {
	t, err := template.New("docs.html").Funcs(template.FuncMap{"say": say, "paragraphs": paragraphs}).
		ParseFS(webFiles, "web/docs.html")
	if err != nil {
		return nil, fmt.Errorf("read the template of the documentation: %w", err)
	}
	v := newView(root, base)
	v.Base, v.Prefix, v.Style, v.Script = base, prefix, prefix+d.StylePath(), prefix+d.ScriptPath()
	var b bytes.Buffer
	if err := t.Execute(&b, v); err != nil {
		return nil, fmt.Errorf("draw the documentation: %w", err)
	}
	return b.Bytes(), nil
}

// say marks text between backticks as code.
func say(text string) template.HTML {
	var b strings.Builder
	for i, part := range strings.Split(text, "`") {
		part = template.HTMLEscapeString(part)
		if i%2 == 1 {
			part = "<code>" + part + "</code>"
		}
		b.WriteString(part)
	}
	return template.HTML(b.String()) //nolint:gosec // every part is escaped above
}

// paragraphs splits a description at its empty lines.
func paragraphs(text string) []string { return strings.Split(strings.TrimSpace(text), "\n\n") }

// StylePath is where Style is to be served, below the base URL.
func (d *Document) StylePath() string { return "/assets/" + d.style.Name }

// ScriptPath is where Script is to be served, below the base URL.
func (d *Document) ScriptPath() string { return "/assets/" + d.script.Name }

// Script answers with the page's script, whose path changes with its content.
func (d *Document) Script() http.Handler { return d.script }

// YAML answers with the document.
func (d *Document) YAML() http.Handler { return page.Fixed("application/yaml", "no-cache", d.yaml) }

// Page answers with the page.
func (d *Document) Page() http.Handler {
	return page.Fixed("text/html; charset=utf-8", "no-cache", d.page, "script-src 'self'")
}

// Style answers with the page's style sheet, whose path changes with its content.
func (d *Document) Style() http.Handler { return d.style }
