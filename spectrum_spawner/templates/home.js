// JupyterHub's own script handles named servers; this one the default server, and it shows the
// page as it is after each stop.
require(["jquery", "moment", "jhapi"], ($, moment, JHAPI) => {
  for (const time of document.querySelectorAll("time")) {
    const when = new Date(time.dateTime);
    time.title = when.toLocaleString();
    time.textContent = time.classList.contains("spectrum-clock")
      ? when.toLocaleString([], { dateStyle: "medium", timeStyle: "short" })
      : moment(when).fromNow();
  }
  const stop = document.getElementById("stop-default");
  if (stop) {
    stop.addEventListener("click", () => {
      stop.disabled = true;
      stop.textContent = "Stopping…";
      new JHAPI(window.jhdata.base_url).stop_server(window.jhdata.user);
    });
    stop.disabled = false; // before this point a click would be lost
  }
  $(document).on("ajaxSuccess", (_event, _xhr, settings) => {
    if (settings.type === "DELETE") window.location.reload();
  });
  $(document).on("ajaxError", (_event, _xhr, settings) => {
    // The dialog says what went wrong; the button is as it was once the page is loaded again.
    if (settings.type === "DELETE") $("#error-dialog").on("hidden.bs.modal", () => location.reload());
  });
  // A stop or start under way is shown until it is over.
  if (document.querySelector("[data-pending]:not([data-pending=''])")) {
    setTimeout(() => window.location.reload(), 2000);
  }
});
