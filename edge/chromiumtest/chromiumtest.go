// Package chromiumtest starts a real browser for tests. Where there is none they are skipped with a line that says so, except
// where VERIFYD_TEST_REQUIRE names it: then a missing browser fails them.
package chromiumtest

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// RequireVariable lists, separated by commas, the programs without which tests fail instead of being skipped.
const RequireVariable = "VERIFYD_TEST_REQUIRE"

// testTimeout bounds all that one test does with the browser.
const testTimeout = 2 * time.Minute

// names of the browser's program, by system.
var names = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"}

// Start gives a tab of a headless browser with a profile of its own, which ends with the test. It skips the test under -short,
// and where there is no browser unless one is required.
func Start(t *testing.T) context.Context {
	t.Helper()
	if testing.Short() {
		t.Skip("skipped under -short: a browser takes seconds")
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(find(t)), chromedp.UserDataDir(t.TempDir()))
	if os.Geteuid() == 0 {
		opts = append(opts, chromedp.NoSandbox) // Chromium refuses its sandbox to root
	}
	alloc, stop := chromedp.NewExecAllocator(t.Context(), opts...)
	t.Cleanup(stop)
	tab, end := chromedp.NewContext(alloc)
	t.Cleanup(func() {
		_ = chromedp.Cancel(tab) // waits until the browser is gone
		end()
	})
	if err := chromedp.Do(tab); err != nil { // starts it; under a deadline it would end with that
		t.Fatal(err)
	}
	within, cancel := context.WithTimeout(tab, testTimeout)
	t.Cleanup(cancel)
	return within
}

func find(t *testing.T) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if slices.Contains(strings.Split(os.Getenv(RequireVariable), ","), "browser") {
		t.Fatalf("%s names browser, and there is none of %s", RequireVariable, strings.Join(names, ", "))
	}
	t.Skipf("skipped: this test needs a browser, one of %s", strings.Join(names, ", "))
	return ""
}
