package signin

import (
	"fmt"
	"html/template"
	"net/http"
	"strings"

	"github.com/boombuler/barcode/qr"
)

// inApp is what the page says in an app's own browser: some providers refuse to sign anybody in there, since
// the app could look over the user's shoulder (RFC 8252 §8.12). Signing in stays possible.
type inApp struct {
	App  string       // its name; empty where it does not say
	Open template.URL // leads to the system's browser; empty where the app has no such address
	Code code
}

// addInApp tells the user about the app's browser they are in, on the page of a pending session. to is the
// page's whole address.
func addInApp(v *view, r *http.Request, to string) {
	a, inside := appOf(r)
	if !inside || v.Kind != pageAsk.name {
		return
	}
	drawn, err := newCode(to)
	if err != nil {
		return // the address is too long for a code that a camera reads; the menu is left
	}
	v.InApp = &inApp{App: a.name, Code: drawn}
	v.values["app"] = a.name
	switch {
	case a.way == byLine:
		v.InApp.Open = template.URL(to + "&openExternalBrowser=1") //nolint:gosec // our own address
	case a.way == byIntent && android(r):
		scheme, rest, _ := strings.Cut(to, "://")
		v.InApp.Open = template.URL("intent://" + rest + "#Intent;scheme=" + scheme + //nolint:gosec // our own address

			";action=android.intent.action.VIEW;category=android.intent.category.BROWSABLE;end")
	}
}

// codeQuiet is the light edge that a QR code needs, in modules (ISO/IEC 18004 §6.3.8).
const codeQuiet = 4

// code is a QR code as the path of an SVG, one unit a module.
type code struct {
	Size int    // of the whole, with its edge
	Path string // of the dark modules
}

// newCode draws a text. Level M bears the scratches of a screen and keeps the modules large.
func newCode(text string) (code, error) {
	modules, err := qr.Encode(text, qr.M, qr.Auto)
	if err != nil {
		return code{}, fmt.Errorf("draw a code: %w", err)
	}
	n := modules.Bounds().Dx()
	var b strings.Builder
	for y := range n {
		for x := 0; x < n; {
			run := 0
			for x+run < n {
				if r, _, _, _ := modules.At(x+run, y).RGBA(); r != 0 {
					break
				}
				run++
			}
			if run > 0 {
				fmt.Fprintf(&b, "M%d %dh%dv1h-%dz", x+codeQuiet, y+codeQuiet, run, run)
			}
			x += max(run, 1)
		}
	}
	return code{n + 2*codeQuiet, b.String()}, nil
}
