"""A start in sentences that a person can act on, as it proceeds."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any

from spectrum_spawner.choice import Choice
from spectrum_spawner.inventory import Inventory
from spectrum_spawner.pods import Pod
from spectrum_spawner.views import Views

EVENTS_AFTER = 2.0  # seconds: events cost requests, and most starts are over by then

Step = tuple[int, str]  # percent, sentence


class Journal:
    """The steps of one start. Any number of readers follow it, each from the beginning.

    The percentage never falls, and a sentence is not said twice in a row.
    """

    def __init__(self) -> None:
        self._steps: list[Step] = []
        self._ended = False
        self._changed = asyncio.Event()

    def tell(self, percent: int, sentence: str) -> None:
        last = self._steps[-1] if self._steps else (0, "")
        if self._ended or sentence == last[1]:
            return
        self._steps.append((max(percent, last[0]), sentence))
        self._wake()

    def end(self) -> None:
        """Let the readers finish: the start succeeded or failed."""
        self._ended = True
        self._wake()

    async def follow(self) -> AsyncIterator[Step]:
        position = 0
        while True:
            changed = self._changed
            for step in self._steps[position:]:
                yield step
            position = len(self._steps)
            if self._ended and changed is self._changed:
                return
            if changed is self._changed:
                await changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def describe_pod(pod: Pod | None, *, choice: Choice, inventory: Inventory) -> Step:
    """Where a pod that is not ready yet stands."""
    if pod is None:
        return 20, "Asked the cluster for your server"
    if pod.unschedulable:
        return 25, describe_unschedulable(pod.unschedulable, choice=choice, inventory=inventory)
    if pod.waiting in ("ErrImagePull", "ImagePullBackOff"):
        return 45, f"Image “{choice.image.title}” could not be pulled; the node tries again"
    if pod.phase == "Running":
        return 85, "Starting JupyterLab"
    if pod.scheduled:
        return 40, "A node is preparing your server"
    return 20, "Looking for a node with room for your server"


def describe_unschedulable(message: str, *, choice: Choice, inventory: Inventory) -> str:
    """In words why the scheduler found no node, from its message and the GPU inventory."""
    profile = choice.profile
    if "PersistentVolumeClaim" in message or "persistentvolumeclaim" in message:
        return "Waiting for your home volume"
    if profile.gpu and f"Insufficient {profile.gpu_resource}" in message:
        return _waiting_for_gpus(choice, inventory)
    short = [word for word in ("cpu", "memory") if f"Insufficient {word}" in message]
    if short:
        return f"Waiting for room: no node has enough {' and '.join(short)} free now"
    if "node affinity/selector" in message:
        return (
            f"No node matches profile “{profile.title}”: "
            "if this stays, choose another profile or ask a cluster administrator"
        )
    if "taint" in message:
        return "Every node that fits is reserved or not ready; waiting for one"
    return f"Waiting for a node: {message}"


def _waiting_for_gpus(choice: Choice, inventory: Inventory) -> str:
    profile = choice.profile
    wanted = "a GPU" if profile.gpu == 1 else f"{profile.gpu} GPUs"
    total = inventory.total(profile.gpu_resource, profile.gpu_product)
    free = inventory.free(profile.gpu_resource, profile.gpu_product)
    if total is None or free is None:
        return f"Waiting for {wanted}"
    return f"Waiting for {wanted}: {free} of {total} {profile.gpu_product or 'GPUs'} are free"


def describe_event(event: dict[str, Any], *, choice: Choice) -> Step | None:
    """What an event about this start's pod or claim adds to the state of the pod, if anything."""
    reason, message = event["reason"], event["message"] or ""
    image = choice.image.title
    if reason == "Pulling":
        return 50, f"Pulling image “{image}” (the first time on a node this takes minutes)"
    if reason == "Pulled" and "already present" not in message:
        return 70, f"Image “{image}” is there"
    if reason in ("FailedMount", "FailedAttachVolume"):
        return 40, "The node cannot mount your home volume yet and tries again"
    if reason == "ProvisioningFailed":
        return 15, "Your home volume cannot be made yet: if this stays, ask an administrator"
    if reason == "FailedCreatePodSandBox":
        return 40, "The node cannot set up the network of your server yet and tries again"
    return None


async def narrate(
    views: Views,
    *,
    namespace: str,
    pod_name: str,
    claim: str,
    seen: Callable[[], Pod | None],
    choice: Choice,
    tell: Callable[[int, str], None],
) -> None:
    """Tell how one pod gets ready, until cancelled; `seen` gives the pod of this start."""
    view = views.pods(namespace)

    def tell_event(event: dict[str, Any]) -> None:
        if step := describe_event(event, choice=choice):
            tell(*step)

    async def tell_state(timeout: float | None) -> None:
        async with asyncio.timeout(timeout):
            while True:
                known = seen()
                tell(*describe_pod(known, choice=choice, inventory=views.inventory))
                await view.wait(partial(_differs, seen, known), key=pod_name)

    with suppress(TimeoutError):
        await tell_state(EVENTS_AFTER)
    pod = seen()
    about_claim = f"involvedObject.kind=PersistentVolumeClaim,involvedObject.name={claim}"
    selectors = [about_claim] if pod is None else [f"involvedObject.uid={pod.uid}", about_claim]
    async with AsyncExitStack() as stack:
        for selector in selectors:
            stack.push_async_callback(views.events(namespace, selector, tell_event).close)
        await tell_state(None)


def _differs(seen: Callable[[], Pod | None], known: Pod | None) -> bool:
    return seen() != known
