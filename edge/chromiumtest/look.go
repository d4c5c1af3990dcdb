package chromiumtest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

var (
	screenshots = flag.String("screenshots", "", "folder for the pictures of docs/screens; none when empty")
	every       = flag.Bool("every", false,
		"with -screenshots: take a picture of every page in every state that is looked at")
)

// AxeVariable names axe.min.js, with which every page is checked; without it the newest below
// ../shared/testassets next to the repository is used.
const AxeVariable = "VERIFYD_TEST_AXE"

// Axe returns axe-core's script. If there is none, pages go unchecked, and the test's log says so.
func Axe(t *testing.T) string {
	t.Helper()
	file := os.Getenv(AxeVariable)
	if file == "" {
		found, err := filepath.Glob(filepath.Join(repository(t),
			"../shared/testassets/axe-core-*/axe.min.js"))
		if err != nil || len(found) == 0 {
			t.Logf("no axe-core: pages are not checked with it. Name axe.min.js in %s", AxeVariable)
			return ""
		}
		file = found[len(found)-1]
	}
	script, err := os.ReadFile(file) //nolint:gosec // the user who runs the test names it
	if err != nil {
		t.Fatal(err)
	}
	return string(script)
}

// repository returns the folder with go.mod: the folder of the package under test, in which its tests run, or
// one above it.
func repository(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		above := filepath.Dir(dir)
		if above == dir {
			t.Fatal("there is no go.mod above the tests' folder")
		}
		dir = above
	}
}

// picture takes the whole page by making the window as high as that: a picture beyond the window shifts pages
// that run from right to left.
func picture(tab context.Context, t *testing.T, width int64) []byte {
	t.Helper()
	height := Run(tab, t, chromedp.Evaluate[int64](`document.documentElement.scrollHeight`))
	Do(tab, t, chromedp.EmulateViewport(width, height))
	return Run(tab, t, chromedp.CaptureScreenshot())
}

func save(t *testing.T, name string, png []byte) {
	t.Helper()
	file := filepath.Join(*screenshots, name+".png")
	err := errors.Join(os.MkdirAll(*screenshots, 0o755), os.WriteFile(file, png, 0o644)) //nolint:gosec // pictures for everybody
	if err != nil {
		t.Error(err)
	}
}

// Screen is how a page is looked at.
type Screen struct {
	Width  int64  // in CSS pixels
	Scheme string // light or dark
	Zoom   bool   // text at 200 %
	Axe    bool   // it is checked with axe, and the focus of each of its stops is seen
	Keys   bool   // the Tab key leads to everything on it
	Docs   bool   // its picture is one of docs/screens
}

// Widths returns the screens of a phone's width up to a wide one's, in one colour.
func Widths(scheme string) []Screen {
	return []Screen{
		{Width: 320, Scheme: scheme}, {Width: 390, Scheme: scheme}, {Width: 768, Scheme: scheme},
		{Width: 1280, Scheme: scheme}, {Width: 1920, Scheme: scheme},
	}
}

// Everywhere returns how a page is looked at that must be right for everybody: at every width in both
// colours, with axe at a phone's and at a desk's, by the keyboard at a phone's. docs/screens has two of them.
func Everywhere() []Screen {
	light, dark := Widths("light"), Widths("dark")
	for i, s := range light {
		judged := s.Width == 320 || s.Width == 1280
		light[i].Axe, dark[i].Axe = judged, judged
		light[i].Docs = s.Width == 390 || s.Width == 1280
	}
	slices.Reverse(dark) // fewer pages change their width at once with their colour
	all := slices.Concat(light, dark)
	all[len(all)-1].Keys = true // the focused element is in no picture
	return all
}

// show makes the tab's window the screen.
func (s Screen) show() chromedp.Action[chromedp.Void] {
	return chromedp.Steps(chromedp.EmulateViewport(s.Width, 800),
		chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
			_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: s.Scheme}},
			})
			if err == nil { // a window that is not in front shows no focus
				_, err = cdp.Call(ctx, target, emulation.SetFocusEmulationEnabled,
					emulation.SetFocusEmulationEnabledParams{Enabled: true})
			}
			return err
		}))
}

// Look opens a page on the first of the screens and turns the window into each of the others. It fails the
// test if the page sticks out to the side or breaks a rule of axe. With -args -screenshots FOLDER it takes a
// picture of those of Docs. name is the page's, and its pictures'; open leads the tab to it; axe is what Axe
// gave.
func Look(tab context.Context, t *testing.T, name, axe string, open chromedp.Action[chromedp.Void],
	screens ...Screen) {
	t.Helper()
	Do(tab, t, screens[0].show(), open)
	if axe != "" {
		Run(tab, t, chromedp.Evaluate[bool](axe+"; true"))
	}
	for _, s := range screens {
		s.look(tab, t, name, axe != "")
	}
}

// look judges the page that is open.
func (s Screen) look(tab context.Context, t *testing.T, name string, axe bool) {
	t.Helper()
	name = fmt.Sprintf("%s-%d-%s", name, s.Width, s.Scheme)
	size := ""
	if s.Zoom {
		name, size = name+"-zoom", "200%"
	}
	out := ""
	Do(tab, t, s.show(), chromedp.Func(func(ctx context.Context, target *chromedp.Target) (err error) {
		script := fmt.Sprintf("document.documentElement.style.fontSize = %q;\n%s", size, overflowing)
		out, err = chromedp.Evaluate[string](script)(ctx, target)
		return err
	}))
	if out != "" {
		t.Errorf("%s: sticks out or is cut off:\n%s", name, out)
	}
	if *screenshots != "" && (s.Docs || *every) {
		save(t, strings.Replace(name, "-light", "", 1), picture(tab, t, s.Width))
	}
	if s.Keys {
		walkKeys(tab, t, name)
	}
	if s.Axe {
		seeFocus(tab, t, name)
	}
	if !axe || !s.Axe {
		return
	}
	found := Run(tab, t, chromedp.Evaluate[string](
		// elements that pass are not listed
		`axe.run({resultTypes: ["violations"]}).then(r =>
			JSON.stringify(r.violations.map(v => [v.id, v.nodes.map(n => n.html)])))`,
		chromedp.EvalAwaitPromise))
	if found != "[]" {
		t.Errorf("%s: axe: %s", name, found)
	}
}
