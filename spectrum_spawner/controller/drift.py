"""How a live object differs from the one that is wanted, as the merge patch that mends it."""

from collections.abc import Mapping
from typing import Any

from spectrum_spawner.quantities import quantity


def mending_patch(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Merge patch (RFC 7386) that makes `live` as `wanted`; empty if there is nothing to mend.

    Labels, annotations and top-level fields that `wanted` does not name belong to others and stay
    (admins add image pull secrets and cost labels). Within the fields that it names, nothing is
    tolerated: not one more quota entry, rule or subject.
    """
    patch: dict[str, Any] = {}
    for key, value in wanted.items():
        if key in ("apiVersion", "kind"):
            continue
        if key == "metadata":
            changes = _metadata_patch(live.get("metadata") or {}, value)
        else:
            changes = exact_patch({key: live[key]} if key in live else {}, {key: value})
        patch.update(changes)
    return patch


def exact_patch(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Merge patch that leaves exactly `wanted`; quantities are compared by value."""
    patch: dict[str, Any] = {key: None for key in live if key not in wanted}
    for key, value in wanted.items():
        other = live.get(key)
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            if changes := exact_patch(other, value):
                patch[key] = changes
        elif key not in live or not _is_same(other, value):
            patch[key] = value
    return patch


def _metadata_patch(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    changes = {}
    for field in ("labels", "annotations"):
        present = live.get(field) or {}
        missing = {k: v for k, v in wanted.get(field, {}).items() if present.get(k) != v}
        if missing:
            changes[field] = missing
    return {"metadata": changes} if changes else {}


def _is_same(live: object, wanted: object) -> bool:
    if live == wanted:
        return True
    if not isinstance(live, str) or not isinstance(wanted, str):
        return False
    try:
        return quantity(live) == quantity(wanted)
    except ValueError:
        return False
