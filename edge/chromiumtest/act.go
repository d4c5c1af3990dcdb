package chromiumtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/chromedp"

	"verifyd/natsconf/natstest"
)

// look is the pause between two looks at a page, and describeWithin bounds what is asked of a page after
// something did not end.
const (
	look           = 5 * time.Millisecond
	describeWithin = 4 * time.Second
)

// Do takes the actions in turn, each on a page that is loaded, and ends the test if one fails or does not end
// within natstest.TestTimeout, with all that explains why.
func Do(tab context.Context, t *testing.T, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	for i, a := range actions {
		if _, err := attempt(tab, a); err != nil {
			t.Fatalf("step %d of %d: %v", i+1, len(actions), err)
		}
	}
}

// Run is Do for one action that gives something.
func Run[T any](tab context.Context, t *testing.T, action chromedp.Action[T]) T {
	t.Helper()
	v, err := attempt(tab, action)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Click clicks what is visible on a page that is loaded. Chromium shows nobody a page without its
// stylesheets, but the protocol does: a click that is aimed then goes where the button no longer is, and what
// it would lead to never comes.
func Click(selector chromedp.CSS) chromedp.Action[chromedp.Void] {
	return chromedp.Steps(chromedp.WaitVisible(selector), chromedp.Func(loaded), chromedp.Click(selector))
}

// Text waits until the first element that a selector finds has text, and returns that text as it is shown. It
// evaluates a script: chromedp's own action reads a node by its number, which may be gone by then, if the tab
// shows another page and chromedp does not know that yet.
func Text(tab context.Context, t *testing.T, selector chromedp.CSS) string {
	t.Helper()
	ask := chromedp.Evaluate[string](fmt.Sprintf(`document.querySelector(%q)?.innerText ?? ""`, selector))
	return Run(tab, t, func(ctx context.Context, target *chromedp.Target) (string, error) {
		for {
			text, err := ask(ctx, target)
			if err == nil && text != "" {
				return text, nil
			}
			if _, away := errors.AsType[*cdproto.Error](err); err != nil && !away {
				return "", fmt.Errorf("read the text of %s: %w", selector, err)
			}
			select {
			case <-time.After(look):
			case <-ctx.Done():
				return "", fmt.Errorf("%s has no text: %w", selector, ctx.Err())
			}
		}
	})
}

// Leave takes an action that leads the tab to another page, whichever that is, and waits until it is loaded.
func Leave(act chromedp.Action[chromedp.Void]) chromedp.Action[chromedp.Void] {
	mark := chromedp.Evaluate[bool](`window.stays = true`)
	stays := chromedp.Evaluate[bool](`window.stays === true`)
	return chromedp.Steps(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := mark(ctx, target)
		return err
	}), act, chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		for {
			here, err := stays(ctx, target)
			if err == nil && !here {
				return loaded(ctx, target)
			}
			if _, away := errors.AsType[*cdproto.Error](err); err != nil && !away {
				return fmt.Errorf("wait for the page to be left: %w", err)
			}
			select {
			case <-time.After(look):
			case <-ctx.Done():
				return fmt.Errorf("the page is not left: %w", ctx.Err())
			}
		}
	}))
}

// loaded waits until the page and all that belongs to it is there. Until then chromedp's nodes are replaced,
// too.
func loaded(ctx context.Context, target *chromedp.Target) error {
	ask := chromedp.Evaluate[string](`document.readyState`)
	for {
		state, err := ask(ctx, target)
		if err == nil && state == "complete" {
			return nil
		}
		// a page that goes away while it is asked is asked again
		if _, away := errors.AsType[*cdproto.Error](err); err != nil && !away {
			return fmt.Errorf("wait for the page to be loaded: %w", err)
		}
		select {
		case <-time.After(look):
		case <-ctx.Done():
			return fmt.Errorf("the page is %q: %w", state, ctx.Err())
		}
	}
}

// attempt takes one action on a loaded page. Its error reports all that is known of the tab.
func attempt[T any](tab context.Context, action chromedp.Action[T]) (T, error) {
	v, err := bounded(tab, action)
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, describe(tab))
	}
	return v, err
}

func bounded[T any](tab context.Context, action chromedp.Action[T]) (T, error) {
	var none T
	// opens it, if need be; under the deadline it would end with that
	if err := chromedp.Do(tab); err != nil {
		return none, err
	}
	ctx, cancel := context.WithTimeout(tab, natstest.TestTimeout)
	defer cancel()
	var v T
	ended := make(chan error, 1)
	go func() {
		err := chromedp.Do(ctx, chromedp.Func(loaded))
		if err == nil {
			v, err = chromedp.Run(ctx, action)
		}
		ended <- err
	}()
	select {
	case err := <-ended:
		return v, err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return v, err
	case <-time.After(describeWithin): // chromedp's locks know no deadline
		return none, fmt.Errorf("the action does not even give up: %w", ctx.Err())
	}
}

// describe returns what helps to understand a tab that does not go on.
func describe(tab context.Context) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tab), describeWithin)
	defer cancel()
	page, err := chromedp.Run(ctx,
		chromedp.Evaluate[string](
			`document.readyState + " " + location + "\n" + document.documentElement.outerHTML`))
	if err != nil {
		page = "does not answer: " + err.Error()
	}
	description := fmt.Sprintf("The page: %.6000s\n", page)
	if r, ok := tab.Value(recordKey{}).(*record); ok {
		description += r.String()
	}
	return description
}
