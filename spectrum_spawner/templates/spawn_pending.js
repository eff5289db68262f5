// Follows one start: sentences, elapsed time, cancelling, and what to do when it failed.
require(["jquery", "jhapi"], ($, JHAPI) => {
  const byId = (id) => document.getElementById(id);
  const message = byId("progress-message");
  const bar = byId("progress-bar");
  const cancel = byId("stop-server-btn");
  const begun = Date.parse(pendingStart.started) || Date.now();
  const events = new EventSource(pendingStart.progressUrl);

  function elapsed() {
    const seconds = Math.max(0, Math.round((Date.now() - begun) / 1000));
    const minutes = Math.floor(seconds / 60);
    return minutes ? `${minutes} min ${seconds % 60} s` : `${seconds} s`;
  }
  function showElapsed() {
    byId("progress-elapsed").textContent = `${elapsed()} so far`;
  }
  const clock = setInterval(showElapsed, 1000);
  showElapsed();

  function showSentence(event) {
    // The text of an event is shown as text; only the hub's own HTML would be markup.
    const sentence = (event.message || "").replace(/^Spawn failed: /, "");
    if (!sentence || sentence === message.textContent) return;
    message.textContent = sentence;
    const entry = document.createElement("li");
    entry.textContent = sentence;
    byId("progress-log").append(entry);
  }

  function showProgress(percent) {
    bar.setAttribute("aria-valuenow", percent);
    bar.firstElementChild.style.width = `${percent}%`;
  }

  function showFailure() {
    clearInterval(clock);
    byId("progress-elapsed").textContent = `After ${elapsed()}`;
    byId("progress-heading").textContent = `${pendingStart.whose} did not start`;
    bar.firstElementChild.classList.add("bg-danger");
    cancel.hidden = true;
    byId("progress-again").hidden = false;
    byId("progress-details").open = true;
  }

  events.onmessage = (message) => {
    const event = JSON.parse(message.data);
    if (event.progress !== undefined) showProgress(event.progress);
    if (event.ready) {
      events.close();
      window.location.reload(); // the hub redirects to the running server
      return;
    }
    showSentence(event);
    if (event.failed) {
      events.close();
      showFailure();
    }
  };

  cancel.addEventListener("click", () => {
    events.close();
    cancel.disabled = true;
    cancel.textContent = "Cancelling…";
    const api = new JHAPI(window.jhdata.base_url);
    const options = {
      success: () => {
        window.location = `${window.jhdata.base_url}home`;
      },
      error: (xhr) => {
        message.textContent =
          (xhr.responseJSON && xhr.responseJSON.message) ||
          "The start could not be cancelled. Please try again.";
        cancel.disabled = false;
        cancel.textContent = "Cancel";
      },
    };
    if (pendingStart.server) {
      api.stop_named_server(pendingStart.user, pendingStart.server, options);
    } else {
      api.stop_server(pendingStart.user, options);
    }
  });

  cancel.disabled = false; // before this point a click would be lost

  window._jupyterhub_page_loaded = true; // what JupyterHub's own pages tell to tests
});
