"""Publishing the GPU inventory: one small ConfigMap, written only when its numbers change."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

from spectrum_spawner import names
from spectrum_spawner.controller.capacity import (
    HOLDING_PODS,
    Holder,
    Node,
    count,
    count_servers,
    find_prepared,
    make_node_trim,
    make_pod_trim,
)
from spectrum_spawner.controller.cluster import Cluster, trim
from spectrum_spawner.controller.settings import Settings
from spectrum_spawner.kube import Backoff, Client, KubeError, Object, collection, item
from spectrum_spawner.watch import View, namespaced_name

SETTLE = 0.3  # seconds in which changes join one count: many pods start and stop together
SERVERS_SETTLE = 2.0  # seconds in which starts and stops of one team join one write of its status

_log = logging.getLogger("spectrum.controller")


class Publisher:
    """Counts the cluster's GPUs whenever nodes or pods change and publishes the numbers.

    Nothing is published before nodes and pods have been listed whole. `on_team` is called with a
    team's name when the number of its servers has changed, or one of them has prepared its share.
    """

    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        settings: Settings,
        *,
        on_team: Callable[[str], None],
    ) -> None:
        self._on_team = on_team
        self._servers: Counter[str] | None = None
        self._prepared: dict[str, str] = {}
        self._told: dict[str, asyncio.TimerHandle] = {}
        self._client = client
        self._cluster = cluster
        self._namespace = settings.hub_namespace
        self._changed = asyncio.Event()
        self._nodes: View[Node] = View(
            client,
            collection("v1", "nodes"),
            trim=make_node_trim(settings.accelerators),
            on_change=self._on_change,
        )
        self._pods: View[Holder] = View(
            client,
            collection("v1", "pods"),
            trim=make_pod_trim(settings.accelerators, settings.hub_namespace),
            key=namespaced_name,
            field_selector=HOLDING_PODS,
            on_change=self._on_change,
        )
        self._published: View[Object] = View(
            client,
            collection("v1", "configmaps", namespace=self._namespace),
            trim=trim,
            field_selector=f"metadata.name={names.INVENTORY}",
            on_change=self._on_change,
        )
        self._views = (self._nodes, self._pods, self._published)

    def start(self) -> None:
        for view in self._views:
            view.start()

    async def close(self) -> None:
        for timer in self._told.values():
            timer.cancel()
        await asyncio.gather(*(view.close() for view in self._views))

    def count_servers(self, namespace: str) -> int | None:
        """Servers that run in a team's namespace; None while that is not known."""
        return None if self._servers is None else self._servers[namespace]

    def prepared_at(self, namespace: str) -> str:
        """When a pod was made (RFC 3339) that has prepared a team's share; "" if none is known."""
        return self._prepared.get(namespace, "")

    async def wait_synced(self) -> None:
        """Return once nodes, pods and team namespaces are known."""
        await self._cluster.wait_synced()
        for view in self._views:
            await view.wait_synced()
        self._count_servers()

    async def run(self) -> None:
        """Publish for ever; what fails is tried again."""
        await self.wait_synced()
        backoff = Backoff()
        while True:
            self._changed.clear()
            self._count_servers()
            try:
                await self._publish()
                backoff.reset()
            except KubeError as error:
                _log.warning("the GPU inventory is not published: %s", error)
                await asyncio.sleep(backoff.next())
                continue
            await self._changed.wait()
            await asyncio.sleep(SETTLE)

    def _count_servers(self) -> None:
        teams = self._cluster.team_of()
        before, after = self._servers or Counter(), count_servers(self._pods, teams)
        self._servers = after
        was_prepared, self._prepared = self._prepared, find_prepared(self._pods, teams)
        loop = asyncio.get_running_loop()
        for namespace in teams.keys() - self._told.keys():
            has_prepared = self.prepared_at(namespace) > was_prepared.get(namespace, "")
            if has_prepared or before[namespace] != after[namespace]:
                timer = loop.call_later(SERVERS_SETTLE, self._tell, namespace, teams[namespace])
                self._told[namespace] = timer

    def _tell(self, namespace: str, team: str) -> None:
        del self._told[namespace]
        self._on_team(team)

    async def _publish(self) -> None:
        text = count(self._nodes, self._pods, self._cluster.team_of()).to_json()
        live = self._published.get(names.INVENTORY)
        if live is not None and (live.get("data") or {}).get(names.INVENTORY_KEY) == text:
            return
        manifest = make_inventory(self._namespace, text)
        path = collection("v1", "configmaps", namespace=self._namespace)
        if live is None:
            _, made = await self._client.create_if_absent(path, manifest)
            if made:
                return
        here = item("v1", "configmaps", names.INVENTORY, namespace=self._namespace)
        await self._client.patch(here, {"data": manifest["data"]})

    def _on_change(self, key: str, old: object, new: object) -> None:
        self._changed.set()


def make_inventory(namespace: str, text: str) -> Object:
    """The ConfigMap that the hub reads."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": names.INVENTORY,
            "namespace": namespace,
            "labels": {names.LABEL_MANAGED_BY: names.MANAGED_BY},
        },
        "data": {names.INVENTORY_KEY: text},
    }
