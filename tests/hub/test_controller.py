"""The team controller against a real kube-apiserver.

kube-controller-manager runs beside it here, because quotas are counted and namespaces emptied by
Kubernetes itself.
"""

import asyncio
import datetime
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import ExitStack
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from local.control_plane import ControlPlane, control_plane
from spectrum_spawner import names
from spectrum_spawner.controller.crd import ensure_definition
from spectrum_spawner.controller.gids import Gids, GidsExhausted
from spectrum_spawner.controller.settings import Settings
from spectrum_spawner.inventory import GPUs, Inventory
from tests.hub.clock import wait_until
from tests.hub.cluster import ApiError, Cluster, connect
from tests.hub.controller import (
    CHECKOUT,
    GPU,
    PATHS,
    SLICE,
    Controller,
    Teams,
    connected_client,
    running_reconciler,
)
from tests.hub.metrics import read_writes

HUB = "spectrum"
CRD_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/teams.spectrum.dev"
RIVALS = ("spectrum-test", "kube")  # namespaces of other hubs on the same cluster
SECONDS = 5.0  # in which drift is put back


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane of this module's own, with a hub's namespace and Kubernetes' controllers."""
    with control_plane() as plane:
        plane.start_controller_manager()
        crd = yaml.safe_load((CHECKOUT / "helm/spectrum/crds/teams.yaml").read_text())
        plane.api.apply(CRD_PATH, crd)
        for namespace in (HUB, *RIVALS):
            create_namespace(plane, namespace)
        deadline = time.monotonic() + 20
        while not is_established(plane):
            assert time.monotonic() < deadline
        yield plane


@pytest.fixture(scope="module")
def controllers(
    plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Controller]]:
    """The controllers of three hubs on one cluster, by the hub's namespace."""
    directory = tmp_path_factory.mktemp("controllers")
    with ExitStack() as stack:
        started = {
            namespace: stack.enter_context(Controller(plane, namespace, directory))
            for namespace in (HUB, *RIVALS)
        }
        asyncio.run(wait_until_healthy(started.values()))
        yield started


async def wait_until_healthy(controllers: Iterable[Controller]) -> None:
    for controller in controllers:
        await controller.wait_until_healthy()


@pytest.fixture
def controller(controllers: dict[str, Controller]) -> Controller:
    """The controller of the hub in `spectrum`."""
    return controllers[HUB]


@pytest_asyncio.fixture
async def admin(plane: ControlPlane) -> AsyncIterator[Cluster]:
    async with connect(plane) as admin:
        yield admin


@pytest.fixture
def teams(admin: Cluster, controller: Controller) -> Teams:
    return Teams(admin, controller.hub_namespace)


def create_namespace(plane: ControlPlane, name: str) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    plane.api.apply(f"/api/v1/namespaces/{name}", namespace)


def is_established(plane: ControlPlane) -> bool:
    conditions = plane.api.get(CRD_PATH).get("status", {}).get("conditions", [])
    return {"Established": "True"}.items() <= {c["type"]: c["status"] for c in conditions}.items()


async def test_a_team_gets_everything_its_namespace_needs(teams: Teams) -> None:
    quota = {"cpu": "0.5", "memory": "1024Mi", "pods": 5, "gpus": {GPU: 2}}
    await teams.create_ready("flight", quota=quota)
    assert await teams.is_as_wanted("flight")

    async def enforced() -> dict[str, Any] | None:
        status = (await teams.get("flight"))["status"]
        return status if status["conditions"][1]["reason"] == "Enforced" else None

    status = await wait_until(enforced, within=10, what="counting by the quota")
    for condition in status["conditions"]:
        del condition["lastTransitionTime"]
    assert status == {
        "namespace": "spectrum-flight",
        "gid": int((await teams.annotations("flight"))["spectrum.dev/gid"]),
        "observedGeneration": 1,
        "servers": 0,
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "Reconciled",
                "message": "Namespace spectrum-flight is ready.",
            },
            {
                "type": "QuotaEnforced",
                "status": "True",
                "reason": "Enforced",
                "message": "Kubernetes counts by this quota.",
            },
            {
                "type": "Storage",
                "status": "False",
                "reason": "ClassMissing",
                "message": "There is no default StorageClass, and each home names none.",
            },
        ],
        "storage": {"missingClasses": [""]},
        "usage": {"gpus": {GPU: {"used": 0, "hard": 2}, SLICE: {"used": 0, "hard": 0}}},
        "gpus": "0/2",
    }


async def test_a_look_that_finds_nothing_to_do_writes_nothing(teams: Teams) -> None:
    await teams.create_ready("quiet", quota={"cpu": "0.5", "memory": "1024Mi", "gpus": {GPU: 1}})
    await wait_until_calm(teams, "quiet")
    before = await teams.versions("quiet")
    label = {"metadata": {"labels": {"cost": "42"}}}
    await teams.cluster.patch("/api/v1/namespaces/spectrum-quiet", label)
    await teams.create_ready("later")
    after = await teams.versions("quiet")
    changed = {key for key in before if before[key] != after[key]}
    assert changed == {"spectrum-quietNamespace"}, "the label that the test itself has set"


