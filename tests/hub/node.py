"""A node without containers: it binds pods and says about them what a kubelet would.

What a server in a pod would answer, one HTTP server answers for all of them.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Self

import aiohttp
import jupyterhub
from aiohttp import web

from tests.hub.cluster import ApiError, Cluster, find_pods

ADDRESS = "127.0.0.1"
Play = Callable[["NodeStub", dict[str, Any]], Awaitable[None]]


class NodeStub:
    """Plays scheduler and kubelet for all pods of namespaces with one prefix.

    `play` decides what becomes of a new pod; seconds are those of the loop's clock.
    """

    def __init__(self, cluster: Cluster, prefix: str) -> None:
        self.cluster = cluster
        self.play: Play = run
        self.start_seconds = 0.0
        self.stop_seconds = 0.0
        self._prefix = prefix
        self._known: set[str] = set()
        self._ending: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._watch = asyncio.create_task(self._watch_pods())
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [self._watch, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def bind(self, pod: dict[str, Any]) -> None:
        """Schedule a pod onto this node."""
        meta = pod["metadata"]
        target = {"apiVersion": "v1", "kind": "Node", "name": "node-stub"}
        name = {"name": meta["name"], "uid": meta["uid"]}
        await self.cluster.create(
            f"{_find(pod)}/binding",
            {"apiVersion": "v1", "kind": "Binding", "metadata": name, "target": target},
        )

    async def report(self, pod: dict[str, Any], phase: str, state: dict[str, Any]) -> None:
        """Set phase and the state of every container, as a kubelet does."""
        ready = "running" in state
        statuses = [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "ready": ready,
                "started": ready,
                "restartCount": 0,
                "state": state,
            }
            for container in pod["spec"]["containers"]
        ]
        conditions = [
            {"type": "PodScheduled", "status": "True"},
            {"type": "ContainersReady", "status": str(ready)},
            {"type": "Ready", "status": str(ready)},
        ]
        address = {"podIP": ADDRESS, "podIPs": [{"ip": ADDRESS}]} if phase != "Pending" else {}
        status = {"phase": phase, "conditions": conditions, "containerStatuses": statuses}
        await self.cluster.patch(f"{_find(pod)}/status", {"status": {**status, **address}})

    async def end(self, pod: dict[str, Any], reason: str, code: int) -> None:
        """Let the pod's container end by itself: `OOMKilled`, `Error`, `Completed`."""
        ended = {"reason": reason, "exitCode": code, "finishedAt": _now()}
        await self.report(
            pod, "Succeeded" if code == 0 else "Failed", {"terminated": {**ended, "message": ""}}
        )

    async def _watch_pods(self) -> None:
        while True:
            with contextlib.suppress(aiohttp.ClientError, OSError, ApiError):
                pods = await self.cluster.get("/api/v1/pods")
                for pod in pods["items"]:
                    self._see(pod)
                version = pods["metadata"]["resourceVersion"]
                async for change in self.cluster.watch("/api/v1/pods", version):
                    if change["type"] in ("ADDED", "MODIFIED"):
                        self._see(change["object"])
            await asyncio.sleep(0.2)

    def _see(self, pod: dict[str, Any]) -> None:
        meta = pod["metadata"]
        if not meta["namespace"].startswith(self._prefix):
            return
        if "deletionTimestamp" in meta:
            if meta["uid"] not in self._ending:
                self._ending.add(meta["uid"])
                self._spawn(self._remove(pod))
        elif meta["uid"] not in self._known:
            self._known.add(meta["uid"])
            self._spawn(self._start(pod))

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _start(self, pod: dict[str, Any]) -> None:
        if "nodeName" in pod["spec"]:  # bound by a stub before this one
            return
        with contextlib.suppress(ApiError):  # the pod was deleted meanwhile
            await self.play(self, pod)

    async def _remove(self, pod: dict[str, Any]) -> None:
        await asyncio.sleep(self.stop_seconds)
        uid = {"uid": pod["metadata"]["uid"]}
        with contextlib.suppress(ApiError):  # another pod of that name is none of ours
            await self.cluster.delete(_find(pod), {"gracePeriodSeconds": 0, "preconditions": uid})


async def run(node: NodeStub, pod: dict[str, Any]) -> None:
    """The pod runs `start_seconds` after it was bound."""
    await node.bind(pod)
    await node.report(pod, "Pending", {"waiting": {"reason": "ContainerCreating"}})
    await asyncio.sleep(node.start_seconds)
    await node.report(pod, "Running", {"running": {"startedAt": _now()}})


async def crash(node: NodeStub, pod: dict[str, Any]) -> None:
    """The container ends as soon as it runs."""
    await node.bind(pod)
    await node.end(pod, "Error", 1)


async def find_no_room(node: NodeStub, pod: dict[str, Any]) -> None:
    """No node has what the pod asks for."""
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
    }
    await node.cluster.patch(f"{_find(pod)}/status", {"status": {"conditions": [condition]}})


async def fail_to_pull(node: NodeStub, pod: dict[str, Any]) -> None:
    """The image cannot be had."""
    await node.bind(pod)
    image = pod["spec"]["containers"][0]["image"]
    for reason in ("ErrImagePull", "ImagePullBackOff"):
        waiting = {"reason": reason, "message": f'Back-off pulling image "{image}"'}
        await node.report(pod, "Pending", {"waiting": waiting})


class ServerStub:
    """Answers every request as a single-user server of this JupyterHub version would."""

    async def __aenter__(self) -> Self:
        self._runner = web.ServerRunner(web.Server(_answer), shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, ADDRESS, 0).start()
        self.port: int = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.go_silent()

    async def go_silent(self) -> None:
        """From now on nobody answers at its port."""
        await self._runner.cleanup()


async def _answer(request: web.BaseRequest) -> web.Response:
    version = {"X-JupyterHub-Version": jupyterhub.__version__}
    return web.json_response({"version": "2.0"}, headers=version)


def _find(pod: dict[str, Any]) -> str:
    return f"{find_pods(pod['metadata']['namespace'])}/{pod['metadata']['name']}"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
