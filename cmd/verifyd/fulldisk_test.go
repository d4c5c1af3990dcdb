//go:build linux

package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"verifyd/cmd/verifyd/demo"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/natstest/prove"
)

// The filesystem under the store fills up while sessions are under way: new ones are refused with a reason,
// the process stays up, and when space returns everything continues by itself, with all that was
// acknowledged.
func TestFullDisk(t *testing.T) {
	natstest.NeedsEmbedded(t, "the disk under its store")
	prove.Only(t, "disk", "a silent store is found out after several time-outs")
	t.Parallel()
	c := newChild(t)
	store := filepath.Join(c.dir, "store")
	if err := os.Mkdir(store, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", store, "tmpfs", 0, "size=96m"); err != nil {
		t.Fatalf("this proof mounts a small filesystem, which takes root on Linux: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(store, syscall.MNT_DETACH) })
	c.start(t)
	t.Cleanup(c.kill) // before the unmount
	key := c.makeKey(t, "Harbor Guild")
	a := api{base: c.base(), key: key}
	a.knownSoon(t)
	body := `{"platform":"p","platform_user_id":"` + strings.Repeat("u", 1000) + `","callback_url":"` +
		c.inbox.CallbackURL() + `"}`
	before := a.init(t, map[string]any{
		"platform": "p", "platform_user_id": "u", "callback_url": c.inbox.CallbackURL(),
	})

	ballast := filepath.Join(store, "ballast")
	fill(t, ballast)
	codes := map[string]int{}
	deadline := time.Now().Add(natstest.TestTimeout)
	for codes["store_full"] == 0 && time.Now().Before(deadline) {
		status, _, answer := a.call(t, http.MethodPost, "/verify/init", body)
		for _, code := range []string{"store_full", "unavailable"} {
			if strings.Contains(string(answer), code) {
				codes[code]++
			}
		}
		if status != http.StatusOK && status != http.StatusServiceUnavailable &&
			status != http.StatusTooManyRequests {
			t.Fatalf("init on a full disk: %d %s", status, answer)
		}
	}
	if codes["store_full"] == 0 {
		t.Errorf("no clear refusal on a full disk: %v", codes)
	}
	// After a write to the full disk the store is restarted and checked, within a second.
	natstest.Await(t, "the process is ready on a full disk, and says why it takes no sessions", func() bool {
		status, _, why := api{base: "http://" + c.admin}.call(t, http.MethodGet, "/readyz", "")
		return status == http.StatusOK && strings.Contains(string(why), "filesystem")
	})
	// Open sessions may continue, and their writes find the full disk.
	w := &walk{c: c, api: a, browser: demo.NewBrowser(), session: before}
	if p, err := w.browser.Open(t.Context(), before.VerifyURL); err == nil {
		_, _ = w.browser.Press(t.Context(), p, "default")
	}

	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	deadline = time.Now().Add(natstest.TestTimeout)
	for {
		if status, _, _ := a.call(t, http.MethodPost, "/verify/init", body); status == http.StatusOK {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no recovery after space came back:\n%s", c.log)
		}
	}
	if v := a.read(t, before.Session); v.State != "pending" {
		t.Errorf("the session from before is %s", v.State)
	}
	for _, s := range steps[1:] {
		s.do(t, w)
	}
	if v := a.settled(t, before.Session); v.Delivery.State != "delivered" || c.inbox.count(v.ID) != 1 {
		t.Errorf("delivery %s, %d POSTs", v.Delivery.State, c.inbox.count(v.ID))
	}
}

// fill writes a file until the filesystem has no room for another byte.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 1<<20); len(block) > 0; {
		if _, err := f.Write(block); err != nil {
			block = block[:len(block)/2]
		}
	}
}
