"""What JupyterLab's extensions add to the time from a server's exec to its first HTTP 200.

Three servers of the base image start in turns: one with everything that Jupyter Server loads by
itself taken away but JupyterLab and what the hub needs, a personal one, and one on which documents
are edited together. Round 0, with cold files, is not counted. Needs root.

    python -m tests.bench.extensions_start [ROUNDS]
"""

import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from local.images import REPOSITORY, build_all
from local.paths import find_cache
from tests.images.hub import running_hub
from tests.images.rootfs import RootFilesystem, unpack
from tests.images.server import running_server

KINDS: dict[str, dict[str, str]] = {
    "without": {},
    "personal": {},
    "together": {"SPECTRUM_COLLABORATIVE": "1"},
}
TAKEN_AWAY = (
    "jupyter_server_fileid",
    "jupyter_server_proxy",
    "jupyter_server_ydoc",
    "spectrum_lab.extension",
)
MOST = 1.3  # times as long as without


def write_settings(home: Path) -> None:
    """Settings of a person that turn off what can be."""
    (home / ".jupyter").mkdir()
    off = dict.fromkeys(TAKEN_AWAY, False)
    lines = ["c = get_config()", f"c.ServerApp.jpserver_extensions = {off}"]
    (home / ".jupyter" / "jupyter_server_config.py").write_text("\n".join(lines))


def measure_start(root: RootFilesystem, kind: str, *, hub_port: int) -> float:
    """Return the seconds that one start in a new home takes."""
    home = Path(tempfile.mkdtemp(prefix="spectrum-home-", dir="/var/tmp"))
    home.chmod(0o777)
    try:
        if kind == "without":
            write_settings(home)
        with running_server(root, home=home, hub_port=hub_port, environment=KINDS[kind]) as server:
            return server.seconds
    finally:
        shutil.rmtree(home)


def main(rounds: int) -> None:
    archive = build_all(find_cache(), print)[f"{REPOSITORY}/base-notebook:dev"]
    folder = Path(tempfile.mkdtemp(prefix="spectrum-bench-", dir="/var/tmp"))
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    try:
        root = unpack(archive, folder / "root")
        with running_hub() as hub:
            for number in range(rounds + 1):
                for kind, seconds in found.items():
                    seconds.append(measure_start(root, kind, hub_port=hub.server_port))
                told = ", ".join(f"{kind} {each[-1]:.2f} s" for kind, each in found.items())
                print(f"round {number}: {told}", flush=True)
    finally:
        shutil.rmtree(folder)
    medians = {kind: statistics.median(seconds[1:]) for kind, seconds in found.items()}
    ratios = {kind: round(medians[kind] / medians["without"], 3) for kind in medians}
    figures = {f"{kind}_seconds": round(value, 3) for kind, value in medians.items()}
    print(json.dumps({"bench": "extensions_start", "rounds": rounds, **figures, "ratios": ratios}))
    assert ratios["personal"] <= MOST, ratios


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
