"""Kubernetes objects of what runs on the machine itself, and how objects are written."""

from typing import Any

from local.api import Api

_PLURALS = {
    "Secret": "secrets",
    "Service": "services",
    "EndpointSlice": "endpointslices",
    "CSIDriver": "csidrivers",
    "StorageClass": "storageclasses",
}


def make_node_service(
    namespace: str, name: str, *, port: int, address: str, target: int
) -> list[dict[str, Any]]:
    """Build a Service, and the slice that leads it to a port of an address outside of pods."""
    metadata = {"name": name, "namespace": namespace}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"ports": [{"name": "http", "port": port, "targetPort": target}]},
    }
    labels = {"kubernetes.io/service-name": name}
    endpoints = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {**metadata, "labels": labels},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": target, "protocol": "TCP"}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
    }
    return [service, endpoints]


def apply_namespace(api: Api, name: str) -> None:
    api.apply(
        f"/api/v1/namespaces/{name}",
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
    )


def apply_object(api: Api, one: dict[str, Any]) -> None:
    """Write one object; what is unchanged is left alone."""
    version, metadata = one["apiVersion"], one["metadata"]
    parts = ["", "api" if version == "v1" else "apis", version]
    if "namespace" in metadata:
        parts += ["namespaces", metadata["namespace"]]
    api.apply("/".join([*parts, _PLURALS[one["kind"]], metadata["name"]]), one)
