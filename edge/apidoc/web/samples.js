// A language that is chosen at one call is chosen at all of them, and the next time. Nothing needs it: each call has a
// choice of its own without.
"use strict";

const kept = "verifyd-sample";

function choose(language) {
  for (const radio of document.querySelectorAll(".samples input")) radio.checked = radio.value === language;
}

function remembered() {
  try {
    return localStorage.getItem(kept);
  } catch {
    return null; // what the browser was told to keep nothing of
  }
}

document.addEventListener("change", (e) => {
  if (!e.target.matches(".samples input")) return;
  const top = e.target.getBoundingClientRect().top; // samples above change their height
  choose(e.target.value);
  scrollBy(0, e.target.getBoundingClientRect().top - top);
  try {
    localStorage.setItem(kept, e.target.value);
  } catch { /* for this page, then */ }
});

const before = remembered();
if (before && document.querySelector(`.samples input[value="${CSS.escape(before)}"]`)) choose(before);
