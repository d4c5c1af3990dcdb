package guide

import (
	"bytes"
	"fmt"
	"html/template"
	"path"
	"regexp"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	east "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// drawn is a document as HTML, and what is in it.
type drawn struct {
	Title    string
	Body     template.HTML
	Sections []section // the first is the text before all headings except the title
}

// section is the text under one heading.
type section struct {
	ID, Heading string
	Level       int    // of the heading
	text        string // plain, for the search
}

// markdown turns the text of a file into HTML. address returns where a file of the folder docs is served;
// empty if it is not.
func markdown(file, source string, address func(file string) string) (drawn, error) {
	m := goldmark.New(
		goldmark.WithExtensions(extension.Table),
		goldmark.WithParserOptions(parser.WithAutoHeadingID()),
		// before the library's own, which are at 500 and 1000
		goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(&tags{file, address}, 100))),
	)
	bytesOf := []byte(source)
	root := m.Parser().Parse(text.NewReader(bytesOf),
		parser.WithContext(parser.NewContext(parser.WithIDs(anchors{}))))
	var b bytes.Buffer
	if err := m.Renderer().Render(&b, bytesOf, root); err != nil {
		return drawn{}, fmt.Errorf("draw %s: %w", file, err)
	}
	d := drawn{Body: template.HTML(b.String()), Sections: sections(root, bytesOf)} //nolint:gosec // see tags
	d.Title = d.Sections[0].Heading
	return d, nil
}

// anchors makes the ids of a document's headings, as the sites do that show repositories: the same links work
// there and here.
type anchors map[string]int

var notInAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

// Generate implements parser.IDs.
func (a anchors) Generate(heading []byte, _ ast.NodeKind) []byte {
	id := strings.ToLower(notInAnchor.ReplaceAllString(string(bytes.TrimSpace(heading)), ""))
	id = strings.ReplaceAll(id, " ", "-")
	n := a[id]
	a[id]++
	if n > 0 {
		id = fmt.Sprintf("%s-%d", id, n)
	}
	return []byte(id)
}

// Put implements parser.IDs.
func (a anchors) Put(id []byte) { a[string(id)]++ }

// tags draws what the library's renderer draws otherwise, or not as a page without scripts needs it.
type tags struct {
	file    string // the document's
	address func(file string) string
}

// RegisterFuncs implements renderer.NodeRenderer.
func (t *tags) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindHeading, draws(t.heading))
	r.Register(ast.KindFencedCodeBlock, draws(t.code))
	r.Register(ast.KindLink, draws(t.link))
	r.Register(ast.KindImage, draws(t.image))
	r.Register(ast.KindHTMLBlock, draws(t.nothing))
	r.Register(ast.KindRawHTML, draws(t.nothing))
	r.Register(east.KindTable, draws(t.table))
	r.Register(east.KindTableCell, draws(t.cell))
}

// draws makes of a function for one kind of node what the library calls. It writes to a buffer, which takes
// all.
func draws[N ast.Node](draw func(w util.BufWriter, source []byte, n N, entering bool) ast.WalkStatus,
) renderer.NodeRendererFunc {
	return func(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		if own, ok := n.(N); ok {
			return draw(w, source, own, entering), nil
		}
		return ast.WalkContinue, fmt.Errorf("a node of kind %s is a %T", n.Kind(), n)
	}
}

func (t *tags) nothing(util.BufWriter, []byte, ast.Node, bool) ast.WalkStatus {
	return ast.WalkSkipChildren
}

func (t *tags) heading(w util.BufWriter, _ []byte, h *ast.Heading, entering bool) ast.WalkStatus {
	id := anchorOf(h)
	switch {
	case entering:
		_, _ = fmt.Fprintf(w, `<h%d id="%s">`, h.Level, id)
	case h.Level == 1:
		_, _ = w.WriteString("</h1>\n")
	default:
		_, _ = fmt.Fprintf(w, ` <a class="anchor" href="#%s" aria-label="Link to this section">#</a></h%d>`+"\n",
			id, h.Level)
	}
	return ast.WalkContinue
}

// code draws a block. The text after the language is the name of its file.
func (t *tags) code(w util.BufWriter, source []byte, block *ast.FencedCodeBlock, entering bool,
) ast.WalkStatus {
	if !entering {
		return ast.WalkContinue
	}
	if block.Info != nil {
		if _, name, _ := strings.Cut(string(block.Info.Value(source)), " "); name != "" {
			_, _ = fmt.Fprintf(w, "<p class=\"file\"><code>%s</code></p>\n", template.HTMLEscapeString(name))
		}
	}
	_, _ = fmt.Fprintf(w, "<pre tabindex=\"0\"><code>%s</code></pre>\n",
		template.HTMLEscapeString(string(block.Lines().Value(source))))
	return ast.WalkSkipChildren
}

