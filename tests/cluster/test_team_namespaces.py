"""Team namespaces on a running cluster: what the quota counts, and what comes back by itself.

The teams `north` and `south` are made for these tests beside the release's own.
"""

import json
from collections.abc import Iterator
from ipaddress import ip_network
from typing import Any

import pytest

from local.errors import Refusal
from local.kubectl import Kubectl
from spectrum_spawner import names, storage
from spectrum_spawner.inventory import Inventory
from spectrum_spawner.owner import Owner
from tests.cluster.pods import GPU, make_pod, start_pod
from tests.cluster.teams import made_team
from tests.cluster.waiting import wait_until
from tests.conftest import InstalledRelease
from tests.test_names import NAMES


@pytest.fixture(scope="module")
def north(release: InstalledRelease) -> Iterator[str]:
    """Namespace of a team that may use one GPU."""
    with made_team(release, "north", {"pods": 3, "gpus": {GPU: 1}}) as namespace:
        yield namespace


@pytest.fixture(scope="module")
def south(release: InstalledRelease) -> Iterator[str]:
    """Namespace of another team."""
    with made_team(release, "south", {"pods": 1, "gpus": {}}) as namespace:
        yield namespace


def test_the_internet_that_is_open_leaves_the_metadata_network_out(
    kubectl: Kubectl, north: str
) -> None:
    policy = kubectl.get("-n", north, "networkpolicy", "spectrum-allow")
    blocks = [
        peer["ipBlock"]
        for rule in policy["spec"]["egress"]
        for peer in rule["to"]
        if "ipBlock" in peer
    ]
    metadata = ip_network("169.254.0.0/16")
    open_to_it = [b for b in blocks if ip_network(b["cidr"]).overlaps(metadata)]
    assert [block["cidr"] for block in open_to_it] == ["0.0.0.0/0"]
    assert str(metadata) in open_to_it[0]["except"]


def read_inventory(release: InstalledRelease) -> Inventory:
    found = release.kubectl.get("-n", release.namespace, "configmap", "gpu-inventory")
    return Inventory.from_json(found["data"]["inventory.json"])


def read_gpus(release: InstalledRelease, team: str) -> str:
    status = release.kubectl.get("-n", release.namespace, "team", team)["status"]
    return str(status.get("gpus"))


def test_a_gpu_pod_shows_in_inventory_and_quota_until_it_is_gone(
    release: InstalledRelease, north: str, image: str
) -> None:
    kubectl = release.kubectl
    before = read_inventory(release)
    free = before.free(GPU)
    assert before.total(GPU) == 4
    assert free is not None
    start_pod(kubectl, north, "trainer", image, gpus=1)
    wait_until(lambda: read_inventory(release).held_by("north", GPU) == 1)
    assert read_inventory(release).free(GPU) == free - 1
    wait_until(lambda: read_gpus(release, "north") == "1/1")

    second = json.dumps(make_pod("second", image, gpus=1))
    with pytest.raises(Refusal, match="exceeded quota"):
        kubectl("-n", north, "create", "-f", "-", text=second)

    kubectl("-n", north, "delete", "pod", "trainer")
    wait_until(lambda: read_inventory(release).free(GPU) == free)
    wait_until(lambda: read_gpus(release, "north") == "0/1")


def test_a_team_without_gpus_in_its_quota_gets_none(
    kubectl: Kubectl, south: str, image: str
) -> None:
    pod = json.dumps(make_pod("greedy", image, gpus=1))
    with pytest.raises(Refusal, match="exceeded quota"):
        kubectl("-n", south, "create", "-f", "-", text=pod)


def test_a_pod_that_breaks_the_restricted_standard_is_refused(
    kubectl: Kubectl, north: str, image: str
) -> None:
    pod = make_pod("root", image)
    pod["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    with pytest.raises(Refusal, match="violates PodSecurity"):
        kubectl("-n", north, "create", "-f", "-", text=json.dumps(pod))


def test_the_api_server_takes_objects_of_people_of_any_spelling(
    kubectl: Kubectl, north: str, image: str
) -> None:
    made = []
    for name in NAMES[::400]:
        owner = Owner(hub="spectrum", team="north", user=name, server=name, subject=name)
        home = storage.make_home_claim(owner, team_uid="1", size="1Gi", storage_class=None)
        pod = make_pod(names.server_name(name, name), image)
        pod["metadata"] |= {"labels": owner.labels, "annotations": owner.annotations}
        made += [home, pod]
    whole = json.dumps({"apiVersion": "v1", "kind": "List", "items": made})
    taken = kubectl(
        "-n", north, "create", "--dry-run=server", "-f", "-", "-o", "name", text=whole
    ).split()
    assert len(taken) == len(set(taken)) == len(made)


@pytest.mark.parametrize(
    "thing",
    [
        "resourcequota/spectrum",
        "limitrange/spectrum",
        "networkpolicy/spectrum-allow",
        "networkpolicy/spectrum-default-deny",
        "serviceaccount/spectrum-server",
        "rolebinding/spectrum-hub",
        "rolebinding/spectrum-service",
    ],
)
def test_what_somebody_deletes_is_back_soon(kubectl: Kubectl, north: str, thing: str) -> None:
    kubectl("-n", north, "delete", thing)
    found = ("-n", north, "get", thing, "--ignore-not-found", "-o", "name")
    wait_until(lambda: kubectl(*found))


# Kind and name, what somebody makes of it, and where that stands.
OPEN_RULE = [{"op": "add", "path": "/spec/egress/-", "value": {}}]
ALTERATIONS = {
    "resourcequota/spectrum": [{"op": "replace", "path": "/spec/hard/pods", "value": "999"}],
    "limitrange/spectrum": [
        {"op": "replace", "path": "/spec/limits/0/defaultRequest/cpu", "value": "1m"}
    ],
    "networkpolicy/spectrum-allow": OPEN_RULE,
    "networkpolicy/spectrum-default-deny": [
        {"op": "replace", "path": "/spec/policyTypes", "value": ["Ingress"]}
    ],
    "rolebinding/spectrum-hub": [
        {"op": "replace", "path": "/subjects/0/name", "value": "default"},
    ],
    "rolebinding/spectrum-service": [
        {"op": "replace", "path": "/subjects/0/name", "value": "default"},
    ],
}


@pytest.mark.parametrize("thing", ALTERATIONS)
def test_what_somebody_alters_is_as_it_was_soon(kubectl: Kubectl, north: str, thing: str) -> None:
    def read() -> tuple[Any, Any]:
        found = kubectl.get("-n", north, thing)
        return found.get("spec"), found.get("subjects")

    before = read()
    patch = json.dumps(ALTERATIONS[thing])
    kubectl("-n", north, "patch", thing, "--type=json", "--patch", patch)
    wait_until(lambda: read() == before)


def test_a_namespace_opened_to_privileged_pods_is_closed_again(
    kubectl: Kubectl, north: str
) -> None:
    label = "pod-security.kubernetes.io/enforce"
    kubectl("label", "namespace", north, f"{label}=privileged", "--overwrite")

    def is_closed() -> bool:
        labels = kubectl.get("namespace", north)["metadata"]["labels"]
        return bool(labels[label] == "restricted")

    wait_until(is_closed)
