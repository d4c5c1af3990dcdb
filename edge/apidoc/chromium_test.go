package apidoc

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"verifyd/edge/chromiumtest"
)

var shots = flag.String("shots", "", "folder for screenshots of the page; none when empty")

// The page at every size and in both colours: nothing sticks out sideways.
func TestPageInChromium(t *testing.T) {
	tab := chromiumtest.Start(t)
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	defer server.Close()
	d := mustNew(t, server.URL, "")
	mux.Handle("/docs/api", d.Page())
	mux.Handle(d.StylePath(), d.Style())
	for _, width := range []int64{320, 390, 1280} {
		for _, scheme := range []string{"light", "dark"} {
			look(tab, t, server.URL+"/docs/api", width, scheme)
		}
	}
}

func look(tab context.Context, t *testing.T, address string, width int64, scheme string) {
	t.Helper()
	colour := chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	})
	chromiumtest.Do(tab, t, chromedp.EmulateViewport(width, 900), colour, chromedp.Navigate(address))
	if wide := chromiumtest.Run(tab, t,
		chromedp.Evaluate[bool](`document.documentElement.scrollWidth > innerWidth`)); wide {
		t.Errorf("at %d pixels something sticks out", width)
	}
	if *shots == "" {
		return
	}
	picture := chromiumtest.Run(tab, t, chromedp.CaptureScreenshot())
	if err := os.WriteFile(filepath.Join(*shots, fmt.Sprintf("docs-%d-%s.png", width, scheme)), picture,
		0o600); err != nil {
		t.Fatal(err)
	}
}