// table lets a table that is wider than the page be scrolled, with the keyboard, too. On a phone its rows are
// blocks.
func (t *tags) table(w util.BufWriter, _ []byte, _ *east.Table, entering bool) ast.WalkStatus {
	if entering {
		_, _ = w.WriteString(`<div class="wide" role="group" tabindex="0" aria-label="Table"><table>` + "\n")
	} else {
		_, _ = w.WriteString("</table></div>\n")
	}
	return ast.WalkContinue
}

// cell is a header only where it has words: one without would be read out as a header of nothing. The others
// say their column's, for where that is not seen. The library's own would have a style attribute, which the
// content security policy refuses.
func (t *tags) cell(w util.BufWriter, source []byte, c *east.TableCell, entering bool) ast.WalkStatus {
	tag, column := "td", columnOf(c)
	if c == column && c.HasChildren() {
		tag = "th"
	}
	if !entering {
		_, _ = fmt.Fprintf(w, "</%s>\n", tag)
		return ast.WalkContinue
	}
	_, _ = w.WriteString("<" + tag)
	if c.Alignment == east.AlignRight {
		_, _ = w.WriteString(` class="end"`)
	}
	if c != column && column.HasChildren() {
		_, _ = fmt.Fprintf(w, ` data-label="%s"`, template.HTMLEscapeString(plain(column, source)))
	}
	_, _ = w.WriteString(">")
	return ast.WalkContinue
}

// columnOf returns the cell of a table that is above another one, in its first row.
func columnOf(c *east.TableCell) ast.Node {
	column := c.Parent().Parent().FirstChild().FirstChild()
	for before := c.PreviousSibling(); before != nil; before = before.PreviousSibling() {
		column = column.NextSibling()
	}
	return column
}

// link leads within the page, to another site, or to a document that is served. Any other file is named.
func (t *tags) link(w util.BufWriter, source []byte, l *ast.Link, entering bool) ast.WalkStatus {
	href, file := t.leads(string(l.Destination))
	switch {
	case href != "" && entering:
		_, _ = fmt.Fprintf(w, `<a href="%s">`, template.HTMLEscapeString(href))
	case href != "":
		_, _ = w.WriteString("</a>")
	case entering:
		name := template.HTMLEscapeString(file)
		if label := plain(l, source); !strings.HasSuffix(file, strings.Trim(label, "/")) {
			_, _ = fmt.Fprintf(w, "%s (<code>%s</code>)", template.HTMLEscapeString(label), name)
		} else {
			_, _ = fmt.Fprintf(w, "<code>%s</code>", name)
		}
		return ast.WalkSkipChildren
	}
	return ast.WalkContinue
}

// leads returns where a link leads, or the file of the repository that it names and that is not served.
func (t *tags) leads(to string) (href, file string) {
	if strings.HasPrefix(to, "#") || strings.HasPrefix(to, "https://") {
		return to, ""
	}
	name, anchor, _ := strings.Cut(to, "#")
	name = path.Join(path.Dir(t.file), name)
	href = t.address(name)
	if href != "" && anchor != "" {
		href += "#" + anchor
	}
	return href, path.Join("docs", name)
}

func (t *tags) image(w util.BufWriter, source []byte, i *ast.Image, entering bool) ast.WalkStatus {
	if !entering {
		return ast.WalkContinue
	}
	alt := template.HTMLEscapeString(plain(i, source))
	if src, _ := t.leads(string(i.Destination)); src != "" {
		_, _ = fmt.Fprintf(w, `<img src="%s" alt="%s" loading="lazy">`, template.HTMLEscapeString(src), alt)
	} else {
		_, _ = w.WriteString(alt)
	}
	return ast.WalkSkipChildren
}

func anchorOf(h *ast.Heading) string {
	id, _ := h.AttributeString("id")
	b, _ := id.([]byte)
	return string(b) // of letters and digits, see anchors
}

// plain returns the text of a node, without what it looks like.
func plain(n ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // no step fails
		if n.Type() == ast.TypeBlock {
			b.WriteByte(' ') // between one block or cell and the next
		}
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Text:
			_, _ = b.Write(n.Segment.Value(source))
			if n.SoftLineBreak() || n.HardLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.String:
			_, _ = b.Write(n.Value)
		case *ast.AutoLink:
			_, _ = b.Write(n.Label(source))
		case *ast.FencedCodeBlock, *ast.CodeBlock:
			_, _ = b.Write(n.Lines().Value(source))
		case *ast.HTMLBlock, *ast.RawHTML:
			return ast.WalkSkipChildren, nil
		}
		return ast.WalkContinue, nil
	})
	return strings.Join(strings.Fields(b.String()), " ")
}

// sections splits a document at its headings.
func sections(root ast.Node, source []byte) []section {
	var all []section
	for n := root.FirstChild(); n != nil; n = n.NextSibling() {
		if h, ok := n.(*ast.Heading); ok {
			all = append(all, section{ID: anchorOf(h), Heading: plain(h, source), Level: h.Level})
			continue
		}
		if len(all) == 0 {
			all = append(all, section{})
		}
		last := &all[len(all)-1]
		last.text = strings.TrimSpace(last.text + " " + plain(n, source))
	}
	return all
}
