"""Teams that tests make beside those of the release."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from local.kubectl import Kubectl
from tests.cluster.waiting import wait_until
from tests.conftest import InstalledRelease


@contextmanager
def made_team(
    release: InstalledRelease, name: str, quota: Mapping[str, Any], **spec: Any
) -> Iterator[str]:
    """A team for a while, by its namespace; its purge at the end is the one that admins use."""
    kubectl, namespace = release.kubectl, f"{release.namespace}-{name}"
    team = {
        "apiVersion": "spectrum.dev/v1alpha1",
        "kind": "Team",
        "metadata": {"name": name, "namespace": release.namespace},
        "spec": {"quota": quota, **spec},
    }
    kubectl("apply", "-f", "-", text=json.dumps(team))
    home = ("-n", release.namespace)
    kubectl(*home, "wait", f"team/{name}", "--for=condition=Ready", "--timeout=30s")
    kubectl(*home, "wait", f"team/{name}", "--for=condition=QuotaEnforced", "--timeout=30s")
    yield namespace
    kubectl(*home, "delete", "team", name)
    wait_until(lambda: "spectrum.dev/orphaned-at" in find_annotations(kubectl, namespace))
    assert "deletionTimestamp" not in kubectl.get("namespace", namespace)["metadata"]
    kubectl("annotate", "namespace", namespace, f"spectrum.dev/purge={namespace}")
    found = ("get", "namespace", namespace, "--ignore-not-found", "-o", "jsonpath={.status.phase}")
    wait_until(lambda: kubectl(*found) in ("", "Terminating"))


def find_annotations(kubectl: Kubectl, namespace: str) -> dict[str, str]:
    found: dict[str, str] = kubectl.get("namespace", namespace)["metadata"]["annotations"]
    return found
