package chromiumtest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"verifyd/natsconf/natstest"
)

func recordOf(tab context.Context) string { return tab.Value(recordKey{}).(*record).String() }

// site serves a page with a button that reports how far the page was when it was clicked. Its stylesheet is
// served when released.
func site(t *testing.T) (address string, let chan struct{}, clicked chan string) {
	t.Helper()
	let, clicked = make(chan struct{}), make(chan string, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `<!doctype html><html><head><script>onclick = () => fetch("/clicked/" + document.readyState)</script>
			<link rel="stylesheet" href="/style"></head><body><button>go</button></body></html>`)
	})
	mux.HandleFunc("GET /style", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-let:
		case <-r.Context().Done():
		}
		w.Header().Set("Content-Type", "text/css")
		_, _ = fmt.Fprint(w, `button { margin-top: 20em }`)
	})
	mux.HandleFunc("GET /clicked/{state}", func(_ http.ResponseWriter, r *http.Request) {
		clicked <- r.PathValue("state")
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL, let, clicked
}

// A click on an element that exists before the stylesheet waits for it.
func TestClickIsOnALoadedPage(t *testing.T) {
	tab := Start(t)
	address, let, clicked := site(t)
	went := make(chan error, 1)
	go func() {
		went <- chromedp.Do(tab, chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
			// it does not wait for what belongs to the page
			_, err := cdp.Call(ctx, target, page.Navigate, page.NavigateParams{URL: address})
			return err
		}), Click("button"))
	}()
	natstest.Await(t, "the click, or the wait before it", func() bool {
		said := recordOf(tab)
		return strings.Contains(said, "document.readyState") || strings.Contains(said, "mouseReleased")
	})
	close(let)
	if err := <-went; err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-clicked:
		if got != "complete" {
			t.Errorf("the page was clicked when it was %q", got)
		}
	case <-time.After(natstest.TestTimeout):
		t.Error("the click is lost")
	}
}

// A step that does not end reports what it waited for, on which page, and the last command to the browser.
func TestUnendedWaitIsReported(t *testing.T) {
	tab := Start(t)
	address, let, _ := site(t)
	close(let)
	Do(tab, t, chromedp.Navigate(address))
	walk, over := context.WithCancel(tab)
	defer over()
	ended := make(chan error, 1)
	go func() {
		_, err := attempt(walk, chromedp.WaitVisible(chromedp.CSS("#never")))
		ended <- err
	}()
	natstest.Await(t, "many looks", func() bool {
		return strings.Contains(recordOf(tab), "times until") && strings.Contains(recordOf(tab), "#never")
	})
	over()
	err := <-ended
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("ends with %v", err)
	}
	for _, want := range []string{
		"complete " + address, "<button>go</button>", `-> DOM.querySelector {"nodeId":`,
		`"selector":"#never"}`, "<- Page.loadEventFired",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not told:\n%v", want, err)
		}
	}
	if lines := strings.Count(recordOf(tab), "#never"); lines != 1 {
		t.Errorf("a poll takes %d lines", lines)
	}
}

// A command that gets no answer is marked, and what the browser prints is kept.
func TestRecord(t *testing.T) {
	r := newRecord()
	r.debugf("-> %s", []byte(`{"id":1,"method":"DOM.enable"}`))
	r.debugf("-> %s", []byte(`{"id":2,"method":"DOM.getDocument"}`))
	r.debugf("<- %s", []byte(`{"id":1,"error":{"message":"no such page"}}`))
	for range 2 * keepMessages {
		r.debugf("-> %s", []byte(`{"id":3,"method":"DOM.querySelector","params":{"selector":"p"}}`))
		r.debugf("<- %s", []byte(`{"id":3,"result":{}}`))
	}
	_, _ = fmt.Fprint(r, "GPU process exited\n")
	description := r.String()
	for _, want := range []string{
		"DOM.getDocument  #2 (unanswered: 1)", "DOM.enable  #1 (failed: no such page)",
		fmt.Sprintf("#3 (%d times until", 2*keepMessages), "GPU process exited",
	} {
		if !strings.Contains(description, want) {
			t.Errorf("%q is not told:\n%s", want, description)
		}
	}
}
