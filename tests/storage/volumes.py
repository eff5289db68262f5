"""Claims of a namespace, and pods that mount them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from local.kubectl import Kubectl
from tests.cluster.pods import Pod
from tests.cluster.waiting import wait_until

CLASSES = FILES, BLOCKS = "rook-cephfs", "rook-ceph-block"
# The access mode that Spectrum asks of each class.
MODES = {FILES: "ReadWriteMany", BLOCKS: "ReadWriteOncePod"}
GROUP = 70001
MIB = 2**20


@dataclass(frozen=True)
class Volumes:
    """The claims and pods of one namespace."""

    kubectl: Kubectl
    namespace: str
    image: str

    def claim(self, name: str, storage_class: str, size: str = "1Gi", **spec: Any) -> str:
        """Ask for a volume; returns the claim's name."""
        spec = {
            "accessModes": [MODES.get(storage_class, "ReadWriteOnce")],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": size}},
            **spec,
        }
        self.create(_make_object("PersistentVolumeClaim", name, spec))
        return name

    def claim_bound(self, name: str, storage_class: str, size: str = "1Gi") -> str:
        self.claim(name, storage_class, size)
        self.wait_bound(name)
        return name

    def claim_each(self, name: str) -> dict[str, str]:
        """Bound claims of each class, by the path at which pods are to mount them."""
        claims = {f"/{place}": self.claim(f"{name}-{place}", place) for place in CLASSES}
        for claim in claims.values():
            self.wait_bound(claim)
        return claims

    def wait_bound(self, name: str) -> None:
        wait_until(lambda: self.get_claim(name)["status"]["phase"] == "Bound")

    def grow(self, name: str, size: str) -> None:
        wanted = {"spec": {"resources": {"requests": {"storage": size}}}}
        self("patch", "pvc", name, "-p", json.dumps(wanted))

    def get_claim(self, name: str) -> Any:
        return self.kubectl.get("-n", self.namespace, "pvc", name)

    def get_volume(self, claim: str) -> Any:
        return self.kubectl.get("pv", self.get_claim(claim)["spec"]["volumeName"])

    def create_pod(
        self,
        name: str,
        claims: Mapping[str, str],
        *,
        user: int = 1000,
        groups: Sequence[int] = (),
        read_only: bool = False,
    ) -> None:
        """Create a pod of that uid that sleeps; `claims` are those it mounts, by path.

        Its group is that of its volumes, as a team's is.
        """
        sources = {
            f"v{i}": (path, {"claimName": claim, "readOnly": read_only})
            for i, (path, claim) in enumerate(claims.items())
        }
        container = {
            "name": "notebook",
            "image": self.image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["sleep", "infinity"],
            "volumeMounts": [{"name": n, "mountPath": path} for n, (path, _) in sources.items()],
        }
        security = {
            "runAsUser": user,
            "runAsGroup": user,
            "fsGroup": GROUP,
            "fsGroupChangePolicy": "OnRootMismatch",
            "supplementalGroups": [GROUP, *groups],
        }
        spec = {
            "containers": [container],
            "securityContext": security,
            "terminationGracePeriodSeconds": 0,
            "volumes": [
                {"name": n, "persistentVolumeClaim": claim} for n, (_, claim) in sources.items()
            ],
        }
        self.create(_make_object("Pod", name, spec))

    def start_pod(self, name: str, claims: Mapping[str, str], **options: Any) -> Pod:
        self.create_pod(name, claims, **options)
        return self.wait_running(name)

    def wait_running(self, name: str, seconds: int = 60) -> Pod:
        self("wait", f"pod/{name}", "--for=condition=Ready", f"--timeout={seconds}s")
        return Pod(self.kubectl, self.namespace, name)

    def delete_pod(self, name: str) -> None:
        self("delete", "pod", name)

    def read_events(self, name: str) -> str:
        """Return the messages of all events about an object."""
        events = self.kubectl.get(
            *("-n", self.namespace, "events", f"--field-selector=involvedObject.name={name}")
        )
        return "\n".join(event["message"] for event in events["items"])

    def wait_for_event(self, name: str, words: str) -> None:
        wait_until(lambda: words in self.read_events(name))

    def create(self, manifest: Mapping[str, Any]) -> None:
        self("create", "-f", "-", text=json.dumps(manifest))

    def __call__(self, *words: str, text: str | None = None) -> str:
        return self.kubectl("-n", self.namespace, *words, text=text)


@contextmanager
def volumes_of(kubectl: Kubectl, namespace: str, image: str) -> Iterator[Volumes]:
    """Within this context there is that namespace, with nothing in it at first."""
    kubectl("delete", "namespace", namespace, "--ignore-not-found")  # of a run that was killed
    kubectl("create", "namespace", namespace)
    try:
        yield Volumes(kubectl, namespace, image)
    finally:
        kubectl("delete", "namespace", namespace)


def read_size(pod: Pod, path: str) -> int:
    """Return what `df` in the pod says of the size, in MiB."""
    return int(pod.run("df", "--output=size", "-BM", path).split()[-1].rstrip("M"))


def try_to(pod: Pod, command: str) -> str:
    """Return what a command says that is to fail in the pod."""
    return pod.run("sh", "-c", f"{command} 2>&1 && exit 1; true")


def _make_object(kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
