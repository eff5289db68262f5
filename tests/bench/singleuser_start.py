"""How long a server takes from exec to its first HTTP 200, in our image and installed plainly.

Plain is what a person gets who follows JupyterHub's documentation: the same versions of the same
packages, by `pip install` into a new virtual environment of the same Python (pip compiles the
bytecode, so neither side compiles at start), started by `jupyterhub-singleuser`, with none of our
settings. Both run in the image's root filesystem as a pod would run them, in turns, against the
same stand-in for the hub; round 0, with cold files, is not counted. Needs root.

    python -m tests.bench.singleuser_start [ROUNDS]
"""

import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from local.buildah import CA_BUNDLE
from local.images import REPOSITORY, build_all
from local.paths import find_cache
from tests.images.hub import running_hub
from tests.images.rootfs import RootFilesystem, unpack
from tests.images.server import running_server

PLAIN = "/tmp/plain"


def install_plainly(root: RootFilesystem, home: Path) -> None:
    """Install into PLAIN what the image has, less our own package, and remove our settings."""
    shutil.rmtree(root.path / "etc" / "jupyter", ignore_errors=True)
    settings = {}
    if CA_BUNDLE.exists():
        shutil.copy(CA_BUNDLE, root.path / "tmp" / "ca.crt")
        settings["PIP_CERT"] = "/tmp/ca.crt"
    install = f"""
pip freeze --all | grep -v spectrum > /tmp/requirements.txt
python3 -m venv {PLAIN}
{PLAIN}/bin/pip install --quiet --no-cache-dir --requirement /tmp/requirements.txt
"""
    root.run("sh", "-ec", install, home=home, environment=settings, timeout=600)


def measure_start(root: RootFilesystem, *, hub_port: int, plain: bool) -> float:
    """Return the seconds that one start in a new home takes."""
    folder = Path(tempfile.mkdtemp(prefix="spectrum-home-", dir="/var/tmp"))
    folder.chmod(0o777)
    command = [f"{PLAIN}/bin/jupyterhub-singleuser"] if plain else None
    path = {"PATH": f"{PLAIN}/bin:/usr/bin:/bin"} if plain else {}
    try:
        with running_server(
            root, home=folder, hub_port=hub_port, command=command, environment=path
        ) as server:
            return server.seconds
    finally:
        shutil.rmtree(folder)


def main(rounds: int) -> None:
    archive = build_all(find_cache(), print)[f"{REPOSITORY}/base-notebook:dev"]
    folder = Path(tempfile.mkdtemp(prefix="spectrum-bench-", dir="/var/tmp"))
    try:
        ours = unpack(archive, folder / "ours", keeps_changes=True)
        plain = unpack(archive, folder / "plain", keeps_changes=True)
        home = folder / "home"
        home.mkdir()
        home.chmod(0o777)
        install_plainly(plain, home)
        pairs = []
        with running_hub() as hub:
            for number in range(rounds + 1):
                first = measure_start(plain, hub_port=hub.server_port, plain=True)
                second = measure_start(ours, hub_port=hub.server_port, plain=False)
                print(f"round {number}: plain {first:.2f} s, ours {second:.2f} s", flush=True)
                pairs.append((first, second))
    finally:
        shutil.rmtree(folder)
    counted = pairs[1:]
    ratios = [ours / plain for plain, ours in counted]
    figures = {
        "bench": "singleuser_start",
        "rounds": rounds,
        "plain_seconds": round(statistics.median(plain for plain, _ in counted), 3),
        "spectrum_seconds": round(statistics.median(ours for _, ours in counted), 3),
        "ratio": round(statistics.median(ratios), 3),
        "worst_ratio": round(max(ratios), 3),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
