"""Counting GPUs: every holder counts, and what may come back is not said to be gone."""

from typing import Any

import pytest

from spectrum_spawner.controller.capacity import (
    NO_HOLDER,
    Holder,
    Node,
    count,
    count_servers,
    find_prepared,
    make_node_trim,
    make_pod_trim,
    requested,
)
from spectrum_spawner.inventory import GPUs, Inventory

GPU, SLICE = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"


def node(name: str, gpus: int, *, usable: bool = True, allocatable: int | None = None) -> Node:
    left = gpus if allocatable is None else allocatable
    return Node(
        name=name, product="A100", usable=usable, capacity={GPU: gpus}, allocatable={GPU: left}
    )


def holder(namespace: str, on: str, gpus: int) -> Holder:
    return Holder(namespace=namespace, node=on, held={GPU: gpus})


def container(**resources: Any) -> dict[str, Any]:
    return {"name": "c", "resources": resources}


def test_pods_of_teams_and_of_strangers_all_hold_gpus() -> None:
    holders = [
        holder("spectrum-flight", "a", 1),
        holder("spectrum-flight", "b", 2),
        holder("batch", "a", 1),
        NO_HOLDER,
    ]
    assert count([node("a", 4), node("b", 2)], holders, {"spectrum-flight": "flight"}) == Inventory(
        gpus=(GPUs(resource=GPU, product="A100", total=6, free=2),), teams={"flight": {GPU: 3}}
    )


def test_gpus_of_a_node_that_is_down_or_cordoned_exist_but_are_not_free() -> None:
    nodes = [node("a", 4), node("b", 4, usable=False)]
    assert count(nodes, [], {}).gpus == (GPUs(resource=GPU, product="A100", total=8, free=4),)


def test_a_device_plugin_that_restarts_leaves_the_total_and_nothing_free() -> None:
    assert count([node("a", 4, allocatable=0)], [holder("x", "a", 2)], {}).gpus == (
        GPUs(resource=GPU, product="A100", total=4, free=0),
    )


def test_resources_and_products_are_counted_apart() -> None:
    mixed = Node(
        name="m",
        product="H200",
        usable=True,
        capacity={GPU: 1, SLICE: 7},
        allocatable={GPU: 1, SLICE: 7},
    )
    holders = [Holder(namespace="x", node="m", held={SLICE: 3}), holder("x", "a", 1)]
    assert count([node("a", 2), mixed], holders, {}).gpus == (
        GPUs(resource=GPU, product="A100", total=2, free=1),
        GPUs(resource=GPU, product="H200", total=1, free=1),
        GPUs(resource=SLICE, product="H200", total=7, free=4),
    )


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        pytest.param({"containers": [container()]}, {}, id="nothing asked"),
        pytest.param(
            {
                "containers": [
                    container(limits={GPU: "1", "cpu": "2"}),
                    container(limits={GPU: "2"}),
                ]
            },
            {GPU: 3},
            id="containers run together",
        ),
        pytest.param(
            {
                "initContainers": [container(limits={GPU: "4"}), container(limits={GPU: "1"})],
                "containers": [container(limits={GPU: "2"})],
            },
            {GPU: 4},
            id="init containers run one by one",
        ),
        pytest.param(
            {
                "initContainers": [
                    {**container(limits={GPU: "1"}), "restartPolicy": "Always"},
                    container(limits={GPU: "1"}),
                ],
                "containers": [container(limits={GPU: "2"})],
            },
            {GPU: 3},
            id="a sidecar stays",
        ),
        pytest.param(
            {"containers": [container(limits={"example.com/fpga": "1"})]}, {}, id="not ours"
        ),
    ],
)
def test_a_pod_holds_what_the_scheduler_counts(spec: dict[str, Any], wanted: Any) -> None:
    assert requested(spec, [GPU, SLICE]) == wanted


