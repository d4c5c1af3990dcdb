package chromiumtest

import (
	"context"
	"testing"

	"github.com/chromedp/chromedp"
)

// overflowing lists the text that a visitor cannot reach: beyond the window's sides, out of the box that cuts
// it off, or over its neighbour. What can be scrolled to, what is for screen readers alone, and what is cut
// short with the whole text in a title, folded below it (class head) or on the page that it leads to (class
// rows) is reached.
const overflowing = `(() => {
  const found = [];
  if (document.documentElement.scrollWidth > innerWidth)
    found.push("the page: " + document.documentElement.scrollWidth + " pixels wide in a window of " + innerWidth);
  const boxes = "td, th, dd, dt, li, h1, h2, h3, p, summary, button, .button, .card, .note, main, pre";
  const reached = (e, rect) => {
    for (let p = e; p; p = p.parentElement)
      if (p.getBoundingClientRect().width <= 1 && getComputedStyle(p).overflowX === "hidden") return true;
    let box = true; // the next box around the text is looked for
    for (; e && e !== document.documentElement; e = e.parentElement) {
      const style = getComputedStyle(e), r = e.getBoundingClientRect();
      if (style.display === "contents" || style.display === "inline") continue;
      if (/auto|scroll/.test(style.overflowX)) return true;
      const cuts = /hidden|clip/.test(style.overflowX);
      if (!cuts && !(box && e.matches(boxes))) continue;
      if (cuts && e.matches("[title], .rows bdi, .head bdi")) return true;
      if (rect.right > r.right + 1 || rect.left < r.left - 1) return false;
      if (e.matches(boxes)) box = false;
    }
    return rect.right <= innerWidth + 1 && rect.left >= -1;
  };
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode, parent = node.parentElement;
    if (!node.data.trim() || parent.closest("svg, .skip, script, select")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const rect of range.getClientRects()) {
      if (rect.width < 1 || reached(parent, rect)) continue;
      found.push(parent.tagName + "." + parent.className + ": " + node.data.trim().slice(0, 40));
      break;
    }
  }
  return found.slice(0, 8).join("\n");
})()`

// Overflow returns what of the page's text sticks out to the side or is cut off, a line each; empty if
// nothing is.
func Overflow(tab context.Context, t *testing.T) string {
	t.Helper()
	return Run(tab, t, chromedp.Evaluate[string](overflowing))
}
