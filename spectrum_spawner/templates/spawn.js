// Shows the chosen team's profiles and submits only the chosen card's image, and a scratch disk
// only where one is wanted.
(() => {
  const root = document.getElementById("spectrum-form");
  if (!root) return;
  const cards = [...root.querySelectorAll(".spectrum-col")];
  const panels = [...root.querySelectorAll(".spectrum-team")];
  const filter = document.getElementById("spectrum-filter");
  const note = document.getElementById("spectrum-note");
  const button = document.getElementById("spectrum-submit");
  const scratch = document.getElementById("spectrum-scratch");
  if (!cards.length) return;

  const radioOf = (card) => card.querySelector("input[name=profile]");
  const chosenCard = () => cards.find((card) => radioOf(card).checked && !radioOf(card).disabled);
  const sized = (quantity) => quantity.replace(/^([0-9.]+)([KMGTP]i)$/, "$1 $2B");
  const counted = (count) => `${count} ${count === 1 ? "GPU" : "GPUs"}`;
  const chosenTeamField = () => {
    const field = root.querySelector(
      "input[name=team]:checked, input[name=team][type=hidden], select[name=team]",
    );
    return field.selectedOptions ? field.selectedOptions[0] : field;
  };
  const chosenTeam = () => chosenTeamField().dataset.index;
  // Text is read once: with a thousand cards, reading it at each key is what would be slow.
  const words = new Map(cards.map((card) => [card, card.textContent.toLowerCase()]));

  function applyFilter() {
    const team = chosenTeam();
    const offered = cards.filter((card) => card.dataset.teams.split(" ").includes(team));
    const many = offered.length > Number(filter.dataset.above);
    filter.hidden = !many;
    const text = document.getElementById("spectrum-filter-text").value.toLowerCase();
    const wanted = many ? text.split(/\s+/).filter(Boolean) : [];
    let shown = 0;
    for (const card of cards) card.hidden = true;
    for (const card of offered) {
      const matches = wanted.every((word) => words.get(card).includes(word));
      // The chosen card stays in sight: what will be started must never be hidden.
      card.hidden = !matches && !radioOf(card).checked;
      shown += matches;
    }
    document.getElementById("spectrum-filter-count").textContent =
      `${shown} of ${offered.length} profiles`;
  }

  function applyTeam() {
    const team = chosenTeam();
    const panel = panels.find((each) => each.dataset.index === team);
    for (const each of panels) each.hidden = each !== panel;
    for (const card of cards) {
      radioOf(card).disabled = !card.dataset.teams.split(" ").includes(team);
    }
    if (!chosenCard()) {
      const preferred = cards.find((card) => radioOf(card).value === panel.dataset.default);
      if (preferred) radioOf(preferred).checked = true;
    }
    applyFilter();
    applyChoice();
    applyScratch();
  }

  function applyScratch() {
    if (!scratch) return;
    const size = panels.find((each) => each.dataset.index === chosenTeam()).dataset.scratch;
    const wanted = Boolean(size) && document.getElementById("spectrum-scratch-on").checked;
    scratch.hidden = !size;
    document.getElementById("spectrum-scratch-size").textContent = sized(size);
    document.getElementById("spectrum-scratch-choice").hidden = !wanted;
    document.getElementById("spectrum-scratch-name").disabled = !wanted;
    const names = document.getElementById("spectrum-scratch-names");
    const disks = volumes.filter((volume) => volume.team === chosenTeamField().value);
    names.replaceChildren(...disks.map((volume) => new Option("", volume.name)));
  }

  // Names of the disks that are there are offered; without them the form is whole as well.
  let volumes = [];
  async function loadVolumes() {
    const headers = { "X-XSRFToken": window.jhdata.xsrf_token };
    const answer = await fetch(`${window.jhdata.base_url}spectrum/volumes`, { headers });
    if (!answer.ok) return;
    const found = await answer.json();
    volumes = found.volumes.filter((volume) => volume.kind === "scratch");
    applyScratch();
  }

  function applyChoice() {
    const card = chosenCard();
    for (const each of cards) {
      const select = each.querySelector(".spectrum-image");
      if (select) select.disabled = each !== card;
    }
    button.disabled = !card;
    note.hidden = true;
    if (!card) return;
    const panel = panels.find((each) => each.dataset.index === chosenTeam());
    const quota = JSON.parse(panel.dataset.quotas)[card.dataset.resource];
    const needed = Number(card.dataset.gpus);
    if (!needed || !quota || needed <= quota.left) return;
    note.hidden = false;
    note.textContent =
      needed > quota.hard
        ? `The team may hold ${counted(quota.hard)} of this kind; this profile needs ${needed}.`
        : `The team's quota leaves ${counted(quota.left)}; this profile needs ${needed}. ` +
          "It can start once a server of the team is stopped.";
  }

  root.addEventListener("change", (event) => {
    if (event.target.name === "team") applyTeam();
    if (event.target.name === "profile") applyChoice();
    if (event.target.id === "spectrum-scratch-on") applyScratch();
  });
  document.getElementById("spectrum-filter-text").addEventListener("input", applyFilter);
  document.getElementById("spectrum-filter-text").addEventListener("keydown", (event) => {
    if (event.key === "Enter") event.preventDefault();
  });
  document.getElementById("spawn_form").addEventListener("submit", () => {
    button.disabled = true;
    button.textContent = "Starting…";
  });
  // A page from the browser's history comes back with its fields as they were left.
  window.addEventListener("pageshow", () => {
    button.textContent = "Start";
    applyTeam();
  });
  applyTeam();
  if (scratch) loadVolumes().catch(() => {});
})();
