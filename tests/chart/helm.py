"""The chart as Helm sees it: rendered manifests, refusals, releases on an API server."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from local.versions import load_versions

CHART = Path(__file__).parent.parent.parent / "helm" / "spectrum"

# The least that an administrator must say.
ACCEPTED: dict[str, Any] = {"auth": {"acceptSharedPassword": True}}

# The least with an identity provider.
OAUTH: dict[str, Any] = {
    "auth": {
        "method": "oauth",
        "oauth": {
            "clientId": "spectrum",
            "clientSecret": "of the provider",
            "callbackUrl": "https://gpu.flight.test/hub/oauth_callback",
            "authorizeUrl": "https://id.flight.test/authorize",
            "tokenUrl": "https://id.flight.test/token",
            "userdataUrl": "https://id.flight.test/userinfo",
            "allowAll": True,
        },
    }
}

# A value that is made at random, and what is told by it, in rendered manifests.
GENERATED = "generated"


class HelmError(Exception):
    """Helm refused; the text is what it wrote for a person."""


class Helm:
    """The real helm on the chart of this checkout. `values` are a tree as in a values file."""

    def __init__(self, program: Path) -> None:
        self._program = program

    def lint(self, values: Mapping[str, Any] = ACCEPTED) -> str:
        return self._run("lint", "--strict", CHART, values=values)

    def render(
        self, values: Mapping[str, Any] = ACCEPTED, *, namespace: str = "spectrum"
    ) -> list[dict[str, Any]]:
        """The manifests, as `helm template` prints them."""
        version = load_versions()["kube"]["kubernetes"]
        arguments = ("template", "spectrum", CHART, "-n", namespace, "--kube-version", version)
        told = self._run(*arguments, values=values)
        return [found for found in yaml.load_all(told, yaml.CSafeLoader) if found]

    def find(
        self, kind: str, name: str, values: Mapping[str, Any] = ACCEPTED, **options: str
    ) -> dict[str, Any]:
        """One rendered manifest."""
        (found,) = (
            manifest
            for manifest in self.render(values, **options)
            if (manifest["kind"], manifest["metadata"]["name"]) == (kind, name)
        )
        return found

    def read_refusal(self, values: Mapping[str, Any]) -> str:
        """What Helm says when it refuses these values."""
        try:
            self.render(values)
        except HelmError as error:
            return str(error)
        raise AssertionError("Helm took the values")

    def upgrade(
        self, kubeconfig: Path, namespace: str, values: Mapping[str, Any] = ACCEPTED, *more: str
    ) -> str:
        """Install or upgrade the release `spectrum`; returns what Helm tells the administrator."""
        target = ("--kubeconfig", kubeconfig, "-n", namespace, "--create-namespace")
        arguments = ("upgrade", "--install", "spectrum", CHART, *target, *more)
        return self._run(*arguments, values=values)

    def uninstall(self, kubeconfig: Path, namespace: str) -> None:
        self._run("uninstall", "spectrum", "--kubeconfig", kubeconfig, "-n", namespace)

    def _run(self, *arguments: object, values: Mapping[str, Any] | None = None) -> str:
        given = ("-f", "-") if values is not None else ()
        result = subprocess.run(
            [str(self._program), *map(str, arguments), *given],
            input=json.dumps(values),
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode != 0:
            raise HelmError(result.stderr or result.stdout)
        return result.stdout


def merge(*trees: Mapping[str, Any]) -> dict[str, Any]:
    """Trees of values as Helm merges values files: later ones win, tables are merged."""
    merged: dict[str, Any] = {}
    for tree in trees:
        for key, value in tree.items():
            below = merged.get(key)
            both = isinstance(value, Mapping) and isinstance(below, Mapping)
            merged[key] = merge(below, value) if both else value
    return merged


def mask(manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest with what is made at random, and hashes of it, written as `generated`."""
    if manifest["kind"] == "Secret":
        manifest["data"] = dict.fromkeys(manifest["data"], GENERATED)
    template = manifest.get("spec", {}).get("template", {}).get("metadata", {})
    if annotations := template.get("annotations"):
        template["annotations"] = dict.fromkeys(annotations, GENERATED)
    return manifest
