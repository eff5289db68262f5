"""What stands in the way of a server's volumes, in words that name the volume and the reason.

Drivers, provisioners and the kubelet tell it in events, in sentences of their own; known ones
are said in ours, the others as they are. Pure: whoever asks the cluster tells it to `Mounting`.
"""

import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spectrum_spawner import names
from spectrum_spawner.disks import find_holders, say_server, why_in_use
from spectrum_spawner.failures import UNMOUNTED, is_about_class, say_reason
from spectrum_spawner.mounts import Mount
from spectrum_spawner.pods import Pod

MOST_SAID = 100  # failures that are kept of one start

_PROVISIONER = "volume.kubernetes.io/storage-provisioner"  # on a claim, by Kubernetes
_FAILED_CLAIM = ("ProvisioningFailed", "FailedBinding")
_FAILED_POD = ("FailedMount", "FailedAttachVolume", "FailedMapVolume")
# from these on the volumes are mounted
_AFTER_MOUNT = ("Pulling", "Pulled", "Created", "Started")

# Another try is under way, which says nothing of why the first one failed.
_STILL_TRYING = re.compile(r"operation with the given Volume ID .* already exists")
_MISSING = re.compile(r'persistentvolumeclaim "(?P<claim>[^"]+)" (?P<what>not found|is being)')
_ONE_POD = "ReadWriteOncePod"
_OWN = ("home", "scratch")


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What is known of a claim: `phase` as Kubernetes has it, `volume` behind it or ""."""

    phase: str
    volume: str
    is_ceph: bool

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> "Claim":
        metadata, spec = obj["metadata"], obj.get("spec") or {}
        provisioner = (metadata.get("annotations") or {}).get(_PROVISIONER, "")
        return cls(
            phase=(obj.get("status") or {}).get("phase") or "Pending",
            volume=spec.get("volumeName") or "",
            is_ceph="ceph" in f"{provisioner} {spec.get('storageClassName')}",
        )


class Mounting:
    """The volumes of one start, and what is known to be in their way.

    `pods` are the servers that the hub sees in the `namespace`, as a view has them.
    """

    def __init__(
        self, mounts: Sequence[Mount] = (), *, namespace: str = "", pods: Iterable[Pod] = ()
    ) -> None:
        self.mounts = mounts
        self.namespace = namespace
        self._pods = pods
        self._claims: dict[str, Claim] = {}
        # moment, claim ("" for the pod's own) and message of what went wrong
        self._said: deque[tuple[str, str, str]] = deque(maxlen=MOST_SAID)

    def note_claim(self, obj: Mapping[str, Any]) -> None:
        """A claim as the API server has it now; only those that are mounted matter."""
        name = obj["metadata"]["name"]
        if any(mount.claim == name for mount in self.mounts):
            self._claims[name] = Claim.of(obj)

    def note_event(self, event: Mapping[str, Any]) -> bool:
        """An event about the pod or any claim, as `views` trims it; whether it matters here."""
        reason, about = event["reason"], event["claim"]
        if about:
            matters = any(mount.claim == about for mount in self.mounts)
            is_failure = matters and reason in _FAILED_CLAIM
        else:
            matters = is_failure = reason in _FAILED_POD
            if reason in _AFTER_MOUNT:
                kept = [said for said in self._said if said[1]]
                self._said = deque(kept, maxlen=MOST_SAID)
        if is_failure:
            self._said.append((event["at"], about, event["message"] or ""))
        return matters

    def _list_said(self, claim: str) -> list[str]:
        """What was said of a claim, or ("") by the node; the last comes first."""
        said = sorted((at, message) for at, about, message in self._said if about == claim)
        return [message for _, message in reversed(said)]

    def is_unsure(self, pod: Pod | None) -> bool:
        """Whether the state of the claims may say why a pod waits."""
        if pod is None or pod.phase != "Pending":
            return False
        if pod.scheduled:
            return bool(self._list_said(""))
        return not pod.unschedulable or _is_about_volumes(pod.unschedulable)

    def why(self, pod: Pod | None) -> str:
        """The volume in the way of a pod that does not run yet, and the reason; "" if none is."""
        if pod is None or pod.phase != "Pending":
            return ""
        return self._why_unmounted() if pod.scheduled else self._why_unscheduled(pod)

    def _why_unmounted(self) -> str:
        said = self._list_said("")
        if not said:
            return ""
        # the kubelet's sum of what it waits for tells less than any single failure
        told = next((message for message in said if not UNMOUNTED.search(message)), said[0])
        mount = self._find_named(told)
        if mount is None:
            return f"a volume: {say_reason(told, is_ceph=False)}"
        about = [message for message in said if self._find_named(message) == mount]
        return f"{mount.title}: {self._say_reason(mount, about)}"

    def _find_named(self, message: str) -> Mount | None:
        """The volume that a kubelet's message is about, by either of its names."""
        listed = UNMOUNTED.search(message)
        unmounted = re.split(r"[ ,]+", listed["volumes"]) if listed else []
        for mount in self.mounts:
            claim = self._claims.get(mount.claim)
            if mount.volume in unmounted:
                return mount
            if claim is not None and claim.volume and f'"{claim.volume}"' in message:
                return mount
        return None

    def _say_reason(self, mount: Mount, said: Sequence[str]) -> str:
        telling = (message for message in said if not _STILL_TRYING.search(message))
        message = next(telling, said[0])
        known = self._claims.get(mount.claim)
        is_ceph = mount.kind == "dataset" or (known is not None and known.is_ceph)
        return say_reason(message, is_ceph=is_ceph or "ceph" in message)

    def _why_unscheduled(self, pod: Pod) -> str:
        said = pod.unschedulable
        if said and not _is_about_volumes(said):
            return ""
        if _ONE_POD in said:
            return self._say_held(pod)
        if found := _MISSING.search(said):
            what = "does not exist" if found["what"] == "not found" else "is being deleted"
            return f"{self._title(found['claim'])}: it {what}"
        if unbound := self._why_unbound():
            return unbound
        if not said:
            return ""
        if "node affinity conflict" in said:
            return "a node that has room and reaches your volumes"
        pending = [m for m in self.mounts if self._is_pending(m.claim)]
        return f"{pending[0].title}: it has not been made yet" if pending else "your volumes"

    def _why_unbound(self) -> str:
        for mount in self.mounts:
            known = self._claims.get(mount.claim)
            if known is not None and known.phase == "Lost":
                return f"{mount.title}: the volume behind it is gone"
            said = self._list_said(mount.claim)
            if said and (known is None or known.phase == "Pending"):
                return f"{mount.title}: {self._say_reason(mount, said)}"
        return ""

    def _is_pending(self, claim: str) -> bool:
        known = self._claims.get(claim)
        return known is not None and known.phase == "Pending"

    def _title(self, claim: str) -> str:
        titles = (mount.title for mount in self.mounts if mount.claim == claim)
        return next(titles, f"claim {claim}")

    @property
    def _disk(self) -> Mount | None:
        return next((mount for mount in self.mounts if mount.kind == "scratch"), None)

    def _say_held(self, pod: Pod) -> str:
        disk = self._disk
        if disk is None:
            return "a volume that another pod uses"
        holders = find_holders(self._pods, disk.claim, own=pod.owner)
        by = f"your {say_server(holders[0])}, which is stopping" if holders else "another pod"
        return f"{disk.title}: it is in use by {by}"

    def why_refused(self, pod: Pod) -> str:
        """A sentence if the scheduler found another server at the disk, else "".

        One that is stopping already is waited for.
        """
        disk = self._disk
        if disk is None or _ONE_POD not in pod.unschedulable:
            return ""
        return why_in_use(disk.name, disk.claim, self._pods, own=pod.owner)

    def why_stuck(self, pod: Pod) -> str:
        """A sentence if a volume is in the way for longer than the start is worth, else ""."""
        return self._why_held(pod) or self._why_never_made(pod) or self._why_unmountable(pod)

    def find_unmountable(self, pod: Pod | None) -> dict[str, str]:
        """The claims of datasets that alone keep a pod from its start, and the reason of each.

        While other volumes fail as well it may be the storage, and a server needs its home.
        """
        if pod is None or pod.phase != "Pending" or not pod.scheduled:
            return {}
        said: dict[Mount | None, list[str]] = {}
        for message in self._list_said(""):
            if not UNMOUNTED.search(message):
                said.setdefault(self._find_named(message), []).append(message)
        if not all(mount is not None and mount.kind == "dataset" for mount in said):
            return {}
        return {
            mount.claim: self._say_reason(mount, about).rstrip(".")
            for mount, about in said.items()
            if mount
        }

    def _why_held(self, pod: Pod) -> str:
        """A sentence if something that is no server of the person's has the disk, else ""."""
        disk = self._disk
        if disk is None or _ONE_POD not in pod.unschedulable:
            return ""
        if find_holders(self._pods, disk.claim, own=pod.owner):
            return ""
        return (
            f"Your scratch disk “{disk.name}” is in use by another pod, and only one at a time "
            "can use it: start your server with another disk or with none."
        )

    def _why_never_made(self, pod: Pod) -> str:
        """A sentence if one of the person's own claims has a class that does not exist, else "".

        It keeps that class, whatever class is right by now.
        """
        if pod.phase != "Pending" or pod.scheduled:
            return ""
        for mount in self.mounts:
            last = next(iter(self._list_said(mount.claim)), "")
            is_own = mount.kind in _OWN and self._is_pending(mount.claim)
            if is_own and is_about_class(last):
                return _say_remake(mount, say_reason(last, is_ceph=False), self.namespace)
        return ""

    def _why_unmountable(self, pod: Pod) -> str:
        """A sentence if nothing but a dataset is in the way, else ""."""
        for claim, reason in self.find_unmountable(pod).items():
            title = self._title(claim)
            return (
                f"{title[0].upper()}{title[1:]} cannot be mounted: {reason}. Start your server "
                "again, and for now it starts without that dataset. Ask a cluster administrator "
                "to look at it."
            )
        return ""


def _say_remake(mount: Mount, why: str, namespace: str) -> str:
    command = (
        f"kubectl --namespace {namespace} annotate persistentvolumeclaim {mount.claim} "
        f"{names.ANNOTATION_PURGE}={mount.claim}"
    )
    return (
        f"{mount.title[0].upper()}{mount.title[1:]} cannot be made: {why}. It holds nothing yet: "
        "ask a cluster administrator to set its class right and to have it made anew, by "
        f"{command}"
    )


def _is_about_volumes(unschedulable: str) -> bool:
    return "volume" in unschedulable.lower()