def test_of_a_pod_only_its_node_and_gpus_are_kept() -> None:
    trim = make_pod_trim([GPU], "spectrum")
    metadata = {"name": "jupyter-alice", "namespace": "spectrum-flight", "labels": {"a": "b"}}
    on_a = {"nodeName": "a", "containers": [container(limits={GPU: "1"})]}
    assert trim({"metadata": metadata, "spec": on_a}) == holder("spectrum-flight", "a", 1)
    plain = {"nodeName": "a", "containers": [container(limits={"cpu": "1"})]}
    assert trim({"metadata": metadata, "spec": plain}) is NO_HOLDER


SERVER = {"app.kubernetes.io/component": "singleuser-server"}
OWNER = {"spectrum.dev/owner-hub": "spectrum", "spectrum.dev/owner-team": "flight"}


@pytest.mark.parametrize(
    ("metadata", "phase", "servers"),
    [
        pytest.param({"labels": SERVER, "annotations": OWNER}, "Running", 1, id="runs"),
        pytest.param({"labels": SERVER, "annotations": OWNER}, "Pending", 0, id="does not run yet"),
        pytest.param({"labels": SERVER}, "Running", 0, id="a label makes no server"),
        pytest.param({"annotations": OWNER}, "Running", 0, id="a training of the team"),
        pytest.param(
            {"labels": SERVER, "annotations": {**OWNER, "spectrum.dev/owner-hub": "other"}},
            "Running",
            0,
            id="another hub's",
        ),
        pytest.param(
            {"labels": SERVER, "annotations": {**OWNER, "spectrum.dev/owner-team": "ops"}},
            "Running",
            0,
            id="says it is another team's",
        ),
    ],
)
def test_servers_are_counted_by_their_owner_marks(
    metadata: dict[str, Any], phase: str, servers: int
) -> None:
    pod = {
        "metadata": {"name": "p", "uid": "1", "namespace": "spectrum-flight", **metadata},
        "spec": {"nodeName": "a", "containers": [container()]},
        "status": {"phase": phase},
    }
    found = count_servers([make_pod_trim([GPU], "spectrum")(pod)], {"spectrum-flight": "flight"})
    assert found["spectrum-flight"] == servers


def server(created: str, code: int, *, team: str = "flight") -> Holder:
    """What is kept of a pod that does not run yet, after its share was or was not prepared."""
    ended = {"name": "share", "state": {"terminated": {"exitCode": code}}}
    pod = {
        "metadata": {
            "name": "p",
            "uid": "1",
            "namespace": "spectrum-flight",
            "creationTimestamp": created,
            "labels": SERVER,
            "annotations": {**OWNER, "spectrum.dev/owner-team": team},
        },
        "spec": {"nodeName": "a", "containers": [container()]},
        "status": {"phase": "Pending", "initContainerStatuses": [ended]},
    }
    return make_pod_trim([GPU], "spectrum")(pod)


def test_a_share_was_prepared_by_a_server_of_its_own_team_whose_container_ended_well() -> None:
    teams = {"spectrum-flight": "flight"}
    early, late = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    assert find_prepared([server(late, 0), server(early, 0)], teams) == {"spectrum-flight": late}
    assert find_prepared([server(late, 1), server(late, 0, team="ops")], teams) == {}
    assert count_servers([server(late, 0)], teams) == {}


@pytest.mark.parametrize(
    ("conditions", "unschedulable", "usable"),
    [
        ([{"type": "Ready", "status": "True"}], False, True),
        ([{"type": "Ready", "status": "True"}], True, False),
        ([{"type": "Ready", "status": "Unknown"}], False, False),
        ([], False, False),
    ],
)
def test_a_node_is_usable_when_it_is_ready_and_not_cordoned(
    conditions: list[dict[str, str]], unschedulable: bool, usable: bool
) -> None:
    live = {
        "metadata": {"name": "a", "labels": {"nvidia.com/gpu.product": "A100"}},
        "spec": {"unschedulable": unschedulable},
        "status": {
            "conditions": conditions,
            "capacity": {GPU: "4", "cpu": "2"},
            "allocatable": {GPU: "3", "cpu": "2"},
        },
    }
    assert make_node_trim([GPU])(live) == Node(
        name="a", product="A100", usable=usable, capacity={GPU: 4}, allocatable={GPU: 3}
    )
