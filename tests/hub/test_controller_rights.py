"""What the controller's account may do, and whoever has stolen its token, on a real kube-apiserver.

The policy is the chart's own. Beside it the account has every right there is, so that nothing but
the policy can be what refuses. All requests are dry runs.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from local.control_plane import ControlPlane
from spectrum_spawner import names
from spectrum_spawner.controller.cluster import CHILDREN, CLAIMS, NAMESPACES, SECRETS, VOLUMES
from spectrum_spawner.controller.objects import (
    TeamSpace,
    make_children,
    make_metadata,
    make_namespace,
    make_role_bindings,
)
from spectrum_spawner.controller.settings import Settings
from spectrum_spawner.controller.storage_settings import (
    CephFSSettings,
    DatasetSettings,
    VolumeSettings,
)
from spectrum_spawner.controller.volumes import (
    make_dataset_claim,
    make_dataset_volume,
    make_share_claim,
)
from spectrum_spawner.kube import Client, Object, Refused, collection
from tests.hub.account import (
    ACCOUNT,
    DRY,
    connect_as_controller,
    install,
    wait_until_in_force,
    write_kubeconfig,
)
from tests.hub.cluster import Cluster, connect
from tests.hub.team import Team as Space
from tests.hub.team import admit_hub, create_hub_namespace

HUB = "fence"
PREFIX = "fence-"
KINDS = {
    **CHILDREN,
    "Namespace": NAMESPACES,
    "PersistentVolume": VOLUMES,
    "PersistentVolumeClaim": CLAIMS,
    "Secret": SECRETS,
}
SETTINGS = Settings(hub_namespace=HUB, prefix=PREFIX, accelerators=())
DATASET = DatasetSettings(name="mnist", title="MNIST", path="/volumes/mnist", size="1Gi")
CEPHFS = CephFSSettings(
    driver="rook-ceph.cephfs.csi.ceph.com",
    cluster_id="rook-ceph",
    fs_name="myfs",
    secret_name="rook-csi-cephfs-node",
    secret_namespace="rook-ceph",
)
ATTRIBUTES = {
    "clusterID": "rook-ceph",
    "fsName": "myfs",
    "rootPath": DATASET.path,
    "staticVolume": "true",
}
# The chart's values by which the controller would be told the same.
VALUES = {"storage": {"datasets": {"mnist": {"path": DATASET.path, "size": DATASET.size}}}}
LEVEL = "pod-security.kubernetes.io/enforce"

# Namespaces that there are. The empty one and the one with an earlier prefix hold nothing.
EMPTY, HELD, EASED, EARLIER = "fence-empty", "fence-held", "fence-eased", "earlier-ops"
UNMARKED, RIVALS, GONE = "fence-unmarked", "fence-rivals", "earlier-gone"
OTHERS = ("kube-system", "default", HUB, UNMARKED, RIVALS)


def make_space(namespace: str, *, hub: str = HUB) -> TeamSpace:
    team = namespace.partition("-")[2]
    return TeamSpace(hub_namespace=hub, team=team, uid="1", namespace=namespace, gid=100000)


def make_objects(namespace: str) -> list[Object]:
    """All that the controller may write in a namespace, by the package's own builders."""
    space = make_space(namespace)
    metadata = {"name": names.BUCKET_SECRET, "namespace": namespace, **make_metadata(space)}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque"}
    return [
        *make_children(space, {"pods": 1}, SETTINGS),
        make_share_claim(space, VolumeSettings(enabled=True, storage_class="rook-cephfs")),
        make_dataset_volume(space, DATASET, CEPHFS),
        make_dataset_claim(space, DATASET),
        secret,
    ]


def make_marked(name: str, *, level: str = "restricted") -> Object:
    """A namespace as the controller makes it, at another pod security level or at none."""
    manifest = make_namespace(make_space(name))
    labels = manifest["metadata"]["labels"]
    del labels[LEVEL]
    if level:
        labels[LEVEL] = level
    return manifest


