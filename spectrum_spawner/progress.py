"""A start in sentences that a person can act on, as it proceeds."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any

from spectrum_spawner.choice import Choice
from spectrum_spawner.holdings import list_holdings
from spectrum_spawner.inventory import Inventory
from spectrum_spawner.kube import Client, KubeError
from spectrum_spawner.mounting import Mounting
from spectrum_spawner.owner import Owner
from spectrum_spawner.pods import Pod
from spectrum_spawner.views import Views

EVENTS_AFTER = 2.0  # seconds: events cost requests, and most starts are over by then
CLAIMS_AGAIN = 5.0  # seconds between two looks at claims: with the storage down, all starts look

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


def describe_pod(
    pod: Pod | None, *, choice: Choice, inventory: Inventory, volume: str = ""
) -> Step:
    """Where a pod that is not ready yet stands; `volume` says what it waits for to be mounted."""
    if pod is None:
        return 20, "Asked the cluster for your server"
    if volume:
        return 40 if pod.scheduled else 25, f"Waiting for {volume}"
    if pod.unschedulable:
        return 25, describe_unschedulable(pod.unschedulable, choice=choice, inventory=inventory)
    if pod.waiting in ("ErrImagePull", "ImagePullBackOff"):
        return 45, f"Image “{choice.image.title}” could not be pulled; the node tries again"
    if pod.phase == "Running":
        return 85, "Starting JupyterLab"
    if pod.scheduled:
        what = "mounting your volumes" if pod.mounting else "preparing your server"
        return 40, f"A node is {what}"
    return 20, "Looking for a node with room for your server"


def describe_unschedulable(message: str, *, choice: Choice, inventory: Inventory) -> str:
    """In words why the scheduler found no node, from its message and the GPU inventory."""
    profile = choice.profile
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
    """What an event about this start's pod adds to the state of the pod, if anything."""
    reason, message = event["reason"], event["message"]
    image = choice.image.title
    if reason == "Pulling":
        return 50, f"Pulling image “{image}” (the first time on a node this takes minutes)"
    if reason == "Pulled" and "already present" not in message:
        return 70, f"Image “{image}” is there"
    if reason == "FailedCreatePodSandBox":
        return 40, "The node cannot set up the network of your server yet and tries again"
    return None


async def narrate(
    views: Views,
    *,
    namespace: str,
    pod_name: str,
    owner: Owner,
    mounting: Mounting,
    seen: Callable[[], Pod | None],
    choice: Choice,
    tell: Callable[[int, str], None],
) -> None:
    """Tell how one pod gets ready, until cancelled; `seen` gives the pod of this start.

    `owner` is whose server it is.
    """
    view, news = views.pods(namespace), asyncio.Event()
    now = asyncio.get_running_loop().time

    def tell_pod(pod: Pod | None) -> None:
        volume = mounting.why(pod)
        tell(*describe_pod(pod, choice=choice, inventory=views.inventory, volume=volume))

    def tell_event(event: dict[str, Any]) -> None:
        if mounting.note_event(event):
            news.set()
        elif step := describe_event(event, choice=choice):
            tell(*step)

    async def tell_state(timeout: float | None) -> None:
        due, is_unread = 0.0, False
        async with asyncio.timeout(timeout):
            while True:
                known = seen()
                is_unread = is_unread or (timeout is None and mounting.is_unsure(known))
                if is_unread and now() >= due:
                    await _read_claims(views.client, owner, namespace, mounting)
                    due, is_unread = now() + CLAIMS_AGAIN, False
                tell_pod(known)
                changed = view.wait(partial(_differs, seen, known), key=pod_name)
                await _wait_first(changed, news, timeout=due - now() if is_unread else None)

    with suppress(TimeoutError):
        await tell_state(EVENTS_AFTER)
    pod = seen()
    about_claims = "involvedObject.kind=PersistentVolumeClaim"
    selectors = [about_claims] if pod is None else [f"involvedObject.uid={pod.uid}", about_claims]
    async with AsyncExitStack() as stack:
        for selector in selectors:
            stack.push_async_callback(views.events(namespace, selector, tell_event).close)
        await tell_state(None)


async def _read_claims(client: Client, owner: Owner, namespace: str, mounting: Mounting) -> None:
    # what cannot be read now is as it was, and asked for again at the next news
    with suppress(KubeError):
        for claim in await list_holdings(client, owner, namespace=namespace):
            mounting.note_claim(claim)


async def _wait_first(
    changed: Coroutine[Any, Any, bool], news: asyncio.Event, *, timeout: float | None
) -> None:
    """Return once either has come about, or after `timeout` seconds; takes note of the news."""
    waits = asyncio.ensure_future(changed), asyncio.ensure_future(news.wait())
    try:
        done, _ = await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
    for wait in done:
        wait.result()
    news.clear()


def _differs(seen: Callable[[], Pod | None], known: Pod | None) -> bool:
    return seen() != known
