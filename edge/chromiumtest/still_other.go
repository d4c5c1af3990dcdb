//go:build !linux

package chromiumtest

import "github.com/chromedp/chromedp"

// start returns the options by which the browser is started.
func start(program string) []chromedp.ExecAllocatorOption {
	return []chromedp.ExecAllocatorOption{chromedp.ExecPath(program)}
}
