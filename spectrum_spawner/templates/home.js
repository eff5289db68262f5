// JupyterHub's own script stops servers; this one says so and shows the page as it is afterwards.
require(["jquery"], ($) => {
  for (const time of document.querySelectorAll("time.time-col")) {
    time.title = new Date(time.textContent.trim()).toLocaleString();
  }
  $("#stop").on("click", (event) => {
    event.currentTarget.disabled = true;
    event.currentTarget.textContent = "Stopping…";
  });
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
