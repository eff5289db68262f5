// Everything works without this script; it shows times in the reader's zone and of a form only
// the fields that its kind of request has.
"use strict";

for (const time of document.querySelectorAll("time")) {
  const moment = new Date(time.dateTime);
  if (isNaN(moment)) continue;
  time.title = time.dateTime;
  time.textContent = moment.toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}

const filters = document.getElementById("audit-filters");
if (filters) {
  const two = (number) => String(number).padStart(2, "0");
  const local = (moment) =>
    `${moment.getFullYear()}-${two(moment.getMonth() + 1)}-${two(moment.getDate())}` +
    `T${two(moment.getHours())}:${two(moment.getMinutes())}`;
  const times = filters.querySelectorAll("input[type=datetime-local]");
  for (const zone of filters.querySelectorAll(".spectrum-zone")) zone.hidden = true;
  for (const input of times) {
    // the address holds UTC, the reader sees and types local time
    if (input.value) input.value = local(new Date(`${input.value}Z`));
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
