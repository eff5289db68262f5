// JupyterHub's own script handles named servers; this one the default server, and it shows the
// page as it is after each stop.
require(["jquery", "moment", "jhapi", "utils"], ($, moment, JHAPI, utils) => {
  const showLocal = (when) => when.toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
  for (const time of document.querySelectorAll("time")) {
    const when = new Date(time.dateTime);
    time.title = when.toLocaleString();
    time.textContent = time.classList.contains("spectrum-clock")
      ? showLocal(when)
      : moment(when).fromNow();
  }
  // and those that the sentences of services name
  for (const said of document.querySelectorAll(".spectrum-said")) {
    said.textContent = said.textContent.replaceAll(
      /(\d{4}-\d\d-\d\d) (\d\d:\d\d) UTC/g,
      (_, day, time) => showLocal(new Date(`${day}T${time}Z`)),
    );
  }
  const api = new JHAPI(window.jhdata.base_url);
  const stop = document.getElementById("stop-default");
  if (stop) {
    stop.addEventListener("click", () => {
      stop.disabled = true;
      stop.textContent = "Stopping…";
      api.stop_server(window.jhdata.user);
    });
    stop.disabled = false; // before this point a click would be lost
  }
  function changeShare(button, method, body) {
    const text = button.textContent;
    button.disabled = true;
    button.textContent = method === "POST" ? "Sharing…" : "Ending…";
    $.ajax(`${window.jhdata.base_url}spectrum/share?_xsrf=${window.jhdata.xsrf_token}`, {
      type: method,
      contentType: "application/json",
      data: JSON.stringify(body),
      success: () => window.location.reload(),
      error: (...why) => {
        Object.assign(button, { disabled: false, textContent: text });
        utils.ajax_error_dialog(...why);
      },
    });
  }
  for (const form of document.querySelectorAll("[data-share]")) {
    const button = form.querySelector("button");
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const { user, hours } = form.elements;
      const body = { server: form.dataset.share, user: user.value, hours: Number(hours.value) };
      changeShare(button, "POST", body);
    });
    button.disabled = false;
  }
  for (const button of document.querySelectorAll("[data-unshare]")) {
    button.addEventListener("click", () => {
      changeShare(button, "DELETE", { server: button.dataset.unshare, user: button.dataset.guest });
    });
    button.disabled = false;
  }
  for (const button of document.querySelectorAll("[data-stop]")) {
    const text = button.textContent;
    button.addEventListener("click", () => {
      const what = button.getAttribute("aria-label");
      if (!window.confirm(`${what}? Whoever works in it is cut off; what is not saved is lost.`)) return;
      button.disabled = true;
      button.textContent = "Stopping…";
      const { stop: owner, name } = button.dataset;
      const options = {
        error: (...why) => {
          Object.assign(button, { disabled: false, textContent: text });
          utils.ajax_error_dialog(...why);
        },
      };
      if (name) api.stop_named_server(owner, name, options);
      else api.stop_server(owner, options);
    });
    button.disabled = false;
  }
  for (const button of document.querySelectorAll("[data-remove]")) {
    button.addEventListener("click", () => {
      button.disabled = true;
      const { remove: owner, name } = button.dataset;
      api.delete_named_server(owner, name, {
        error: (...why) => {
          button.disabled = false;
          utils.ajax_error_dialog(...why);
        },
      });
    });
    button.disabled = false;
  }
  const add = document.getElementById("add-team-server");
  if (add) {
    const button = add.querySelector("button");
    add.addEventListener("submit", (event) => {
      event.preventDefault();
      button.disabled = true;
      const { team, name } = add.elements;
      $.ajax(`${window.jhdata.base_url}spectrum/team-servers?_xsrf=${window.jhdata.xsrf_token}`, {
        type: "POST",
        contentType: "application/json",
        data: JSON.stringify({ team: team.value, name: name.value }),
        success: ({ url }) => {
          window.location.href = url;
        },
        error: (...why) => {
          button.disabled = false;
          utils.ajax_error_dialog(...why);
        },
      });
    });
    button.disabled = false;
  }
  for (const button of document.querySelectorAll("[data-keep]")) {
    const text = button.textContent;
    button.addEventListener("click", () => {
      button.disabled = true;
      button.textContent = "Keeping…";
      const url = `${window.jhdata.base_url}spectrum/keep?_xsrf=${window.jhdata.xsrf_token}`;
      $.ajax(url, {
        type: "POST",
        contentType: "application/json",
        data: JSON.stringify({ user: button.dataset.keep, server: button.dataset.name }),
        success: () => {
          button.parentElement.className = "alert alert-success spectrum-text spectrum-notice";
          button.parentElement.textContent = "Kept: it ends only if nothing works in it for longer.";
        },
        error: (...why) => {
          Object.assign(button, { disabled: false, textContent: text });
          utils.ajax_error_dialog(...why);
        },
      });
    });
    button.disabled = false;
  }
  for (const button of document.querySelectorAll("[data-continue]")) {
    const text = button.textContent;
    button.addEventListener("click", () => {
      button.disabled = true;
      button.textContent = "Stopping…";
      const url = `${window.jhdata.base_url}spectrum/continue?_xsrf=${window.jhdata.xsrf_token}`;
      $.ajax(url, {
        type: "POST",
        contentType: "application/json",
        data: JSON.stringify({ server: button.dataset.continue }),
        success: () => window.location.reload(),
        error: (...why) => {
          Object.assign(button, { disabled: false, textContent: text });
          utils.ajax_error_dialog(...why);
        },
      });
    });
    button.disabled = false;
  }
  for (const button of document.querySelectorAll("[data-again]")) {
    const text = button.textContent;
    button.addEventListener("click", () => {
      button.disabled = true;
      button.textContent = "Starting…";
      const { base_url: base, user } = window.jhdata;
      const { again, name } = button.dataset;
      const options = {
        data: JSON.stringify({ user_options: JSON.parse(again) }),
        success: () => {
          const place = [user, name].filter((part) => part).map(encodeURIComponent).join("/");
          window.location.href = `${base}spawn-pending/${place}`;
        },
        error: (...why) => {
          Object.assign(button, { disabled: false, textContent: text });
          utils.ajax_error_dialog(...why);
        },
      };
      if (name) api.start_named_server(user, name, options);
      else api.start_server(user, options);
    });
    button.disabled = false;
  }
  const all = document.getElementById("release-all");
  if (all) {
    all.addEventListener("click", () => {
      all.disabled = true;
      all.textContent = "Stopping…";
      for (const name of JSON.parse(all.dataset.servers)) {
        if (name) api.stop_named_server(window.jhdata.user, name);
        else api.stop_server(window.jhdata.user);
      }
    });
    all.disabled = false;
  }
  let stops = 0; // under way: the page is shown anew when the last one is answered
  $(document).on("ajaxSend", (_event, _xhr, settings) => {
    if (settings.type === "DELETE") stops += 1;
  });
  $(document).on("ajaxSuccess", (_event, _xhr, settings) => {
    if (settings.type !== "DELETE") return;
    stops -= 1;
    if (stops === 0) window.location.reload();
  });
  $(document).on("ajaxError", (_event, _xhr, settings) => {
    // The dialog says what went wrong; the button is as it was once the page is loaded again.
    if (settings.type === "DELETE") $("#error-dialog").on("hidden.bs.modal", () => location.reload());
  });
  // A stop or start under way is shown until it is over; what somebody types meanwhile stays.
  if (document.querySelector("[data-pending]:not([data-pending=''])")) {
    setInterval(() => {
      if (!document.activeElement?.closest("form")) window.location.reload();
    }, 2000);
  }
});
