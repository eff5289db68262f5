// The part of the home page about storage: what the person has, how full it is, what is amiss.
require(["moment"], (moment) => {
  const EVERY = 60_000; // milliseconds between two looks, while the page is seen
  const OLD = 5 * 60_000; // milliseconds after which figures say from when they are
  const NEARLY_FULL = 0.9;
  const BLOCK = 4 * 1024 ** 2; // bytes: CephFS rounds what is used down to these

  const WHOSE = {
    home: "yours, in all your servers of the team",
    scratch: "yours, in one server at a time",
    share: "everybody's in the team",
    bucket: "everybody's in the team",
  };

  const section = document.getElementById("storage");
  const body = document.getElementById("volumes");
  let shown = "";

  function make(tag, properties = {}, ...children) {
    const { attributes = {}, ...rest } = properties;
    const element = Object.assign(document.createElement(tag), rest);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children.filter((child) => child !== ""));
    return element;
  }

  function formatBytes(count) {
    const units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let unit = 0;
    for (; count >= 1024 && unit < units.length - 1; unit += 1) count /= 1024;
    return `${count < 10 && unit > 0 ? Math.round(count * 10) / 10 : Math.round(count)} ${units[unit]}`;
  }

  const formatSize = (quantity) => quantity.replace(/^([0-9.]+)([KMGTP]i)$/, "$1 $2B");

  // [severity, sentence] of what a person must know about a volume, the worst alone
  function findWarning(volume) {
    const { used, total, files_total: files } = volume;
    if (volume.state === "failed") return ["danger", volume.message];
    if (volume.error) {
      return ["danger", `It could not be read: ${volume.error}. Servers and data are not affected.`];
    }
    if (volume.kind === "dataset" || volume.kind === "bucket") return null;
    if (volume.read_only) return ["danger", "Nothing can be written there now."];
    if (total !== null && total - used <= BLOCK) {
      return ["danger", "Full: nothing can be saved there until something is deleted."];
    }
    if (files && volume.files_used >= files) {
      return ["danger", "No room for another file: none can be made until some are deleted."];
    }
    if (total && used >= NEARLY_FULL * total) {
      return ["warning", `Nearly full: ${formatBytes(total - used)} are free.`];
    }
    return null;
  }

  function describeState(volume) {
    if (volume.state === "growing") {
      const sizes = `Growing from ${formatSize(volume.size)} to ${formatSize(volume.wanted)}.`;
      return `${sizes} ${volume.message}`.trim();
    }
    return volume.state === "pending" ? volume.message : "";
  }

  function describeUse(volume) {
    if (volume.kind === "bucket") return "boto3, s3fs and aws reach it from your servers without settings.";
    if (volume.kind === "dataset") return formatSize(volume.size);
    if (volume.total === null) {
      if (volume.state === "pending") return formatSize(volume.wanted);
      return `${formatSize(volume.size || volume.wanted)}. How much is used is known once a server runs.`;
    }
    const used = volume.used ? formatBytes(volume.used) : `Less than ${formatBytes(BLOCK)}`;
    return `${used} of ${formatBytes(volume.total)} used`;
  }

  function makeAge(volume) {
    const at = new Date(volume.at);
    if (!volume.at || Date.now() - at < OLD) return "";
    const time = make("time", { dateTime: volume.at, title: at.toLocaleString() }, moment(at).fromNow());
    return make("span", { className: "text-body-secondary" }, ", as of ", time);
  }

  function makeBar(volume, severity) {
    if (!volume.total || volume.kind === "dataset") return "";
    const percent = Math.min(100, Math.round((100 * volume.used) / volume.total));
    const bar = make("div", { className: `progress-bar${severity ? ` bg-${severity}` : ""}` });
    bar.style.width = `${percent}%`;
    const attributes = {
      role: "progressbar",
      "aria-label": `${volume.title} of team ${volume.team_title}: in use`,
      "aria-valuenow": percent,
      "aria-valuemin": 0,
      "aria-valuemax": 100,
    };
    return make("div", { className: "progress mb-1", attributes }, bar);
  }

  function makeRow(volume) {
    const [severity, warning] = findWarning(volume) ?? ["", ""];
    const state = describeState(volume);
    const claim = severity === "danger" || state ? volume.claim : "";
    return make(
      "li",
      { className: "list-group-item" },
      make(
        "div",
        { className: "row gx-3" },
        make(
          "div",
          { className: "col-md-5" },
          make("div", {}, volume.title),
          make(
            "div",
            { className: "small" },
            make("code", {}, volume.mount),
            make("span", { className: "text-body-secondary" }, volume.kind in WHOSE ? ` · ${WHOSE[volume.kind]}` : ""),
          ),
        ),
        make(
          "div",
          { className: "col-md-7" },
          makeBar(volume, severity),
          make("div", { className: "small" }, describeUse(volume), makeAge(volume)),
          state && make("div", { className: "small" }, state),
          warning && make("div", { className: `small fw-semibold text-${severity}-emphasis` }, warning),
          claim && make("div", { className: "small text-body-secondary" }, "Claim ", make("code", {}, claim)),
        ),
      ),
    );
  }

  function makeDatasets(volumes) {
    const isAmiss = volumes.some((volume) => findWarning(volume) || volume.state !== "ready");
    const title = volumes.length === 1 ? "1 dataset" : `${volumes.length} datasets`;
    return make(
      "li",
      { className: "list-group-item" },
      make(
        "details",
        { open: isAmiss },
        make("summary", {}, `${title} to read`),
        make("ul", { className: "list-group list-group-flush mt-2" }, ...volumes.map(makeRow)),
      ),
    );
  }

  function makeTeam(volumes) {
    const datasets = volumes.filter((volume) => volume.kind === "dataset");
    const others = volumes.filter((volume) => volume.kind !== "dataset");
    return [
      make("h3", { className: "h6 mt-3" }, `Team ${volumes[0].team_title}`),
      make(
        "ul",
        { className: "list-group" },
        ...others.map(makeRow),
        datasets.length ? makeDatasets(datasets) : "",
      ),
    ];
  }

  function show({ volumes, notes }) {
    const told = JSON.stringify([volumes, notes]);
    if (told === shown) return; // an open list of datasets stays open
    shown = told;
    const teams = new Map();
    for (const volume of volumes) teams.set(volume.team, [...(teams.get(volume.team) ?? []), volume]);
    const none = "You have no volumes yet: your home is made when you first start a server in a team.";
    body.replaceChildren(
      ...notes.map((note) => make("p", { className: "alert alert-warning" }, note)),
      ...[...teams.values()].flatMap(makeTeam),
      volumes.length || notes.length ? "" : make("p", { className: "text-body-secondary" }, none),
    );
  }

  function showFailure(reason) {
    shown = "";
    const again = make("button", { type: "button", className: "btn btn-sm btn-outline-secondary" }, "Try again");
    again.addEventListener("click", look);
    const sentence = `Your volumes cannot be shown now: ${reason} Your servers and data are not affected. `;
    body.replaceChildren(make("p", { className: "alert alert-warning" }, sentence, again));
  }

  async function look() {
    section.setAttribute("aria-busy", "true");
    try {
      const headers = { "X-XSRFToken": window.jhdata.xsrf_token };
      const answer = await fetch(section.dataset.url, { headers });
      const told = await answer.json();
      if (answer.ok) show(told);
      else showFailure(told.message);
    } catch {
      showFailure("the hub does not answer.");
    }
    section.setAttribute("aria-busy", "false");
  }

  look();
  setInterval(() => {
    if (document.visibilityState === "visible") look();
  }, EVERY);
});
