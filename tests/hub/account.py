"""The controller's account with the rights that the chart gives it, and the policy on their use."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kubernetes_asyncio import config
from kubernetes_asyncio.client import Configuration

from local.binaries import ensure_go_tool
from local.control_plane import ControlPlane
from local.kubeconfig import make_kubeconfig
from spectrum_spawner import names
from spectrum_spawner.kube import Client, Refused
from tests.chart.helm import ACCEPTED, Helm, merge
from tests.hub.clock import wait_until
from tests.hub.cluster import Cluster

ACCOUNT = "controller"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
POLICY_KINDS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_CLUSTER = {
    "ClusterRole": f"{_RBAC}/clusterroles",
    "ClusterRoleBinding": f"{_RBAC}/clusterrolebindings",
    **{kind: f"{ADMISSION}/{plural}" for kind, plural in POLICY_KINDS.items()},
}
_INSIDE = {
    "Role": f"{_RBAC}/namespaces/{{}}/roles",
    "RoleBinding": f"{_RBAC}/namespaces/{{}}/rolebindings",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
}
DRY = {"dryRun": "All"}


def install(plane: ControlPlane, hub_namespace: str, values: Mapping[str, Any]) -> None:
    """Install or upgrade what the chart makes for the controller, and the roles that it binds."""
    bound = {names.hub_role_in_team(hub_namespace), names.service_role_in_team(hub_namespace)}
    helm = Helm(ensure_go_tool("helm") / "helm")
    for manifest in helm.render(merge(ACCEPTED, values), namespace=hub_namespace):
        kind, metadata = manifest["kind"], manifest["metadata"]
        whose = metadata["labels"]["app.kubernetes.io/component"]
        if whose != ACCOUNT and metadata["name"] not in bound:
            continue
        if path := {**_CLUSTER, **_INSIDE}.get(kind):
            plane.api.apply(f"{path.format(hub_namespace)}/{metadata['name']}", manifest)


async def write_kubeconfig(
    plane: ControlPlane, admin: Cluster, hub_namespace: str, directory: Path
) -> Path:
    """A kubeconfig with a token of the account, as one who stole it could write."""
    path = f"/api/v1/namespaces/{hub_namespace}/serviceaccounts/{ACCOUNT}/token"
    answer = await admin.create(path, {"spec": {"expirationSeconds": 3600}})
    content = make_kubeconfig(plane.authority, plane.server, "admin")
    content["users"] = [{"name": "admin", "user": {"token": answer["status"]["token"]}}]
    kubeconfig = directory / f"{hub_namespace}.kubeconfig"
    kubeconfig.write_text(json.dumps(content))
    return kubeconfig


@asynccontextmanager
async def connect_as_controller(kubeconfig: Path) -> AsyncIterator[Client]:
    configuration = Configuration()
    await config.load_kube_config(str(kubeconfig), client_configuration=configuration)
    client = Client(configuration)
    yield client
    await client.close()


async def wait_until_in_force(kubeconfig: Path, hub_namespace: str, prefix: str) -> None:
    """Return once rights, and the policy with that prefix, hold; both take a moment."""
    marks = {names.ANNOTATION_HUB: hub_namespace}
    probe = {"metadata": {"name": "elsewhere", "annotations": marks}}
    async with connect_as_controller(kubeconfig) as client:

        async def is_in_force() -> bool:
            try:
                await client.request("POST", "/api/v1/namespaces", body=probe, query=DRY)
            except Refused as error:
                return f"whose names begin with {prefix}" in str(error)
            return False

        await wait_until(is_in_force, within=30, what="the policy")
