package branding_test

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"

	"verifyd/edge/account/branding"
)

// WCAG's own examples, and the colours of the pages.
func TestContrast(t *testing.T) {
	t.Parallel()
	for pair, want := range map[[2]string]float64{
		{"#000000", "#ffffff"}: 21, {"#ffffff", "#ffffff"}: 1, {"#777777", "#ffffff"}: 4.48,
		{"#767676", "#ffffff"}: 4.54, {"#0000ff", "#ffffff"}: 8.59, {"#1f5fd0", "#f6f7f9"}: 5.43,
	} {
		for _, got := range []float64{branding.Contrast(pair[0], pair[1]), branding.Contrast(pair[1],
			pair[0])} {
			if math.Abs(got-want) > 0.01 {
				t.Errorf("%v: %.3f, want %.2f", pair, got, want)
			}
		}
	}
}

func TestColours(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ use, colour, want, says string }{
		{branding.Accent, "", "", ""},
		{branding.Accent, "#1F5FD0", "#1f5fd0", ""},
		{branding.AccentDark, "#7aa7ff", "#7aa7ff", ""},
		{branding.Button, "#ffd500", "#ffd500", ""}, // with dark text
		{branding.Button, "#000000", "#000000", ""},
		{branding.Accent, "#ffd500", "", "on the light page, which is #f6f7f9: the contrast is 1.3"},
		{branding.Accent, "#777777", "", "the contrast is 4.17:1, but text needs 4.5:1"},
		{branding.AccentDark, "#1f5fd0", "", "on the dark page, which is #171b22: the contrast is 2."},
		{branding.AccentDark, "#000000", "", "the contrast is 1."},
		{branding.Button, "#7b7b7b", "", "text on a button in #7b7b7b: the contrast is 4.2"},
		{branding.Button, "cornflower", "", "write red, green and blue in hexadecimal"},
		{branding.Button, "#12345", "", "for example #1f5fd0"},
		{branding.Button, "#1234567", "", "for example #1f5fd0"},
		{branding.Button, `#"><b>`, "", "for example #1f5fd0"},
	} {
		got, err := branding.Colour(c.use, c.colour)
		if got != c.want || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(),
			c.says) {
			t.Errorf("%s %s: %q, %v; want %q, %q", c.use, c.colour, got, err, c.want, c.says)
		}
	}
}

// The colour that an error suggests is accepted, and is as near as a step of 1/64.
func TestWhatWouldDoDoes(t *testing.T) {
	t.Parallel()
	would := regexp.MustCompile(`(#[0-9a-f]{6}) would do$`)
	refused := 0
	for _, use := range []string{branding.Accent, branding.AccentDark, branding.Button} {
		for r := 0; r < 256; r += 51 {
			for g := 0; g < 256; g += 17 {
				for b := 0; b < 256; b += 51 {
					colour := fmt.Sprintf("#%02x%02x%02x", r, g, b)
					_, err := branding.Colour(use, colour)
					if err == nil {
						continue
					}
					refused++
					said := would.FindStringSubmatch(err.Error())
					if said == nil {
						t.Fatalf("%s %s: %v", use, colour, err)
					}
					if _, err := branding.Colour(use, said[1]); err != nil {
						t.Errorf("%s %s: %s would do, but %v", use, colour, said[1], err)
					}
				}
			}
		}
	}
	if refused < 100 {
		t.Errorf("%d colours are refused", refused)
	}
}

// The backgrounds that accents are measured on are those of the pages, and text on a button without a colour
// of its own, which has the accent's, can be read too.
func TestGroundsAreThePages(t *testing.T) {
	t.Parallel()
	css, err := os.ReadFile("../../page/base.css")
	if err != nil {
		t.Fatal(err)
	}
	light, dark, ok := strings.Cut(string(css), "prefers-color-scheme: dark")
	if !ok {
		t.Fatal("there is no dark page")
	}
	for use, sheet := range map[string]string{branding.Accent: light, branding.AccentDark: dark} {
		value := func(name string) string {
			m := regexp.MustCompile(`--` + name + `: (#[0-9a-f]+);`).FindStringSubmatch(sheet)
			if m == nil {
				t.Fatalf("no --%s", name)
			}
			if len(m[1]) == 4 {
				return "#" + strings.Repeat(m[1][1:2], 2) + strings.Repeat(m[1][2:3],
					2) + strings.Repeat(m[1][3:], 2)
			}
			return m[1]
		}
		for _, ground := range []string{"ground", "card"} {
			_, err := branding.Colour(use, value(ground))
			if err == nil {
				t.Errorf("%s: links in the colour of --%s", use, ground)
			}
		}
		for grey := range 256 {
			colour := fmt.Sprintf("#%02x%02x%02x", grey, grey, grey)
			_, err := branding.Colour(use, colour)
			readable := min(branding.Contrast(colour, value("ground")), branding.Contrast(colour,
				value("card"))) >= 4.5
			if (err == nil) != readable {
				t.Errorf("%s %s: %v", use, colour, err)
			}
			if err == nil && branding.Contrast(colour, value("on-action")) < 4.5 {
				t.Errorf("%s %s: the button's own text cannot be read", use, colour)
			}
		}
	}
}
