"""How a live object differs from the one that is wanted, as the merge patch that mends it."""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

_QUANTITY = re.compile(r"(-?[0-9]+(?:\.[0-9]*)?|-?\.[0-9]+)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?\Z")
_FACTORS = {
    "m": Decimal("0.001"),
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", start=1)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", start=1)},
}


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


def quantity(text: str | int) -> Decimal:
    """The value of a Kubernetes quantity such as `500m` or `32Gi`; raises ValueError."""
    match = _QUANTITY.match(str(text))
    if not match:
        raise ValueError(f"{text!r} is no quantity")
    return Decimal(match[1]) * _FACTORS.get(match[2], Decimal(1))


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
