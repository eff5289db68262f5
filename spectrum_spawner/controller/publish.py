"""Publishing the GPU inventory: one small ConfigMap, written only when its numbers change."""

import asyncio
import logging

from spectrum_spawner import names
from spectrum_spawner.controller.capacity import (
    HOLDING_PODS,
    Holder,
    Node,
    count,
    make_node_trim,
    make_pod_trim,
)
from spectrum_spawner.controller.cluster import Cluster, trim
from spectrum_spawner.controller.settings import Settings
from spectrum_spawner.kube import Backoff, Client, KubeError, Object, collection, item
from spectrum_spawner.watch import View, namespaced_name

SETTLE = 0.3  # seconds in which changes join one count: many pods start and stop together

_log = logging.getLogger("spectrum.controller")


class Publisher:
    """Counts the cluster's GPUs whenever nodes or pods change and publishes the numbers.

    Nothing is published before nodes and pods have been listed whole.
    """

    def __init__(self, client: Client, cluster: Cluster, settings: Settings) -> None:
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
            trim=make_pod_trim(settings.accelerators),
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
        await asyncio.gather(*(view.close() for view in self._views))

    async def run(self) -> None:
        """Publish for ever; what fails is tried again."""
        await self._cluster.wait_synced()
        for view in self._views:
            await view.wait_synced()
        backoff = Backoff()
        while True:
            self._changed.clear()
            try:
                await self._publish()
                backoff.reset()
            except KubeError as error:
                _log.warning("the GPU inventory is not published: %s", error)
                await asyncio.sleep(backoff.next())
                continue
            await self._changed.wait()
            await asyncio.sleep(SETTLE)

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
