// The search of the documentation. The index is fetched when the field is used first, and looked through here.
"use strict";

const form = document.querySelector("[data-index]");
const field = form.querySelector("input");
const list = form.querySelector("ol");
const voice = form.querySelector("[role=status]");
const most = 12; // as many as are read

let index; // the promise of it
const fetched = () => (index ??= fetch(form.dataset.index).then((answer) => {
  if (!answer.ok) throw new Error(answer.status);
  return answer.json();
}).then((all) => all.map((f) => ({ ...f, low: [f.h ?? "", f.p, f.t].map((s) => s.toLowerCase()) }))));

// score is 0 for a place that lacks a word. A word counts more in a heading than in a title, there more than
// in the text, and more at the beginning of a word than within one.
function score(place, words) {
  let sum = 0;
  for (const word of words) {
    let best = 0;
    [12, 6, 2].forEach((weight, i) => {
      const at = place.low[i].indexOf(word);
      if (at < 0) return;
      const begins = at === 0 || place.low[i].includes(" " + word);
      best = Math.max(best, begins ? weight : weight / 2);
    });
    if (!best) return 0;
    sum += best;
  }
  return sum;
}

// excerpt is the text around the first word that is in it.
function excerpt(place, words) {
  const at = Math.max(0, Math.min(...words.map((w) => place.low[2].indexOf(w)).filter((i) => i >= 0), place.t.length));
  const from = at < place.t.length ? Math.max(0, at - 40) : 0;
  const begin = from ? place.t.indexOf(" ", from) + 1 : 0;
  return (begin ? "… " : "") + place.t.slice(begin, begin + 130) + (begin + 130 < place.t.length ? " …" : "");
}

function row(place, words) {
  const item = document.createElement("li");
  const link = document.createElement("a");
  link.href = place.a;
  const add = (tag, text) => {
    const e = document.createElement(tag);
    e.textContent = text;
    link.append(e);
  };
  add("b", place.h ?? place.p);
  if (place.h) add("i", place.p);
  add("span", excerpt(place, words));
  item.append(link);
  return item;
}

function fold() {
  list.hidden = true;
  list.replaceChildren();
}

async function search() {
  const asked = field.value;
  const words = asked.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) {
    voice.textContent = "";
    return fold();
  }
  let all;
  try {
    all = await fetched();
  } catch {
    index = undefined; // the next key asks again
    voice.textContent = "The search did not load.";
    return fold();
  }
  if (asked !== field.value) return; // typed on meanwhile
  const found = all.map((place) => ({ place, score: score(place, words) })).filter((f) => f.score)
    .sort((a, b) => b.score - a.score);
  const rows = found.slice(0, most).map((f) => row(f.place, words));
  if (!rows.length) {
    const none = document.createElement("li");
    none.className = "none";
    none.textContent = "Nothing found.";
    rows.push(none);
  }
  list.replaceChildren(...rows);
  list.hidden = false;
  voice.textContent = found.length === 1 ? "1 place found" : found.length + " places found";
}

form.hidden = false;
field.addEventListener("focus", () => { fetched().catch(() => { index = undefined; }); });
field.addEventListener("input", search);
form.addEventListener("submit", (e) => {
  e.preventDefault();
  list.querySelector("a")?.click();
});
form.addEventListener("keydown", (e) => {
  const links = [...list.querySelectorAll("a")];
  const at = links.indexOf(document.activeElement);
  if (e.key === "Escape" && !list.hidden) {
    fold();
    field.focus();
  } else if (e.key === "ArrowDown" && links.length) {
    links[Math.min(at + 1, links.length - 1)].focus();
  } else if (e.key === "ArrowUp" && at >= 0) {
    (links[at - 1] ?? field).focus();
  } else {
    return;
  }
  e.preventDefault();
});
list.addEventListener("click", (e) => { if (e.target.closest("a")) fold(); });
document.addEventListener("click", (e) => { if (!form.contains(e.target)) fold(); });
