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
  // A button says what it does, until that is done or has failed: then it is as before.
  function begin(button, doing) {
    const text = button.textContent;
    Object.assign(button, { disabled: true, textContent: doing });
    return (...why) => {
      Object.assign(button, { disabled: false, textContent: text });
      utils.ajax_error_dialog(...why);
    };
  }
  function ask(type, path, body, options) {
    $.ajax(`${window.jhdata.base_url}spectrum/${path}?_xsrf=${window.jhdata.xsrf_token}`, {
      type,
      contentType: "application/json",
      data: JSON.stringify(body),
      ...options,
    });
  }
  function onEach(selector, act) {
    for (const element of document.querySelectorAll(selector)) {
      const button = element.matches("form") ? element.querySelector("button") : element;
      element.addEventListener(element === button ? "click" : "submit", (event) => {
        event.preventDefault();
        act(button, element.dataset, element.elements);
      });
      button.disabled = false; // before this point a click would be lost
    }
  }
  const success = () => window.location.reload();
  onEach("[data-share]", (button, { share: server }, { user, hours }) => {
    const body = { server, user: user.value, hours: Number(hours.value) };
    ask("POST", "share", body, { success, error: begin(button, "Sharing…") });
  });
  onEach("[data-unshare]", (button, { unshare: server, guest: user }) => {
    ask("DELETE", "share", { server, user }, { error: begin(button, "Ending…") });
  });
  onEach("[data-stop]", (button, { stop: owner, name }) => {
    const what = button.getAttribute("aria-label");
    if (!window.confirm(`${what}? Whoever works in it is cut off; what is not saved is lost.`)) return;
    const options = { error: begin(button, "Stopping…") };
    if (name) api.stop_named_server(owner, name, options);
    else api.stop_server(owner, options);
  });
  onEach("[data-remove]", (button, { remove: owner, name }) => {
    api.delete_named_server(owner, name, { error: begin(button, "Removing…") });
  });
  onEach("#add-team-server", (button, _, { team, name }) => {
    const open = ({ url }) => {
      window.location.href = url;
    };
    const body = { team: team.value, name: name.value };
    ask("POST", "team-servers", body, { success: open, error: begin(button, "Adding…") });
  });
  onEach("[data-keep]", (button, { keep: user, name: server }) => {
    const notice = button.parentElement;
    const tell = () => {
      notice.className = "alert alert-success spectrum-text spectrum-notice";
      notice.textContent = "Kept: it ends only if nothing works in it for longer.";
    };
    ask("POST", "keep", { user, server }, { success: tell, error: begin(button, "Keeping…") });
  });
  onEach("[data-continue]", (button, { continue: server }) => {
    ask("POST", "continue", { server }, { success, error: begin(button, "Stopping…") });
  });
  onEach("[data-again]", (button, { again, name }) => {
    const { base_url: base, user } = window.jhdata;
    const place = [user, name].filter((part) => part).map(encodeURIComponent).join("/");
    const options = {
      data: JSON.stringify({ user_options: JSON.parse(again) }),
      success: () => {
        window.location.href = `${base}spawn-pending/${place}`;
      },
      error: begin(button, "Starting…"),
    };
    if (name) api.start_named_server(user, name, options);
    else api.start_server(user, options);
  });
  // Of these the dialog and the page that is shown after it tell what failed.
  onEach("#stop-default", (button) => {
    begin(button, "Stopping…");
    api.stop_server(window.jhdata.user);
  });
  onEach("#release-all", (button, { servers }) => {
    begin(button, "Stopping…");
    for (const name of JSON.parse(servers)) {
      if (name) api.stop_named_server(window.jhdata.user, name);
      else api.stop_server(window.jhdata.user);
    }
  });
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
