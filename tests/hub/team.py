"""A hub's namespace and its teams, prepared by hand as chart and controller would."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spectrum_spawner import names
from tests.hub.cluster import Cluster, find_teams

RBAC = "/apis/rbac.authorization.k8s.io/v1"
RESTRICTED = {
    f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "audit", "warn")
}
HUB_IN_TEAM = [
    {
        "apiGroups": [""],
        "resources": ["pods"],
        "verbs": ["get", "list", "watch", "create", "delete"],
    },
    {
        "apiGroups": [""],
        "resources": ["persistentvolumeclaims"],
        "verbs": ["get", "list", "create"],
    },
    {"apiGroups": [""], "resources": ["events"], "verbs": ["list", "watch"]},
    {"apiGroups": [""], "resources": ["resourcequotas"], "verbs": ["get"]},
]
SERVICE_IN_TEAM = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
HUB_AT_HOME = [
    {
        "apiGroups": [names.API_GROUP],
        "resources": [names.TEAM_PLURAL],
        # create as in a release with teamTemplates
        "verbs": ["get", "list", "watch", "create"],
    },
    {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": [names.INVENTORY],
        "verbs": ["get", "list", "watch"],
    },
]


@dataclass(frozen=True, kw_only=True)
class Team:
    """A team whose namespace is ready."""

    name: str
    namespace: str

    @property
    def pods(self) -> str:
        """Path of the pods of the team's namespace."""
        return f"/api/v1/namespaces/{self.namespace}/pods"

    @property
    def role_binding(self) -> str:
        """Path of what gives the hub its rights in the team's namespace."""
        return f"{RBAC}/namespaces/{self.namespace}/rolebindings/{names.HUB_ROLE_BINDING}"

    def find_pod(self, user: str, server: str = "") -> str:
        return f"{self.pods}/{names.server_name(user, server)}"


async def create_hub_namespace(cluster: Cluster, namespace: str) -> None:
    """Namespace, service account and rights of a hub, and the roles that teams' namespaces know."""
    await cluster.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    account = {"metadata": {"name": names.HUB_SERVICE_ACCOUNT}}
    await cluster.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
    role = {"metadata": {"name": "hub"}, "rules": HUB_AT_HOME}
    await cluster.create(f"{RBAC}/namespaces/{namespace}/roles", role)
    await cluster.create(
        f"{RBAC}/namespaces/{namespace}/rolebindings",
        _make_binding("hub", "Role", "hub", hub_namespace=namespace),
    )
    for name, rules in (
        (names.hub_role_in_team(namespace), HUB_IN_TEAM),
        (names.service_role_in_team(namespace), SERVICE_IN_TEAM),
    ):
        await cluster.create(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rules})


async def create_hub_token(cluster: Cluster, namespace: str) -> str:
    """A bearer token of the hub's service account."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{names.HUB_SERVICE_ACCOUNT}/token"
    answer = await cluster.create(path, {"spec": {"expirationSeconds": 3600}})
    return answer["status"]["token"]


async def create_team(
    cluster: Cluster,
    hub_namespace: str,
    name: str,
    *,
    gid: int = 100000,
    spec: Mapping[str, Any] | None = None,
    quota: Mapping[str, str] | None = None,
) -> Team:
    """A Team object and its namespace; `quota` is the hard part of its ResourceQuota."""
    team = await cluster.create(
        find_teams(hub_namespace),
        {
            "apiVersion": f"{names.API_GROUP}/{names.API_VERSION}",
            "kind": names.TEAM_KIND,
            "metadata": {"name": name},
            "spec": dict(spec or {}),
        },
    )
    namespace = names.team_namespace(name, prefix=f"{hub_namespace}-")
    await _create_namespace(cluster, hub_namespace, team, namespace)
    if quota is not None:
        await _create_quota(cluster, namespace, quota)
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "Reconciled",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    status = {"namespace": namespace, "gid": gid, "observedGeneration": 1, "conditions": [ready]}
    await cluster.patch(f"{find_teams(hub_namespace)}/{name}/status", {"status": status})
    return Team(name=name, namespace=namespace)


async def revoke_hub(cluster: Cluster, team: Team) -> None:
    """Take the hub's rights in one team's namespace away."""
    await cluster.delete(team.role_binding)


async def admit_hub(cluster: Cluster, team: Team, hub_namespace: str) -> None:
    """Give the hub its rights in one team's namespace."""
    role = names.hub_role_in_team(hub_namespace)
    await cluster.create(
        team.role_binding.rpartition("/")[0],
        _make_binding(names.HUB_ROLE_BINDING, "ClusterRole", role, hub_namespace=hub_namespace),
    )


async def _create_namespace(
    cluster: Cluster, hub_namespace: str, team: Mapping[str, Any], namespace: str
) -> None:
    name, uid = team["metadata"]["name"], team["metadata"]["uid"]
    marks = {
        "labels": {
            names.LABEL_MANAGED_BY: names.MANAGED_BY,
            names.LABEL_HUB: hub_namespace,
            names.LABEL_TEAM: names.slug(name),
            **RESTRICTED,
        },
        "annotations": {
            names.ANNOTATION_HUB: hub_namespace,
            names.ANNOTATION_TEAM: name,
            names.ANNOTATION_TEAM_UID: uid,
        },
    }
    await cluster.create("/api/v1/namespaces", {"metadata": {"name": namespace, **marks}})
    for account in ("default", names.SERVER_SERVICE_ACCOUNT):
        await cluster.create(
            f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": account}}
        )
    made = Team(name=name, namespace=namespace)
    await admit_hub(cluster, made, hub_namespace)
    await _admit_service(cluster, made, hub_namespace)


async def _admit_service(cluster: Cluster, team: Team, hub_namespace: str) -> None:
    role = names.service_role_in_team(hub_namespace)
    await cluster.create(
        team.role_binding.rpartition("/")[0],
        _make_binding(
            names.SERVICE_ROLE_BINDING,
            "ClusterRole",
            role,
            account=names.SERVICE_SERVICE_ACCOUNT,
            hub_namespace=hub_namespace,
        ),
    )


async def _create_quota(cluster: Cluster, namespace: str, hard: Mapping[str, str]) -> None:
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    await cluster.create(path, {"metadata": {"name": names.QUOTA}, "spec": {"hard": dict(hard)}})
    status = {"hard": dict(hard), "used": dict.fromkeys(hard, "0")}
    await cluster.patch(f"{path}/{names.QUOTA}/status", {"status": status})


def _make_binding(
    name: str,
    kind: str,
    role: str,
    *,
    hub_namespace: str,
    account: str = names.HUB_SERVICE_ACCOUNT,
) -> dict[str, Sequence[Any] | Mapping[str, Any]]:
    subject = {"kind": "ServiceAccount", "name": account, "namespace": hub_namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}
    return {"metadata": {"name": name}, "subjects": [subject], "roleRef": reference}
