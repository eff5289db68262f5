"""What a server tells of its volumes, read from its report. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from spectrum_spawner.service.moments import read_moment
from spectrum_spawner.service.problem import Problem, quoted

OWN = ("home", "scratch")  # kinds of which each person has their own
KINDS = (*OWN, "share", "dataset")
MOST = 100  # volumes of one server
LARGEST = 2**63 - 1  # a file system that says more does not know
LONGEST_NAME = 255  # characters
LONGEST_ERROR = 200  # characters that are kept of why a volume could not be read


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What was last told of one volume: in bytes and files, None where the volume did not tell.

    `user` is the owner, "" of what a team has in common; `server` is the one that told it, `at`
    when. `error` is why there are no figures.
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


def read_report(
    body: Mapping[str, Any], *, team: str, user: str, server: str, now: datetime
) -> list[Figures]:
    """The figures in a report of somebody's server; raises Problem.

    Images are older and younger than the service: parts of a report that it does not know are
    left alone.
    """
    entries = body.get("volumes")
    if not isinstance(entries, list) or len(entries) > MOST:
        raise Problem(f"The body must hold a list volumes of {MOST} at most.")
    found = [_read_entry(entry, team=team, user=user, server=server, now=now) for entry in entries]
    if len({(each.kind, each.name) for each in found}) < len(found):
        raise Problem("A volume is in the report twice: tell each one once.")
    return found


def _read_entry(entry: Any, *, team: str, user: str, server: str, now: datetime) -> Figures:
    if not isinstance(entry, Mapping):
        raise Problem("Each of volumes must be an object.")
    kind, name, error = (_read_text(entry, key) for key in ("kind", "name", "error"))
    if kind not in KINDS:
        raise Problem(f"{quoted(kind)} is no kind of volume: known are {', '.join(KINDS)}.")
    if len(name) > LONGEST_NAME:
        raise Problem(f"The name of a volume has {LONGEST_NAME} characters at most.")
    counts = ("total", "used", "files_total", "files_used")
    return Figures(
        team=team,
        kind=kind,
        user=user if kind in OWN else "",
        name=name,
        server=f"{user}/{server}" if server else user,
        read_only=_read_flag(entry),
        error=error[:LONGEST_ERROR],
        # a pod's clock may be ahead
        at=min(_read_at(entry), now),
        **{key: _read_count(entry, key) for key in counts},
    )


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