def make_secret(name: str, namespace: str = HELD, **more: Any) -> Object:
    return {"kind": "Secret", "metadata": {"name": name, "namespace": namespace}, **more}


def make_binding(name: str = names.HUB_ROLE_BINDING, **changes: Any) -> Object:
    """The hub's, or one of another name that is like it; the service's is its own."""
    bindings = {each["metadata"]["name"]: each for each in make_role_bindings(make_space(EMPTY))}
    binding = bindings.get(name, bindings[names.HUB_ROLE_BINDING])
    return {**binding, "metadata": {**binding["metadata"], "name": name}, **changes}


def make_volume(name: str = "fence-empty-dataset-mnist", **spec: Any) -> Object:
    volume = make_dataset_volume(make_space(EMPTY), DATASET, CEPHFS)
    own = volume["metadata"]["name"]
    source = volume["spec"]["csi"]
    source["volumeHandle"] = source["volumeHandle"].replace(own, name)
    wanted = {key: value for key, value in {**volume["spec"], **spec}.items() if value is not None}
    return {**volume, "metadata": {**volume["metadata"], "name": name}, "spec": wanted}


def make_source(**changes: Any) -> Object:
    """The source of a volume as the controller makes it, with other keys or without some."""
    source = {**make_volume()["spec"]["csi"], **changes}
    return {key: value for key, value in source.items() if value is not None}


def annotated(manifest: Object, annotations: dict[str, str]) -> Object:
    metadata = manifest["metadata"]
    both = {**metadata["annotations"], **annotations}
    return {**manifest, "metadata": {**metadata, "annotations": both}}


def claim_in(namespace: str, name: str = "dataset-mnist") -> Object:
    return {"kind": "PersistentVolumeClaim", "namespace": namespace, "name": name}


def named(kind: str, name: str, namespace: str = "", **metadata: Any) -> Object:
    place = {"namespace": namespace} if namespace else {}
    return {"kind": kind, "metadata": {"name": name, **place, **metadata}}


def place_of(manifest: Object) -> tuple[str, str]:
    metadata = manifest["metadata"]
    return metadata["name"], metadata.get("namespace", "")


