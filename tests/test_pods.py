"""A server's pod: what is kept of one that the API server shows."""

from typing import Any

import pytest

from spectrum_spawner.owner import Owner
from spectrum_spawner.pods import Pod, trim

ALICE = Owner(hub="spectrum", team="flight", user="alice", server="")


def make_object(status: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    annotations = {**ALICE.annotations, "spectrum.dev/start-id": "s-1"}
    return {
        "metadata": {"name": "p", "uid": "u-1", "annotations": annotations, **metadata},
        "status": status,
    }


def container(**state: Any) -> list[dict[str, Any]]:
    return [
        {"name": "helper", "state": {"terminated": {"exitCode": 3}}},
        {"name": "notebook", **state},
    ]


@pytest.mark.parametrize(
    ("status", "parts"),
    [
        ({}, {"phase": "Pending"}),
        (
            {
                "phase": "Pending",
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/1 nodes are available: 1 Insufficient cpu.",
                    }
                ],
            },
            {"phase": "Pending", "unschedulable": "0/1 nodes are available: 1 Insufficient cpu."},
        ),
        (
            {
                "phase": "Pending",
                "conditions": [
                    {"type": "PodScheduled", "status": "True"},
                    {"type": "PodReadyToStartContainers", "status": "False"},
                ],
            },
            {"phase": "Pending", "scheduled": True, "mounting": True},
        ),
        (
            {
                "phase": "Pending",
                "conditions": [
                    {"type": "PodScheduled", "status": "True"},
                    {"type": "PodReadyToStartContainers", "status": "True"},
                ],
                "containerStatuses": container(
                    state={"waiting": {"reason": "ErrImagePull", "message": "not found"}}
                ),
            },
            {
                "phase": "Pending",
                "scheduled": True,
                "waiting": "ErrImagePull",
                "waiting_message": "not found",
            },
        ),
        (
            {
                "phase": "Running",
                "podIP": "10.0.0.7",
                "conditions": [{"type": "PodScheduled", "status": "True"}],
                "containerStatuses": container(ready=True, state={"running": {}}),
            },
            {"phase": "Running", "ip": "10.0.0.7", "scheduled": True, "ready": True},
        ),
        (
            {
                "phase": "Failed",
                "containerStatuses": container(
                    state={"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
                ),
            },
            {"phase": "Failed", "ended": True, "exit_code": 137, "exit_reason": "OOMKilled"},
        ),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "The node was low on disk."},
            {
                "phase": "Failed",
                "ended": True,
                "exit_reason": "Evicted",
                "exit_message": "The node was low on disk.",
            },
        ),
    ],
)
def test_a_pod_is_trimmed_to_what_is_asked_of_it(
    status: dict[str, Any], parts: dict[str, Any]
) -> None:
    expected = Pod(name="p", uid="u-1", owner=ALICE, start_id="s-1", **parts)
    assert trim(make_object(status)) == expected


def test_a_pod_says_what_it_holds_and_since_when() -> None:
    containers = [
        {"name": "notebook", "resources": {"limits": {"cpu": "2", "nvidia.com/gpu": "1"}}},
        {"name": "helper", "resources": {"limits": {"nvidia.com/gpu": "2", "a.b/c": "1"}}},
        {"name": "bare"},
    ]
    obj = make_object({}, creationTimestamp="2026-01-31T09:14:00Z")
    obj["metadata"]["annotations"]["spectrum.dev/profile"] = "gpu-1"
    obj["spec"] = {"containers": containers}
    pod = trim(obj)
    assert (pod.profile, pod.created, pod.gpus) == (
        "gpu-1",
        "2026-01-31T09:14:00Z",
        {"nvidia.com/gpu": 3, "a.b/c": 1},
    )


def test_a_pod_says_which_claims_it_mounts() -> None:
    obj = make_object({})
    obj["spec"] = {
        "containers": [],
        "volumes": [
            {"name": "home", "persistentVolumeClaim": {"claimName": "home-alice"}},
            {"name": "temporary", "emptyDir": {}},
            {"name": "share", "persistentVolumeClaim": {"claimName": "share"}},
        ],
    }
    assert trim(obj).claims == ("home-alice", "share")


WAITING = container(state={"waiting": {"reason": "PodInitializing"}})
NO_SHARE = {"share_prepared": False, "waiting": "PodInitializing", "ended": False}


@pytest.mark.parametrize(
    ("state", "parts"),
    [
        ({"running": {}}, NO_SHARE),
        (
            {"terminated": {"exitCode": 0, "reason": "Completed"}},
            {**NO_SHARE, "share_prepared": True},
        ),
        (
            {"waiting": {"reason": "ErrImagePull", "message": "not found"}},
            {**NO_SHARE, "waiting": "ErrImagePull", "waiting_message": "not found"},
        ),
        (
            {"terminated": {"exitCode": 1, "reason": "Error", "message": "chgrp: no"}},
            {
                **NO_SHARE,
                "ended": True,
                "exit_code": 1,
                "exit_reason": "ShareNotPrepared",
                "exit_message": "chgrp: no",
            },
        ),
    ],
)
def test_what_prepares_the_share_is_told_apart_from_the_server(
    state: dict[str, Any], parts: dict[str, Any]
) -> None:
    statuses = {
        "containerStatuses": WAITING,
        "initContainerStatuses": [{"name": "share", "state": state}],
    }
    pod = trim(make_object(statuses))
    assert {key: getattr(pod, key) for key in parts} == parts


def test_a_pod_that_is_evicted_says_why() -> None:
    evicted = {"type": "DisruptionTarget", "status": "True", "message": "The node is drained."}
    assert trim(make_object({"conditions": [evicted]})).disruption == "The node is drained."


def test_a_pod_on_its_way_out_says_so() -> None:
    assert trim(make_object({}, deletionTimestamp="2026-01-01T00:00:00Z")).deleting


def test_a_pod_without_our_annotations_belongs_to_nobody() -> None:
    pod = trim(make_object({}, annotations={"component": "singleuser-server"}))
    assert (pod.owner, pod.start_id) == (Owner(hub="", team="", user=""), "")
