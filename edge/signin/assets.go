package signin

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"net/http"
	"path"
	"strconv"
	"strings"
)

//go:embed web
var webFiles embed.FS

// hashLen is how much of an asset's SHA-256 is in its name: 48 bits tell its versions apart.
const hashLen = 12

// asset is one embedded file under a name that changes with its content, so that it may be kept for ever.
type asset struct {
	name  string // page-0123456789ab.css
	media string
	data  []byte
}

// assets are the files that pages refer to.
type assets struct{ css, icon asset }

func (a assets) all() []asset { return []asset{a.css, a.icon} }

func loadAssets() (assets, error) {
	css, err := loadAsset("page.css", "text/css; charset=utf-8")
	if err != nil {
		return assets{}, err
	}
	icon, err := loadAsset("icon.svg", "image/svg+xml")
	if err != nil {
		return assets{}, err
	}
	return assets{css, icon}, nil
}

func loadAsset(file, media string) (asset, error) {
	data, err := webFiles.ReadFile("web/" + file)
	if err != nil {
		return asset{}, fmt.Errorf("read asset: %w", err)
	}
	sum := sha256.Sum256(data)
	ext := path.Ext(file)
	name := strings.TrimSuffix(file, ext) + "-" + hex.EncodeToString(sum[:])[:hashLen] + ext
	return asset{name, media, data}, nil
}

// ServeHTTP answers GET and HEAD.
func (a asset) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	head := w.Header()
	head.Set("Cache-Control", "public, max-age=31536000, immutable")
	head.Set("Content-Length", strconv.Itoa(len(a.data)))
	head.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	head.Set("Content-Type", a.media)
	head.Set("Cross-Origin-Resource-Policy", "same-origin")
	head.Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(a.data) // nobody is left to be told
}
