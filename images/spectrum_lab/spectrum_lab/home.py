"""A person's home at the start of a server: what it gets, and how to do without it."""

import logging
import os
import re
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

_PRIVATE_KEY = re.compile(rb"\s*-----BEGIN [A-Z ]*PRIVATE KEY-----")

log = logging.getLogger(__name__)


def add_examples(examples: Path, home: Path) -> bool:
    """Copy the image's examples to `home/examples`, unless there is anything by that name.

    Return True if they were copied. The folder appears whole or not at all, also when two
    servers of one person start at once. A home that is full or read-only is logged, not raised:
    the person needs a server to clean it up.
    """
    target = home / "examples"
    if os.path.lexists(target) or not examples.is_dir() or not any(examples.iterdir()):
        return False
    try:
        staging = Path(tempfile.mkdtemp(prefix=".examples-", dir=home))
        try:
            # The modes are those of new files under this process' umask, not the image's.
            shutil.copytree(examples, staging / "examples", copy_function=shutil.copyfile)
            os.rename(staging / "examples", target)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    except OSError as error:
        if os.path.lexists(target):
            return False
        log.warning("The examples could not be copied to %s: %s", target, error)
        return False
    return True


def takes_files(home: Path) -> bool:
    """Whether a new file with something in it can be kept there; what speaks against it is logged.

    Rights are not asked but used: a full home is as writable as any other.
    """
    try:
        with tempfile.TemporaryFile(prefix=".room-", dir=home, buffering=0) as file:
            file.write(bytes(4096))
    except OSError as error:
        log.warning("%s takes no files: %s", home, error)
        return False
    return True


def protect_keys(home: Path) -> None:
    """Take from others what makes ssh refuse a private key or its settings in `home/.ssh`.

    Files that are new under this server's umask, and all in a volume that was given to the team's
    group, are the group's to write. A volume that takes no change is as it is.
    """
    for path in _list_files(home / ".ssh"):
        with suppress(OSError):
            status = path.stat()
            refused = _find_refused(path)
            if status.st_uid == os.getuid() and status.st_mode & refused:
                path.chmod(stat.S_IMODE(status.st_mode) & ~refused)


def _list_files(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.is_file()]
    except OSError:
        return []


def _find_refused(path: Path) -> int:
    """The bits of a file's mode with which ssh does not read it; raises OSError."""
    if path.name == "config":
        return 0o022
    with path.open("rb") as file:
        return 0o077 if _PRIVATE_KEY.match(file.read(100)) else 0


def add_profile(home: Path) -> None:
    """Make IPython's profile, so that a home that is full later has what a kernel needs of it."""
    profile = home / ".ipython" / "profile_default"
    try:
        for name, mode in (("startup", 0o777), ("log", 0o777), ("security", 0o700), ("pid", 0o700)):
            (profile / name).mkdir(mode=mode, parents=True, exist_ok=True)
    except OSError as error:
        log.warning("%s could not be made: %s", profile, error)


def make_refuge(home: Path, refuge: Path) -> dict[str, str]:
    """Variables by which Jupyter and IPython keep in `refuge` what they write into a home.

    Without them a server does not start in a full home, nor a kernel. Settings are still read
    from the home; kernels run without the startup scripts that are there.
    """
    refuge.mkdir(exist_ok=True)
    return {
        "IPYTHONDIR": str(refuge / "ipython"),
        "JUPYTER_CONFIG_DIR": str(refuge / "jupyter"),
        "JUPYTER_CONFIG_PATH": str(home / ".jupyter"),
        "JUPYTERLAB_SETTINGS_DIR": str(home / ".jupyter" / "lab" / "user-settings"),
    }
