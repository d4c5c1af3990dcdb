// What the pages do better with a script: copy a text, stay up to date, close the menu. Nothing needs it.
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
    try {
      const answer = await fetch(location.href, { credentials: "same-origin", headers: { Accept: "text/html" } });
      if (!answer.ok || answer.redirected) return end();
      const next = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
      const main = document.querySelector("main");
      const held = document.activeElement && main.contains(document.activeElement) && document.activeElement.id;
      const open = [...main.querySelectorAll("details")].map((d) => d.open);
      const said = main.querySelector(".flash"); // once, to the page that is open: the one that was fetched does not know it
      main.replaceChildren(...next.childNodes);
      if (said && !main.querySelector(".flash")) main.prepend(said);
      main.querySelectorAll("details").forEach((d, i) => { if (open[i]) d.open = true; });
      copyButtons(main);
      main.querySelector(".timeline li:last-child")?.classList.add("fresh");
      main.querySelector("#live")?.append(mark);
      if (held) document.getElementById(held)?.focus();
      say(main.querySelector("h1")?.textContent ?? "");
    } catch { /* the next change comes */ }
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

copyButtons(document);
follow();
menus();
document.querySelector(".bar nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
