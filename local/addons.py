"""What runs in the cluster besides Spectrum: the cluster's DNS and the default StorageClass."""

import json
import socket
from pathlib import Path
from typing import Any

from local.api import Api
from local.files import write_if_changed
from local.node import CLUSTER_DNS, find_name_servers
from local.processes import Daemons
from local.versions import find_go_tool

COREDNS_IMAGE = f"localhost/spectrum/coredns:{find_go_tool('coredns').version}"
VOLUME_HELPER_IMAGE = "localhost/spectrum/volume-helper:1"
PROVISIONER = "rancher.io/local-path"
STORAGE_CLASS = "standard"

_SYSTEM = "/api/v1/namespaces/kube-system"
_DNS_LABELS = {"k8s-app": "kube-dns"}


def make_corefile(has_upstream: bool) -> str:
    """Build the Corefile; without an upstream name server it knows the cluster's names alone."""
    lines = [
        *("errors", "health 0.0.0.0:8080", "ready 0.0.0.0:8181"),
        "kubernetes cluster.local in-addr.arpa ip6.arpa {\n  pods insecure\n }",
        *(["forward . /etc/resolv.conf"] if has_upstream else []),
        *("cache 30", "loop", "reload", "loadbalance"),
    ]
    return ".:53 {\n" + "".join(f" {line}\n" for line in lines) + "}\n"


def make_dns_objects(has_upstream: bool) -> dict[str, dict[str, Any]]:
    """Build the DNS add-on: paths of the API → objects."""
    account = {"kind": "ServiceAccount", "name": "coredns", "namespace": "kube-system"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole"}
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    return {
        f"{_SYSTEM}/serviceaccounts/coredns": _make_object("v1", "ServiceAccount", "coredns"),
        f"{rbac}/clusterroles/system:coredns": {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "system:coredns"},
            "rules": [
                _make_rule("", "services", "pods", "namespaces"),
                _make_rule("discovery.k8s.io", "endpointslices"),
            ],
        },
        f"{rbac}/clusterrolebindings/system:coredns": {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "system:coredns"},
            "roleRef": {**role, "name": "system:coredns"},
            "subjects": [account],
        },
        f"{_SYSTEM}/configmaps/coredns": {
            **_make_object("v1", "ConfigMap", "coredns"),
            "data": {"Corefile": make_corefile(has_upstream)},
        },
        f"{_SYSTEM}/services/kube-dns": {
            **_make_object("v1", "Service", "kube-dns"),
            "spec": {
                "clusterIP": CLUSTER_DNS,
                "selector": _DNS_LABELS,
                "ports": [
                    {"name": "dns", "port": 53, "protocol": "UDP"},
                    {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
                ],
            },
        },
        "/apis/apps/v1/namespaces/kube-system/deployments/coredns": {
            **_make_object("apps/v1", "Deployment", "coredns"),
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": _DNS_LABELS},
                "template": {"metadata": {"labels": _DNS_LABELS}, "spec": _make_dns_pod()},
            },
        },
    }


def make_storage_class() -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": STORAGE_CLASS,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    }


def apply_addons(api: Api) -> None:
    for path, manifest in make_dns_objects(bool(find_name_servers())).items():
        api.apply(path, manifest)
    api.apply(f"/apis/storage.k8s.io/v1/storageclasses/{STORAGE_CLASS}", make_storage_class())


def answers_dns(name: str = "kubernetes.default.svc.cluster.local") -> bool:
    """Ask the cluster's DNS through its Service: the objects' status may be that of before."""
    header = bytes.fromhex("5370 0100 0001 0000 0000 0000")
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(1)
        try:
            client.sendto(header + labels + bytes.fromhex("00 0001 0001"), (CLUSTER_DNS, 53))
            answer = client.recv(512)
        except OSError:
            return False
    answers = int.from_bytes(answer[6:8], "big")
    return answer[:2] == header[:2] and answers > 0


def start_provisioner(state: Path, binary: Path, kubeconfig: Path, daemons: Daemons) -> bool:
    """Start local-path-provisioner, with every volume a directory below `<state>/volumes`.

    A shared file system, as on one node any directory is: claims may be ReadWriteMany.
    """
    configuration, pod = state / "local-path.json", state / "local-path-pod.json"
    settings = {
        "sharedFileSystemPath": str(state / "volumes"),
        "setupCommand": "/volume-helper",
        "teardownCommand": "/volume-helper",
    }
    write_if_changed(configuration, json.dumps(settings, indent=2))
    write_if_changed(pod, json.dumps(_make_helper_pod(), indent=2))
    (state / "volumes").mkdir(mode=0o755, exist_ok=True)
    return daemons.ensure(
        "local-path-provisioner",
        [
            *(binary, "start", "--config", configuration, "--helper-pod-file", pod),
            *("--kubeconfig", kubeconfig, "--namespace", "kube-system"),
            *("--provisioner-name", PROVISIONER, "--helper-image", VOLUME_HELPER_IMAGE),
            *("--service-account-name", "default"),
        ],
        configuration=[pod],
    )


def _make_object(version: str, kind: str, name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "kube-system"}
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def _make_rule(group: str, *resources: str) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": list(resources), "verbs": ["list", "watch"]}


def _make_dns_pod() -> dict[str, Any]:
    ports = [
        {"name": "dns", "containerPort": 53, "protocol": "UDP"},
        {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"},
    ]
    container = {
        "name": "coredns",
        "image": COREDNS_IMAGE,
        "imagePullPolicy": "Never",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "ports": ports,
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 2},
        "livenessProbe": {
            "httpGet": {"path": "/health", "port": 8080},
            "initialDelaySeconds": 60,
            "failureThreshold": 5,
        },
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "170Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}],
    }
    return {
        "serviceAccountName": "coredns",
        "dnsPolicy": "Default",
        "priorityClassName": "system-cluster-critical",
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": "coredns"}}],
    }


def _make_helper_pod() -> dict[str, Any]:
    container = {
        "name": "helper-pod",
        "image": VOLUME_HELPER_IMAGE,
        "imagePullPolicy": "Never",
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "volume-helper"},
        "spec": {
            "automountServiceAccountToken": False,
            # A claim waits for this pod, and it is there half a second sooner without a network
            # of its own.
            "hostNetwork": True,
            "priorityClassName": "system-node-critical",
            "containers": [container],
        },
    }
