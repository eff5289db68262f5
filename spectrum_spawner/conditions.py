"""Conditions, by which Kubernetes objects say in their status how they are."""

from collections.abc import Mapping
from typing import Any


def find_condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """The condition of a type such as `Ready` in an object's status; empty if there is none."""
    return next((c for c in status.get("conditions") or [] if c.get("type") == kind), {})
