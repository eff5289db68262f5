"""Manifests of everything that a team namespace needs. Pure: a record in, plain dicts out.

Whatever the API server would fill in by itself is spelled out where it matters, so that an object
that was read back can be compared with the one that is wanted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from spectrum_spawner import names
from spectrum_spawner.controller.settings import NetworkRules, Settings
from spectrum_spawner.controller.storage_settings import BucketSettings

Manifest = dict[str, Any]

ANNOTATION_GID = f"{names.API_GROUP}/gid"  # the team's gid belongs to its data, so it stays here

SERVER_PORT = 8888
HUB_PORT = 8081
PROXY_PORT = 8000
DNS_PORT = 53

# Counted for containers that name no request of their own, since a quota refuses those.
DEFAULT_REQUEST = {"cpu": "100m", "memory": "128Mi"}


@dataclass(frozen=True, kw_only=True)
class TeamSpace:
    """One team's namespace: whose it is and what it is to be."""

    hub_namespace: str
    team: str
    uid: str
    namespace: str
    gid: int


def make_children(space: TeamSpace, quota: Mapping[str, Any], settings: Settings) -> list[Manifest]:
    """All objects in the namespace, in the order in which they have to be made.

    The hub's role comes last: before it nobody can start a pod there, so that no pod escapes
    quota, limits, policies, and the eyes of who looks for idle ones.
    """
    return [
        make_quota(space, quota, settings.accelerators),
        make_limit_range(space),
        *make_policies(space, settings.network, settings.storage.bucket),
        make_service_account(space),
        *make_role_bindings(space),
    ]


def make_namespace(space: TeamSpace) -> Manifest:
    """The namespace, with owner marks and the `restricted` pod security standard."""
    metadata = make_metadata(space)
    for mode in ("audit", "enforce", "warn"):
        metadata["labels"][f"pod-security.kubernetes.io/{mode}"] = "restricted"
    metadata["annotations"][ANNOTATION_GID] = str(space.gid)
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": space.namespace, **metadata},
    }


def make_quota(
    space: TeamSpace, quota: Mapping[str, Any], accelerators: tuple[str, ...]
) -> Manifest:
    """The team's quota. `quota` is `spec.quota` of the Team.

    With a GPU table every accelerator that any profile can ask for has an entry, 0 where the
    table has none; otherwise a team could get round its quota by another resource name.
    """
    hard = {}
    for key, resource in (
        ("cpu", "requests.cpu"),
        ("memory", "requests.memory"),
        ("pods", "pods"),
    ):
        if key in quota:
            hard[resource] = str(quota[key])
    if "gpus" in quota:
        counts = {**dict.fromkeys(accelerators, 0), **quota["gpus"]}
        for accelerator, count in sorted(counts.items()):
            hard[names.gpu_quota_key(accelerator)] = str(count)
    for storage_class, amount in sorted((quota.get("storage") or {}).items()):
        for key, resource in (("size", "requests.storage"), ("claims", "persistentvolumeclaims")):
            if key in amount:
                hard[names.storage_quota_key(storage_class, resource)] = str(amount[key])
    spec = {"hard": hard} if hard else {}
    return _make_object(space, "v1", "ResourceQuota", names.QUOTA, spec=spec)


def make_limit_range(space: TeamSpace) -> Manifest:
    """Requests for containers that name none: the quota counts them, too."""
    limits = [{"type": "Container", "defaultRequest": DEFAULT_REQUEST}]
    return _make_object(space, "v1", "LimitRange", names.LIMIT_RANGE, spec={"limits": limits})


def make_policies(space: TeamSpace, rules: NetworkRules, bucket: BucketSettings) -> list[Manifest]:
    """Nothing in, nothing out, and then what a server needs; none if the rules are off."""
    if not rules.enabled:
        return []
    closed = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    open_ = {
        "podSelector": {},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": _make_ingress(space.hub_namespace),
        "egress": [*_make_egress(space.hub_namespace, rules), *_make_bucket_egress(bucket)],
    }
    api = "networking.k8s.io/v1"
    return [
        _make_object(space, api, "NetworkPolicy", names.POLICY_DENY, spec=closed),
        _make_object(space, api, "NetworkPolicy", names.POLICY_ALLOW, spec=open_),
    ]


