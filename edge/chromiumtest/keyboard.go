package chromiumtest

import (
	"context"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// stops is what the Tab key leads to on a page: what can have the focus, is shown, and is not left out. Of a
// group of radio buttons it is one.
const stops = `(() => {
  const all = [], groups = new Set();
  for (const e of document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")) {
    if (e.disabled || e.type === "hidden" || e.tabIndex < 0 || e.closest("[inert]")) continue;
    if (!e.checkVisibility({visibilityProperty: true})) continue;
    if (e.type === "radio") {
      const group = (e.form ? [...document.forms].indexOf(e.form) : "") + " " + e.name;
      if (groups.has(group)) continue;
      groups.add(group);
    }
    all.push(e);
  }
  return all;
})()`

// nameOf is how a report names an element.
const nameOf = `(e) => e.outerHTML.slice(0, 120).replace(/\s+/g, " ")`

// faint lists the stops whose focus nobody sees, a line each: no outline of 2 pixels around the element, what
// it draws after itself or its label, or one that is less than 3:1 against what is behind it (WCAG 2.2,
// 1.4.11 and 2.4.7).
const faint = `(() => {
  const parse = (c) => { const p = c.match(/[\d.]+/g).map(Number); return p.length < 4 ? [...p, 1] : p; };
  const light = (c) => c.slice(0, 3).map((v) => v / 255)
    .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c[3] > 0.99) return c;
    }
    return [255, 255, 255, 1];
  };
  const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort(); return (y + 0.05) / (x + 0.05); };
  const name = ` + nameOf + `;
  const found = [], at = document.activeElement;
  for (const e of ` + stops + `) {
    e.focus({focusVisible: true, preventScroll: true});
    const label = e.closest("label") ?? (e.labels && e.labels[0]);
    const seen = [[e], [e, "::after"], [e, "::before"], [e.parentElement], label && [label],
        e.nextElementSibling && [e.nextElementSibling]]
      .filter(Boolean).some(([of, pseudo]) => {
        const s = getComputedStyle(of, pseudo);
        return s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2 &&
          contrast(parse(s.outlineColor), behind(of.parentElement)) >= 3;
      });
    if (document.activeElement !== e) found.push("cannot have the focus: " + name(e));
    else if (!seen) found.push("its focus is not seen: " + name(e));
  }
  document.activeElement?.blur();
  at?.focus?.({preventScroll: true});
  return found.slice(0, 8).join("\n");
})()`

// listen notes which stops get the focus, from the page's beginning on.
const listen = `(() => {
  document.activeElement?.blur();
  getSelection().removeAllRanges();
  window.tabbed = new Set();
  document.addEventListener("focusin", (e) => window.tabbed.add(e.target));
  return ` + stops + `.length;
})()`

// unreached lists the stops that the Tab key has not led to.
const unreached = `(() => {
  const name = ` + nameOf + `, groups = new Set([...window.tabbed].filter((e) => e.type === "radio").map((e) => e.name));
  return ` + stops + `.filter((e) => !window.tabbed.has(e) && !(e.type === "radio" && groups.has(e.name)))
    .map(name).slice(0, 8).join("\n");
})()`

// walkKeys fails the test if the Tab key does not lead to everything on the page that is open.
func walkKeys(tab context.Context, t *testing.T, name string) {
	t.Helper()
	presses := 2 + Run(tab, t, chromedp.Evaluate[int](listen))
	missing := ""
	for range 3 { // what scrolls, and what is in frames, takes more than one press
		Do(tab, t, chromedp.KeyEvent(strings.Repeat(kb.Tab, presses)))
		if missing = Run(tab, t, chromedp.Evaluate[string](unreached)); missing == "" {
			return
		}
	}
	t.Errorf("%s: the Tab key does not lead to\n%s", name, missing)
}

// seeFocus fails the test if the focus of something on the page that is open is not seen.
func seeFocus(tab context.Context, t *testing.T, name string) {
	t.Helper()
	if found := Run(tab, t, chromedp.Evaluate[string](faint)); found != "" {
		t.Errorf("%s:\n%s", name, strings.TrimSpace(found))
	}
}