@pytest.fixture(scope="module")
def kubeconfig(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The account's token, where there are namespaces of teams and of others."""
    return asyncio.run(prepare(plane, tmp_path_factory.mktemp("account")))


async def prepare(plane: ControlPlane, directory: Path) -> Path:
    async with connect(plane) as admin:
        await create_hub_namespace(admin, HUB)
        for name in (EMPTY, HELD, EARLIER):
            await create(admin, make_marked(name))
        await create(admin, make_marked(EASED, level="baseline"))
        await create(admin, make_namespace(make_space(RIVALS, hub="rival")))
        await create(admin, make_marked(GONE))
        # labels are no owner mark
        labels = {names.LABEL_HUB: HUB}
        await create(admin, {"kind": "Namespace", "metadata": {"name": UNMARKED, "labels": labels}})
        await admit_hub(admin, Space(name="ops", namespace=EARLIER), HUB)
        for namespace in (HELD, UNMARKED):
            for manifest in make_objects(namespace):
                await create(admin, without_marks(manifest) if namespace == UNMARKED else manifest)
        await create(admin, make_volume("foreign", claimRef=claim_in(HELD, "foreign")))
        await create(admin, make_secret("other"))
        await create(admin, {**make_binding("others"), "metadata": inside("others")})
        install(plane, HUB, VALUES)
        await widen_rights(admin)
        kubeconfig = await write_kubeconfig(plane, admin, HUB, directory)
    await wait_until_in_force(kubeconfig, HUB, PREFIX)
    return kubeconfig


async def create(admin: Cluster, manifest: Object) -> None:
    await admin.create(collection_of(manifest), manifest)


def inside(name: str, namespace: str = HELD) -> dict[str, str]:
    return {"name": name, "namespace": namespace}


def without_marks(manifest: Object) -> Object:
    kept = {k: v for k, v in manifest["metadata"].items() if k in ("name", "namespace")}
    return {**manifest, "metadata": kept}


async def widen_rights(admin: Cluster) -> None:
    group = "rbac.authorization.k8s.io"
    binding = {
        "metadata": {"name": "fence-wide"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": HUB}],
    }
    await admin.create(f"/apis/{group}/v1/clusterrolebindings", binding)


@pytest_asyncio.fixture
async def thief(kubeconfig: Path) -> AsyncIterator[Client]:
    async with connect_as_controller(kubeconfig) as client:
        yield client


def collection_of(manifest: Object) -> str:
    api_version, plural = KINDS[manifest["kind"]]
    return collection(api_version, plural, namespace=manifest["metadata"].get("namespace"))


async def send(client: Client, verb: str, manifest: Object) -> None:
    """Create it, delete it, or patch the live one of its name to be like it."""
    path = collection_of(manifest)
    if verb == "create":
        await client.request("POST", path, body=manifest, query=DRY)
        return
    path = f"{path}/{manifest['metadata']['name']}"
    if verb == "delete":
        await client.request("DELETE", path, query=DRY)
        return
    kind = "application/merge-patch+json"
    await client.request("PATCH", path, body=manifest, query=DRY, content_type=kind)


async def read_refusal(client: Client, verb: str, manifest: Object) -> str:
    with pytest.raises(Refused) as refusal:
        await send(client, verb, manifest)
    assert refusal.value.status == 422
    return refusal.value.message


SENTENCES = {
    "place": "the controller may touch namespaces of this hub's teams only",
    "name": "the controller may make namespaces of teams only, whose names begin with fence-",
    "level": "the controller may not weaken the pod security standard of a team's namespace",
    "secret": "the controller may touch Secrets called spectrum-bucket of type Opaque only",
    "grant": "the controller may give the role fence-hub-in-team to the hub and "
    "fence-service-in-team to the service, and no role to anybody else",
    "grants": "the controller may delete no RoleBinding but those of the hub and the service",
    "volume": "the controller may make volumes of datasets only",
    "source": "the controller may make volumes of the directories in storage.datasets only",
    "end": "the controller may make volumes only whose data stay when they go",
    "change": "the controller may not change what a volume mounts, for whom and how, nor have its",
    "volumes": "the controller may touch volumes of this hub's datasets only",
}
# What a thief would like a new volume to be, and makes of one that is there.
SOURCES: dict[str, dict[str, Any]] = {
    "another driver": {"driver": "x.example.org"},
    "writing": {"readOnly": None},
    "everybody's directories": {"volumeAttributes": {**ATTRIBUTES, "rootPath": "/"}},
    "a directory beside it": {"volumeAttributes": {**ATTRIBUTES, "rootPath": "/volumes/mnist/.."}},
    "another file system": {"volumeAttributes": {**ATTRIBUTES, "fsName": "other"}},
    "another cluster": {"volumeAttributes": {**ATTRIBUTES, "clusterID": "other"}},
    "its handle's directory": {"volumeAttributes": {**ATTRIBUTES, "staticVolume": "false"}},
    "more attributes": {"volumeAttributes": {**ATTRIBUTES, "mounter": "fuse"}},
    "no attributes": {"volumeAttributes": None},
    "another Secret": {"nodeStageSecretRef": {"name": "admin", "namespace": "rook-ceph"}},
    "a Secret elsewhere": {"nodeStageSecretRef": {"name": CEPHFS.secret_name, "namespace": HUB}},
    "no Secret": {"nodeStageSecretRef": None},
    **{
        f"{ref}": {ref: {"name": "admin", "namespace": "rook-ceph"}}
        for ref in (
            *("nodePublishSecretRef", "nodeExpandSecretRef"),
            *("controllerPublishSecretRef", "controllerExpandSecretRef"),
        )
    },
    "somebody's handle": {"volumeHandle": "0001-0009-rook-ceph-0000000000000001-somebody"},
    "a handle of another's volume": {"volumeHandle": f"fence-held-dataset-mnist-{'0' * 20}"},
    "a handle without a digest": {"volumeHandle": "fence-empty-dataset-mnist"},
}
DELETION = {
    "pv.kubernetes.io/provisioned-by": CEPHFS.driver,
    "volume.kubernetes.io/provisioner-deletion-secret-name": "rook-csi-cephfs-provisioner",
    "volume.kubernetes.io/provisioner-deletion-secret-namespace": "rook-ceph",
}
CHANGES: dict[str, dict[str, Any]] = {
    "deleted with its data": {"spec": {"persistentVolumeReclaimPolicy": "Delete"}},
    "mounted with options": {"spec": {"mountOptions": ["suid"]}},
    "for another claim": {"spec": {"claimRef": {"name": "dataset-x"}}},
    "for another team": {"spec": {"claimRef": {"namespace": "fence-empty"}}},
    "for any claim": {"spec": {"claimRef": None}},
    **{
        f"with {key}": {"metadata": {"name": "fence-held-dataset-mnist", "annotations": {key: "x"}}}
        for key in (*DELETION, "pv.kubernetes.io/migrated-to")
    },
}
OF_HELD: dict[str, Any] = named("PersistentVolume", "fence-held-dataset-mnist")
TOKEN = "kubernetes.io/service-account-token"
OF_TOKEN = {"annotations": {"kubernetes.io/service-account.name": "default"}}
ADMIN = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"}
MARK = {"annotations": {names.ANNOTATION_HUB: HUB}}
CHANGE = {"annotations": {"example.org/x": "y"}}


def token_secret(name: str, namespace: str = HELD) -> Object:
    return {
        **make_secret(name, type=TOKEN),
        "metadata": {"name": name, "namespace": namespace, **OF_TOKEN},
    }


FORBIDDEN: dict[str, tuple[str, Object, str]] = {
    "a token in kube-system": ("create", token_secret(names.BUCKET_SECRET, "kube-system"), "place"),
    "an account's keys": ("patch", named("ServiceAccount", "hub", HUB, **CHANGE), "place"),
    "a system namespace": ("create", make_marked("kube-more"), "name"),
    "a namespace of an earlier prefix": ("create", make_marked("earlier-new"), "name"),
    "a namespace without a mark": ("create", named("Namespace", "fence-x"), "place"),
    "a rival's namespace": (
        "create",
        make_namespace(make_space("fence-x", hub="rival")),
        "place",
    ),
    "kube-system, marked": ("patch", named("Namespace", "kube-system", **MARK), "place"),
    "one with the prefix, marked": ("patch", named("Namespace", UNMARKED, **MARK), "place"),
    "a rival's, marked": ("patch", named("Namespace", RIVALS, **MARK), "place"),
    "a rival's, deleted": ("delete", named("Namespace", RIVALS), "place"),
    "an unmarked one, deleted": ("delete", named("Namespace", UNMARKED), "place"),
    "a privileged namespace": (
        "create",
        make_marked("fence-x", level="privileged"),
        "level",
    ),
    "a namespace of no level": ("create", make_marked("fence-x", level=""), "level"),
    "a team's, privileged": (
        "patch",
        named("Namespace", HELD, labels={LEVEL: "privileged"}),
        "level",
    ),
    "a team's, without level": ("patch", named("Namespace", HELD, labels={LEVEL: None}), "level"),
    "an eased one, eased more": (
        "patch",
        named("Namespace", EASED, labels={LEVEL: "privileged"}),
        "level",
    ),
    "a token in a team's namespace": ("create", token_secret("token"), "secret"),
    "a token called like the bucket's keys": (
        "create",
        token_secret(names.BUCKET_SECRET, EMPTY),
        "secret",
    ),
    "a Secret of another name": ("create", make_secret("x"), "secret"),
    "a Secret of a name that anybody may use": ("create", make_secret("bucket"), "secret"),
    "a Secret of a name like it": ("create", make_secret("spectrum-bucket-x"), "secret"),
    "a Secret of any name": (
        "create",
        {"kind": "Secret", "metadata": {"generateName": "spectrum-bucket", "namespace": EMPTY}},
        "secret",
    ),
    "another Secret, changed": ("patch", make_secret("other", stringData={"a": "b"}), "secret"),
    "another Secret, deleted": ("delete", make_secret("other"), "secret"),
    "another binding": ("create", make_binding("more"), "grant"),
    "another role": ("create", make_binding(roleRef=ADMIN), "grant"),
    "a role inside": (
        "create",
        make_binding(roleRef={**ADMIN, "kind": "Role", "name": "fence-hub-in-team"}),
        "grant",
    ),
    "the role for everybody": (
        "create",
        make_binding(subjects=[{**ADMIN, "kind": "Group", "name": "system:authenticated"}]),
        "grant",
    ),
    "the role for oneself": (
        "create",
        make_binding(subjects=[{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": HUB}]),
        "grant",
    ),
    "the role for one more": (
        "patch",
        {
            **named("RoleBinding", names.HUB_ROLE_BINDING, HELD),
            "subjects": [
                *make_binding()["subjects"],
                {"kind": "ServiceAccount", "name": "hub", "namespace": "fence-x"},
            ],
        },
        "grant",
    ),
    "the hub's role for the service": (
        "create",
        make_binding(subjects=make_binding(names.SERVICE_ROLE_BINDING)["subjects"]),
        "grant",
    ),
    "the service's role by the hub's binding": (
        "create",
        make_binding(roleRef=make_binding(names.SERVICE_ROLE_BINDING)["roleRef"]),
        "grant",
    ),
    "the hub's role by the service's binding": (
        "create",
        make_binding(names.SERVICE_ROLE_BINDING, roleRef=make_binding()["roleRef"]),
        "grant",
    ),
    "the service's role for a server": (
        "patch",
        {
            **named("RoleBinding", names.SERVICE_ROLE_BINDING, HELD),
            "subjects": [{"kind": "ServiceAccount", "name": "service", "namespace": HELD}],
        },
        "grant",
    ),
    "another binding, changed": ("patch", named("RoleBinding", "others", HELD, **CHANGE), "grant"),
    "another binding, deleted": ("delete", named("RoleBinding", "others", HELD), "grants"),
    "a volume of another name": ("create", make_volume("fence-empty-mnist"), "volume"),
    "a volume for another team's claim": (
        "create",
        make_volume(claimRef=claim_in(HELD)),
        "volume",
    ),
    "a volume for another claim": (
        "create",
        make_volume("fence-empty-home-a", claimRef=claim_in(EMPTY, "home-a")),
        "volume",
    ),
    "a volume for kube-system": (
        "create",
        make_volume("kube-system-dataset-mnist", claimRef=claim_in("kube-system")),
        "volume",
    ),
    "a volume where the hub may start nothing": (
        "create",
        make_volume(f"{GONE}-dataset-mnist", claimRef=claim_in(GONE)),
        "volume",
    ),
    "a volume for no claim": ("create", make_volume(claimRef=None), "volume"),
    "a node's disk": ("create", make_volume(csi=None, hostPath={"path": "/"}), "source"),
    "another driver's volume": (
        "create",
        make_volume(csi={"driver": "x.example.org", "volumeHandle": "x", "readOnly": True}),
        "source",
    ),
    **{
        f"a volume with {what}": ("create", make_volume(csi=make_source(**change)), "source")
        for what, change in SOURCES.items()
    },
    "a volume whose data go with it": (
        "create",
        make_volume(persistentVolumeReclaimPolicy="Delete"),
        "end",
    ),
    "a volume that asks for its own end": ("create", annotated(make_volume(), DELETION), "end"),
    "a volume with mount options": ("create", make_volume(mountOptions=["suid"]), "end"),
    **{
        f"a volume of a team, {what}": ("patch", {**OF_HELD, **change}, "change")
        for what, change in CHANGES.items()
    },
    "a foreign volume, marked": ("patch", named("PersistentVolume", "foreign", **MARK), "volumes"),
    "a volume named like ours, marked": (
        "patch",
        named("PersistentVolume", f"{UNMARKED}-dataset-mnist", **MARK),
        "volumes",
    ),
    "a foreign volume, deleted": ("delete", named("PersistentVolume", "foreign"), "volumes"),
    "a volume named like ours, deleted": (
        "delete",
        named("PersistentVolume", f"{UNMARKED}-dataset-mnist"),
        "volumes",
    ),
}


@pytest.mark.parametrize("what", FORBIDDEN)
async def test_a_stolen_token_opens_nothing_but_what_is_teams(thief: Client, what: str) -> None:
    verb, manifest, sentence = FORBIDDEN[what]
    assert SENTENCES[sentence] in await read_refusal(thief, verb, manifest)


@pytest.mark.parametrize("namespace", OTHERS)
async def test_nothing_is_made_in_namespaces_of_others(thief: Client, namespace: str) -> None:
    for manifest in make_objects(namespace):
        if manifest["kind"] != "PersistentVolume":
            assert SENTENCES["place"] in await read_refusal(thief, "create", manifest)


@pytest.mark.parametrize("verb", ["patch", "delete"])
async def test_nothing_is_altered_in_namespaces_of_others(thief: Client, verb: str) -> None:
    for manifest in make_objects(UNMARKED):
        if manifest["kind"] != "PersistentVolume":
            live = named(manifest["kind"], *place_of(manifest), **MARK)
            assert SENTENCES["place"] in await read_refusal(thief, verb, live)


async def test_a_refusal_names_the_place_and_says_why(thief: Client) -> None:
    refusal = await read_refusal(thief, "create", token_secret(names.BUCKET_SECRET, "kube-system"))
    assert refusal.endswith(
        "the controller may touch namespaces of this hub's teams only, so that a stolen token of "
        "it opens no other; kube-system does not bear the annotation spectrum.dev/owner-hub: fence"
    )


ALLOWED: dict[str, tuple[str, Object]] = {
    "a new namespace": ("create", make_marked("fence-new")),
    "a volume for it": (
        "create",
        make_volume("fence-new-dataset-mnist", claimRef=claim_in("fence-new")),
    ),
    "a volume whose name fills its handle": (
        "create",
        make_dataset_volume(
            make_space("fence-" + 57 * "n"), replace(DATASET, name=55 * "d"), CEPHFS
        ),
    ),
    **{
        f"{verb} {name}": (verb, named("Namespace", name, **CHANGE))
        for verb in ("patch", "delete")
        for name in (HELD, EASED, EARLIER)
    },
    "an eased namespace, mended": (
        "patch",
        named("Namespace", EASED, labels={LEVEL: "restricted"}),
    ),
}


@pytest.mark.parametrize("what", ALLOWED)
async def test_namespaces_are_made_kept_and_purged(thief: Client, what: str) -> None:
    verb, manifest = ALLOWED[what]
    await send(thief, verb, manifest)


@pytest.mark.parametrize("namespace", [EMPTY, EARLIER])
async def test_all_that_a_team_needs_is_made(thief: Client, namespace: str) -> None:
    for manifest in make_objects(namespace):
        # the hub's binding, by which an earlier prefix is known, is there
        if (namespace, manifest["metadata"]["name"]) != (EARLIER, names.HUB_ROLE_BINDING):
            await send(thief, "create", manifest)


@pytest.mark.parametrize("verb", ["patch", "delete"])
async def test_all_that_a_team_has_is_mended_and_removed(thief: Client, verb: str) -> None:
    for manifest in make_objects(HELD):
        await send(thief, verb, named(manifest["kind"], *place_of(manifest), **CHANGE))


async def test_others_than_the_controller_are_not_held_to_it(cluster: Cluster) -> None:
    await create(cluster, make_secret("theirs", "default"))
