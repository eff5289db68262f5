"""The volumes of a server: how full they are, and what a person must know about them.

A network file system that hangs keeps every thread that touches it: each volume has its own.
"""

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from spectrum_lab.patience import Patient

NEARLY_FULL = 0.9  # share of a volume from which on people are warned
FULL = 4 * 1024**2  # bytes left, or less: CephFS counts in blocks of that size
DOES_NOT_ANSWER = "does not answer"
_TITLES = {"home": "Your home", "share": "The team's share", "scratch": "Your scratch disk"}
_MEANWHILE = "Meanwhile work in another folder; what is in /tmp is lost when the server ends."

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Volume:
    """What is mounted at `path`: kind home, share, scratch or dataset; datasets have names."""

    kind: str
    name: str = ""
    path: str

    @property
    def title(self) -> str:
        """How sentences call it."""
        if self.kind == "dataset":
            return f"Dataset {self.name}"
        return _TITLES.get(self.kind, f"Volume {self.path}")


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What a volume told `at` a moment (RFC 3339); None is what it did not tell.

    `total` and `used` are in bytes. File systems without a limit on files have no figures of
    them. `error` is why there are no figures at all.
    """

    at: str
    total: int | None = None
    used: int | None = None
    files_total: int | None = None
    files_used: int | None = None
    read_only: bool | None = None
    error: str = ""


def list_volumes(environment: Mapping[str, str]) -> list[Volume]:
    """The volumes that $SPECTRUM_VOLUMES names, else the home alone."""
    home = Volume(kind="home", path=environment.get("HOME", "/home/jovyan"))
    listed = environment.get("SPECTRUM_VOLUMES")
    if not listed:
        return [home]
    try:
        return [
            Volume(kind=entry["kind"], name=entry.get("name") or "", path=entry["path"])
            for entry in json.loads(listed)
        ]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        log.warning("SPECTRUM_VOLUMES is no list of volumes: %r", error)
        return [home]


def read_figures(path: str) -> Figures:
    """Ask the file system at `path` as `df` does; never raises, may hang as long as it does."""
    at = _now()
    try:
        found = os.statvfs(path)
        read_only = not os.access(path, os.W_OK)
    except OSError as error:
        return Figures(at=at, error=error.strerror or type(error).__name__)
    used = (found.f_blocks - found.f_bfree) * found.f_frsize
    if found.f_files > 0 and 0 <= found.f_ffree <= found.f_files:
        files_total, files_used = found.f_files, found.f_files - found.f_ffree
    else:  # CephFS counts files, but tells that -1 of them are free, whatever their limit is
        files_total = _find_file_quota(path)
        files_used = None if files_total is None else found.f_files
    return Figures(
        at=at,
        total=used + found.f_bavail * found.f_frsize,
        used=used,
        files_total=files_total,
        files_used=files_used,
        read_only=read_only,
    )


def _find_file_quota(path: str) -> int | None:
    """How many files a directory of CephFS may have below it, None if nobody limits them."""
    try:
        return int(os.getxattr(path, "ceph.quota.max_files")) or None
    except OSError:
        return None


class Probe:
    """Reads one volume, whatever its file system does."""

    def __init__(self, volume: Volume) -> None:
        self.volume = volume
        self._reading = Patient(lambda: read_figures(volume.path))

    async def read(self) -> Figures:
        """The volume's figures, or that it does not answer in time."""
        try:
            return await self._reading.answer()
        except TimeoutError:
            return Figures(at=_now(), error=DOES_NOT_ANSWER)


def find_warning(volume: Volume, figures: Figures) -> str:
    """The sentence that a person must see about a volume, "" if there is none."""
    what = f"{volume.title} ({_shorten(volume.path)})"
    if figures.error == DOES_NOT_ANSWER:
        return (
            f"{what} does not answer. What uses files there waits, and goes on as soon as the "
            "storage is back; everything else of the server works."
        )
    if figures.error:
        return f"{what} cannot be read: {figures.error}."
    if volume.kind == "dataset":
        return ""
    if figures.read_only:
        return f"{what} cannot be written: nothing can be saved there. {_MEANWHILE}"
    return _find_want_of_room(what, figures)


def _find_want_of_room(what: str, figures: Figures) -> str:
    if figures.total is None or figures.used is None:
        return ""
    free = figures.total - figures.used
    if free <= FULL:
        return (
            f"{what} is full ({_size(figures.total)}): nothing can be saved there until something "
            f"is deleted. {_MEANWHILE}"
        )
    if figures.files_total and (figures.files_used or 0) >= figures.files_total:
        return (
            f"{what} takes no further file, it has {figures.files_total:,}: no new one can be "
            f"saved there until some are deleted. {_MEANWHILE}"
        )
    if figures.used >= NEARLY_FULL * figures.total:
        percent = int(100 * figures.used / figures.total)
        return f"{what} is {percent} % full: {_size(free)} of {_size(figures.total)} are free."
    return ""


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _shorten(path: str) -> str:
    home = os.path.expanduser("~")
    return "~" + path.removeprefix(home) if path.startswith(f"{home}/") else path


def _size(count: float) -> str:
    units = ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while count >= 1024 and len(units) > 1:
        count /= 1024
        units.pop(0)
    return f"{count:.3g} {units[0]}" if count < 1000 else f"{count:.0f} {units[0]}"
