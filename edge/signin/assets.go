package signin

import (
	"embed"

	"verifyd/edge/page"
)

//go:embed web
var webFiles embed.FS

// assets are the files that pages refer to.
type assets struct{ css, icon page.Asset }

func (a assets) all() []page.Asset { return []page.Asset{a.css, a.icon} }

func loadAssets() (assets, error) {
	css, err := page.LoadStyle(webFiles, "web/page.css")
	if err != nil {
		return assets{}, err
	}
	return assets{css, page.NamedIcon("icon.svg")}, nil
}