async def wait_until_calm(teams: Teams, team: str) -> None:
    async def is_calm() -> bool:
        before = await teams.versions(team)
        await asyncio.sleep(0.5)
        return before == await teams.versions(team)

    await wait_until(is_calm, within=15, what="calm")


WIDE_OPEN = {"spec": {"egress": [{}]}}
UNLABELLED = {"metadata": {"labels": {names.LABEL_HUB: None}}}
UNFENCED = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": None}}}
DRIFT = {
    "quota raised": ("ResourceQuota", "spectrum", {"spec": {"hard": {f"requests.{GPU}": "99"}}}),
    "quota entry removed": (
        "ResourceQuota",
        "spectrum",
        {"spec": {"hard": {f"requests.{SLICE}": None}}},
    ),
    "quota entry added": ("ResourceQuota", "spectrum", {"spec": {"hard": {"services": "0"}}}),
    "quota without our label": ("ResourceQuota", "spectrum", UNLABELLED),
    "limits changed": ("LimitRange", "spectrum", {"spec": {"limits": []}}),
    "limits without our label": ("LimitRange", "spectrum", UNLABELLED),
    "deny opened": ("NetworkPolicy", "spectrum-default-deny", WIDE_OPEN),
    "allow without our label": ("NetworkPolicy", "spectrum-allow", UNLABELLED),
    "egress opened": ("NetworkPolicy", "spectrum-allow", WIDE_OPEN),
    "token mounted": ("ServiceAccount", "spectrum-server", {"automountServiceAccountToken": True}),
    "another subject": (
        "RoleBinding",
        "spectrum-hub",
        {"subjects": [{"kind": "User", "name": "bob", "apiGroup": "rbac.authorization.k8s.io"}]},
    ),
    "account without our label": ("ServiceAccount", "spectrum-server", UNLABELLED),
    "the service's binding for all": (
        "RoleBinding",
        "spectrum-service",
        {"subjects": [{"kind": "Group", "name": "all", "apiGroup": "rbac.authorization.k8s.io"}]},
    ),
    "binding without our label": ("RoleBinding", "spectrum-hub", UNLABELLED),
    "pods of any kind": ("Namespace", "", UNFENCED),
    "namespace without our label": ("Namespace", "", UNLABELLED),
    "namespace labelled for another team": (
        "Namespace",
        "",
        {"metadata": {"labels": {names.LABEL_TEAM: "other"}}},
    ),
    "quota deleted": ("ResourceQuota", "spectrum", None),
    "limits deleted": ("LimitRange", "spectrum", None),
    "deny deleted": ("NetworkPolicy", "spectrum-default-deny", None),
    "allow deleted": ("NetworkPolicy", "spectrum-allow", None),
    "account deleted": ("ServiceAccount", "spectrum-server", None),
    "binding deleted": ("RoleBinding", "spectrum-hub", None),
    "the service's binding deleted": ("RoleBinding", "spectrum-service", None),
}


@pytest.fixture
async def drifting(teams: Teams) -> str:
    """A team for others to meddle with."""
    if await teams.cluster.find(teams.path("drift")) is None:
        await teams.create("drift", quota={"pods": 5, "gpus": {GPU: 2}})
    await teams.wait_for("drift", "Reconciled")
    return "drift"


@pytest.mark.parametrize("what", DRIFT)
async def test_what_is_changed_or_deleted_is_put_back_and_written_down(
    teams: Teams, controller: Controller, drifting: str, what: str
) -> None:
    kind, name, change = DRIFT[what]
    before = len(controller.read_records(drifting))
    path = PATHS[kind].format(teams.namespace(drifting), name)
    if change is None:
        await teams.cluster.delete(path)
    else:
        await teams.cluster.patch(path, change)
    await wait_until(lambda: teams.is_as_wanted(drifting), within=SECONDS, what="mending")
    mended = f"{kind} {name or teams.namespace(drifting)}"
    sentence = f"Put back in team {drifting} after it was altered or deleted: {mended}."

    def find_new() -> list[tuple[str, str]]:
        return controller.read_reasons(drifting)[before:]

    await wait_until(find_new, within=SECONDS, what="the record")
    assert find_new() == [("controller", sentence)]


async def test_a_team_whose_fence_cannot_be_put_back_is_not_ready(teams: Teams) -> None:
    await teams.create_ready("unfenced")
    policies = "/apis/networking.k8s.io/v1/namespaces/spectrum-unfenced/networkpolicies"
    await forbid_policies(teams.cluster, "spectrum-unfenced")
    other = {"metadata": {"name": "other"}, "spec": {"podSelector": {}}}
    await wait_until(lambda: refuses(teams, f"{policies}?dryRun=All", other), within=30)
    await teams.cluster.delete(f"{policies}/spectrum-default-deny")
    team = await teams.wait_for("unfenced", "Refused")
    assert "no policies here" in team["status"]["conditions"][0]["message"]
    await teams.cluster.delete(f"{ADMISSION}/validatingadmissionpolicybindings/no-policies")
    await teams.wait_for("unfenced", "Reconciled", within=60)
    assert await teams.is_as_wanted("unfenced")


ADMISSION = "/apis/admissionregistration.k8s.io/v1"


