package signin

import (
	"math"
	"strconv"
	"strings"
	"unicode"
)

// Requester is an integrator as end users see it.
type Requester struct {
	Name string // empty where it has none
	// where "Back to …" leads after the end; empty: nowhere. It comes from the account, never from a request
	ReturnURL string
	Verified  bool   // an operator vouches for the name
	Colour    string // of its sign, #rrggbb; empty: it has no sign
	MaxUsers  int    // how many platform users one identity may verify for it; 0: any number
	Closed    bool   // its account is disabled or deleted: nobody signs in for it
}

// sign is an integrator's mark: the first letter of its name on its colour.
type sign struct {
	Letter      string
	Ground, Ink string // #rrggbb
}

// inks are the two colours of a letter, the dark and the light one of the pages.
var inks = [...]string{"#14181f", "#ffffff"}

// newSign returns the mark of an integrator, or nil where it has no colour, or its name no letter.
func newSign(a Requester) *sign {
	ground, ok := parseColour(a.Colour)
	if !ok {
		return nil
	}
	first := strings.IndexFunc(a.Name, func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsNumber(r)
	})
	if first < 0 {
		return nil
	}
	letter := []rune(a.Name[first:])[0]
	s := &sign{Letter: string(unicode.ToUpper(letter)), Ground: strings.ToLower(a.Colour)}
	best := 0.0
	for _, ink := range inks {
		rgb, _ := parseColour(ink)
		if c := contrast(ground, rgb); c > best {
			best, s.Ink = c, ink
		}
	}
	return s
}

type colour [3]float64 // red, green and blue, 0 to 1

func parseColour(s string) (c colour, ok bool) {
	digits, found := strings.CutPrefix(s, "#")
	if !found || len(digits) != 6 {
		return c, false
	}
	for i := range c {
		v, err := strconv.ParseUint(digits[2*i:2*i+2], 16, 8)
		if err != nil {
			return c, false
		}
		c[i] = float64(v) / math.MaxUint8
	}
	return c, true
}

// luminance is WCAG's relative luminance.
func (c colour) luminance() float64 {
	weights, sum := colour{0.2126, 0.7152, 0.0722}, 0.0
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

// contrast is WCAG's contrast ratio, 1 to 21. The better of the two inks never has less than 4.1, which large
// letters need 3 of.
func contrast(a, b colour) float64 {
	x, y := a.luminance(), b.luminance()
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}