def make_service_account(space: TeamSpace) -> Manifest:
    """The account of servers, which has no rights and mounts no token."""
    return _make_object(
        space,
        "v1",
        "ServiceAccount",
        names.SERVER_SERVICE_ACCOUNT,
        automountServiceAccountToken=False,
    )


def make_role_bindings(space: TeamSpace) -> list[Manifest]:
    """The rights of the service and of the hub in this namespace."""
    hub = space.hub_namespace
    return [
        _make_role_binding(
            space,
            names.SERVICE_ROLE_BINDING,
            role=names.service_role_in_team(hub),
            account=names.SERVICE_SERVICE_ACCOUNT,
        ),
        _make_role_binding(
            space,
            names.HUB_ROLE_BINDING,
            role=names.hub_role_in_team(hub),
            account=names.HUB_SERVICE_ACCOUNT,
        ),
    ]


def _make_role_binding(space: TeamSpace, name: str, *, role: str, account: str) -> Manifest:
    group = "rbac.authorization.k8s.io"
    return _make_object(
        space,
        f"{group}/v1",
        "RoleBinding",
        name,
        roleRef={"apiGroup": group, "kind": "ClusterRole", "name": role},
        subjects=[
            {"kind": "ServiceAccount", "name": account, "namespace": space.hub_namespace},
        ],
    )


def _make_object(
    space: TeamSpace, api_version: str, kind: str, name: str, **parts: Any
) -> Manifest:
    metadata = {"name": name, "namespace": space.namespace, **make_metadata(space)}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **parts}


def make_metadata(space: TeamSpace) -> dict[str, dict[str, str]]:
    return {
        "labels": {
            names.LABEL_MANAGED_BY: names.MANAGED_BY,
            names.LABEL_HUB: space.hub_namespace,
            names.LABEL_TEAM: names.slug(space.team),
        },
        "annotations": {
            names.ANNOTATION_HUB: space.hub_namespace,
            names.ANNOTATION_TEAM: space.team,
            names.ANNOTATION_TEAM_UID: space.uid,
        },
    }


def _make_ingress(hub_namespace: str) -> list[Manifest]:
    callers = [_component(hub_namespace, "hub"), _component(hub_namespace, "proxy")]
    return [
        {"from": callers, "ports": _tcp(SERVER_PORT)},
        {"from": [{"podSelector": {}}]},  # the team itself, such as the peers of a training
    ]


def _make_egress(hub_namespace: str, rules: NetworkRules) -> list[Manifest]:
    # by namespace only: what serves DNS there is labelled differently from cluster to cluster
    dns = {"namespaceSelector": _namespace("kube-system")}
    egress: list[Manifest] = [
        {"to": [{"podSelector": {}}]},
        {"to": [_component(hub_namespace, "hub")], "ports": _tcp(HUB_PORT)},
        {"to": [_component(hub_namespace, "proxy")], "ports": _tcp(PROXY_PORT)},
        {"to": [dns], "ports": [{"protocol": "UDP", "port": DNS_PORT}, *_tcp(DNS_PORT)]},
    ]
    if rules.internet:
        block = {"cidr": "0.0.0.0/0", "except": list(rules.internet_except)}
        egress.append({"to": [{"ipBlock": block}]})
    return egress


def _make_bucket_egress(bucket: BucketSettings) -> list[Manifest]:
    """The way to the object store.

    Pods may listen on another port than their Service has; an address of the network may belong
    to a machine on which more than the object store answers.
    """
    if not bucket.endpoint or not bucket.peers:
        return []
    blocks = [peer for peer in bucket.peers if "ipBlock" in peer]
    pods = [peer for peer in bucket.peers if "ipBlock" not in peer]
    egress: list[Manifest] = [{"to": pods}] if pods else []
    if blocks:
        url = urlsplit(bucket.endpoint)
        port = url.port or (443 if url.scheme == "https" else 80)
        egress.append({"to": blocks, "ports": _tcp(port)})
    return egress


def _component(namespace: str, component: str) -> Manifest:
    labels = {names.LABEL_NAME: names.MANAGED_BY, names.LABEL_COMPONENT: component}
    return {
        "namespaceSelector": _namespace(namespace),
        "podSelector": {"matchLabels": labels},
    }


def _namespace(name: str) -> Manifest:
    return {"matchLabels": {"kubernetes.io/metadata.name": name}}


def _tcp(port: int) -> list[Manifest]:
    return [{"protocol": "TCP", "port": port}]
