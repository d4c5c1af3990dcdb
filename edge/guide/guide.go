package guide

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"

	"verifyd/docs"
	"verifyd/edge/apidoc"
	"verifyd/edge/page"
	"verifyd/edge/web"
)

//go:embed web
var webFiles embed.FS

// The addresses below the base URL that do not change.
const (
	PathStart  = "/docs"
	PathAPI    = "/docs/api" // the page of package apidoc
	pathSearch = "/docs/search.json"
	pathAssets = "/assets/"
)

// Guide is the documentation of one service. It starts nothing, and its pages are drawn when the first of
// them is asked for: most processes never show one.
type Guide struct {
	base, prefix  string
	style, script page.Asset
	pictures      map[string]page.Asset // by their names in the folder docs
	pages         func() (pages, error)
}

// pages are what answers at each path, and the anchors on each page.
type pages struct {
	handlers map[string]http.Handler
	anchors  map[string]map[string]bool
}

// New makes the documentation of a service with a base URL, and the path prefix in it.
func New(base, prefix string) (*Guide, error) {
	g := &Guide{base: base, prefix: prefix, pictures: map[string]page.Asset{}}
	var err error
	if g.style, err = page.LoadStyle(webFiles, "web/guide.css"); err != nil {
		return nil, err
	}
	if g.script, err = page.LoadAsset(webFiles, "web/search.js",
		"text/javascript; charset=utf-8"); err != nil {
		return nil, err
	}
	names, err := fs.Glob(docs.Files, "screens/*.png")
	if err != nil {
		return nil, fmt.Errorf("list the pictures of the documentation: %w", err)
	}
	for _, name := range names {
		if g.pictures[name], err = page.LoadAsset(docs.Files, name, "image/png"); err != nil {
			return nil, err
		}
	}
	g.pages = sync.OnceValues(g.draw)
	return g, nil
}

// Routes are what the service's router mounts.
func (g *Guide) Routes() []web.Route {
	get := func(path, name string, h http.Handler) web.Route {
		return web.Route{Method: http.MethodGet, Path: path, Name: name, Handler: h}
	}
	routes := []web.Route{
		get(PathStart, "docs", g.page(PathStart)), get(PathStart+"/", "docs", g.page(PathStart)),
		get(pathSearch, "docs_search", g.page(pathSearch)),
	}
	for _, r := range readers {
		for _, d := range r.Documents {
			routes = append(routes, get(d.path(), "docs", g.page(d.path())))
		}
	}
	for _, a := range append([]page.Asset{g.style, g.script}, sorted(g.pictures)...) {
		routes = append(routes, get(pathAssets+a.Name, "docs_asset", a))
	}
	return routes
}

// page answers with one of the pages.
func (g *Guide) page(path string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		all, err := g.pages()
		if err != nil {
			panic(err) // the files are part of the program: a test draws them
		}
		all.handlers[path].ServeHTTP(w, r)
	})
}

// Leads reports whether a path below the base URL is one of the pages, with the anchor if there is one in it:
// for tests of what links here.
func (g *Guide) Leads(to string) (bool, error) {
	all, err := g.pages()
	name, anchor, _ := strings.Cut(to, "#")
	return err == nil && all.anchors[name] != nil && (anchor == "" || all.anchors[name][anchor]), err
}

// address returns where a file of the folder docs is served; empty if it is not.
func (g *Guide) address(file string) string {
	if a, ok := g.pictures[file]; ok {
		return g.prefix + pathAssets + a.Name
	}
	if to := addresses[file]; to != "" {
		return g.prefix + to
	}
	return ""
}

// view is what the templates are given.
type view struct {
	g *Guide

	Title, About string
	Path         string // of the page, below the base URL
	Document     drawn
	Readers      []reader
	Titles       map[string]string // of the documents, by their files
	Operations   []apidoc.Entry    // of the start page
	Problems     []apidoc.Entry
}

// To returns the address of a path of this service.
func (v view) To(path string) string { return v.g.prefix + path }

// Of returns the address of a document.
func (v view) Of(d document) string { return v.g.prefix + d.path() }

// Current reports whether the page is that of a document.
func (v view) Current(d document) bool { return v.Path == d.path() }

// Style is the style sheet's address.
func (v view) Style() string { return v.g.prefix + pathAssets + v.g.style.Name }

// Script is the script's address.
func (v view) Script() string { return v.g.prefix + pathAssets + v.g.script.Name }

// Index is the address of what the search looks through.
func (v view) Index() string { return v.g.prefix + pathSearch }

// Base is {base_url}.
func (v view) Base() string { return v.g.base }

// Contents are the sections that the page's contents list.
func (v view) Contents() []section {
	var listed []section
	for _, s := range v.Document.Sections {
		if s.Level == 2 || s.Level == 3 {
			listed = append(listed, s)
		}
	}
	return listed
}

// draw makes all pages.
func (g *Guide) draw() (pages, error) {
	operations, problems, err := apidoc.Contents()
	if err != nil {
		return pages{}, err
	}
	documents := map[string]drawn{}
	titles := map[string]string{}
	for _, r := range readers {
		for _, d := range r.Documents {
			text, err := docs.Files.ReadFile(d.File)
			if err != nil {
				return pages{}, fmt.Errorf("read a document: %w", err)
			}
			made, err := markdown(d.File, d.named(string(text), g.base), g.address)
			if err != nil {
				return pages{}, err
			}
			documents[d.File], titles[d.File] = made, made.Title
		}
	}
	frame, err := template.ParseFS(webFiles, "web/frame.html", "web/start.html")
	if err != nil {
		return pages{}, fmt.Errorf("read the templates of the documentation: %w", err)
	}
	all := pages{map[string]http.Handler{}, map[string]map[string]bool{}}
	start := view{g: g, Title: "Documentation", About: "How to integrate, operate and change verifyd.",
		Path: PathStart, Readers: readers, Titles: titles, Operations: operations, Problems: problems}
	if err := all.add(frame, "start.html", start); err != nil {
		return pages{}, err
	}
	for _, r := range readers {
		for _, d := range r.Documents {
			v := view{g: g, Title: titles[d.File], About: d.About, Path: d.path(),
				Document: documents[d.File], Readers: readers, Titles: titles}
			if err := all.add(frame, "frame.html", v); err != nil {
				return pages{}, err
			}
		}
	}
	all.anchors[PathAPI] = map[string]bool{"problems": true}
	for _, e := range append(operations, problems...) {
		all.anchors[PathAPI][e.ID], all.anchors[PathStart][e.ID] = true, true
	}
	index, err := json.Marshal(g.index(documents, operations, problems))
	if err != nil {
		return pages{}, fmt.Errorf("make the index of the documentation: %w", err)
	}
	all.handlers[pathSearch] = page.Fixed("application/json", "no-cache", index)
	return all, nil
}

// add draws one page.
func (p pages) add(t *template.Template, name string, v view) error {
	var b bytes.Buffer
	if err := t.ExecuteTemplate(&b, name, v); err != nil {
		return fmt.Errorf("draw the page %s: %w", v.Path, err)
	}
	p.handlers[v.Path] = page.Fixed("text/html; charset=utf-8", "no-cache", b.Bytes(),
		"script-src 'self'", "connect-src 'self'")
	p.anchors[v.Path] = map[string]bool{}
	for _, s := range v.Document.Sections {
		p.anchors[v.Path][s.ID] = true
	}
	return nil
}
