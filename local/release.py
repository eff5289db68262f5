"""A Helm release of the chart: install or upgrade it, wait for it, ask it, take it away."""

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local.commands import run
from local.errors import Refusal
from local.kubectl import Kubectl
from local.paths import CHECKOUT
from local.progress import Progress

CHART = CHECKOUT / "helm" / "spectrum"
DEPLOYMENTS = ("hub", "proxy", "controller", "service")


@dataclass(frozen=True)
class Release:
    """One release; its name is that of its namespace."""

    helm: Path
    kubectl: Kubectl
    namespace: str = "spectrum"

    def install(self, values: Sequence[Path], progress: Progress) -> bool:
        """Install or upgrade, unless this very chart with these very values is there.

        Returns whether anything was done.
        """
        fingerprint = _hash_files([*sorted(p for p in CHART.rglob("*") if p.is_file()), *values])
        found = self.find_status()
        if found == ("deployed", fingerprint):
            return False
        status = found[0] if found else ""
        if status.startswith("pending"):
            raise Refusal(
                f"release {self.namespace} is {status}: another helm works on it; if that was "
                f"killed: kubectl -n {self.namespace} delete secret -l owner=helm,status={status}"
            )
        with progress.step(f"installing the chart as release {self.namespace}"):
            files = [word for path in values for word in ("-f", str(path))]
            self._run(
                *("upgrade", "--install", self.namespace, str(CHART), "--create-namespace"),
                *(*files, "--description", fingerprint),
            )
        return True

    def find_status(self) -> tuple[str, str] | None:
        """Return Helm's status and the description of the release; None when there is none."""
        listed = json.loads(
            self._run("list", "--all", "--filter", f"^{self.namespace}$", "-o", "json")
        )
        if not listed:
            return None
        info = json.loads(self._run("status", self.namespace, "-o", "json"))["info"]
        return info["status"], info["description"]

    def forget_killed_helm(self) -> None:
        """Drop the record of a revision that a killed helm left pending, so that one can go on.

        Only for a cluster on which nobody else runs helm.
        """
        found = self.find_status()
        if found and found[0].startswith("pending"):
            selector = f"owner=helm,name={self.namespace},status={found[0]}"
            self.kubectl("-n", self.namespace, "delete", "secret", "-l", selector)

    def wait_until_ready(self, progress: Progress, *, timeout: float = 300) -> None:
        """Return once the Deployments run their newest pods and every Team is Ready."""
        with progress.step(f"starting release {self.namespace}") as step:
            step.wait_while(self.name_awaited, timeout=timeout, hint=self.name_failures)

    def name_awaited(self) -> str:
        """Name what is not ready yet; an empty text means that all is."""
        found = self.kubectl.get("-n", self.namespace, "deployments,teams")["items"]
        deployments = [one for one in found if one["kind"] == "Deployment"]
        waiting = [
            f"deployment {one['metadata']['name']}"
            for one in deployments
            if one["metadata"]["name"] in DEPLOYMENTS and not is_rolled_out(one)
        ]
        teams = [one for one in found if one["kind"] == "Team" and not is_team_ready(one)]
        waiting += [f"team {one['metadata']['name']}" for one in teams]
        return ", ".join(waiting)

    def name_failures(self) -> str:
        """Say why containers of the release wait or restart."""
        pods = self.kubectl.get("-n", self.namespace, "pods")["items"]
        return "; ".join(
            f"{pod['metadata']['name']}: {reason}" for pod in pods if (reason := _find_reason(pod))
        )

    def read_secret(self) -> dict[str, str]:
        data = self.kubectl.get("-n", self.namespace, "secret", "hub")["data"]
        return {key: base64.b64decode(value).decode() for key, value in data.items()}

    def read_values(self) -> dict[str, Any]:
        """Return the values of the running hub, with all defaults in them."""
        data = self.kubectl.get("-n", self.namespace, "configmap", "hub")["data"]
        values: dict[str, Any] = json.loads(data["values.json"])
        return values

    def read_notes(self) -> str:
        return self._run("get", "notes", self.namespace)

    def list_buckets(self) -> list[str]:
        """List the buckets of the release's teams."""
        ours = f"spectrum.dev/hub={self.namespace}"
        secrets = self.kubectl.get("secrets", "--all-namespaces", "-l", ours)["items"]
        data = [secret.get("data", {}) for secret in secrets]
        return [base64.b64decode(d["BUCKET_NAME"]).decode() for d in data if "BUCKET_NAME" in d]

    def remove(self, progress: Progress) -> None:
        """Remove the release with its namespaces and all that people stored in them."""
        with progress.step(f"removing release {self.namespace}") as step:
            ours = f"spectrum.dev/hub={self.namespace}"
            step.awaited = "Teams to go"
            self.kubectl(
                *("-n", self.namespace, "delete", "teams.spectrum.dev", "--all"),
                "--ignore-not-found",
            )
            step.awaited = "helm uninstall"
            self._run("uninstall", self.namespace, "--ignore-not-found", "--wait")
            step.awaited = "namespaces to go"
            self.kubectl("delete", "namespace", "-l", ours)
            self.kubectl("delete", "namespace", self.namespace, "--ignore-not-found")
            # Those that Kubernetes does not remove with their claims.
            self.kubectl("delete", "persistentvolume", "-l", ours)

    def _run(self, *words: str) -> str:
        return run([str(self.helm), *words, *self._make_options()])

    def _make_options(self) -> list[str]:
        context = ["--kube-context", self.kubectl.context] if self.kubectl.context else []
        return ["-n", self.namespace, "--kubeconfig", str(self.kubectl.kubeconfig), *context]


