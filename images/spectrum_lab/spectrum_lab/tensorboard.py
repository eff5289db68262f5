"""TensorBoard behind jupyter-server-proxy, with a tile in JupyterLab's launcher."""

import os
import shutil
from pathlib import Path
from typing import Any


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
