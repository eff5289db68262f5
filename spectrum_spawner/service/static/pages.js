// Everything works without this script; it shows times in the reader's zone and of a form only
// the fields that its kind of request has.
"use strict";

const NAMED = /(\d{4}-\d\d-\d\d) (\d\d:\d\d) UTC/g;

// To make one takes longer than to use it, and a page may have thousands of times.
const LOCAL = new Intl.DateTimeFormat([], { dateStyle: "medium", timeStyle: "short" });
const SPAN = new Intl.RelativeTimeFormat([], { style: "short" });
const LENGTHS = Object.fromEntries(
  ["minute", "hour", "day"].map((unit) => [
    unit,
    new Intl.NumberFormat([], { style: "unit", unit, unitDisplay: "short" }),
  ]),
);

// Also for what another script of a page brings in later.
window.spectrum = {
  showTimes(root) {
    for (const time of root.querySelectorAll("time")) {
      const moment = new Date(time.dateTime);
      if (isNaN(moment)) continue;
      const passes = showSpan(time, moment);
      time.title = passes ? LOCAL.format(moment) : time.dateTime;
      if (!passes) time.textContent = LOCAL.format(moment);
    }
    // and those that sentences name; what is typed stays
    const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const text = texts.currentNode;
      const local = localize(text.data);
      if (local !== text.data && !text.parentElement.closest("textarea, script")) text.data = local;
    }
    for (const named of root.querySelectorAll("[title*=UTC]")) named.title = localize(named.title);
  },
  // What a page that stays open says of the time since then.
  renewSpans(root) {
    for (const time of root.querySelectorAll(".spectrum-span, .spectrum-for")) {
      const moment = new Date(time.dateTime);
      if (!isNaN(moment)) showSpan(time, moment);
    }
  },
};

function localize(sentence) {
  return sentence.replaceAll(NAMED, (_, day, time) => LOCAL.format(new Date(`${day}T${time}Z`)));
}

// Whether it is a time of the kind that passes, which then says how much did.
function showSpan(time, moment) {
  const isSpan = time.classList.contains("spectrum-span");
  if (!isSpan && !time.classList.contains("spectrum-for")) return false;
  const [count, unit] = spanOf(moment);
  const said = isSpan ? SPAN.format(count, unit) : `for ${LENGTHS[unit].format(Math.abs(count))}`;
  if (time.textContent !== said) time.textContent = said;
  return true;
}

// [count, unit] of the time from now to a moment, negative for what is past
function spanOf(moment) {
  const minutes = Math.round((moment - Date.now()) / 60000);
  if (Math.abs(minutes) < 120) return [minutes, "minute"];
  const hours = Math.round(minutes / 60);
  return Math.abs(hours) < 48 ? [hours, "hour"] : [Math.round(hours / 24), "day"];
}

window.spectrum.showTimes(document);

const two = (number) => String(number).padStart(2, "0");
const toLocal = (moment) =>
  `${moment.getFullYear()}-${two(moment.getMonth() + 1)}-${two(moment.getDate())}` +
  `T${two(moment.getHours())}:${two(moment.getMinutes())}`;

const filters = document.getElementById("audit-filters");
if (filters) {
  const times = filters.querySelectorAll("input[type=datetime-local]");
  for (const zone of filters.querySelectorAll(".spectrum-zone")) zone.hidden = true;
  for (const input of times) {
    // the address holds UTC, the reader sees and types local time
    if (input.value) input.value = toLocal(new Date(`${input.value}Z`));
  }
  filters.addEventListener("formdata", (event) => {
    for (const input of times) {
      if (input.value) {
        event.formData.set(input.name, new Date(input.value).toISOString().slice(0, 16));
      }
    }
    for (const [name, value] of [...event.formData]) {
      if (!value) event.formData.delete(name);
    }
  });
}

const ask = document.getElementById("ask-form");
if (ask) {
  const showKind = () => {
    const kind = ask.elements.kind.value;
    for (const part of ask.querySelectorAll("[data-kinds]")) {
      part.hidden = !part.dataset.kinds.split(" ").includes(kind);
      for (const field of part.querySelectorAll("input, select")) field.disabled = part.hidden;
    }
  };
  ask.addEventListener("change", showKind);
  // a page that comes back by the browser's history has its former choices
  window.addEventListener("pageshow", showKind);
}

const hold = document.getElementById("hold");
if (hold) {
  const until = hold.elements.until;
  for (const zone of hold.querySelectorAll(".spectrum-zone")) zone.hidden = true;
  // the page holds UTC, the reader sees and types local time
  for (const name of ["min", "max", "value"]) {
    if (until[name]) until[name] = toLocal(new Date(`${until[name]}Z`));
  }
  hold.addEventListener("formdata", (event) => {
    if (until.value) event.formData.set("until", new Date(until.value).toISOString().slice(0, 16));
  });
}

// A click on the wrong row must not end what works.
document.addEventListener("submit", (event) => {
  const button = event.submitter;
  const picked = event.target.querySelectorAll("input[name=pick]:checked");
  // not only those that this page shows
  const all = { mine: "Everything of yours", team: "Everything of this team" }[button?.value];
  const works =
    button?.value === "picked"
      ? [...picked].filter((pick) => pick.closest("tr").querySelector("[data-works]")).length
      : Number(button?.hasAttribute("data-works") ?? 0);
  if (!works && !all) return;
  const some = works === 1 ? "A server that may work or is held" : `${works} servers that may work or are held`;
  const what = all ? `${all}, also what works,` : some;
  if (!window.confirm(`${what} would be stopped: what is not saved is lost. Go on nonetheless?`)) {
    event.preventDefault();
  }
});
