// What the pages do better with a script: copy a text, write times of the browser's zone, stay up to date, close the menu, look at colours. Nothing needs it.
"use strict";

function copyButtons(root) {
  if (!navigator.clipboard) return;
  for (const box of root.querySelectorAll("[data-copy]")) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(box.querySelector("code").textContent);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Not copied";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    box.append(button);
  }
}

// renew replaces what the page shows by what the server draws now, and returns it: false where that is another
// page, nothing where the server cannot be reached.
async function renew() {
  let text;
  try {
    const answer = await fetch(location.href, { credentials: "same-origin", headers: { Accept: "text/html" } });
    if (!answer.ok || answer.redirected) return false;
    text = await answer.text();
  } catch {
    return undefined;
  }
  const next = new DOMParser().parseFromString(text, "text/html").querySelector("main");
  const main = document.querySelector("main");
  const held = document.activeElement && main.contains(document.activeElement) && document.activeElement.id;
  const open = [...main.querySelectorAll("details")].map((d) => d.open);
  const said = main.querySelector(".flash"); // once, to the page that is open: the one that was fetched does not know it
  localTimes(next);
  main.replaceChildren(...next.childNodes);
  if (said && !main.querySelector(".flash")) main.prepend(said);
  main.querySelectorAll("details").forEach((d, i) => { if (open[i]) d.open = true; });
  copyButtons(main);
  if (held) document.getElementById(held)?.focus();
  return main;
}

// A page that says so is drawn anew every two seconds, until it says so no more.
function renewing() {
  if (!document.querySelector("[data-renew]")) return;
  setTimeout(async () => {
    const before = document.querySelector(".lead")?.textContent;
    const main = document.hidden ? undefined : await renew();
    const now = document.querySelector(".lead")?.textContent ?? "";
    if (main && now !== before) say(now);
    if (main !== false) renewing();
  }, 2000);
}

// localTimes writes instants in the time of the browser's zone, and the zone; UTC stays in what is shown for whoever
// points at one. The forms are those of site/times.go.
const zone = new Intl.DateTimeFormat().resolvedOptions().timeZone;
const parts = new Intl.DateTimeFormat("en-GB", {
  year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit",
  fractionalSecondDigits: 3, hourCycle: "h23", timeZoneName: "short",
});
const forms = {
  date: (p) => `${p.day} ${p.month} ${p.year}`,
  when: (p) => `${p.day} ${p.month} ${p.year}, ${p.hour}:${p.minute} ${p.timeZoneName}`,
  short: (p) => `${p.day} ${p.month}, ${p.hour}:${p.minute}:${p.second} ${p.timeZoneName}`,
  time: (p) => `${p.hour}:${p.minute}:${p.second} ${p.timeZoneName}`,
  clock: (p) => `${p.hour}:${p.minute}:${p.second}.${p.fractionalSecond}`,
};

function localTimes(root) {
  if (!zone || zone === "UTC" || zone === "Etc/UTC") return;
  const read = (time) => Object.fromEntries(parts.formatToParts(new Date(time.dateTime)).map((p) => [p.type, p.value]));
  for (const time of root.querySelectorAll("time[data-form]")) {
    time.title = time.dateTime.replace("T", " ").replace(/(\.000)?Z$/, " UTC");
    time.textContent = forms[time.dataset.form](read(time));
  }
  for (const list of root.querySelectorAll(".timeline")) { // its days begin at another hour
    let day;
    list.querySelectorAll("li.day").forEach((li) => li.remove());
    for (const time of list.querySelectorAll("li > time")) {
      const p = read(time);
      const text = `${p.day} ${p.month} ${p.year}, ${p.timeZoneName}`;
      if (text === day) continue;
      day = text;
      const head = document.createElement("li");
      head.className = "day";
      head.textContent = text;
      time.parentElement.before(head);
    }
  }
}

// A session's page is drawn anew by the server whenever the server says that it has changed.
function follow() {
  const at = document.querySelector("[data-live]");
  if (!at || !window.EventSource) return;
  const source = new EventSource(at.dataset.live);
  const mark = document.createElement("span");
  mark.className = "live";
  mark.textContent = "live";
  at.append(mark);
  const end = () => { source.close(); mark.remove(); };
  source.addEventListener("changed", async () => {
    const main = await renew();
    if (main === false) return end();
    if (!main) return; // the next change comes
    main.querySelector(".timeline li:last-child")?.classList.add("fresh");
    main.querySelector("#live")?.append(mark);
    say(main.querySelector("h1")?.textContent ?? "");
  });
  source.addEventListener("settled", end);
  addEventListener("pagehide", end);
}

// say tells a screen reader what a person sees change.
function say(text) {
  let voice = document.getElementById("voice");
  if (!voice) {
    voice = document.createElement("p");
    voice.id = "voice";
    voice.className = "unseen";
    voice.setAttribute("role", "status");
    document.body.append(voice);
  }
  voice.textContent = text;
}

function menus() {
  const close = (menu) => { menu.open = false; };
  for (const menu of document.querySelectorAll(".menu")) {
    document.addEventListener("click", (e) => { if (!menu.contains(e.target)) close(menu); });
    menu.addEventListener("keydown", (e) => {
      if (e.key === "Escape" && menu.open) { close(menu); menu.querySelector("summary").focus(); }
    });
  }
}

// Colours are looked at while they are chosen: each state of the sign-in page is drawn anew with them.
function looks() {
  const form = document.querySelector("[data-look]");
  if (!form) return;
  let timer;
  form.addEventListener("input", (e) => {
    const input = e.target;
    if (input.type === "color") form.elements[input.name + "_own"].checked = true;
    else if (input.type !== "checkbox" || !input.name.endsWith("_own")) return;
    clearTimeout(timer);
    timer = setTimeout(() => {
      for (const frame of document.querySelectorAll(".phones iframe")) {
        const address = new URL(frame.src);
        for (const field of form.querySelectorAll('[type="color"]')) {
          address.searchParams.set(field.name, field.value);
          address.searchParams.set(field.name + "_own", form.elements[field.name + "_own"].checked ? "yes" : "");
        }
        frame.contentWindow.location.replace(address); // no entry in the history for each
      }
    }, 250);
  });
}

copyButtons(document);
localTimes(document);
looks();
follow();
renewing();
menus();
document.querySelector(".bar nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
