"""The Python environment of the tests: what pyproject.toml names, and not the package itself."""

import hashlib
import importlib.util
import shutil
import sys
import tomllib
from pathlib import Path

from local.commands import run
from local.errors import Refusal
from local.packages import ensure_packages
from local.paths import CHECKOUT, find_cache
from local.progress import Progress


def list_requirements() -> list[str]:
    """List the package's requirements and those of its `dev` extra."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["dev"]]


def ensure_environment(progress: Progress) -> Path:
    """Return the Python of an environment with these requirements; make it if there is none.

    It is named by the requirements and by the Python it is of, and marked once it is whole.
    """
    requirements = list_requirements()
    digest = hashlib.sha256("\n".join([sys.version, *requirements]).encode()).hexdigest()[:16]
    place = find_cache() / "venv" / digest
    python, mark = place / "bin" / "python", place / "complete"
    if mark.exists():
        return python
    shutil.rmtree(place, ignore_errors=True)
    if importlib.util.find_spec("ensurepip") is None:
        _ensure_venv_module(progress)
    with progress.step("installing what the tests need") as step:
        step.awaited = "python -m venv"
        run([sys.executable, "-m", "venv", place])
        step.awaited = "pip install"
        run([python, "-m", "pip", "install", "--quiet", *requirements])
    mark.touch()
    return python


def _ensure_venv_module(progress: Progress) -> None:
    """Install the part of Debian's Python that makes environments."""
    try:
        ensure_packages("debian-venv", progress)
    except Refusal:
        raise Refusal("python3-venv is missing: as root, apt-get install python3-venv") from None
