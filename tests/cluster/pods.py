"""Pods that listen, and pods that are told to connect."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from local.kubectl import Kubectl
from spectrum_spawner import names

GPU = "nvidia.com/gpu"
SERVER_PORT, OTHER_PORT = 8888, 9999
LISTENER = """
import socket, threading
for port in (8888, 9999):
    server = socket.create_server(("0.0.0.0", port))
    def accept(server=server):
        while True:
            server.accept()[0].close()
    threading.Thread(target=accept).start()
"""
CONNECTOR = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor
def is_open(target):
    host, _, port = target.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=3).close()
    except OSError:
        return False
    return True
targets = json.loads(sys.argv[1])
with ThreadPoolExecutor(len(targets)) as pool:
    found = dict(zip(targets, pool.map(is_open, targets.values())))
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Pod:
    """A pod that runs, and may be told to connect."""

    kubectl: Kubectl
    namespace: str
    name: str

    @property
    def address(self) -> str:
        pod = self.kubectl.get("-n", self.namespace, "pod", self.name)
        return str(pod["status"]["podIP"])

    def run(self, *words: str) -> str:
        return self.kubectl("-n", self.namespace, "exec", self.name, "--", *words)

    def reach(self, targets: Mapping[str, str]) -> dict[str, bool]:
        """Whether a connection to each `host:port` is accepted, by the names of `targets`."""
        found: dict[str, bool] = json.loads(
            self.run("python3", "-c", CONNECTOR, json.dumps(dict(targets)))
        )
        return found


def make_pod(name: str, image: str, *, gpus: int = 0) -> dict[str, Any]:
    limits = {GPU: str(gpus)} if gpus else {}
    container = {
        "name": "notebook",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", LISTENER],
        "resources": {"limits": limits},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    spec = {
        "containers": [container],
        "terminationGracePeriodSeconds": 0,
        "tolerations": [{"key": GPU, "operator": "Exists"}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def start_pod(
    kubectl: Kubectl,
    namespace: str,
    name: str,
    image: str,
    *,
    gpus: int = 0,
    is_server: bool = False,
) -> Pod:
    """A pod that listens on both ports, once it runs."""
    manifest = make_pod(name, image, gpus=gpus)
    if is_server:
        manifest["metadata"]["labels"] = {names.LABEL_COMPONENT: names.COMPONENT_SERVER}
        manifest["spec"]["serviceAccountName"] = names.SERVER_SERVICE_ACCOUNT
    kubectl("-n", namespace, "create", "-f", "-", text=json.dumps(manifest))
    kubectl("-n", namespace, "wait", f"pod/{name}", "--for=condition=Ready", "--timeout=60s")
    return Pod(kubectl, namespace, name)
