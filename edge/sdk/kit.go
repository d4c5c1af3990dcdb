package sdk

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"regexp"
	"strings"

	"verifyd/edge/page"
	"verifyd/edge/web"
)

var (
	//go:embed javascript/package.json javascript/README.md javascript/index.js javascript/index.d.ts
	//go:embed python/README.md python/verifyd/__init__.py python/verifyd/py.typed
	//go:embed php/verifyd.php ruby/verifyd.rb
	sources embed.FS

	//go:embed web
	webFiles embed.FS
)

// pathPage is the page of the kits; what they are installed from is below it.
const pathPage = "/sdk/"

// Kits are the kits of one service, packed and ready to be served.
type Kits struct {
	page      []byte
	style     page.Asset
	artifacts []artifact
	module    []web.Route // of Go
}

// artifact is what one language's tool installs.
type artifact struct {
	Language string
	Install  string // the line that installs it
	Name     string // of the file; empty for Go, whose command fetches more than one
	Media    string
	data     []byte
}

var numbered = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+$`)

// New packs the kits of a version, such as 0.9.0, for a service with a base URL, and the path prefix in it.
func New(version, base, prefix string) (*Kits, error) {
	if !numbered.MatchString(version) {
		return nil, fmt.Errorf("pack the SDKs: %q is not a version such as 1.2.3", version)
	}
	style, err := page.LoadStyle(webFiles, "web/sdk.css")
	if err != nil {
		return nil, err
	}
	k := &Kits{style: style}
	if err := k.pack(version, base); err != nil {
		return nil, err
	}
	t, err := template.ParseFS(webFiles, "web/sdk.html")
	if err != nil {
		return nil, fmt.Errorf("read the template of the SDKs' page: %w", err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, map[string]any{
		"Version": version, "Base": base, "Prefix": prefix, "Kits": k.artifacts,
		"Style": prefix + k.stylePath(),
	}); err != nil {
		return nil, fmt.Errorf("draw the SDKs' page: %w", err)
	}
	k.page = b.Bytes()
	return k, nil
}

func (k *Kits) pack(version, base string) error {
	read := func(folder string, names ...string) (files []file, err error) {
		for _, name := range names {
			data, err := sources.ReadFile(folder + "/" + name)
			if err != nil {
				return nil, fmt.Errorf("read the SDKs: %w", err)
			}
			files = append(files, file{name, bytes.ReplaceAll(data, []byte("@VERSION@"), []byte(version))})
		}
		return files, nil
	}
	script, err := read("javascript", "package.json", "README.md", "index.js", "index.d.ts")
	if err != nil {
		return err
	}
	tgz, err := npmPackage(script)
	if err != nil {
		return err
	}
	python, err := read("python", "verifyd/__init__.py", "verifyd/py.typed")
	if err != nil {
		return err
	}
	readme, err := read("python", "README.md")
	if err != nil {
		return err
	}
	const summary = "Start identity verifications with verifyd, read them, and receive their results"
	whl, err := wheel(version, summary, python, readme[0].data)
	if err != nil {
		return err
	}
	php, err := read("php", "verifyd.php")
	if err != nil {
		return err
	}
	ruby, err := read("ruby", "verifyd.rb")
	if err != nil {
		return err
	}
	if err := k.packModule(version, base); err != nil {
		return err
	}
	tgzName, whlName := "verifyd-"+version+".tgz", "verifyd-"+version+"-py3-none-any.whl"
	const text = "text/plain; charset=utf-8"
	k.artifacts = append(k.artifacts, []artifact{
		{"JavaScript, TypeScript", "npm install " + base + pathPage + tgzName, tgzName, "application/gzip",
			tgz},
		{"Python", "pip install " + base + pathPage + whlName, whlName, "application/zip", whl},
		{"PHP", "curl -O " + base + pathPage + "verifyd.php", "verifyd.php", text, php[0].data},
		{"Ruby", "curl -O " + base + pathPage + "verifyd.rb", "verifyd.rb", text, ruby[0].data},
	}...)
	return nil
}

// packModule packs package client, where the go command would find it.
func (k *Kits) packModule(version, base string) error {
	if modulePath(base) == "" {
		return nil
	}
	m, err := newModule(version, base)
	if err != nil {
		return err
	}
	host, _, _ := strings.Cut(m.path, "/")
	k.artifacts = []artifact{{Language: "Go",
		Install: "GOPRIVATE=" + host + " go get " + m.path + "@" + m.version}}
	k.module, err = m.routes()
	return err
}

func (k *Kits) stylePath() string { return "/assets/" + k.style.Name }

// Routes are what the service's router mounts.
func (k *Kits) Routes() []web.Route {
	drawn := page.Fixed("text/html; charset=utf-8", "no-cache", k.page)
	routes := []web.Route{
		{Method: http.MethodGet, Path: pathPage, Name: "sdk", Handler: drawn},
		{Method: http.MethodGet, Path: strings.TrimSuffix(pathPage, "/"), Name: "sdk", Handler: drawn},
		{Method: http.MethodGet, Path: k.stylePath(), Name: "sdk_asset", Handler: k.style},
	}
	for _, a := range k.artifacts {
		if a.Name == "" {
			continue
		}
		routes = append(routes, web.Route{Method: http.MethodGet, Path: pathPage + a.Name, Name: "sdk_file",
			Handler: page.Fixed(a.Media, "no-cache", a.data)})
	}
	return append(routes, k.module...)
}
