"""The status of a Team: what the controller found, said so that `kubectl get teams` is enough."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from spectrum_spawner import names
from spectrum_spawner.conditions import find_condition
from spectrum_spawner.controller.drift import exact_patch
from spectrum_spawner.quantities import quantity

Manifest = dict[str, Any]

READY = "Ready"
QUOTA_ENFORCED = "QuotaEnforced"
STORAGE = "Storage"


class NotReady(Exception):  # noqa: N818 - says what happened
    """A team cannot be served for now; `reason` and the message go into its condition."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing about a team's storage that is worth a sentence; a problem needs somebody.

    `again` tells that it may pass without anything that is watched.
    """

    reason: str
    message: str
    is_problem: bool = True
    again: bool = False


def is_ready(team: Mapping[str, Any]) -> bool:
    """Whether a Team was ready, as it stands now, when it was looked at last."""
    live = team.get("status") or {}
    is_observed = live.get("observedGeneration") == team["metadata"]["generation"]
    return is_observed and find_condition(live, READY).get("status") == "True"


def make_condition(kind: str, status: bool, reason: str, message: str) -> Manifest:
    """A condition as yet without `lastTransitionTime`; `status_patch` knows it."""
    return {"type": kind, "status": str(status), "reason": reason, "message": message}


def make_quota_condition(quota: Mapping[str, Any]) -> Manifest:
    """Whether Kubernetes counts by the quota that was written: hard values are read back."""
    wanted = (quota.get("spec") or {}).get("hard") or {}
    counted = (quota.get("status") or {}).get("hard") or {}
    if exact_patch(counted, wanted):
        return make_condition(
            QUOTA_ENFORCED, False, "Pending", "Kubernetes does not count by this quota yet."
        )
    return make_condition(QUOTA_ENFORCED, True, "Enforced", "Kubernetes counts by this quota.")


def make_storage_condition(findings: Iterable[Finding]) -> Manifest:
    """Whether a team has the storage that it is to have. The first problem gives the reason."""
    found = sorted(findings, key=lambda finding: not finding.is_problem)
    if not found:
        return make_condition(STORAGE, True, "Provided", "All volumes are as they are wanted.")
    message = " ".join(finding.message for finding in found)
    return make_condition(STORAGE, not found[0].is_problem, found[0].reason, message)


def make_status(
    team: Mapping[str, Any],
    *,
    conditions: list[Manifest],
    namespace: str | None = None,
    gid: int | None = None,
    quota: Mapping[str, Any] | None = None,
    servers: int | None = None,
    granted: Mapping[str, Any] | None = None,
    storage: Mapping[str, Any] | None = None,
) -> Manifest:
    """The whole status of a Team; parts that are not known are left out."""
    status: Manifest = {
        "observedGeneration": team["metadata"]["generation"],
        "conditions": conditions,
    }
    if namespace is not None:
        status["namespace"] = namespace
    if gid is not None:
        status["gid"] = gid
    if servers is not None:
        status["servers"] = servers
    if granted:
        status["granted"] = dict(granted)
    if storage:
        status["storage"] = dict(storage)
    if gpus := gpu_usage(quota or {}):
        used = sum(count["used"] for count in gpus.values())
        hard = sum(count["hard"] for count in gpus.values())
        status["usage"] = {"gpus": gpus}
        status["gpus"] = f"{used}/{hard}"
    return status


def gpu_usage(quota: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Used and allowed accelerators by resource name, as the ResourceQuota's status counts them."""
    status = quota.get("status") or {}
    used = status.get("used") or {}
    prefix = names.gpu_quota_key("")
    return {
        key.removeprefix(prefix): {"used": int(quantity(used[key])), "hard": int(quantity(hard))}
        for key, hard in sorted((status.get("hard") or {}).items())
        if key.startswith(prefix) and "/" in key and key in used
    }


def status_patch(team: Mapping[str, Any], wanted: Manifest, *, now: str) -> Manifest:
    """Merge patch for the status, empty if it is as wanted already.

    A condition keeps its `lastTransitionTime` for as long as its status stays the same; `now` is
    an RFC 3339 time for those that change.
    """
    live = team.get("status") or {}
    before = {condition["type"]: condition for condition in live.get("conditions") or []}
    conditions = [
        {
            **condition,
            "lastTransitionTime": _transition(before.get(condition["type"]), condition, now),
        }
        for condition in wanted["conditions"]
    ]
    return exact_patch(live, {**wanted, "conditions": conditions})


def _transition(before: Mapping[str, Any] | None, condition: Mapping[str, Any], now: str) -> str:
    if before is not None and before["status"] == condition["status"]:
        return before["lastTransitionTime"]
    return now