async def forbid_policies(cluster: Cluster, namespace: str) -> None:
    """Have the API server refuse new network policies in one namespace."""
    rule = {
        "apiGroups": ["networking.k8s.io"],
        "apiVersions": ["v1"],
        "resources": ["networkpolicies"],
        "operations": ["CREATE"],
    }
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    spec = {
        "matchConstraints": {"resourceRules": [rule], "namespaceSelector": selector},
        "validations": [{"expression": "false", "message": "no policies here"}],
    }
    policy = {"metadata": {"name": "no-policies"}, "spec": spec}
    binding = {"policyName": "no-policies", "validationActions": ["Deny"]}
    await cluster.create(f"{ADMISSION}/validatingadmissionpolicies", policy)
    await cluster.create(
        f"{ADMISSION}/validatingadmissionpolicybindings",
        {"metadata": {"name": "no-policies"}, "spec": binding},
    )


async def refuses(teams: Teams, path: str, manifest: dict[str, Any]) -> bool:
    return not await accepts(teams, path, manifest, refusal=422)


async def test_a_binding_to_another_role_is_made_anew(teams: Teams, drifting: str) -> None:
    path = PATHS["RoleBinding"].format(teams.namespace(drifting), "spectrum-hub")
    binding = await teams.cluster.get(path)
    await teams.cluster.delete(path)
    group = "rbac.authorization.k8s.io"
    role = {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"}
    foreign = {"metadata": {"name": "spectrum-hub"}, "roleRef": role}
    # who is first is a matter of luck: if the controller is, try once more
    if not await accepts(teams, path.rpartition("/")[0], foreign, refusal=409):
        await teams.cluster.delete(path)
        await teams.cluster.create(path.rpartition("/")[0], foreign)

    async def is_ours() -> bool:
        live = await teams.cluster.find(path)
        return live is not None and live["roleRef"] == binding["roleRef"]

    await wait_until(is_ours, within=SECONDS, what="our role")


async def test_what_admins_add_beside_ours_stays(teams: Teams, drifting: str) -> None:
    path = PATHS["ServiceAccount"].format(teams.namespace(drifting), "spectrum-server")
    addition = {
        "imagePullSecrets": [{"name": "registry"}],
        "metadata": {"labels": {"cost": "42"}},
        "automountServiceAccountToken": True,
    }
    await teams.cluster.patch(path, addition)
    await wait_until(lambda: teams.is_as_wanted(drifting), within=SECONDS, what="mending")
    account = await teams.cluster.get(path)
    assert account["imagePullSecrets"] == [{"name": "registry"}]
    assert account["metadata"]["labels"]["cost"] == "42"


async def test_a_changed_quota_is_applied_and_usage_is_read_back(teams: Teams) -> None:
    await teams.create_ready("busy", quota={"gpus": {GPU: 1}})
    await teams.cluster.patch(teams.path("busy"), {"spec": {"quota": {"gpus": {GPU: 3}}}})
    await wait_until(lambda: shows(teams, "busy", "0/3"), within=10, what="the new quota")
    pods = "/api/v1/namespaces/spectrum-busy/pods"
    await wait_until(lambda: accepts(teams, pods, make_pod("one", gpus=2)), within=10)
    await wait_until(lambda: shows(teams, "busy", "2/3"), within=10, what="usage")
    with pytest.raises(ApiError, match="exceeded quota: spectrum"):
        await teams.cluster.create(pods, make_pod("two", gpus=2))
    with pytest.raises(ApiError, match="exceeded quota: spectrum"):
        await teams.cluster.create(pods, make_pod("slice", gpus=1, resource=SLICE))
    with pytest.raises(ApiError, match="violates PodSecurity"):
        await teams.cluster.create(
            pods, {**make_pod("root"), "spec": {**CONTAINER, "hostPID": True}}
        )


async def shows(teams: Teams, team: str, gpus: str) -> bool:
    return (await teams.get(team))["status"].get("gpus") == gpus


async def accepts(teams: Teams, path: str, manifest: dict[str, Any], *, refusal: int = 403) -> bool:
    """Whether an object can be created by now: service account and quota follow in moments."""
    try:
        await teams.cluster.create(path, manifest)
    except ApiError as error:
        if error.status != refusal:
            raise
        return False
    return True


CONTAINER: dict[str, Any] = {"containers": [{"name": "c", "image": "busybox"}]}


def make_pod(name: str, *, gpus: int = 0, resource: str = GPU, node: str = "") -> dict[str, Any]:
    """A pod that passes `restricted`."""
    security = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    limits = {resource: str(gpus)} if gpus else {}
    container = {
        **CONTAINER["containers"][0],
        "securityContext": security,
        "resources": {"limits": limits},
    }
    spec = {"containers": [container], **({"nodeName": node} if node else {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize(
    ("team", "namespace"),
    [
        ("kube-system", "spectrum-kube-system"),
        ("default", "spectrum-default"),
        ("spectrum", "spectrum-spectrum"),
        ("9lives", "spectrum-x-9lives--"),
        ("a" * 63, "spectrum-" + "a" * 36 + "--"),
    ],
)
async def test_names_of_other_namespaces_are_mapped_away_from_them(
    teams: Teams, team: str, namespace: str
) -> None:
    before = await namespace_versions(teams.cluster)
    ready = await teams.create_ready(team)
    found = ready["status"]["namespace"]
    assert found == namespace or (namespace.endswith("--") and found.startswith(namespace))
    assert len(found) <= 63
    after = await namespace_versions(teams.cluster)
    assert before.items() <= after.items()
    assert after.keys() - before.keys() == {found}


async def namespace_versions(cluster: Cluster) -> dict[str, str]:
    namespaces = await cluster.list("/api/v1/namespaces")
    return {
        one["metadata"]["name"]: one["metadata"]["resourceVersion"]
        for one in namespaces
        if not one["metadata"].get("deletionTimestamp")
    }


async def test_a_namespace_that_is_not_ours_is_refused_and_untouched(teams: Teams) -> None:
    # labels alone are no owner mark, and neither is the right name
    labels = {names.LABEL_HUB: HUB, names.LABEL_TEAM: "taken"}
    foreign = {"metadata": {"name": "spectrum-taken", "labels": labels}}
    made = await teams.cluster.create("/api/v1/namespaces", foreign)
    await teams.create("taken", adopt="spectrum-taken")
    team = await teams.wait_for("taken", "NamespaceTaken")
    ready = team["status"]["conditions"][0]
    assert (ready["status"], ready["message"]) == (
        "False",
        "Namespace spectrum-taken exists and is not Spectrum's, so nothing in it is touched. "
        "Give the team another name, or remove the namespace.",
    )
    live = await teams.find_namespace("taken")
    assert live is not None
    assert live["metadata"]["labels"] == made["metadata"]["labels"]
    assert "annotations" not in live["metadata"]
    assert await teams.cluster.list("/api/v1/namespaces/spectrum-taken/resourcequotas") == []


async def test_a_refused_team_gets_its_namespace_once_the_name_is_free(teams: Teams) -> None:
    foreign = {"metadata": {"name": "spectrum-patient"}}
    await teams.cluster.create("/api/v1/namespaces", foreign)
    await teams.create("patient")
    await teams.wait_for("patient", "NamespaceTaken")
    await teams.cluster.delete("/api/v1/namespaces/spectrum-patient")
    await wait_until(lambda: is_gone(teams, "patient"), within=20, what="deletion")
    await teams.wait_for("patient", "Reconciled", within=30)


async def is_gone(teams: Teams, team: str) -> bool:
    return await teams.find_namespace(team) is None


async def test_no_prefix_reaches_a_system_namespace(teams: Teams) -> None:
    hub_in_kube = Teams(teams.cluster, "kube")
    before = await teams.cluster.get("/api/v1/namespaces/kube-system")
    assert hub_in_kube.namespace("system") == "kube-system"
    await hub_in_kube.create("system", adopt="kube-system")
    await hub_in_kube.wait_for("system", "NamespaceTaken")
    assert await teams.cluster.get("/api/v1/namespaces/kube-system") == before
    assert await teams.cluster.list("/api/v1/namespaces/kube-system/resourcequotas") == []


async def test_two_hubs_never_touch_each_others_namespaces(teams: Teams) -> None:
    await teams.create_ready("test-flight", quota={"pods": 1})
    await wait_until_calm(teams, "test-flight")
    before = await teams.versions("test-flight")
    other = Teams(teams.cluster, "spectrum-test")
    assert other.namespace("flight") == teams.namespace("test-flight")
    await other.create("flight")
    refused = await other.wait_for("flight", "NamespaceTaken")
    message = refused["status"]["conditions"][0]["message"]
    assert "belongs to team test-flight of the hub in spectrum" in message
    await other.create_ready("ops")
    # one's own drift is mended while the other hub's controller looks on
    quota = PATHS["ResourceQuota"].format(other.namespace("ops"), "spectrum")
    await other.cluster.delete(quota)
    await wait_until(lambda: other.is_as_wanted("ops"), within=SECONDS, what="mending")
    await other.delete("flight")
    await other.create_ready("last")
    assert await teams.versions("test-flight") == before


async def test_deleting_a_team_keeps_its_namespace_and_what_is_in_it(teams: Teams) -> None:
    await teams.create_ready("gone", quota={"pods": 1})
    data = {"metadata": {"name": "data"}, "data": {"model": "weights"}}
    await teams.cluster.create("/api/v1/namespaces/spectrum-gone/configmaps", data)
    await teams.delete("gone")
    await wait_until(lambda: is_orphaned(teams, "gone"), within=SECONDS, what="the mark")
    await teams.annotate("gone", purge="true")
    await teams.annotate("gone", purge="spectrum-flight")
    await teams.create_ready("after-gone")
    namespace = await teams.find_namespace("gone")
    assert namespace is not None
    assert "deletionTimestamp" not in namespace["metadata"]
    await teams.cluster.get("/api/v1/namespaces/spectrum-gone/configmaps/data")
    await teams.cluster.get("/api/v1/namespaces/spectrum-gone/resourcequotas/spectrum")


async def is_orphaned(teams: Teams, team: str) -> bool:
    return "spectrum.dev/orphaned-at" in await teams.annotations(team)


async def test_an_orphan_is_purged_when_its_own_name_says_so_and_its_gid_never_returns(
    teams: Teams, controller: Controller
) -> None:
    first = await teams.create_ready("purged")
    await teams.delete("purged")
    await wait_until(lambda: is_orphaned(teams, "purged"), within=SECONDS, what="the mark")
    await teams.annotate("purged", purge="spectrum-purged")
    await wait_until(lambda: is_gone(teams, "purged"), within=30, what="the purge")
    assert "purging namespace spectrum-purged" in controller.read_log()
    second = await teams.create_ready("purged")
    assert second["status"]["gid"] > first["status"]["gid"]


async def test_a_purge_asked_for_while_the_team_lives_purges_nothing(teams: Teams) -> None:
    await teams.create_ready("living")
    await teams.annotate("living", purge="spectrum-living")
    await teams.delete("living")
    await wait_until(lambda: is_orphaned(teams, "living"), within=SECONDS, what="the mark")
    await teams.create_ready("after-living")
    namespace = await teams.find_namespace("living")
    assert namespace is not None
    assert "deletionTimestamp" not in namespace["metadata"]
    assert "spectrum.dev/purge" not in namespace["metadata"]["annotations"]


async def test_a_new_team_takes_over_an_old_ones_namespace_only_if_told_to(teams: Teams) -> None:
    first = await teams.create_ready("again")
    await teams.delete("again")
    await wait_until(lambda: is_orphaned(teams, "again"), within=SECONDS, what="the mark")
    await teams.create("again")
    refused = await teams.wait_for("again", "NamespaceOrphaned")
    assert (
        "spectrum.dev/adopt-orphan=spectrum-again" in refused["status"]["conditions"][0]["message"]
    )
    assert "namespace" not in refused["status"]
    mark = {"spectrum.dev/adopt-orphan": "spectrum-again"}
    await teams.cluster.patch(teams.path("again"), {"metadata": {"annotations": mark}})
    second = await teams.wait_for("again", "Reconciled")
    assert second["status"]["gid"] == first["status"]["gid"]
    assert await teams.is_as_wanted("again")
    assert not await is_orphaned(teams, "again")


async def test_gids_stay_unique_when_the_mark_is_lost(teams: Teams) -> None:
    first = await teams.create_ready("gid-one")
    await teams.cluster.delete(f"/api/v1/namespaces/{HUB}/configmaps/team-gids")
    second = await teams.create_ready("gid-two")
    assert second["status"]["gid"] > first["status"]["gid"]


async def test_gids_differ_however_many_are_taken_at_once_and_run_out_with_a_sentence(
    plane: ControlPlane,
) -> None:
    create_namespace(plane, "few")
    few = Settings(hub_namespace="few", prefix="few-", first_gid=200_000, last_gid=200_005)
    async with connected_client(plane) as client:
        gids = Gids(client, few)
        taken = await asyncio.gather(*(gids.allocate([200_001, 77]) for _ in range(4)))
        assert sorted(taken) == [200_002, 200_003, 200_004, 200_005]
        with pytest.raises(GidsExhausted, match="widen the controller's TEAM_GIDS"):
            await gids.allocate([])


async def test_what_happened_without_a_controller_is_found_when_it_starts(
    teams: Teams, controller: Controller
) -> None:
    await teams.create_ready("absent")
    await teams.create_ready("changed", quota={"pods": 3})
    controller.stop(kill=True)
    await teams.delete("absent")
    await teams.cluster.delete(PATHS["ResourceQuota"].format("spectrum-changed", "spectrum"))
    controller.start()
    await wait_until(lambda: is_orphaned(teams, "absent"), within=30, what="the mark")
    await wait_until(lambda: teams.is_as_wanted("changed"), within=30, what="mending")
    sentence = (
        "Put back in team changed after it was found otherwise at the start: "
        "ResourceQuota spectrum."
    )

    def is_written_down() -> bool:
        return ("controller", sentence) in controller.read_reasons("changed")

    await wait_until(is_written_down, within=SECONDS, what="the record")
    (made, _) = controller.read_reasons("absent")
    assert made[1] == "Team absent was made."


async def test_an_outage_of_the_api_server_is_sat_out(
    plane: ControlPlane, teams: Teams, controller: Controller
) -> None:
    await teams.create_ready("outage", quota={"pods": 3})
    plane.stop_apiserver(kill=True)
    await wait_until(controller.is_healthy, within=5, what="health without an API server")
    plane.start_apiserver()
    await asyncio.to_thread(plane.wait_until_ready)
    await teams.cluster.delete(PATHS["ResourceQuota"].format("spectrum-outage", "spectrum"))
    await wait_until(lambda: teams.is_as_wanted("outage"), within=20, what="mending")
    await teams.create_ready("after-outage")


@pytest_asyncio.fixture
async def gpu_node(admin: Cluster) -> AsyncIterator[str]:
    """A node with four GPUs; without a kubelet it would be declared dead after a while."""
    await create_node(admin, "gpu-node", gpus=4)
    yield "gpu-node"
    await admin.delete("/api/v1/nodes/gpu-node")


async def test_the_inventory_counts_every_pod_and_follows_at_once(
    teams: Teams, gpu_node: str
) -> None:
    await teams.create_ready("gpu-users")
    await wait_until(lambda: counts(teams, free=4), within=10, what="the node's GPUs")
    ours, foreign = (
        "/api/v1/namespaces/spectrum-gpu-users/pods",
        "/api/v1/namespaces/kube-system/pods",
    )
    one, two = make_pod("one", gpus=1, node=gpu_node), make_pod("two", gpus=2, node=gpu_node)
    await wait_until(lambda: accepts(teams, ours, one), within=10)
    await wait_until(lambda: accepts(teams, foreign, two), within=10)
    await wait_until(lambda: counts(teams, free=1, held=1), within=2, what="both pods")
    await teams.cluster.delete(f"{ours}/one", {"gracePeriodSeconds": 0})
    await wait_until(lambda: counts(teams, free=2), within=2, what="the end of one")
    inventory = f"/api/v1/namespaces/{HUB}/configmaps/gpu-inventory"
    await teams.cluster.delete(inventory)
    await wait_until(lambda: counts(teams, free=2), within=SECONDS, what="the inventory")
    await teams.cluster.patch(inventory, {"data": {"inventory.json": "{}"}})
    await wait_until(lambda: counts(teams, free=2), within=SECONDS, what="the inventory")


async def counts(teams: Teams, *, free: int, held: int = 0) -> bool:
    path = f"/api/v1/namespaces/{HUB}/configmaps/gpu-inventory"
    found = await teams.cluster.find(path)
    if found is None or found["data"]["inventory.json"] == "{}":
        return False
    gpus = (GPUs(resource=GPU, product="NVIDIA-A100-SXM4-80GB", total=4, free=free),)
    holders = {"gpu-users": {GPU: held}} if held else {}
    return Inventory.from_json(found["data"]["inventory.json"]) == Inventory(
        gpus=gpus, teams=holders
    )


async def create_node(cluster: Cluster, name: str, *, gpus: int) -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now}
    resources = {"cpu": "8", "memory": "32Gi", "pods": "110", GPU: str(gpus)}
    status = {"conditions": [ready], "capacity": resources, "allocatable": resources}
    await cluster.create("/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
    await cluster.patch(f"/api/v1/nodes/{name}/status", {"status": status})


async def test_running_servers_are_counted_and_the_number_follows(teams: Teams) -> None:
    await teams.create_ready("serving")
    pods = "/api/v1/namespaces/spectrum-serving/pods"
    marks = {names.ANNOTATION_HUB: HUB, names.ANNOTATION_TEAM: "serving"}
    for name, owner in (("one", marks), ("two", marks), ("foreign", {})):
        pod = make_pod(name, node="gpu-node")
        pod["metadata"].update(labels={names.LABEL_COMPONENT: "singleuser-server"})
        pod["metadata"].update(annotations=owner)
        await wait_until(lambda pod=pod: accepts(teams, pods, pod), within=10)
        await teams.cluster.patch(f"{pods}/{name}/status", {"status": {"phase": "Running"}})
    await wait_until(lambda: serves(teams, 2), within=10, what="two servers")
    await teams.cluster.delete(f"{pods}/one", {"gracePeriodSeconds": 0})
    await wait_until(lambda: serves(teams, 1), within=10, what="one server")


async def serves(teams: Teams, servers: int) -> bool:
    return (await teams.get("serving"))["status"]["servers"] == servers


async def test_a_grant_counts_until_it_lapses(
    plane: ControlPlane, admin: Cluster, tmp_path: Path
) -> None:
    create_namespace(plane, "granting")
    teams = Teams(admin, "granting")
    moment = datetime.datetime(2026, 3, 1, 12, tzinfo=UTC)
    grant = {"gpus": {GPU: 2}, "profiles": ["gpu-8"], "until": "2026-03-02T12:00:00Z"}
    await teams.create("flight", quota={"gpus": {GPU: 1}}, grants={"r-1": grant})
    async with running_reconciler(plane, "granting", tmp_path, clock=lambda: moment) as reconciler:
        assert await reconciler.reconcile("flight") == 86_400
        status = (await teams.get("flight"))["status"]
        assert status["granted"] == {"gpus": {GPU: 2}, "profiles": ["gpu-8"]}
        quota = PATHS["ResourceQuota"].format("granting-flight", "spectrum")
        hard = (await admin.get(quota))["spec"]["hard"]
        assert hard == {f"requests.{GPU}": "3", f"requests.{SLICE}": "0"}
        moment += timedelta(days=1)
        assert await reconciler.reconcile("flight") is None
        assert "granted" not in (await teams.get("flight"))["status"]
        assert (await admin.get(quota))["spec"]["hard"][f"requests.{GPU}"] == "1"


async def test_what_becomes_of_a_team_is_written_down_with_who_did_it(
    teams: Teams, controller: Controller
) -> None:
    await teams.create("story", quota={"pods": 3}, field_manager="kubectl-create")
    await teams.wait_for("story", "Reconciled")
    more = {"spec": {"quota": {"pods": 5}}}
    await teams.cluster.patch(f"{teams.path('story')}?fieldManager=kubectl-edit", more)
    await teams.wait_for("story", "Reconciled")
    fewer = {"spec": {"quota": None}}
    await teams.cluster.patch(f"{teams.path('story')}?fieldManager=kubectl-edit", fewer)
    await teams.wait_for("story", "Reconciled")
    grants = {"r-7": {"until": "2099-01-01T00:00:00Z", "profiles": ["gpu-8"]}}
    by_service = f"{teams.path('story')}?fieldManager=spectrum-service"
    await teams.cluster.patch(by_service, {"spec": {"grants": grants}})
    await teams.wait_for("story", "Reconciled")
    await teams.delete("story")
    await wait_until(lambda: is_orphaned(teams, "story"), within=SECONDS, what="the mark")
    assert [actor for actor, _ in controller.read_reasons("story")] == [
        "manager:kubectl-create",
        "manager:kubectl-edit",
        "manager:unknown",
        "manager:spectrum-service",
        "manager:unknown",
    ]
    assert [reason.partition(" from ")[0] for _, reason in controller.read_reasons("story")] == [
        "Team story was made.",
        "Team story was changed: quota.pods",
        "Kubernetes does not say by whom. Team story was changed: quota",
        "Request r-7. Team story was changed: grants",
        "Team story was deleted; its data are kept. Kubernetes does not say by whom.",
    ]


async def test_a_restart_writes_nothing_and_reports_nothing_twice(
    teams: Teams, controller: Controller
) -> None:
    await teams.create_ready("before-restart", quota={"pods": 2, "gpus": {GPU: 1}})
    await wait_until_calm(teams, "before-restart")
    before = await read_writes(teams.cluster)
    reports = controller.read_reasons("before-restart")
    controller.stop()
    controller.start()
    await controller.wait_until_healthy()
    await teams.create_ready("after-restart")  # by now every team has been looked at
    await wait_until_calm(teams, "after-restart")
    assert count_ours(await read_writes(teams.cluster) - before) == ONE_TEAM
    assert controller.read_reasons("before-restart") == reports


# Writes for one team, each object once; of service accounts there are two, since Kubernetes makes
# one in each namespace. The status is written when all is there and, unless they are one moment,
# when the quota is counted.
ONE_TEAM = {
    "POST teams": 1,
    "POST namespaces": 1,
    "POST resourcequotas": 1,
    "POST limitranges": 1,
    "POST networkpolicies": 2,
    "POST serviceaccounts": 2,
    "POST rolebindings": 2,
    "PATCH configmaps": 1,  # the mark of the last gid
}


def count_ours(written: Counter[str], *, teams: int = 1) -> dict[str, int]:
    """Writes to what a team consists of, by the controller and by the test.

    Kubernetes' own parts patch and delete none of it. Writes of the status are checked here.
    """
    assert teams <= written.pop("PATCH teams/status") <= 2 * teams
    resources = {key.split()[1] for key in ONE_TEAM}
    return {
        key: number
        for key, number in written.items()
        if key in ONE_TEAM or (key.startswith(("PATCH", "DELETE")) and key.split()[1] in resources)
    }


async def test_many_teams_take_one_write_an_object_and_three_more_each(teams: Teams) -> None:
    before = await read_writes(teams.cluster)
    many = [f"many-{number}" for number in range(10)]
    quota = {"pods": 5, "gpus": {GPU: 1}}
    await asyncio.gather(*(teams.create_ready(name, quota=quota) for name in many))
    for name in many:
        await wait_until_calm(teams, name)
    written = count_ours(await read_writes(teams.cluster) - before, teams=len(many))
    assert written == {key: n * len(many) for key, n in ONE_TEAM.items()}


async def test_a_change_of_one_team_touches_its_own_namespace_alone(teams: Teams) -> None:
    for name in ("changing", "bystander"):
        await teams.create_ready(name, quota={"gpus": {GPU: 1}})
        await wait_until_calm(teams, name)
    bystander = await teams.versions("bystander")
    before = await read_writes(teams.cluster)
    await teams.cluster.patch(teams.path("changing"), {"spec": {"quota": {"gpus": {GPU: 2}}}})
    await wait_until(lambda: shows(teams, "changing", "0/2"), within=10, what="the new quota")
    await wait_until_calm(teams, "changing")
    written = count_ours(await read_writes(teams.cluster) - before)
    assert written == {"PATCH teams": 1, "PATCH resourcequotas": 1}
    assert await teams.versions("bystander") == bystander


async def test_an_older_definition_is_raised_and_a_newer_one_left_alone(
    plane: ControlPlane, admin: Cluster
) -> None:
    definition = await admin.get(CRD_PATH)
    columns = definition["spec"]["versions"][0].pop("additionalPrinterColumns")
    for revision, is_raised in (("99", False), ("0", True)):
        mark = {"annotations": {"spectrum.dev/revision": revision}}
        await admin.patch(CRD_PATH, {"metadata": mark, "spec": definition["spec"]})
        async with connected_client(plane) as client:
            await ensure_definition(client)
        found = await admin.get(CRD_PATH)
        shown = found["spec"]["versions"][0].get("additionalPrinterColumns")
        assert (shown == columns) is is_raised
        assert (found["metadata"]["annotations"]["spectrum.dev/revision"] == "3") is is_raised


END = {"until": "2026-03-31T18:00:00Z"}
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "name of 70 characters": ("a" * 70, {}, "63 characters long at most"),
    "no name": ("", {}, "name or generateName is required"),
    "blank and capitals": ("ML Vision", {}, "lowercase RFC 1123"),
    "not ASCII": ("视觉", {}, "lowercase RFC 1123"),
    "dots": ("ml.vision", {}, "any other text goes into spec.displayName"),
    "no display name": ("x", {"displayName": " "}, "at least one character that is not a space"),
    "two lines": ("x", {"displayName": "a\nb"}, "one line of printable characters"),
    "long display name": ("x", {"displayName": "x" * 121}, "may not be more than 120"),
    "empty group": ("x", {"groups": [""]}, "a group's name must not be empty"),
    "groups twice": ("x", {"groups": ["a", "a"]}, "Duplicate value"),
    "201 groups": ("x", {"groups": [str(n) for n in range(201)]}, "at most 200 items"),
    "negative cores": ("x", {"quota": {"cpu": -1}}, "must be a number of cores"),
    "cores in words": ("x", {"quota": {"cpu": "16 cores"}}, "must be a number of cores"),
    "decimal unit": ("x", {"quota": {"memory": "16GB"}}, "must be a size such as 512Mi or 32Gi"),
    "part of a GPU": ("x", {"quota": {"gpus": {GPU: "1.5"}}}, "must be of type integer"),
    "negative GPUs": ("x", {"quota": {"gpus": {GPU: -1}}}, "greater than or equal to 0"),
    "no domain": ("x", {"quota": {"gpus": {"gpu": 1}}}, "keyed by resource names"),
    "quota key": ("x", {"quota": {"gpus": {f"requests.{GPU}": 1}}}, "without 'requests.'"),
    "default profile without a name": ("x", {"defaultProfile": " "}, "must be the name of a pro"),
    "idle at once": ("x", {"idle": {"minutes": 4}}, "greater than or equal to 5"),
    "idle after more than a week": ("x", {"idle": {"minutes": 10081}}, "less than or equal to 100"),
    "idle in words": ("x", {"idle": {"minutes": "1h"}}, "must be of type integer"),
    "template that is none": ("x", {"template": "a b"}, "one of the release's teamTemplates"),
    "empty lead group": ("x", {"leadGroups": ["/"]}, "a lead group's name must not be empty"),
    "grant of nothing": ("x", {"grants": {"r-1": END}}, "a grant must give GPUs or profiles"),
    "grant without end": ("x", {"grants": {"r-1": {"profiles": ["a"]}}}, "until: Required value"),
    "grant until some day": (
        "x",
        {"grants": {"r-1": {"profiles": ["a"], "until": "some day"}}},
        "until in body must be of type date-time",
    ),
    "grant until the 30th of February": (
        "x",
        {"grants": {"r-1": {"profiles": ["a"], "until": "2026-02-30T00:00:00Z"}}},
        "until in body must be of type date-time",
    ),
    "grant until an hour of no zone": (
        "x",
        {"grants": {"r-1": {"profiles": ["a"], "until": "2026-03-31T18:00:00+99:99"}}},
        "until in body should match",
    ),
    "grant of no GPU": (
        "x",
        {"grants": {"r-1": {**END, "gpus": {GPU: 0}}}},
        "greater than or equal to 1",
    ),
    "grant without domain": (
        "x",
        {"grants": {"r-1": {**END, "gpus": {"gpu": 1}}}},
        "grants must name GPUs by resource names with their domain",
    ),
    "grant by an id of another kind": (
        "x",
        {"grants": {"a b": {**END, "profiles": ["a"]}}},
        "grants must be keyed by an id of at most 63 letters",
    ),
    "size with a blank": ("x", {"storage": {"home": {"size": "10 Gi"}}}, "size such as 512Mi"),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_nonsense_is_refused_when_it_is_applied(teams: Teams, what: str) -> None:
    name, spec, sentence = REFUSED[what]
    with pytest.raises(ApiError) as refusal:
        await teams.create(name, **spec)
    assert refusal.value.status == 422
    assert sentence in str(refusal.value)


async def test_unknown_fields_are_refused_by_a_client_that_is_strict(teams: Teams) -> None:
    path = f"{teams.path('x').rpartition('/')[0]}?fieldValidation=Strict"
    kind = {"apiVersion": "spectrum.dev/v1alpha1", "kind": "Team", "metadata": {"name": "x"}}
    with pytest.raises(ApiError, match=r"unknown field .*spec\.qouta"):
        await teams.cluster.create(path, {**kind, "spec": {"qouta": {}}})


async def test_a_list_of_teams_is_worth_reading(teams: Teams) -> None:
    await teams.create_ready("shown", quota={"gpus": {GPU: 2}})
    await wait_until(lambda: shows(teams, "shown", "0/2"), within=10, what="usage")
    as_table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    table = json.loads(await teams.cluster.read(teams.path("shown"), as_table))
    columns = [c["name"] for c in table["columnDefinitions"] if not c.get("priority")]
    assert columns == ["Name", "Namespace", "Servers", "GPUs", "Ready", "Reason", "Age"]
    assert table["rows"][0]["cells"][:6] == [
        "shown",
        "spectrum-shown",
        0,
        "0/2",
        "True",
        "Reconciled",
    ]
