package guide

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"verifyd/edge/apidoc"
	"verifyd/edge/chromiumtest"
	"verifyd/edge/web"
)

// serve serves the documentation and the description of the interface.
func serve(t *testing.T) string {
	t.Helper()
	d, err := apidoc.New("https://verify.example.com", "")
	if err != nil {
		t.Fatal(err)
	}
	api := []web.Route{
		{Method: http.MethodGet, Path: PathAPI, Name: "api", Handler: d.Page()},
		{Method: http.MethodGet, Path: d.StylePath(), Name: "style", Handler: d.Style()},
	}
	mux := http.NewServeMux()
	for _, r := range append(mustNew(t, "https://verify.example.com", "").Routes(), api...) {
		if !strings.HasSuffix(r.Path, "/") {
			mux.Handle(r.Path, r.Handler)
		}
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

// guideScreens are those of Everywhere without pictures, and with axe at two of them: it takes seconds for a
// long page.
func guideScreens() []chromiumtest.Screen {
	screens := chromiumtest.Everywhere()
	for i, s := range screens {
		screens[i].Docs = false
		screens[i].Axe = s.Width == 320 && s.Scheme == "light" || s.Width == 1280 && s.Scheme == "dark"
	}
	return screens
}

// The pages at every width and in both colours: nothing sticks out, no rule of axe is broken, and the
// keyboard leads to everything and shows where it is.
func TestPagesInChromium(t *testing.T) {
	t.Parallel()
	tab, axe := chromiumtest.Start(t), chromiumtest.Axe(t)
	base := serve(t)
	for name, path := range map[string]string{
		"docs-start": PathStart, "docs-integrating": PathStart + "/integrating",
	} {
		chromiumtest.Look(tab, t, name, axe, chromedp.Navigate(base+path), guideScreens()...)
	}
	for file, path := range addresses { // axe takes seconds for a long one, and finds what it finds above
		chromiumtest.Do(tab, t, chromedp.EmulateViewport(320, 800), chromedp.Navigate(base+path))
		if wide := chromiumtest.Run(tab, t, chromedp.Evaluate[int64](
			`document.documentElement.scrollWidth`)); wide > 320 {
			t.Errorf("%s is %d pixels wide on a screen of 320", file, wide)
		}
		if hidden := chromiumtest.Run(tab, t, chromedp.Evaluate[int64](
			`[...document.querySelectorAll(".wide")].filter((w) => w.scrollWidth > w.clientWidth).length`,
		)); hidden > 0 {
			t.Errorf("%d tables of %s are wider than a screen of 320", hidden, file)
		}
	}
}

// The search can be used with only the keyboard, finds text in a document and in the description of the
// interface, and leads there.
func TestSearchInChromium(t *testing.T) {
	t.Parallel()
	tab := chromiumtest.Start(t)
	base := serve(t)
	for _, c := range []struct {
		typed string
		keys  string // on the results
		want  string // the address it leads to
	}{
		{"test keys cbtest", kb.Enter, "/docs/integrating#test-keys"},
		{"idempotency_key_reused", kb.ArrowDown + kb.Enter, "/docs/api#problem-idempotency_key_reused"},
	} {
		chromiumtest.Do(tab, t, chromedp.EmulateViewport(390, 800), chromedp.Navigate(base+PathStart),
			chromedp.WaitVisible("#doc-search"), toSearch, chromedp.KeyEvent(c.typed),
			chromedp.WaitVisible(".search ol a"))
		if out := chromiumtest.Overflow(tab, t); out != "" {
			t.Errorf("with results, something sticks out:\n%s", out)
		}
		if label := chromiumtest.Run(tab, t, chromedp.Evaluate[string](
			`document.querySelector("[role=status]").textContent`)); !strings.HasSuffix(label, "found") {
			t.Errorf("a screen reader says %q", label)
		}
		chromiumtest.Do(tab, t, chromedp.KeyEvent(c.keys), chromedp.WaitVisible(`[id="`+anchor(c.want)+`"]:target`))
		if at := chromiumtest.Run(tab, t, chromedp.Evaluate[string](
			`location.pathname + location.hash`)); at != c.want {
			t.Errorf("%q leads to %s, not to %s", c.typed, at, c.want)
		}
	}
	// A search without results says so, and Escape closes the list.
	chromiumtest.Do(tab, t, chromedp.Navigate(base+PathStart), chromedp.WaitVisible("#doc-search"),
		toSearch, chromedp.KeyEvent("xyzzyx"), chromedp.WaitVisible(".search .none"),
		chromedp.KeyEvent(kb.Escape), chromedp.WaitNotVisible(".search ol"))
}

// toSearch goes to the field by the Tab key: past the link to the page, the start page's, that to the
// contents and that to the dashboard.
var toSearch = chromedp.KeyEvent(strings.Repeat(kb.Tab, 5))

func anchor(address string) string {
	_, id, _ := strings.Cut(address, "#")
	return id
}

// Without JavaScript there is no search, and everything else works.
func TestPagesWithoutScripts(t *testing.T) {
	t.Parallel()
	tab := chromiumtest.Start(t)
	base := serve(t)
	off := chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetScriptExecutionDisabled,
			emulation.SetScriptExecutionDisabledParams{Value: true})
		return err
	})
	chromiumtest.Do(tab, t, off, chromedp.Navigate(base+PathStart), chromedp.WaitNotVisible("#doc-search"),
		chromiumtest.Click(`main a[href="/docs/integrating"]`),
		chromiumtest.Click(`nav a[href="#test-keys"]`), chromedp.WaitVisible("#test-keys:target"),
		chromiumtest.Click(`main a[href="/docs/guarantees"]`), chromedp.WaitVisible("#what-verifyd-promises"))
}
