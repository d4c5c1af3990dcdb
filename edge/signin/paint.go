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
	"sync"

	"verifyd/edge/network"
	"verifyd/edge/page"
	"verifyd/edge/page/drawn"
)

// material is what pages are drawn with.
type material struct {
	assets  assets
	locales locales
	frame   *template.Template
}

// loadMaterial returns the one of the process: nobody changes it, and to read all languages takes some tens
// of milliseconds.
var loadMaterial = sync.OnceValues(func() (m material, err error) {
	if m.assets, err = loadAssets(); err != nil {
		return material{}, err
	}
	if m.locales, err = loadLocales(); err != nil {
		return material{}, err
	}
	m.frame, err = loadFrame()
	return m, err
})

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

// Say draws the text of a key with the view's values, and with one more of its own where two words follow.
func (v *view) Say(key string, more ...string) (template.HTML, error) {
	m, ok := v.words.texts[key]
	if !ok {
		return "", fmt.Errorf("no text %q", key)
	}
	values := v.typed
	if len(more) == 2 {
		values = maps.Clone(values)
		values[more[0]] = page.Typed(more[1])
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

// pageBytes is what most pages take.
const pageBytes = 8 << 10

// maxKept bounds the pages that are kept, of about 6 KB each: every language and state of the page, and some
// hundred requesters with colours and logos of their own.
const maxKept = 512

// drawing is what a page shows apart from the session's own values: the key under which it is kept.
type drawing struct {
	look                // \x00 stands for the token in its address of languages
	asks, expires bool  // it has forms; it says until when
	values        uint8 // which of valueNames there are
	rows          string
	buttons       string
}

// valueNames are the values of the texts of kept pages.
var valueNames = [...]string{"asker", "Asker", "network", "platform", "until", "count"}

// The places of a page's own texts; those of valueNames follow, and then those of its rows.
const (
	ownToken = iota
	ownExpires
	ownValues
)

const ownRows = ownValues + len(valueNames)

// tokenLetters are those of base64url (RFC 4648 §5).
const tokenLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// paint draws a page. If it is one that many users see, with texts that are one session's own, the page is
// kept and filled in: those texts are HTML already (page.Typed), or have no character that HTML escapes.
func (p *pages) paint(v view) ([]byte, error) {
	v.values["count"] = strconv.Itoa(v.count)
	v.typed = make(map[string]template.HTML, len(v.values))
	for name, value := range v.values {
		v.typed[name] = page.Typed(value)
	}
	v.Rows = rowsOf(v.Facts)
	d, own, ok := v.drawing()
	if !ok {
		return p.execute(&v)
	}
	return p.drawn.Draw(d, own, func(own []template.HTML) ([]byte, error) {
		v.setOwn(own)
		return p.execute(&v)
	})
}

func (p *pages) execute(v *view) ([]byte, error) {
	b := bytes.NewBuffer(make([]byte, 0, pageBytes))
	if err := p.frame.Execute(b, v); err != nil {
		return nil, fmt.Errorf("draw page %s: %w", v.Kind, err)
	}
	return b.Bytes(), nil
}

// drawing returns what the page shows, without what is one session's own, and that. Not ok: it is not kept,
// since it is seldom seen or shows something else of its own.
func (v *view) drawing() (d drawing, own []template.HTML, ok bool) {
	if v.token == "" || v.Code != "" || v.Again != "" || v.InApp != nil || v.Choices != nil ||
		strings.Trim(v.token, tokenLetters) != "" || ownRows+len(v.Rows) > drawn.MaxOwn {
		return drawing{}, nil, false
	}
	d = drawing{look: v.look, asks: v.Session != "", expires: v.Expires != ""}
	d.Languages = strings.Replace(v.Languages, v.token, "\x00", 1)
	own = append(make([]template.HTML, 0, ownRows+len(v.Rows)),
		template.HTML(v.token), template.HTML(v.Expires)) //nolint:gosec // a token's letters, and a time
	named := 0
	for i, name := range valueNames {
		text, there := v.typed[name]
		if there {
			named++
			d.values |= 1 << i
		}
		own = append(own, text)
	}
	for _, r := range v.Rows {
		d.rows += r.Label + strconv.FormatBool(r.Tall)
		own = append(own, r.Text)
	}
	if len(v.Buttons) > 0 {
		d.buttons = fmt.Sprintf("%#v", v.Buttons)
	}
	return d, own, named == len(v.typed)
}

// setOwn replaces what drawing returned as the page's own.
func (v *view) setOwn(own []template.HTML) {
	v.Languages = strings.Replace(v.Languages, v.token, string(own[ownToken]), 1)
	if v.Session != "" {
		v.Session = string(own[ownToken])
	}
	if v.Expires != "" {
		v.Expires = string(own[ownExpires])
	}
	for i, name := range valueNames {
		if _, there := v.typed[name]; there {
			v.typed[name] = own[ownValues+i]
		}
	}
	for i := range v.Rows {
		v.Rows[i].Text = own[ownRows+i]
	}
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
	if v.refresh > 0 {
		head.Set("Refresh", strconv.Itoa(v.refresh))
	}
	if v.retryAfter > 0 {
		head.Set("Retry-After", strconv.Itoa(v.retryAfter))
	}
	w.WriteHeader(v.status)
	_, _ = w.Write(body) // the client may be gone
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
