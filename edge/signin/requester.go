package signin

import (
	"strings"
	"unicode"

	"verifyd/edge/account/branding"
	looks "verifyd/edge/branding"
)

// Accounts reports how end users know an integrator's account.
type Accounts interface {
	Requester(account string) (a Requester, ok bool)
}

// Requester is an integrator as end users see it.
type Requester struct {
	ID   string // of its account
	Name string // empty if it has none
	// where "Back to …" leads after the end; empty: nowhere. It comes from the account, never from a request
	ReturnURL string
	Verified  bool   // an operator vouches for the name
	Colour    string // of its sign, #rrggbb; empty: it has no sign
	// Branding is the rest of its appearance; its logo replaces the sign
	Branding branding.Branding
	MaxUsers int  // how many platform users one identity may verify for it; 0: any number
	Closed   bool // its account is disabled or deleted: nobody signs in for it
}

// sign is an integrator's mark: the first letter of its name on its colour.
type sign struct {
	Letter      string
	Ground, Ink string // #rrggbb
}

// newSign returns the mark of an integrator; the zero value where it has no colour, or its name no letter.
func newSign(a Requester) sign {
	if !branding.IsColour(a.Colour) {
		return sign{}
	}
	first := strings.IndexFunc(a.Name, func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsNumber(r)
	})
	if first < 0 {
		return sign{}
	}
	letter := []rune(a.Name[first:])[0]
	ground := strings.ToLower(a.Colour)
	return sign{Letter: string(unicode.ToUpper(letter)), Ground: ground, Ink: branding.Ink(ground)}
}

// addBranding shows an account's looks on a page that is about one of its sessions.
func (v *view) addBranding(a Requester) {
	v.Sign, v.Verified = newSign(a), a.Verified
	if path := looks.Sheet(a.Branding); path != "" {
		v.Colours = v.Prefix + path
	}
	if path := looks.Picture(a.ID, a.Branding); path != "" {
		v.Logo = picture{v.Prefix + path, a.Branding.Logo.Width, a.Branding.Logo.Height}
	}
}

// picture is a logo on the page, as large as it is there: its pixels are twice as dense.
type picture struct {
	Address       string
	width, height int
}

// Width is in CSS pixels, as is Height.
func (p picture) Width() int { return max(p.width/2, 1) }

// Height is that of the picture on the page.
func (p picture) Height() int { return max(p.height/2, 1) }
