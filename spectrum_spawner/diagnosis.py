"""What the state of a pod means for the person who waits for it. Pure."""

import re

from spectrum_spawner.inventory import Inventory
from spectrum_spawner.mounts import HOME
from spectrum_spawner.pods import SHARE_FAILED, Pod
from spectrum_spawner.profiles import Profile

WAS_DELETED = "The server's pod was deleted while it was starting: try again."

# Why a container does not run, by the kubelet's reason: what stays so, and what may yet pass.
_HOPELESS = {
    "InvalidImageName": "its image name is invalid",
    "ErrImageNeverPull": "its image is not on the node and may not be pulled",
    "CreateContainerConfigError": "its configuration refers to something that does not exist",
}
_STUCK = {
    "ErrImagePull": "its image cannot be pulled",
    "ImagePullBackOff": "its image cannot be pulled",
    "RegistryUnavailable": "its image cannot be pulled",
    "CreateContainerError": "the node cannot create its container",
    "RunContainerError": "the node cannot run its container",
}
# What a runtime says when it finds or can make no directory to mount a volume on.
_NO_MOUNT_POINT = re.compile(
    rf"{HOME}/(?P<name>[^\s/\"':`]+).*?"
    r"(?P<why>not a directory|read-only file system|no space left|quota exceeded)",
    re.IGNORECASE | re.DOTALL,
)


class ExitStatus(int):
    """Exit status of a server, 1 if unknown, which prints with what ended it."""

    cause: str

    def __new__(cls, code: int | None, cause: str) -> "ExitStatus":
        status = super().__new__(cls, 1 if code is None else code)
        status.cause = cause
        return status

    def __str__(self) -> str:
        return f"{int(self)}: {self.cause}"


def why_hopeless(pod: Pod) -> str:
    """A sentence if the pod cannot become ready any more, else ""."""
    if pod.deleting:
        return WAS_DELETED
    if blocked := why_no_mount_point(pod):
        return blocked
    if pod.ended:
        return f"Your server ended while it was starting: {why_ended(pod)}."
    return _say_cannot_start(_HOPELESS.get(pod.waiting))


def why_no_mount_point(pod: Pod) -> str:
    """A sentence if something in the home is where a volume has to be mounted, else ""."""
    if pod.exit_reason == "StartError":
        said = pod.exit_message
    else:
        said = pod.waiting_message if pod.waiting in _STUCK else ""
    found = _NO_MOUNT_POINT.search(said)
    if not found:
        return ""
    name = found["name"]
    if "directory" in found["why"].lower():
        cause = f"“{name}” in your home is a file, and a volume is to be mounted there"
        remedy = "rename it"
    else:
        cause = f"no directory “{name}” can be made in your home, which is full or read-only"
        remedy = "make room"
    who = (
        f"Start it without a scratch disk and {remedy}"
        if name == "scratch"
        else f"Ask a cluster administrator to {remedy}, as Spectrum's docs/storage.md tells under "
        "“A home that no server can mount”"
    )
    return f"Your server cannot start: {cause}. {who}."


def why_stuck(pod: Pod) -> str:
    """A sentence if the pod cannot become ready unless something changes soon, else ""."""
    return _say_cannot_start(_STUCK.get(pod.waiting))


def _say_cannot_start(why: str | None) -> str:
    return f"Your server cannot start: {why}. Ask a cluster administrator." if why else ""


def why_ended(pod: Pod) -> str:
    """In words what ended a server's container."""
    reasons = {
        "OOMKilled": "it used more memory than its profile allows (OOMKilled)",
        "Evicted": "the node evicted it",
        "Completed": "it ended by itself",
        "DeadlineExceeded": "its time was over",
        SHARE_FAILED: "the team's directory could not be made in the team volume",
    }
    why = reasons.get(pod.exit_reason) or pod.exit_reason or "for an unknown reason"
    code = f", exit code {pod.exit_code}" if pod.exit_code else ""
    detail = f": {pod.exit_message}" if pod.exit_message else ""
    return f"{why}{code}{detail}"


def why_gone(last: Pod | None) -> str:
    """In words what became of a pod that is gone, from the last that was seen of it."""
    if last is None or not last.disruption:
        return "its pod was deleted, not by Spectrum"
    return f"its pod was evicted: {last.disruption}"


def why_waiting(pod: Pod | None) -> str:
    """In words what a pod that is not ready waits for."""
    if pod is None:
        return "the cluster has not shown its pod"
    if pod.unschedulable:
        return f"no node could take it ({pod.unschedulable})"
    if pod.mounting:
        return "its node has not mounted its volumes yet"
    if pod.waiting:
        return f"it is still at {pod.waiting} {pod.waiting_message}".rstrip()
    return "it is still starting" if pod.scheduled else "it was not scheduled"


def why_never_fits(profile: Profile, inventory: Inventory) -> str:
    """A sentence if the cluster has fewer GPUs than one server of a profile needs, else ""."""
    if not profile.gpu:
        return ""
    total = inventory.total(profile.gpu_resource, profile.gpu_product)
    if total is None or profile.gpu <= total:
        return ""
    kind = f"{profile.gpu_resource} {profile.gpu_product}".rstrip()
    return (
        f"Profile {profile.title} needs {profile.gpu} {kind}, and the cluster has {total}: "
        "choose another profile or ask a cluster administrator."
    )
