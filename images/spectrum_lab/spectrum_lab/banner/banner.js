// A banner above JupyterLab: what is wrong with the server's volumes.
//
// JupyterLab loads this file as a webpack container, which is an object with `init` and `get`. It
// is written by hand, so that it needs no build; `init` is given the modules that JupyterLab shares.
(() => {
  const EVERY = 60_000; // milliseconds between two looks, while the page is seen

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

  async function activate(app) {
    const { Widget } = await load("@lumino/widgets");
    const { ServerConnection } = await load("@jupyterlab/services");
    const settings = app.serviceManager.serverSettings;
    const dismissed = new Set(); // sentences that stay away until they are over
    const list = make("ul", { style: "margin: 0; padding: 0; list-style: none; flex: 1" });
    const close = make("button", {
      type: "button",
      textContent: "Dismiss",
      className: "jp-mod-styled jp-mod-minimal",
      style: "flex: none",
    });
    const widget = new Widget({ node: make("div") });
    widget.id = "spectrum-banner";
    // a status is read out when it changes, and does not interrupt
    widget.node.setAttribute("role", "status");
    widget.node.setAttribute("aria-label", "Storage");
    widget.node.style.cssText =
      "display: flex; align-items: center; gap: 8px; padding: 4px 12px; overflow: auto; " +
      "background: var(--jp-warn-color3); border-bottom: 1px solid var(--jp-warn-color1); " +
      "color: var(--jp-ui-font-color0); font-size: var(--jp-ui-font-size1)";
    widget.node.append(list, close);
    app.shell.add(widget, "header", { rank: 100 });
    widget.hide();

    let told = [];
    const show = (sentences) => {
      for (const sentence of dismissed) if (!sentences.includes(sentence)) dismissed.delete(sentence);
      const shown = sentences.filter((sentence) => !dismissed.has(sentence));
      if (shown.join("\n") === told.join("\n")) return;
      told = shown;
      list.replaceChildren(...shown.map((sentence) => make("li", { textContent: sentence })));
      widget.node.style.minHeight = `${shown.length * 20 + 16}px`;
      widget.setHidden(!shown.length);
    };
    close.addEventListener("click", () => {
      for (const sentence of told) dismissed.add(sentence);
      show(told);
    });
    const look = async () => {
      if (document.visibilityState !== "visible") return;
      try {
        const url = `${settings.baseUrl}spectrum/volumes`;
        const answer = await ServerConnection.makeRequest(url, {}, settings);
        if (answer.ok) show((await answer.json()).warnings);
      } catch {
        // JupyterLab says by itself when the server is away
      }
    };
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
