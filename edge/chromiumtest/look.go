package chromiumtest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

var (
	screenshots = flag.String("screenshots", "", "folder for pictures of every page, at each width; none when empty")
	dark        = flag.Bool("dark", false, "make dark pictures, too")
)

// AxeVariable names axe.min.js, with which every page is checked; without it the newest below ../shared/testassets beside the
// repository is taken.
const AxeVariable = "VERIFYD_TEST_AXE"

// Axe gives axe-core's script. Where there is none, pages go unchecked, and the test's log says so.
func Axe(t *testing.T) string {
	t.Helper()
	file := os.Getenv(AxeVariable)
	if file == "" {
		_, here, _, _ := runtime.Caller(0)
		found, err := filepath.Glob(filepath.Join(filepath.Dir(here), "../../../shared/testassets/axe-core-*/axe.min.js"))
		if err != nil || len(found) == 0 {
			t.Logf("no axe-core: pages are not checked with it. Name axe.min.js in %s", AxeVariable)
			return ""
		}
		file = found[len(found)-1]
	}
	script, err := os.ReadFile(file) //nolint:gosec // whoever runs the test names it
	if err != nil {
		t.Fatal(err)
	}
	return string(script)
}

// picture takes the whole page by making the window as high as that: a picture beyond the window shifts pages that run from right to
// left.
func picture(tab context.Context, width int64) ([]byte, error) {
	height, err := chromedp.Run(tab, chromedp.Evaluate[int64](`document.documentElement.scrollHeight`))
	if err != nil {
		return nil, err
	}
	if err := chromedp.Do(tab, chromedp.EmulateViewport(width, height)); err != nil {
		return nil, err
	}
	return chromedp.Run(tab, chromedp.CaptureScreenshot())
}

// Screen is how a page is looked at.
type Screen struct {
	Name   string // of the page, and of its pictures
	Width  int64  // in CSS pixels
	Scheme string // light or dark
	Zoom   bool   // text at 200 %
}

// Look opens a page on a screen and fails the test where it sticks out to the side or breaks a rule of axe. With -args -screenshots
// FOLDER it takes a picture. open leads the tab to the page; axe is what Axe gave.
func Look(tab context.Context, t *testing.T, s Screen, axe string, open ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	name := fmt.Sprintf("%s-%d-%s", s.Name, s.Width, s.Scheme)
	colour := chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: s.Scheme}},
		})
		return err
	})
	if err := chromedp.Do(tab, append([]chromedp.Action[chromedp.Void]{chromedp.EmulateViewport(s.Width, 800), colour}, open...)...); err != nil {
		t.Fatal(name, err)
	}
	if s.Zoom {
		name += "-zoom"
		if _, err := chromedp.Run(tab, chromedp.Evaluate[string](`document.documentElement.style.fontSize = "200%"`)); err != nil {
			t.Fatal(name, err)
		}
	}
	wide, err := chromedp.Run(tab, chromedp.Evaluate[bool](`document.documentElement.scrollWidth > innerWidth`))
	if err != nil || wide {
		t.Errorf("%s: sticks out: %v, %v", name, wide, err)
	}
	if *screenshots != "" && (s.Scheme == "light" || *dark) {
		png, err := picture(tab, s.Width)
		if err = errors.Join(err, os.MkdirAll(*screenshots, 0o755), os.WriteFile(filepath.Join(*screenshots, strings.Replace(name, "-light", "", 1)+".png"), png, 0o644)); err != nil { //nolint:gosec // pictures for everybody
			t.Error(err)
		}
	}
	if axe == "" {
		return
	}
	found, err := chromedp.Run(tab, chromedp.Evaluate[string](axe+`;
		axe.run().then(r => JSON.stringify(r.violations.map(v => [v.id, v.nodes.map(n => n.html)])))`, chromedp.EvalAwaitPromise))
	if err != nil || found != "[]" {
		t.Errorf("%s: axe: %v %s", name, err, found)
	}
}
