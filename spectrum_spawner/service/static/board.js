// Keeps the board as it is now: asks for the page again, and puts its parts in place if it changed.
"use strict";

const EVERY = 5000; // milliseconds
const PARTS = ["board-state", "board"];
const away = document.getElementById("away");
const form = document.getElementById("board-form");
const address = new URL(location.href);
address.searchParams.delete("done");
let version = "";
let heard = new Date();

function tell(sentence) {
  away.hidden = !sentence;
  away.textContent = sentence;
}

function picks() {
  return [...form.querySelectorAll("input[name=pick]")];
}

function showPicked() {
  const all = document.getElementById("pick-all");
  const picked = picks().filter((pick) => pick.checked).length;
  for (const [id, what] of [["ask-picked", "Ask to release"], ["release-picked", "Release"]]) {
    const button = document.getElementById(id);
    if (!button) continue;
    button.textContent = picked ? `${what} ${picked} selected` : `${what} selected`;
    button.disabled = !picked;
  }
  if (all) {
    all.hidden = false;
    all.checked = picked > 0 && picked === picks().length;
    all.indeterminate = picked > 0 && !all.checked;
  }
}

// Where the reader is: what has the focus, known by its place in the page or by its name and value.
function findFocus() {
  const at = document.activeElement;
  if (!at || !PARTS.some((id) => document.getElementById(id).contains(at))) return null;
  if (at.id) return `#${CSS.escape(at.id)}`;
  if (at.name) return `[name=${CSS.escape(at.name)}][value=${CSS.escape(at.value)}]`;
  return at.tagName === "A" ? `a[href=${CSS.escape(at.getAttribute("href"))}]` : null;
}

function put(page) {
  const picked = new Set(picks().filter((pick) => pick.checked).map((pick) => pick.value));
  const focus = findFocus();
  for (const id of PARTS) {
    document.getElementById(id).replaceWith(page.getElementById(id));
    window.spectrum.showTimes(document.getElementById(id));
  }
  for (const pick of picks()) pick.checked = picked.has(pick.value);
  if (focus) document.querySelector(focus)?.focus({ preventScroll: true });
  showPicked();
}

async function look() {
  // the hub's cookie counts for scripts only with this
  const headers = { "X-XSRFToken": form.elements._xsrf.value };
  if (version) headers["If-None-Match"] = version;
  const answer = await fetch(address, { headers, cache: "no-store", redirect: "manual" });
  if (answer.status === 304) return;
  if (answer.type === "opaqueredirect" || answer.status === 403) {
    throw new Error("You are signed out: reload the page to see what is now.");
  }
  if (!answer.ok) throw new Error("");
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (!page.getElementById("board")) throw new Error("");
  version = answer.headers.get("ETag") ?? "";
  put(page);
}

async function lookAgain() {
  if (!document.hidden) {
    try {
      await look();
      heard = new Date();
      tell("");
      for (const id of PARTS) window.spectrum.renewSpans(document.getElementById(id));
    } catch (error) {
      const since = heard.toLocaleTimeString([], { timeStyle: "short" });
      tell(error.message.startsWith("You") ? error.message : `This is as of ${since}: the service does not answer.`);
    }
  }
  setTimeout(lookAgain, EVERY);
}

form.addEventListener("change", (event) => {
  if (event.target.id === "pick-all") {
    for (const pick of picks()) pick.checked = event.target.checked;
  }
  showPicked();
});
showPicked();
setTimeout(lookAgain, EVERY);
