"""Debian packages that the local cluster stands on."""

import shutil
import tempfile
from pathlib import Path

from local.commands import run
from local.errors import Refusal
from local.progress import Progress
from local.versions import load_versions

PATH = "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def list_missing(group: str) -> list[str]:
    """List the packages of a group of versions.toml whose command or file is not there."""
    return sorted({pkg for name, pkg in load_versions()[group].items() if not _is_there(name)})


def ensure_packages(group: str, progress: Progress) -> None:
    """Install what is missing."""
    missing = list_missing(group)
    if not missing:
        return
    wanted = " ".join(missing)
    _check_apt(wanted)
    with progress.step(f"installing Debian packages {wanted}") as step:
        quiet = {"DEBIAN_FRONTEND": "noninteractive"}
        step.awaited = "apt-get update"
        run(["apt-get", "update", "-q"], environment=quiet)
        step.awaited = "apt-get install"
        options = ["-q", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"]
        run(["apt-get", "install", *options, *missing], environment=quiet)


def find_program(name: str) -> Path | None:
    """Return where a program of this machine lies; None when it has none of that name."""
    found = shutil.which(name, path=PATH)
    return Path(found) if found else None


def unpack_package(package: str, target: Path) -> None:
    """Fetch a Debian package and unpack it below `target`; nothing of it is installed or run."""
    _check_apt(package)
    with tempfile.TemporaryDirectory(prefix="spectrum-package-") as directory:
        run(["apt-get", "update", "-q"])
        run(["apt-get", "download", "-q", package], directory=Path(directory))
        (archive,) = Path(directory).glob("*.deb")
        run(["dpkg-deb", "--extract", archive, target])


def _check_apt(wanted: str) -> None:
    if shutil.which("apt-get") is None:
        raise Refusal(f"missing: {wanted} (names of Debian packages); install them and run again")


def _is_there(name: str) -> bool:
    if name.startswith("/"):
        return Path(name).exists()
    return find_program(name) is not None
