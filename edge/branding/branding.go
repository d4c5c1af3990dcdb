// Package branding serves an account's branding of the sign-in page: a style sheet of its colours, and its
// logo. Both have addresses that change with their content, so that browsers may cache them permanently. Both
// come from this service's own origin: the pages' content security policy is the same for all accounts.
//
// The law: everything that is served is generated here. A style sheet is written from the colours in its
// address, and a logo is a PNG that package logo has encoded.
package branding

import (
	"net/http"
	"regexp"
	"strings"

	"verifyd/edge/account/branding"
	"verifyd/edge/page"
	"verifyd/edge/web"
)

// The paths of this package, below the base URL.
const (
	// pathColours: the accents and the button's colour, each six digits or none. If the text of the sheet
	// changes, the first letter must change.
	pathColours = "/branding/colours/{colours}"
	pathLogo    = "/branding/logo/{account}/{digest}"
)

// Lookup returns the branding of an account; false if there is none.
type Lookup func(account string) (branding.Branding, bool)

// Sheet returns the path of the style sheet of an account's colours; empty if it has none.
func Sheet(b branding.Branding) string {
	if b.Accent+b.AccentDark+b.Button == "" {
		return ""
	}
	name := strings.ReplaceAll("a"+b.Accent+"-"+b.AccentDark+"-"+b.Button, "#", "") + ".css"
	return strings.Replace(pathColours, "{colours}", name, 1)
}

// Picture returns the path of an account's logo; empty if it has none.
func Picture(account string, b branding.Branding) string {
	if b.Logo == nil {
		return ""
	}
	return strings.NewReplacer("{account}", account, "{digest}", b.Logo.Digest+".png").Replace(pathLogo)
}

// Routes returns the route table.
func Routes(of Lookup) []web.Route {
	return []web.Route{
		{Method: http.MethodGet, Path: pathColours, Name: "branding_colours", Handler: page.Guard(
			colours)},
		{Method: http.MethodGet, Path: pathLogo, Name: "branding_logo", Handler: page.Guard(
			func(w http.ResponseWriter, r *http.Request) { logo(w, r, of) })},
	}
}

const forGood = "public, max-age=31536000, immutable"

var coloursForm = regexp.MustCompile(`^a([0-9a-f]{6})?-([0-9a-f]{6})?-([0-9a-f]{6})?\.css$`)

// colours answers GET /branding/colours/{colours}.
func colours(w http.ResponseWriter, r *http.Request) {
	found := coloursForm.FindStringSubmatch(r.PathValue("colours"))
	if found == nil {
		http.NotFound(w, r)
		return
	}
	page.Fixed("text/css; charset=utf-8", forGood, []byte(sheet(found[1], found[2], found[3]))).ServeHTTP(w,
		r)
}

// sheet writes the style sheet, which is loaded after the pages' own. The colours are six digits or empty.
func sheet(accent, dark, button string) string {
	var b strings.Builder
	for _, s := range []struct{ scheme, colour string }{{"light", accent}, {"dark", dark}} {
		if s.colour != "" {
			b.WriteString("@media(prefers-color-scheme:" + s.scheme + "){:root{--action:#" + s.colour + "}}")
		}
	}
	if button != "" {
		b.WriteString(".main{background:#" + button + ";color:" + branding.Ink("#"+button) + "}")
	}
	return b.String()
}

// logo answers GET /branding/logo/{account}/{digest}. A logo that the account no longer has is not found.
func logo(w http.ResponseWriter, r *http.Request, of Lookup) {
	b, ok := of(r.PathValue("account"))
	if !ok || b.Logo == nil || r.PathValue("digest") != b.Logo.Digest+".png" {
		http.NotFound(w, r)
		return
	}
	page.Fixed("image/png", forGood, b.Logo.PNG).ServeHTTP(w, r)
}
