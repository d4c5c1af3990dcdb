package signin

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"text/template/parse"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/text/feature/plural"

	"verifyd/edge/flow"
	"verifyd/edge/limit"
	"verifyd/edge/network"
	"verifyd/edge/page"
)

// pages is what the pages are made of, and how they are drawn.
type pages struct {
	networks

	accounts Accounts
	store    *limit.Waiting
	log      zerolog.Logger
	now      func() time.Time

	origin   string // of the base URL
	prefix   string // its path, without a slash at its end
	https    bool
	browsers flow.Browsers
	assets   assets
	locales  locales
	frames   map[*locale]*template.Template
}

// loadFrames returns the pages' templates, for each language those in which its texts stand already.
func loadFrames(of locales) (map[*locale]*template.Template, error) {
	frame, err := loadFrame()
	if err != nil {
		return nil, err
	}
	frames := map[*locale]*template.Template{}
	for _, words := range of.all {
		own, err := frame.Clone()
		if err != nil {
			return nil, fmt.Errorf("copy the page's templates: %w", err)
		}
		for _, t := range own.Templates() {
			words.set(t.Tree.Root)
		}
		frames[words] = own
	}
	return frames, nil
}

func loadFrame() (*template.Template, error) {
	// An error in the middle of a page must be one of ours in a test, not a hole that a user finds.
	frame, err := template.New("page.html").Option("missingkey=error").
		ParseFS(webFiles, "web/page.html", "web/ask.html", "web/confirm.html", "web/inapp.html",
			"web/end.html", "web/card.html", "web/languages.html")
	if err != nil {
		return nil, fmt.Errorf("read the page's templates: %w", err)
	}
	return frame, nil
}

// set puts this language's texts into a template where it asks for one by a key that stands there. What is
// left to look up while a page is drawn are texts with values, and those whose key the page knows.
// html/template
// judges what is around each place afterwards, as it does with any other text.
func (t *locale) set(in parse.Node) {
	switch n := in.(type) {
	case *parse.ListNode:
		if n == nil {
			return
		}
		for i, child := range n.Nodes {
			if text, ok := t.fixed(child); ok {
				n.Nodes[i] = text
				continue
			}
			t.set(child)
		}
	case *parse.IfNode:
		t.set(n.List)
		t.set(n.ElseList)
	case *parse.WithNode:
		t.set(n.List)
		t.set(n.ElseList)
	case *parse.RangeNode:
		t.set(n.List)
		t.set(n.ElseList)
	}
}

// fixed returns the text that stands for an action of the kind {{.Say "key"}} or {{.Word "key"}}, where its
// wording has no values, stress or plural forms.
func (t *locale) fixed(n parse.Node) (*parse.TextNode, bool) {
	action, ok := n.(*parse.ActionNode)
	if !ok || len(action.Pipe.Decl) > 0 || len(action.Pipe.Cmds) != 1 || len(action.Pipe.Cmds[0].Args) != 2 {
		return nil, false
	}
	args := action.Pipe.Cmds[0].Args
	key, ok := args[1].(*parse.StringNode)
	if !ok || args[0].String() != ".Say" && args[0].String() != "$.Say" && args[0].String() != ".Word" &&
		args[0].String() != "$.Word" {
		return nil, false
	}
	m := t.texts[key.Text]
	if _, err := m.plain(); err != nil {
		return nil, false
	}
	text := []byte(m[plural.Other][0].html)
	return &parse.TextNode{NodeType: parse.NodeText, Pos: n.Position(), Text: text}, true
}

// Say draws the text of a key with the view's values, and with one more of its own where two words follow.
func (v *view) Say(key string, more ...string) (template.HTML, error) {
	m, ok := v.words.texts[key]
	if !ok {
		return "", fmt.Errorf("no text %q", key)
	}
	values := v.values
	if len(more) == 2 {
		values = maps.Clone(values)
		values[more[0]] = more[1]
	}
	html, err := m.of(v.words.tag, v.count).html(values)
	if err != nil {
		return "", fmt.Errorf("text %q: %w", key, err)
	}
	return html, nil
}

// Word returns a text without values, for a title or an attribute.
func (v *view) Word(key string) (string, error) {
	s, err := v.words.texts[key].plain()
	if err != nil {
		return "", fmt.Errorf("text %q: %w", key, err)
	}
	return s, nil
}

// roomShown is what is shown at once of a value, in characters: some seven lines of a phone.
const roomShown = 100

// Tall reports whether a value takes so much room that it is scrolled in a box of its own.
func (*view) Tall(s string) bool { return page.Room(s) > roomShown }

// Typed draws a value that somebody else wrote.
func (*view) Typed(s string) template.HTML { return page.Typed(s) }

// pageBytes is what most pages take.
const pageBytes = 8 << 10

func (p *pages) paint(v view) ([]byte, error) {
	v.values["count"] = strconv.Itoa(v.count)
	b := bytes.NewBuffer(make([]byte, 0, pageBytes))
	if err := p.frames[v.words].Execute(b, &v); err != nil {
		return nil, fmt.Errorf("draw page %s: %w", v.Kind, err)
	}
	return b.Bytes(), nil
}

// draw answers with a page. It is painted whole before the first byte leaves.
func (p *pages) draw(w http.ResponseWriter, v view) {
	body, err := p.paint(v)
	if err != nil {
		p.log.Error().Err(err).Msg("a page could not be drawn")
		http.Error(w, "Something went wrong on our side. Please try again.", http.StatusInternalServerError)
		return
	}
	head := w.Header()
	policy := page.Policy(v.formAction)
	if v.Preview {
		policy = strings.Replace(policy, "frame-ancestors 'none'", "frame-ancestors 'self'", 1)
	}
	head.Set("Content-Security-Policy", policy)
	head.Set("Content-Language", v.words.code)
	head.Set("Content-Type", "text/html; charset=utf-8")
	head.Set("Vary", "Accept-Language, Cookie, User-Agent")
	head.Set("Content-Length", strconv.Itoa(len(body)))
	if v.retryAfter > 0 {
		head.Set("Retry-After", strconv.Itoa(v.retryAfter))
	}
	w.WriteHeader(v.status)
	_, _ = w.Write(body) // the client is gone
}

//go:embed web
var webFiles embed.FS

// assets are the files that pages refer to.
type assets struct{ css, icon page.Asset }

func (a assets) all() []page.Asset { return []page.Asset{a.css, a.icon} }

func loadAssets() (assets, error) {
	css, err := page.LoadSmallStyle(webFiles, "web/page.css")
	if err != nil {
		return assets{}, err
	}
	return assets{css, page.NamedIcon("icon.svg")}, nil
}

// formAction says where the page's forms may lead. Chromium applies it not only to the form's own target but
// to every redirect that follows its POST, so to the provider and to wherever the provider redirects before
// it draws a page: its own login host, an identity provider behind it. Those hosts cannot be known, hence
// https as a whole; what the form itself posts to is fixed in the page, which has no script that could change
// it. Plain http is for networks on this very machine, named exactly.
func (p *pages) formAction(networks []*network.Network) string {
	sources := []string{"'self'", "https:"}
	for _, n := range networks {
		for _, source := range page.PlainSources(n.AuthorizationOrigin(), p.https) {
			if !slices.Contains(sources, source) {
				sources = append(sources, source)
			}
		}
	}
	return strings.Join(sources, " ")
}
