// Package branding is what an account's users see of it in addition to its name: colours that can be read on
// the pages, and a logo. It is pure.
//
// The law: text has a contrast of at least MinContrast on every background (WCAG 2.2, 1.4.3). An accent is
// the colour of links on the light page or on the dark one, and no colour is right for both, so each has its
// own. The text of a button has whichever of two inks can be read better.
package branding

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// MinContrast is the contrast that text needs (WCAG 2.2, 1.4.3).
const MinContrast = 4.5

// Branding is how an account looks to its users. An empty field is as on the page of an account without
// branding.
type Branding struct {
	Accent     string `json:"accent,omitempty"`      // of links and outlines on the light page, #rrggbb
	AccentDark string `json:"accent_dark,omitempty"` // the same on the dark page
	Button     string `json:"button,omitempty"`      // of the main button, on both; empty: the accent's
	Logo       *Logo  `json:"-"`                     // nil: none
}

// Logo is a picture as it is stored and served: a PNG that this service has encoded. It is not changed.
type Logo struct {
	PNG           []byte
	Digest        string // SHA-256 of PNG, hexadecimal
	Width, Height int    // in pixels
}

// NewLogo returns a logo from the PNG that this service has encoded.
func NewLogo(png []byte, width, height int) *Logo {
	sum := sha256.Sum256(png)
	return &Logo{PNG: png, Digest: hex.EncodeToString(sum[:]), Width: width, Height: height}
}

// The colours that can be set, by the names of their fields.
const (
	Accent     = "accent"
	AccentDark = "accent_dark"
	Button     = "button"
)

// inks are the two colours of text on a colour of an account's own, the dark and the light one of the pages.
var inks = [...]string{"#14181f", "#ffffff"}

// grounds are the backgrounds of links: that of the page and that of its card (edge/page/base.css).
var grounds = map[string][]string{
	Accent:     {"#f6f7f9", "#ffffff"},
	AccentDark: {"#0e1116", "#171b22"},
}

var form = regexp.MustCompile(`^#[0-9a-fA-F]{6}$`)

// Colour checks a colour for a use, #rrggbb or empty, and returns it in lower case. The error names the
// fault, the measured contrast, and a colour that would do.
func Colour(use, colour string) (string, error) {
	if colour == "" {
		return "", nil
	}
	if !form.MatchString(colour) {
		return "", fmt.Errorf("%.40q is not a colour; write red, green and blue in hexadecimal, for example "+
			"#1f5fd0", colour)
	}
	colour = strings.ToLower(colour)
	worst, other := legible(use, colour)
	if worst >= MinContrast {
		return colour, nil
	}
	what := map[string]string{
		Accent:     "links in " + colour + " on the light page, which is " + other,
		AccentDark: "links in " + colour + " on the dark page, which is " + other,
		Button:     other + " text on a button in " + colour,
	}[use]
	return "", fmt.Errorf("%s: the contrast is %.2f:1, but text needs %.1f:1; %s would do", what,
		math.Floor(worst*100)/100, MinContrast, nearest(use, colour))
}

// legible returns the least contrast that a colour has in a use, and the other colour there.
func legible(use, colour string) (worst float64, other string) {
	if use == Button {
		ink := Ink(colour)
		return Contrast(colour, ink), ink
	}
	worst = math.Inf(1)
	for _, ground := range grounds[use] {
		if c := Contrast(colour, ground); c < worst {
			worst, other = c, ground
		}
	}
	return worst, other
}

// nearest returns the colour nearest to one that can be read: towards black or white in small steps.
func nearest(use, colour string) string {
	const steps = 64
	from := parse(colour)
	for step := 1; step <= steps; step++ {
		for _, end := range []float64{0, 1} {
			part := float64(step) / steps
			var mixed rgb
			for i, v := range from {
				mixed[i] = v + (end-v)*part
			}
			if worst, _ := legible(use, mixed.String()); worst >= MinContrast {
				return mixed.String()
			}
		}
	}
	return "" // one of the ends can be read on any ground
}

// Ink returns the colour of text that can be read best on a colour, #rrggbb.
func Ink(ground string) (best string) {
	for _, ink := range inks {
		if best == "" || Contrast(ground, ink) > Contrast(ground, best) {
			best = ink
		}
	}
	return best
}

// Contrast is WCAG's contrast ratio of two colours, 1 to 21; a text that is not #rrggbb counts as black.
func Contrast(a, b string) float64 {
	x, y := parse(a).luminance(), parse(b).luminance()
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

// IsColour reports whether a text is a colour, #rrggbb.
func IsColour(s string) bool { return form.MatchString(s) }

// rgb is red, green and blue, 0 to 1.
type rgb [3]float64

// parse reads #rrggbb; a text of another form is black.
func parse(s string) (c rgb) {
	if !form.MatchString(s) {
		return c
	}
	for i := range c {
		v, _ := strconv.ParseUint(s[1+2*i:3+2*i], 16, 8) // the form was checked
		c[i] = float64(v) / math.MaxUint8
	}
	return c
}

func (c rgb) String() string {
	return fmt.Sprintf("#%02x%02x%02x", c.byte(0), c.byte(1), c.byte(2))
}

func (c rgb) byte(i int) int { return int(math.Round(c[i] * math.MaxUint8)) }

// luminance is WCAG's relative luminance.
func (c rgb) luminance() float64 {
	weights, sum := rgb{0.2126, 0.7152, 0.0722}, 0.0
	for i, v := range c {
		if v <= 0.04045 {
			v /= 12.92
		} else {
			v = math.Pow((v+0.055)/1.055, 2.4)
		}
		sum += weights[i] * v
	}
	return sum
}
