"""TensorBoard: behind a tile in JupyterLab's launcher, and as a server of its own."""

import os
import shutil
from pathlib import Path
from typing import Any

COMMAND = "spectrum-tensorboard-page"  # TensorBoard itself, with its page mended
IDENTITY_AGE = 10  # seconds for which an answer of the hub on who may be here is good


def main() -> None:
    """Run TensorBoard alone behind the hub, on the logs in the team's folder.

    Sign-in and rights are the hub's, as of any server. The hub hears of whoever asks for something:
    a page that is only open asks for nothing, unless somebody had it reload by itself and has it in
    view.
    """
    from jupyter_server_proxy.standalone import StandaloneProxyServer
    from jupyterhub.services.auth import HubOAuth

    from spectrum_lab.visits import Visits

    # the one that every handler of that server takes; its settings do not reach it
    HubOAuth.instance(cache_max_age=IDENTITY_AGE)
    team = Path("~/team").expanduser()
    logs = os.environ.get("SPECTRUM_TB_LOGDIR") or (team if team.is_dir() else Path.home())
    StandaloneProxyServer.launch_instance(
        [
            # of its own it would tell of activity for as long as it runs
            *("--activity-interval=0", "--timeout=120", "--"),
            *(COMMAND, f"--logdir={logs}", "--host=127.0.0.1", "--port={port}"),
        ],
        update_last_activity=Visits(os.environ).note,
    )


def make_server() -> dict[str, Any]:
    """Return TensorBoard's entry for jupyter-server-proxy.

    It shows the logs in SPECTRUM_TB_LOGDIR, `~/logs` by default, and starts at the first click.
    """
    logdir = Path(os.environ.get("SPECTRUM_TB_LOGDIR") or "~/logs").expanduser()
    return {
        "command": [COMMAND, f"--logdir={logdir}", "--host=127.0.0.1", "--port={port}"],
        # TensorBoard imports TensorFlow: on a cold node that takes longer than the default 5 s.
        "timeout": 60,
        "new_browser_tab": True,
        # A page may ask for new data every 30 s; that is no sign of a person at work.
        "exclude_last_activity_patterns": [r".*"],
        "launcher_entry": {
            "enabled": shutil.which("tensorboard") is not None,
            "title": "TensorBoard",
            "icon_path": str(Path(__file__).with_name("tensorboard.svg")),
            # JupyterLab draws icons of this kind in the categories Notebook and Console alone.
            "category": "Notebook",
        },
    }
