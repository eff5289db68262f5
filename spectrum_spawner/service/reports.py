"""What a server tells of its volumes, read from its report. Pure."""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from spectrum_spawner.choice import is_disk_name
from spectrum_spawner.service.moments import read_moment
from spectrum_spawner.service.problem import Problem, quoted

OWN = ("home", "scratch")  # kinds of which each person has their own
KINDS = (*OWN, "share", "dataset")
MOST = 100  # volumes of one server
LARGEST = 2**63 - 1  # a file system that says more does not know
UNKNOWN = "unknown reason"
# Why a volume could not be read, as our images say it. Teammates see it, so nobody may put
# anything else there.
ERRORS = frozenset(
    {
        "",
        "does not answer",
        *("Connection timed out", "Host is down", "Input/output error"),
        *("No such file or directory", "Permission denied", "Stale file handle"),
        *("Transport endpoint is not connected", "Cannot send after transport endpoint shutdown"),
    }
)

Volume = tuple[str, str, str, str]  # team, kind, user and name


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What was last told of one volume: in bytes and files, None where the volume did not tell.

    `user` is the owner, "" of what a team has in common; `server` is the one that told it, `at`
    when. `error`, one of ERRORS or UNKNOWN, is why there are no figures.
    """

    team: str
    kind: str
    user: str
    name: str
    server: str
    total: int | None
    used: int | None
    files_total: int | None
    files_used: int | None
    read_only: bool | None
    error: str
    at: datetime

    @property
    def volume(self) -> Volume:
        return (self.team, self.kind, self.user, self.name)


@dataclass(frozen=True, kw_only=True)
class Report:
    """What one server of a `user` told, titled as figures name their `server`."""

    team: str
    user: str
    server: str
    figures: tuple[Figures, ...]


def read_report(
    body: Mapping[str, Any],
    *,
    team: str,
    user: str,
    server: str,
    datasets: Container[str],
    now: datetime,
) -> Report:
    """A report of somebody's server in a team, which is offered `datasets`; raises Problem.

    Images are older and younger than the service: parts of a report that it does not know are
    left alone. So are datasets that the team is not offered any more: servers that began before
    have them still.
    """
    entries = body.get("volumes")
    if not isinstance(entries, list) or len(entries) > MOST:
        raise Problem(f"The body must hold a list volumes of {MOST} at most.")
    title = f"{user}/{server}" if server else user
    found = [_read_entry(entry, team=team, user=user, server=title, now=now) for entry in entries]
    if len({each.volume for each in found}) < len(found):
        raise Problem("A volume is in the report twice: tell each one once.")
    return Report(
        team=team,
        user=user,
        server=title,
        figures=tuple(each for each in found if each.kind != "dataset" or each.name in datasets),
    )


def _read_entry(entry: Any, *, team: str, user: str, server: str, now: datetime) -> Figures:
    if not isinstance(entry, Mapping):
        raise Problem("Each of volumes must be an object.")
    kind, name, error = (_read_text(entry, key) for key in ("kind", "name", "error"))
    if kind not in KINDS:
        raise Problem(f"{quoted(kind)} is no kind of volume: known are {', '.join(KINDS)}.")
    if not _is_name(kind, name):
        raise Problem(f"{quoted(name)} is no name of a volume of kind {kind}.")
    counts = ("total", "used", "files_total", "files_used")
    return Figures(
        team=team,
        kind=kind,
        user=user if kind in OWN else "",
        name=name,
        server=server,
        read_only=_read_flag(entry),
        error=error if error in ERRORS else UNKNOWN,
        # a pod's clock may be ahead
        at=min(_read_at(entry), now),
        **{key: _read_count(entry, key) for key in counts},
    )


def _is_name(kind: str, name: str) -> bool:
    """Whether a volume may be called so: of homes and shares there is one only."""
    if kind == "scratch":
        return is_disk_name(name)
    return kind == "dataset" or not name


def _read_text(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key)
    if value is None:
        return ""
    if not isinstance(value, str) or "\0" in value or any("\ud800" <= c <= "\udfff" for c in value):
        raise Problem(f"{key} of a volume must be a text.")
    return value


def _read_count(entry: Mapping[str, Any], key: str) -> int | None:
    value = entry.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST:
        raise Problem(f"{key} of a volume must be a whole number from 0 to {LARGEST}, or null.")
    return value


def _read_flag(entry: Mapping[str, Any]) -> bool | None:
    value = entry.get("read_only")
    if value is not None and not isinstance(value, bool):
        raise Problem("read_only of a volume must be true, false or null.")
    return value


def _read_at(entry: Mapping[str, Any]) -> datetime:
    try:
        return read_moment(entry["at"])
    except (KeyError, TypeError, ValueError) as error:
        raise Problem("at of a volume must be a time such as 2026-01-31T09:14:00Z.") from error