def is_rolled_out(deployment: dict[str, Any]) -> bool:
    """Tell whether every pod of the Deployment is of its newest template and available."""
    status, wanted = deployment.get("status", {}), deployment["spec"].get("replicas", 1)
    return (
        status.get("observedGeneration", 0) >= deployment["metadata"]["generation"]
        and status.get("updatedReplicas", 0) == wanted
        and status.get("replicas", 0) == wanted
        and status.get("availableReplicas", 0) == wanted
    )


def is_team_ready(team: dict[str, Any]) -> bool:
    """Tell whether the controller has reconciled just this generation of the Team."""
    status = team.get("status", {})
    conditions = {one["type"]: one["status"] for one in status.get("conditions", [])}
    current = status.get("observedGeneration") == team["metadata"]["generation"]
    return current and conditions.get("Ready") == "True"


def make_image_values(references: dict[str, str]) -> dict[str, Any]:
    """Build the chart values that name our images; `references` maps names to `repository:tag`.

    The tag says which build it is, so that a new build is a new pod template.
    """

    def make_image(name: str) -> dict[str, str]:
        repository, _, tag = references[name].rpartition(":")
        return {"name": repository, "tag": tag}

    return {
        "hub": {"image": make_image("hub")},
        "proxy": {"image": make_image("proxy")},
        "images": {
            "tensorflow": {"image": references["tensorflow-notebook"]},
            "tensorflow-py313": {"image": references["tensorflow-notebook-py313"]},
            "pytorch": {"image": references["pytorch-notebook"]},
            "lab": {"image": references["base-notebook"]},
        },
    }


def _find_reason(pod: dict[str, Any]) -> str:
    for container in pod["status"].get("containerStatuses", []):
        waiting = container["state"].get("waiting") or container["state"].get("terminated")
        if waiting:
            return f"{waiting.get('reason', '')} {waiting.get('message', '')}".strip()
    for condition in pod["status"].get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] != "True":
            return str(condition.get("message", ""))
    return ""


def _hash_files(paths: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return f"spectrum {digest.hexdigest()[:32]}"
