"""What changed in a Team's spec or on a claim, and through whom. Pure: `managedFields` in."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

MISSING = None  # how an absent value reads in a record


@dataclass(frozen=True, kw_only=True)
class Change:
    """One key of the spec, dotted, and its values before and after; None stands for absent."""

    key: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.key} from {_show(self.before)} to {_show(self.after)}"


def find_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """The keys in which two specs differ, as deep down as both have tables."""
    return list(_compare("", before, after))


def find_writers(team: Mapping[str, Any]) -> dict[str, str]:
    """Who owns anything in a Team's spec by `managedFields`, and when they last set a value.

    Times are RFC 3339, in whole seconds. Taking a value away leaves no trace here.
    """
    writers: dict[str, str] = {}
    for entry in team["metadata"].get("managedFields") or []:
        if not entry.get("subresource") and "f:spec" in (entry.get("fieldsV1") or {}):
            manager, time = entry["manager"], entry.get("time", "")
            writers[manager] = max(time, writers.get(manager, ""))
    return writers


def find_annotator(obj: Mapping[str, Any], key: str) -> str | None:
    """Who set an annotation last, by `managedFields`; None if nobody can tell."""
    found: dict[str, str] = {}
    for entry in obj["metadata"].get("managedFields") or []:
        metadata = (entry.get("fieldsV1") or {}).get("f:metadata") or {}
        if f"f:{key}" in (metadata.get("f:annotations") or {}):
            found[entry["manager"]] = entry.get("time", "")
    return max(found, key=lambda manager: found[manager], default=None)


def find_writer(
    before: Mapping[str, str], after: Mapping[str, str], changes: list[Change]
) -> str | None:
    """Through whom a spec changed, by its writers before and after; None if nobody can tell."""
    fresh = {manager: time for manager, time in after.items() if before.get(manager) != time}
    if not fresh and is_removal(changes):
        return None
    # without a fresh one, it was somebody who had also written earlier in the same second
    found = fresh or after
    return max(found, key=lambda manager: found[manager], default=None)


def is_removal(changes: list[Change]) -> bool:
    """Whether values were only taken away."""
    return bool(changes) and not any(_adds(change.before, change.after) for change in changes)


def find_changed_grants(changes: list[Change]) -> set[str]:
    """Ids of the grants that changes are about; an id holds no dot."""
    found: set[str] = set()
    for change in changes:
        table, _, rest = change.key.partition(".")
        if table == "grants":
            found |= {rest.partition(".")[0]} if rest else {*(change.before or change.after)}
    return found


def _compare(above: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key, MISSING), after.get(key, MISSING)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from _compare(f"{above}{key}.", old, new)
        elif old != new:
            yield Change(key=f"{above}{key}", before=old, after=new)


def _adds(before: Any, after: Any) -> bool:
    if isinstance(before, list) and isinstance(after, list):
        return any(item not in before for item in after)
    return after is not MISSING


def _show(value: Any) -> str:
    if value is MISSING:
        return "nothing"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
