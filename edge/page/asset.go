package page

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // of the style sheets and the icon
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// hashLen is how much of an asset's SHA-256 is in its name: 48 bits distinguish its versions.
const hashLen = 12

// Asset is one embedded file under a name that changes with its content, so that it may be kept forever.
type Asset struct {
	Name  string // page-0123456789ab.css
	media string
	data  func() []byte
}

var (
	//go:embed base.css
	base []byte

	//go:embed parts.css
	parts []byte
)

// LoadStyle reads a page's own style sheet. It begins with what all pages share: a sheet of their own would
// be one more round trip.
func LoadStyle(files fs.FS, file string) (Asset, error) {
	return loadStyle(files, file, slices.Concat(base, parts))
}

// LoadSmallStyle is LoadStyle for a page whose size matters: it has no styles for code, fields and tables.
func LoadSmallStyle(files fs.FS, file string) (Asset, error) { return loadStyle(files, file, base) }

func loadStyle(files fs.FS, file string, shared []byte) (Asset, error) {
	own, err := fs.ReadFile(files, file)
	if err != nil {
		return Asset{}, fmt.Errorf("read style sheet: %w", err)
	}
	return newAsset(file, "text/css; charset=utf-8", slim(slices.Concat(shared, own))), nil
}

// LoadAsset makes an asset from a file of the given media type. The file is read again for each answer: it is
// kept in the program, and nowhere else.
func LoadAsset(files fs.FS, file, media string) (Asset, error) {
	data, err := fs.ReadFile(files, file)
	if err != nil {
		return Asset{}, fmt.Errorf("read asset: %w", err)
	}
	a := newAsset(file, media, data)
	a.data = func() []byte {
		data, _ := fs.ReadFile(files, file) // it could be read before
		return data
	}
	return a, nil
}

//go:embed icon.svg
var icon []byte

// NamedIcon is the service's icon as an asset of a package's own, under a name such as icon.svg.
func NamedIcon(file string) Asset { return newAsset(file, iconMedia, icon) }

const iconMedia = "image/svg+xml"

// Icon serves the icon that browsers request by themselves, for instance for an answer that is no page: for a
// day, since its name does not change with it.
func Icon() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		newAsset("icon.svg", iconMedia, icon).serve(w, "public, max-age=86400")
	})
}

func newAsset(file, media string, data []byte) Asset {
	sum := sha256.Sum256(data)
	ext := path.Ext(file)
	name := strings.TrimSuffix(path.Base(file), ext) + "-" + hex.EncodeToString(sum[:])[:hashLen] + ext
	return Asset{name, media, func() []byte { return data }}
}

var cssComment = regexp.MustCompile(`(?s)/\*.*?\*/`)

// cssZero is a number below one; its zero need not be written.
var cssZero = regexp.MustCompile(`([ :(,-])0\.`)

// cssSpaces are the spaces that a style sheet written like ours does not need.
var cssSpaces = strings.NewReplacer(": ", ":", " {", "{", ", ", ",")

// slim removes comments, indents, line ends, needless spaces, last semicolons and leading zeros from a style
// sheet whose lines all end with a brace, a comma or a semicolon, as ours do; a line that does not keeps its
// end.
func slim(css []byte) []byte {
	var b bytes.Buffer
	for line := range bytes.Lines(cssComment.ReplaceAll(css, nil)) {
		line = bytes.TrimSpace(line)
		_, _ = cssSpaces.WriteString(&b, string(line)) // a buffer takes all
		if len(line) > 0 && !bytes.ContainsAny(line[len(line)-1:], "{},;") {
			b.WriteByte('\n')
		}
	}
	return cssZero.ReplaceAll(bytes.ReplaceAll(b.Bytes(), []byte(";}"), []byte("}")), []byte("$1."))
}

// ServeHTTP answers GET and HEAD.
func (a Asset) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	a.serve(w, "public, max-age=31536000, immutable")
}

func (a Asset) serve(w http.ResponseWriter, cache string) {
	data := a.data()
	head := w.Header()
	head.Set("Cache-Control", cache)
	head.Set("Content-Length", strconv.Itoa(len(data)))
	head.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	head.Set("Content-Type", a.media)
	head.Set("Cross-Origin-Resource-Policy", "same-origin")
	head.Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(data) // the client is gone
}
