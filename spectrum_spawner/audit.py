"""Audit record: who did what, when and why. Hub, controller and service write the same one.

A record is known by its id alone, so that one event that is written twice, by a process that
was killed in between, is one event in the ledger.
"""

import json
import math
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

WRITERS = frozenset({"hub", "controller", "service"})
ACTIONS = frozenset(
    {
        *("start", "stop", "end", "refuse"),
        *("membership", "team", "sign-in", "preference"),
        *("request", "decide", "grant", "stop-request", "notice"),
        *("warn", "extend", "hold", "cull", "release", "continue", "share"),
    }
)
MAX_TEXT = 1000  # characters of a reason
MAX_NAME = 500  # characters of an id, an actor or a name: an index of them is kept
MAX_DETAILS = 8192  # characters of the details as JSON

_ACTOR = re.compile(
    r"hub|controller|identity-provider|(?:user|server|service|manager):.+", re.DOTALL
)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z", re.ASCII)


class RecordError(ValueError):
    """Something is no record; one sentence says why."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """One thing that happened. `make_record` makes those that any ledger takes.

    `at` is RFC 3339 in UTC, `reason` one sentence for people, `user`, `team` and `server` whom
    and what it was about: full names, where they apply. `actor` is who did it: `user:<name>`,
    `server:<user>/<name>` for whoever has that server's own token, `service:<name>`,
    `manager:<field manager>`, `hub`, `controller` or `identity-provider`.
    """

    id: str
    at: str
    writer: str
    action: str
    actor: str
    user: str = ""
    team: str = ""
    server: str = ""
    reason: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, value: object) -> "Record":
        """Read what `as_dict` gave; raises RecordError for anything else."""
        if not isinstance(value, Mapping):
            raise RecordError(f"A record is an object, not {type(value).__name__}.")
        _check_keys(value)
        for key, text in value.items():
            if key != "details":
                _check_text(key, text)
        record = cls(**value)
        _check_meaning(record)
        _check_details(record.details)
        return record

    def as_dict(self) -> dict[str, Any]:
        """A value that `json.dumps` takes."""
        return asdict(self)


def make_record(
    *,
    writer: str,
    action: str,
    actor: str,
    id: str = "",
    reason: str = "",
    details: Mapping[str, Any] | None = None,
    **names: str,
) -> Record:
    """A record of now. Without an `id` it is an event of its own; whatever it says is made to fit.

    `names` are those of `user`, `team` and `server` that apply.
    """
    return Record(
        id=_fit(id, MAX_NAME) or uuid.uuid4().hex,
        at=format_moment(datetime.now(UTC)),
        writer=writer,
        action=action,
        actor=_fit(actor, MAX_NAME),
        reason=_fit(reason, MAX_TEXT),
        details=_fit_details(details or {}),
        **{key: _fit(name, MAX_NAME) for key, name in names.items()},
    )


def format_moment(moment: datetime) -> str:
    """RFC 3339 in UTC, to the millisecond."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _fit(text: str, longest: int) -> str:
    """Text that any database holds, cut to `longest` characters."""
    clean = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return clean if len(clean) <= longest else f"{clean[: longest - 1]}…"


def _fit_details(details: Mapping[str, Any]) -> Mapping[str, Any]:
    """Details that any database holds; of those that are too long, how they begin."""
    clean = _clean(details)
    text = json.dumps(clean)
    return clean if len(text) <= MAX_DETAILS else {"cut": text[: MAX_DETAILS // 4]}


def _clean(value: Any) -> Any:
    """The same value, with all its texts and keys fit for any database."""
    if isinstance(value, str):
        return value if _can_be_kept(value) else _fit(value, len(value))
    if isinstance(value, Mapping):
        return {_clean(str(key)): _clean(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_clean(each) for each in value]
    is_plain = value is None or (isinstance(value, int | float) and math.isfinite(value))
    return value if is_plain else str(value)


def _check_keys(value: Mapping[Any, Any]) -> None:
    known = [each.name for each in fields(Record)]
    if extra := sorted(str(key) for key in value.keys() - set(known)):
        raise RecordError(f"A record has no {', '.join(extra)[:MAX_TEXT]}.")
    if missing := [key for key in known[:5] if key not in value]:
        raise RecordError(f"A record needs {', '.join(missing)}.")


def _check_text(key: str, text: object) -> None:
    if not isinstance(text, str):
        raise RecordError(f"{key} is a text, not {type(text).__name__}.")
    longest = MAX_TEXT if key == "reason" else MAX_NAME
    if len(text) > longest:
        raise RecordError(f"{key} has {len(text)} characters, at most {longest} are taken.")
    if not _can_be_kept(text):
        raise RecordError(f"{key} holds characters that cannot be kept.")


def _can_be_kept(text: str) -> bool:
    """Whether a database takes it: no NUL, and no half of a surrogate pair."""
    with suppress(UnicodeEncodeError):
        return b"\0" not in text.encode()
    return False


def _check_meaning(record: Record) -> None:
    if not record.id:
        raise RecordError("id is empty.")
    if record.writer not in WRITERS:
        raise RecordError(f"writer is one of {', '.join(sorted(WRITERS))}.")
    if record.action not in ACTIONS:
        raise RecordError(f"action is one of {', '.join(sorted(ACTIONS))}.")
    if not _ACTOR.fullmatch(record.actor):
        raise RecordError("actor names nobody: it is e.g. user:alice, service:spectrum or hub.")
    if not _is_moment(record.at):
        raise RecordError("at is no moment in UTC such as 2026-01-31T09:14:00Z.")


def _is_moment(text: str) -> bool:
    with suppress(ValueError):
        return bool(_MOMENT.fullmatch(text) and datetime.fromisoformat(text))
    return False


def _check_details(details: object) -> None:
    if not isinstance(details, Mapping):
        raise RecordError(f"details is an object, not {type(details).__name__}.")
    try:
        length = len(json.dumps(details, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise RecordError("details cannot be written as JSON.") from error
    if length > MAX_DETAILS:
        raise RecordError(f"details has {length} characters, at most {MAX_DETAILS} are taken.")
    if not all(map(_can_be_kept, _find_texts(details))):
        raise RecordError("details holds characters that cannot be kept.")


def _find_texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield str(key)
            yield from _find_texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _find_texts(each)
