"""Debian packages that the local cluster stands on."""

import shutil
from pathlib import Path

from local.commands import run
from local.errors import Refusal
from local.progress import Progress
from local.versions import load_versions


def list_missing(group: str) -> list[str]:
    """List the packages of a group of versions.toml whose command or file is not there."""
    return sorted({pkg for name, pkg in load_versions()[group].items() if not _is_there(name)})


def ensure_packages(group: str, progress: Progress) -> None:
    """Install what is missing."""
    missing = list_missing(group)
    if not missing:
        return
    wanted = " ".join(missing)
    if shutil.which("apt-get") is None:
        raise Refusal(f"missing: {wanted} (names of Debian packages); install them and run again")
    with progress.step(f"installing Debian packages {wanted}") as step:
        quiet = {"DEBIAN_FRONTEND": "noninteractive"}
        step.awaited = "apt-get update"
        run(["apt-get", "update", "-q"], environment=quiet)
        step.awaited = "apt-get install"
        options = ["-q", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"]
        run(["apt-get", "install", *options, *missing], environment=quiet)


def _is_there(name: str) -> bool:
    if name.startswith("/"):
        return Path(name).exists()
    return shutil.which(name, path="/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin") is not None
