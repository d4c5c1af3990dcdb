package site

import (
	"maps"
	"net/http"

	"verifyd/edge/dashboard/paths"
)

// flashCookie carries the code of what a POST did to the page that comes after it. Only texts of the table
// are shown.
const (
	flashCookie  = "verifyd_flash"
	flashSeconds = 60
)

// FlashCode names a Flash.
type FlashCode string

// The codes that several packages use.
const (
	FlashGone         FlashCode = "gone"
	FlashDeliveryOpen FlashCode = "delivery-open"
	flashLoginFirst   FlashCode = "login-first"
)

// Flash is a message at the top of a page, shown once.
type Flash struct{ Tone, Text string }

var sharedFlashes = map[FlashCode]Flash{
	flashLoginFirst:   {"caution", "You were logged out, so nothing was done. Log in, then do it again."},
	FlashDeliveryOpen: {"caution", "The callback is already waiting or being sent, so nothing was added."},
	FlashGone:         {"caution", "That is already gone."},
}

// allFlashes joins the messages of all parts.
func allFlashes(parts []Part) map[FlashCode]Flash {
	all := maps.Clone(sharedFlashes)
	for _, p := range parts {
		maps.Copy(all, p.Flashes)
	}
	return all
}

func (s *Site) setFlash(w http.ResponseWriter, value string, maxAge int) {
	http.SetCookie(w, s.Cookies.New(flashCookie, value, paths.Root, maxAge))
}

// TakeFlash returns the message for this page, and forgets it. A page with live updates is fetched in the
// background (Fetch Metadata §2.1): the message is for the page that the browser navigates to.
func (s *Site) TakeFlash(w http.ResponseWriter, r *http.Request) *Flash {
	c, err := r.Cookie(s.Cookies.Name(flashCookie))
	if err != nil || r.Header.Get("Sec-Fetch-Dest") == "empty" {
		return nil
	}
	s.setFlash(w, "", -1)
	f, ok := s.flashes[FlashCode(c.Value)]
	if !ok {
		return nil
	}
	return &f
}

// Done ends a change: it redirects to a page with a message about what was done.
func (s *Site) Done(w http.ResponseWriter, code FlashCode, to string) {
	s.setFlash(w, string(code), flashSeconds)
	w.Header().Set("Location", s.Prefix+to)
	w.WriteHeader(http.StatusSeeOther)
}
