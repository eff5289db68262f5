"""TensorBoard: behind a tile in JupyterLab's launcher, and as a server of its own."""

import os
import shutil
from pathlib import Path
from typing import Any

IDENTITY_AGE = 10  # seconds for which an answer of the hub on who may be here is good


def main() -> None:
    """Run TensorBoard alone behind the hub, on the logs in the team's folder.

    Sign-in and rights are the hub's, as of any server. An open page asks for new data every 30 s,
    so that the server tells the hub of no activity.
    """
    from jupyter_server_proxy.standalone import StandaloneProxyServer
    from jupyterhub.services.auth import HubAuth

    # its own settings do not reach the sign-in of that server
    HubAuth.cache_max_age.default_value = IDENTITY_AGE
    team = Path("~/team").expanduser()
    logs = os.environ.get("SPECTRUM_TB_LOGDIR") or (team if team.is_dir() else Path.home())
    StandaloneProxyServer.launch_instance(
        [
            *("--activity-interval=0", "--timeout=120", "--"),
            *("tensorboard", f"--logdir={logs}", "--host=127.0.0.1", "--port={port}"),
        ]
    )


def make_server() -> dict[str, Any]:
    """Return TensorBoard's entry for jupyter-server-proxy.

    It shows the logs in SPECTRUM_TB_LOGDIR, `~/logs` by default, and starts at the first click.
    """
    logdir = Path(os.environ.get("SPECTRUM_TB_LOGDIR") or "~/logs").expanduser()
    return {
        "command": ["tensorboard", f"--logdir={logdir}", "--host=127.0.0.1", "--port={port}"],
        # TensorBoard imports TensorFlow: on a cold node that takes longer than the default 5 s.
        "timeout": 60,
        "new_browser_tab": True,
        # An open page asks for new data every 30 s; that is no sign of a person at work.
        "exclude_last_activity_patterns": [r".*"],
        "launcher_entry": {
            "enabled": shutil.which("tensorboard") is not None,
            "title": "TensorBoard",
            "icon_path": str(Path(__file__).with_name("tensorboard.svg")),
            # JupyterLab draws icons of this kind in the categories Notebook and Console alone.
            "category": "Notebook",
        },
    }
