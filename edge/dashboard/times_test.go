package dashboard_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"verifyd/edge/chromiumtest"
	"verifyd/sessions/facts"
)

// Instants are in UTC in the HTML; a browser shows them in its time zone, with the zone, and UTC in a
// tooltip. A timeline's days are those of the zone.
func TestTimesOfTheBrowsersZone(t *testing.T) {
	t.Parallel()
	tab := chromiumtest.Start(t)
	r := newRig(t, setup{})
	at := time.Date(2026, 11, 24, 20, 4, 5, 0, time.UTC)
	r.clock.stands.Store(&at)
	a := r.account("Harbor Guild")
	s := r.session(a)
	path := "/dashboard/sessions/" + string(s.ID)
	b := r.browser()
	cookie := loginCookie(t, b.login("vera"))
	plain := b.Get("/dashboard/sessions")
	plain.Want(t, http.StatusOK, "24 Nov, 20:04:05 UTC")
	b.Get(path).Want(t, http.StatusOK, "24 November 2026, UTC", "20:04:05.000",
		"has until 20:14:05 UTC.", "expires 20:14:05 UTC")

	setCookies(tab, t, r, []*http.Cookie{cookie})
	chromiumtest.Do(tab, t, chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetTimezoneOverride,
			emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kolkata"})
		return err
	}))
	for page, want := range map[string][]string{
		"/dashboard/sessions": {"25 Nov, 01:34:05 GMT+5:30"},
		path: {"25 Nov 2026, GMT+5:30", "01:34:05.000", "has until 01:44:05 GMT+5:30.",
			"expires 01:44:05 GMT+5:30"},
	} {
		chromiumtest.Do(tab, t, chromedp.Navigate(r.base+page))
		text := chromiumtest.Run(tab, t,
			chromedp.Evaluate[string](`document.querySelector("main").innerText`))
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s lacks %q:\n%s", page, w, text)
			}
		}
		if strings.Contains(text, "UTC") {
			t.Errorf("%s still speaks of UTC:\n%s", page, text)
		}
		title := chromiumtest.Run(tab, t,
			chromedp.Evaluate[string](`document.querySelector("main time").title`))
		if title != "2026-11-24 20:04:05 UTC" {
			t.Errorf("%s: whoever points at it sees %q", page, title)
		}
	}
}

// The line of a timeline goes through the middle of its dots, from the first to the last.
func TestTimelinesLineMeetsItsDots(t *testing.T) {
	t.Parallel()
	tab := chromiumtest.Start(t)
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	s := r.undelivered(a, facts.VerdictRejected)[0]
	setCookies(tab, t, r, []*http.Cookie{loginCookie(t, r.browser().login("vera"))})
	for _, width := range []int64{320, 390, 768, 1280, 1920} {
		chromiumtest.Do(tab, t, chromedp.EmulateViewport(width, 800),
			chromedp.Navigate(r.base+"/dashboard/sessions/"+string(s.ID)))
		off := chromiumtest.Run(tab, t, chromedp.Evaluate[[]string](`
[...document.querySelectorAll(".timeline li:not(.day)")].flatMap((li, i, all) => {
  const dot = getComputedStyle(li, "::before"), line = getComputedStyle(li, "::after"), n = parseFloat;
  if (i === all.length - 1) return line.content === "none" ? [] : ["the last one has a line"];
  const x = n(dot.left) + n(dot.width) / 2 - n(line.left) - n(line.width) / 2;
  const y = n(dot.top) + n(dot.height) / 2 - n(line.top);
  const next = n(getComputedStyle(all[i + 1], "::before").top) + n(dot.height) / 2 + n(line.bottom);
  const text = li.querySelector("time").getBoundingClientRect();
  const top = li.getBoundingClientRect().top + n(dot.top) + n(dot.height) / 2;
  const beside = text.top + text.height / 2 - top;
  const off = [x, y, next].some((d) => Math.abs(d) > 0.1) || Math.abs(beside) > 1.5;
  return off ? [[x, y, next, beside].join(" ")] : [];
})`))
		if len(off) > 0 {
			t.Errorf("at %d px the line, and the text beside the dot, are off by %q", width, off)
		}
	}
}
