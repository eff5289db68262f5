// A banner above JupyterLab: what is wrong with the server's volumes, and what it has coming.
//
// JupyterLab loads this file as a webpack container, which is an object with `init` and `get`. It
// is written by hand, so that it needs no build; `init` is given the modules that JupyterLab shares.
(() => {
  const EVERY = 20_000; // milliseconds between two looks, while the page is seen
  const SAVE_BEFORE = 90_000; // milliseconds before the server's end: then all documents are saved
  const NAMED = /(\d{4}-\d\d-\d\d) (\d\d:\d\d) UTC/g; // a moment, as sentences of Spectrum name it

  let shared;

  async function load(name) {
    const versions = Object.values(shared[name]);
    return (await versions[0].get())();
  }

  function make(tag, properties, ...children) {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  }

  function makeButton(text) {
    return make("button", {
      type: "button",
      textContent: text,
      className: "jp-mod-styled jp-mod-minimal",
      style: "flex: none",
    });
  }

  function showEnd(endsAt) {
    const end = new Date(endsAt);
    const day = end.toDateString() === new Date().toDateString() ? {} : { weekday: "long" };
    const time = end.toLocaleTimeString([], { ...day, hour: "2-digit", minute: "2-digit" });
    return `This server ends at ${time}. `;
  }

  // A sentence with its times in the reader's zone.
  function localize(sentence) {
    const show = (_, day, time) =>
      new Date(`${day}T${time}Z`).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
    return sentence.replaceAll(NAMED, show);
  }

  function readMessages({ warnings, notices }) {
    return [
      ...notices.map((notice) => ({
        text: (notice.ends_at ? showEnd(notice.ends_at) : "") + localize(notice.text),
        keep: Boolean(notice.keep),
        release: true,
        without: Boolean(notice.continue),
      })),
      ...warnings.map((text) => ({ text: localize(text) })),
    ];
  }

  async function activate(app) {
    const { Widget } = await load("@lumino/widgets");
    const { ServerConnection } = await load("@jupyterlab/services");
    const settings = app.serviceManager.serverSettings;
    const dismissed = new Set(); // sentences that stay away until they are over
    const list = make("ul", { style: "margin: 0; padding: 0; list-style: none; flex: 1" });
    const keep = makeButton("Keep this server");
    const without = makeButton("Continue without GPU");
    const release = makeButton("Release it now");
    const page = make("a", { textContent: "Your choices", target: "_blank", style: "flex: none" });
    const close = makeButton("Dismiss");
    const widget = new Widget({ node: make("div") });
    widget.id = "spectrum-banner";
    // a status is read out when it changes, and does not interrupt
    widget.node.setAttribute("role", "status");
    widget.node.setAttribute("aria-label", "Spectrum");
    widget.node.style.cssText =
      "display: flex; align-items: center; gap: 8px; padding: 4px 12px; overflow: auto; " +
      "background: var(--jp-warn-color3); border-bottom: 1px solid var(--jp-warn-color1); " +
      "color: var(--jp-ui-font-color0); font-size: var(--jp-ui-font-size1)";
    widget.node.append(list, keep, without, release, page, close);
    app.shell.add(widget, "header", { rank: 100 });
    widget.hide();

    // as high as the sentences are at this width
    const fit = () => {
      widget.node.style.minHeight = `${Math.max(list.scrollHeight, 24) + 12}px`;
      widget.parent?.fit();
    };
    new ResizeObserver(fit).observe(list);

    let told = [];
    let isOwn = false;
    let saving;
    let savedFor;
    const show = (messages) => {
      const sentences = messages.map(({ text }) => text);
      for (const sentence of dismissed) if (!sentences.includes(sentence)) dismissed.delete(sentence);
      const shown = messages.filter(({ text }) => !dismissed.has(text));
      if (JSON.stringify(shown) === JSON.stringify(told)) return;
      told = shown;
      list.replaceChildren(...shown.map(({ text }) => make("li", { textContent: text })));
      keep.hidden = !shown.some((message) => message.keep);
      // whoever is a guest here ends nothing by the server's token, but in their own name there
      const mayEnd = shown.some((message) => message.release);
      release.hidden = !mayEnd || !isOwn;
      without.hidden = !isOwn || !shown.some((message) => message.without);
      page.hidden = !mayEnd || isOwn || !page.getAttribute("href");
      widget.setHidden(!shown.length);
      fit();
    };
    // what is typed would else be lost since JupyterLab last saved by itself
    const saveBefore = (notices) => {
      const ends = notices.map((notice) => Date.parse(notice.ends_at)).filter((end) => end);
      const end = Math.min(...ends);
      clearTimeout(saving);
      if (!ends.length || end === savedFor) return;
      saving = setTimeout(() => {
        savedFor = end;
        app.commands.execute("docmanager:save-all").catch(() => {});
      }, Math.max(end - Date.now() - SAVE_BEFORE, 0));
    };
    const ask = async (name, options) => {
      const url = `${settings.baseUrl}spectrum/${name}`;
      const answer = await ServerConnection.makeRequest(url, options, settings);
      const value = await answer.json();
      if (!answer.ok) throw new Error(value.message);
      isOwn = Boolean(value.own);
      if (value.page) page.href = value.page;
      show(readMessages(value));
      saveBefore(value.notices);
    };
    const look = async () => {
      if (document.visibilityState !== "visible") return;
      // JupyterLab says by itself when the server is away
      await ask("banner", {}).catch(() => {});
    };
    const act = async (verb, failed) => {
      try {
        // what is typed is lost else
        if (verb !== "keep") await app.commands.execute("docmanager:save-all").catch(() => {});
        await ask(verb, { method: "POST" });
      } catch (error) {
        const text = `${failed}: ${localize(error.message)}`;
        show([{ text, failed: true }, ...told.filter((message) => !message.failed)]);
      }
    };
    const addButton = (button, verb, failed) =>
      button.addEventListener("click", async () => {
        button.disabled = true;
        await act(verb, failed);
        button.disabled = false;
      });
    addButton(keep, "keep", "The server is not kept");
    addButton(without, "continue", "The server is not restarted");
    addButton(release, "release", "The server is not released");
    // the same in the menu File, where a slip of the mouse must not end what works
    const addCommand = (verb, label, what, failed) =>
      app.commands.addCommand(`spectrum:${verb}`, {
        label,
        isVisible: () => isOwn && page.hasAttribute("href"),
        execute: async () => {
          if (window.confirm(`${what}: what runs in it ends. Files stay.`)) await act(verb, failed);
        },
      });
    addCommand(
      "continue",
      "Continue Without GPU",
      "This server starts again without a GPU",
      "The server is not restarted",
    );
    addCommand(
      "release",
      "Release the GPU and Stop This Server",
      "This server stops",
      "The server is not released",
    );
    close.addEventListener("click", () => {
      for (const { text } of told) dismissed.add(text);
      show(told);
    });
    setInterval(look, EVERY);
    document.addEventListener("visibilitychange", look);
    await look();
  }

  const plugin = { id: "spectrum-lab:banner", autoStart: true, activate };
  window._JUPYTERLAB = window._JUPYTERLAB || {};
  window._JUPYTERLAB["spectrum-lab"] = {
    init: (scope) => {
      shared = scope;
    },
    get: async () => () => ({ __esModule: true, default: plugin }),
  };
})();
