package flow

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"verifyd/edge/limit"
	"verifyd/edge/web"
	"verifyd/sessions"
)

// Codes keeps a code from whoever is handed it: one that a network sent to a browser without the flow for it
// is spent, and no flow redeems it afterwards. Such a browser may be a victim's, whom an attacker has sent to
// the network's page with an address of their own; it then shows an address that signs the attacker in as
// the victim. The state says nothing about that: the attacker may have altered it.
//
// What remains is what no server sees: a code in a URL's fragment or in a form, if the network sends it there
// at the wish of whoever made the address.
type Codes struct {
	Store    Spender
	Attempts *limit.Attempts
	Trip     limit.Trip
	Within   time.Duration // for the store
	Now      func() time.Time
	Log      zerolog.Logger
}

// Spender remembers what is spent; a *store.Store.
type Spender interface {
	RedeemUntil(ctx context.Context, attempt string, until time.Time) error
	Redeemed(ctx context.Context, attempt string) (bool, error)
}

// codeLife is how long a code is remembered: as long as the longest flow that could redeem it.
const codeLife = 30 * time.Minute

// Spend spends what a return hands over that came to a browser without the flow for it. That is a write to
// the store, which an address may cause so often. ok is false if the code may still be good: then its address
// must not stay where the browser shows it. A picture or a frame of another page shows none.
func (c Codes) Spend(r *http.Request, q url.Values) (ok bool) {
	codes := handedOver(q)
	if to := r.Header.Get("Sec-Fetch-Dest"); len(codes) == 0 || to != "" && to != "document" {
		return true
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), c.Within)
	defer cancel()
	for _, code := range codes {
		if !c.Attempts.Stray(c.Trip, web.EventFrom(ctx).ClientIP, c.Now()) {
			return false
		}
		// a network may read a code alike with a character more at its end
		for _, name := range slices.Compact([]string{nameOf(cut(code)), nameOf(code)}) {
			err := c.Store.RedeemUntil(ctx, name, c.Now().Add(codeLife))
			if err != nil && !errors.Is(err, sessions.ErrRedeemed) {
				c.Log.Warn().Err(err).
					Msg("a code that came to a browser that did not begin could not be spent")
				return false
			}
		}
	}
	return true
}

// Spent reports whether Spend has spent what a return hands over, anywhere. Its errors are natsconf's.
func (c Codes) Spent(ctx context.Context, q url.Values) (bool, error) {
	for _, code := range handedOver(q) {
		if spent, err := c.Store.Redeemed(ctx, nameOf(cut(code))); spent || err != nil {
			return spent, err
		}
	}
	return false, nil
}

// nonce is the parameter of an OpenID 2.0 assertion that differs for each, and that is signed.
const nonce = "openid.response_nonce"

// handedOver returns what a return hands over, in one spelling: its code (RFC 6749 §4.1.2), or an OpenID 2.0
// assertion. Returns have one; all that there are count.
func handedOver(q url.Values) (codes []string) {
	for _, values := range [][]string{q["code"], q[nonce]} {
		for _, v := range values {
			if s := spelling(v); s != "" {
				codes = append(codes, s)
			}
		}
	}
	return codes
}

// nameOf names something spent: its name differs from that of every attempt.
func nameOf(spelled string) string { return "c" + Hash(spelled) }

// longCode is the length from which a code differs from others without its end.
const longCode = 16

// spelling is what all spellings of a code have in common that a network may read as the same code: decoders
// ignore strange characters and what follows the padding, and databases ignore case.
func spelling(code string) string {
	if i := strings.IndexByte(code, '='); i > longCode {
		code = code[:i]
	}
	return strings.Map(func(c rune) rune {
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
			return c
		case 'A' <= c && c <= 'Z':
			return c + 'a' - 'A'
		default:
			return -1
		}
	}, code)
}

// cut leaves out the last character of a long code: decoders ignore those of its bits that no byte needs, and
// the whole of one that is too many.
func cut(spelled string) string {
	if len(spelled) > longCode {
		return spelled[:len(spelled)-1]
	}
	return spelled
}
