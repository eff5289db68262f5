"""What a release consists of, to tell afterwards that nobody has touched it."""

from collections.abc import Mapping
from typing import Any

from local.kubectl import Kubectl

HUB_KINDS = (
    *("deployments", "services", "pods", "persistentvolumeclaims", "secrets", "configmaps"),
    *("serviceaccounts", "roles", "rolebindings", "networkpolicies", "teams.spectrum.dev"),
)
TEAM_KINDS = (
    *("pods", "persistentvolumeclaims", "serviceaccounts", "rolebindings", "networkpolicies"),
    *("resourcequotas", "limitranges"),
)
# People start servers and get homes at any time.
PEOPLES_KINDS = ("Pod", "PersistentVolumeClaim")
# It counts the GPUs of the whole cluster, whoever uses them.
LIVING = (("ConfigMap", "gpu-inventory"),)

Key = tuple[str, str, str]


def take_snapshot(kubectl: Kubectl, namespace: str) -> dict[Key, Any]:
    """Read the objects of the release in that namespace: (kind, namespace, name) → object.

    Those of its teams' namespaces are among them. What Kubernetes itself counts and dates is left
    out, but for the restarts of containers.
    """
    spaces = kubectl.get("namespaces", "-l", f"spectrum.dev/hub={namespace}")["items"]
    objects = [kubectl.get("namespace", namespace), *spaces]
    objects += kubectl.get("-n", namespace, ",".join(HUB_KINDS))["items"]
    for space in spaces:
        objects += kubectl.get("-n", space["metadata"]["name"], ",".join(TEAM_KINDS))["items"]
    records = {find_key(one): make_record(one) for one in objects}
    return {key: record for key, record in records.items() if (key[0], key[2]) not in LIVING}


def name_changes(before: Mapping[Key, Any], after: Mapping[Key, Any]) -> list[str]:
    """Name what is gone, changed or new, such as `Pod spectrum/hub-0 is gone`.

    New pods and claims are people's.
    """
    changes = []
    for key in sorted(before.keys() | after.keys()):
        kind, namespace, name = key
        if key not in after:
            what = "is gone"
        elif key not in before:
            if kind in PEOPLES_KINDS:
                continue
            what = "is new"
        elif before[key] != after[key]:
            what = "is changed"
        else:
            continue
        changes.append(
            f"{kind} {namespace}/{name} {what}" if namespace else f"{kind} {name} {what}"
        )
    return changes


def find_key(one: Mapping[str, Any]) -> Key:
    return one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]


def make_record(one: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object without its status and the marks of each write, with its restarts."""
    record = {key: value for key, value in one.items() if key != "status"}
    written = ("managedFields", "resourceVersion")
    record["metadata"] = {k: v for k, v in one["metadata"].items() if k not in written}
    containers = one.get("status", {}).get("containerStatuses", [])
    record["restarts"] = [container["restartCount"] for container in containers]
    return record
