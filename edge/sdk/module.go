package sdk

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"verifyd/edge"
	"verifyd/edge/page"
	"verifyd/edge/web"
)

// Below these paths the go command finds the module (https://go.dev/ref/mod#goproxy-protocol).
const (
	pathModule = "/sdk/go"
	pathProxy  = "/sdk/mod"
)

// goModule is package client as a module of its own, whose path begins with the service's host.
type goModule struct {
	path, version string // v1.2.3
	files         map[string][]byte
	info          []byte // of the version
	found         []byte // the page by which the go command finds the proxy
}

// modulePath is the path of the service's module; empty if the go command would not look for one: it asks
// over https, at a host without a port and with a dot in its name.
func modulePath(base string) string {
	at, err := url.Parse(base)
	if err != nil || at.Scheme != "https" || at.Port() != "" || !strings.Contains(at.Host, ".") ||
		!moduleHost.MatchString(at.Host) {
		return ""
	}
	return at.Host + at.Path + pathModule
}

var moduleHost = regexp.MustCompile(`^[a-z0-9.-]+$`)

// webhooksModule is what package client needs besides the standard library, at the version of this project.
const webhooksModule = "github.com/standard-webhooks/standard-webhooks/libraries v0.0.1"

// newModule reads the module.
func newModule(version, base string) (*goModule, error) {
	m := &goModule{path: modulePath(base), version: "v" + version, files: map[string][]byte{}}
	m.files["go.mod"] = fmt.Appendf(nil, "module %s\n\ngo 1.26\n\nrequire %s\n", m.path, webhooksModule)
	err := fs.WalkDir(edge.Client, "client", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(edge.Client, name)
		// what client imports of this project is in its module, too
		data = bytes.ReplaceAll(data, []byte(`"verifyd/edge/client/`), []byte(`"`+m.path+`/`))
		m.files[strings.TrimPrefix(name, "client/")] = data
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read package client: %w", err)
	}
	if m.info, err = json.Marshal(map[string]any{"Version": m.version, "Time": zipEpoch}); err != nil {
		return nil, fmt.Errorf("describe the Go module: %w", err)
	}
	m.found = fmt.Appendf(nil, "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"+
		"<title>%s</title>\n"+
		"<meta name=\"go-import\" content=\"%s mod %s\">\n<p>go get %s@%s\n", m.path, m.path, base+pathProxy,
		m.path, m.version)
	return m, nil
}

// zipped is the module as the go command fetches it (https://go.dev/ref/mod#zip-files).
func (m *goModule) zipped() ([]byte, error) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(m.files)) {
		w, err := z.CreateHeader(&zip.FileHeader{
			Name: m.path + "@" + m.version + "/" + name, Method: zip.Deflate, Modified: zipEpoch,
		})
		if err != nil {
			return nil, fmt.Errorf("pack %s: %w", name, err)
		}
		if _, err := w.Write(m.files[name]); err != nil {
			return nil, fmt.Errorf("pack %s: %w", name, err)
		}
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("pack the Go module: %w", err)
	}
	return b.Bytes(), nil
}

// routes are the module's part of the service's routes.
func (m *goModule) routes() ([]web.Route, error) {
	archive, err := m.zipped()
	if err != nil {
		return nil, err
	}
	const text, data = "text/plain; charset=utf-8", "application/json"
	below := pathProxy + "/" + m.path + "/@v/"
	routes := []web.Route{{Method: http.MethodGet, Path: pathModule, Name: "sdk_go",
		Handler: page.Fixed("text/html; charset=utf-8", "no-cache", m.found)}}
	for _, f := range []struct {
		path, media string
		data        []byte
	}{
		{below + "list", text, []byte(m.version + "\n")},
		{below + m.version + ".info", data, m.info},
		{below + m.version + ".mod", text, m.files["go.mod"]},
		{below + m.version + ".zip", "application/zip", archive},
		{pathProxy + "/" + m.path + "/@latest", data, m.info},
	} {
		routes = append(routes, web.Route{Method: http.MethodGet, Path: f.path, Name: "sdk_go",
			Handler: page.Fixed(f.media, "no-cache", f.data)})
	}
	return routes, nil
}
