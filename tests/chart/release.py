"""A release of the chart on a real API server, where nothing runs its pods."""

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

from local.binaries import ensure_kube
from tests.chart.helm import ACCEPTED, Helm, merge

TEAMS = {"teams": {"flight": {"displayName": "Flight"}, "ops": {"quota": {"cpu": "500m"}}}}
FULL = merge(ACCEPTED, TEAMS)


class Release:
    """The chart, installed where nothing runs its pods."""

    def __init__(self, helm: Helm, kubeconfig: Path, namespace: str) -> None:
        self.helm, self.kubeconfig, self.namespace = helm, kubeconfig, namespace

    def upgrade(self, values: dict[str, Any] = FULL, *more: str) -> str:
        return self.helm.upgrade(self.kubeconfig, self.namespace, values, *more)

    def uninstall(self) -> None:
        self.helm.uninstall(self.kubeconfig, self.namespace)

    def kubectl(self, *arguments: str, text: str = "") -> str:
        program = [str(ensure_kube()), "kubectl", "--kubeconfig", str(self.kubeconfig)]
        whole = [*program, "-n", self.namespace, *arguments]
        result = subprocess.run(whole, input=text, capture_output=True, text=True, check=True)
        return result.stdout

    def get(self, kind: str, name: str) -> Any:
        return json.loads(self.kubectl("get", kind, name, "-o", "json"))

    def secrets(self) -> dict[str, str]:
        data = self.get("secret", "hub")["data"]
        return {key: base64.b64decode(text).decode() for key, text in data.items()}

    def annotations(self, deployment: str) -> dict[str, str]:
        """What decides whether the deployment's pod is replaced."""
        found = self.get("deployment", deployment)["spec"]["template"]["metadata"]["annotations"]
        return dict(found)

    def names(self, kind: str) -> list[str]:
        return self.kubectl("get", kind, "-o", "jsonpath={.items[*].metadata.name}").split()
