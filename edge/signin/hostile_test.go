package signin_test

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"verifyd/edge/chromiumtest"
	"verifyd/sessions"
)

// tallest is the maximum height of a page on a phone of 390 pixels, a few screens, so that the buttons are
// not far below what an integrator wrote.
const tallest = 2000

// The pages with the longest texts of integrators, without a place to break them: nothing sticks out to the
// side or is cut off, and no page gets too tall.
func TestLongValuesStayInside(t *testing.T) {
	t.Parallel()
	tab := chromiumtest.Start(t)
	r := newRig(t, setup{})
	for kind, value := range map[string]string{
		"latin": strings.Repeat("Ww", 512), "rtl": strings.Repeat("ש", 512),
		"marks":  strings.Repeat("e\u0301\u0323\u0308", 146),
		"hidden": strings.Repeat("x\u200b", 256), "zero width": strings.Repeat("\u200b", 341),
		"selectors": strings.Repeat("\ufe0f", 341),
		"spaced":    strings.Repeat("\u200b ", 256),
	} {
		long := func(q *sessions.Request) {
			q.Account, q.Platform, q.PlatformUserID, q.GuildID, q.Test = "acc_long", value, value, value, true
		}
		_, open := r.session(long)
		ended, token := r.session(long)
		if _, err := r.store.Complete(t.Context(), ended, sessions.Outcome{
			State: sessions.Verified, Network: "example",
		}); err != nil {
			t.Fatal(err)
		}
		for name, at := range map[string]shownState{
			"ask": {address: r.page(open)}, "arabic": {address: r.page(open) + "&lang=ar"}, "verified": {
				address: r.page(token),
			},
		} {
			chromiumtest.Look(tab, t, "sign-in-hostile-"+kind+"-"+name, "", at.open(),
				chromiumtest.Widths("light")...)
			chromiumtest.Do(tab, t, chromedp.EmulateViewport(390, 800))
			if tall := chromiumtest.Run(tab, t,
				chromedp.Evaluate[int](`document.documentElement.scrollHeight`)); tall > tallest {
				t.Errorf("%s, %s: the page is %d pixels tall", kind, name, tall)
			}
		}
	}
}
