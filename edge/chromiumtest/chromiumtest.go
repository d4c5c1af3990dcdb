// Package chromiumtest starts a real browser for tests, which are the proof "browser".
package chromiumtest

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"os"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"verifyd/natsconf/natstest"
	"verifyd/natsconf/natstest/prove"
)

const (
	// maxDuration bounds all that one test does with the browser. It is a last resort, for a page that never
	// comes: a walk takes seconds, and on a machine with other work as many minutes.
	maxDuration = 10 * time.Minute
	// reportTime is what is left to the test binary to report the state of a walk when its own time is over.
	reportTime = 10 * time.Second
)

// names of the browser's program, by system.
var names = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"}

// withoutFeatures leaves out what chromedp does, and the process that Chromium keeps ready for the next site:
// where each page is another one's, starting it is an eighth of all that the browser computes.
var withoutFeatures = chromedp.Flag("disable-features",
	"Translate,BlinkGenPropertyTrees,SpareRendererForSitePerProcess")

// Start returns a tab of a headless browser with a profile of its own, which ends with the test. It skips the
// test unless VERIFYD_PROVE names the proof browser. more are further options of the browser's, such as
// Trust.
func Start(t *testing.T, more ...chromedp.ExecAllocatorOption) context.Context {
	t.Helper()
	prove.Only(t, "browser", "a browser takes seconds")
	program := prove.Program(t, "a browser; Debian has chromium", names...)
	r := newRecord()
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.UserDataDir(t.TempDir()),
		chromedp.CombinedOutput(r), withoutFeatures)
	opts = append(opts, start(program)...)
	opts = append(opts, more...)
	if os.Geteuid() == 0 {
		opts = append(opts, chromedp.NoSandbox) // Chromium refuses its sandbox to root
	}
	alloc, stop := chromedp.NewExecAllocator(t.Context(), opts...)
	t.Cleanup(stop)
	tab, end := chromedp.NewContext(alloc, chromedp.WithDebugf(r.debugf))
	t.Cleanup(func() {
		_ = chromedp.Cancel(tab) // waits until the browser is gone
		end()
	})
	late := time.AfterFunc(natstest.TestTimeout, stop) // under a deadline the browser would end with that
	if err := chromedp.Do(tab); err != nil {
		t.Fatalf("the browser does not start: %v\n%s", err, r)
	}
	late.Stop()
	over := time.Now().Add(maxDuration)
	if end, ok := t.Deadline(); ok && end.Add(-reportTime).Before(over) {
		over = end.Add(-reportTime)
	}
	within, cancel := context.WithDeadline(context.WithValue(tab, recordKey{}, r), over)
	t.Cleanup(cancel)
	return within
}

// Profile returns a tab in a profile of its own, as somebody else's browser is, of the browser that a tab of
// Start's belongs to. It costs a fraction of a start, and ends with the test that it is for.
func Profile(tab context.Context, t *testing.T) context.Context {
	t.Helper()
	own, end := chromedp.NewContext(tab, chromedp.WithNewBrowserContext())
	t.Cleanup(end)
	if err := chromedp.Do(own); err != nil {
		t.Fatalf("the browser opens no profile: %v\n%s", err, describe(tab))
	}
	return own
}

// Trust makes the browser accept the certificate, whatever its issuer, for any name.
func Trust(cert *x509.Certificate) chromedp.ExecAllocatorOption {
	key := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return chromedp.Flag("ignore-certificate-errors-spki-list", base64.StdEncoding.EncodeToString(key[:]))
}
