"""What one hub sees of the cluster: teams, GPU inventory, and the pods of each team namespace.

All spawners of a hub share these views. They belong to the event loop they were made in.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import aiohttp

from spectrum_spawner import kube, names, pods
from spectrum_spawner.inventory import Inventory
from spectrum_spawner.kube import Client, Object
from spectrum_spawner.outages import Outages
from spectrum_spawner.pods import Pod
from spectrum_spawner.teams import Team
from spectrum_spawner.watch import View

_log = logging.getLogger("spectrum.views")


class Views:
    """The views of the hub in one namespace, and the clients for its other requests.

    `client` is for the Kubernetes API, `http` for the servers themselves. `outages` is what
    servers showed of datasets.
    """

    def __init__(self, hub_namespace: str) -> None:
        self.hub_namespace = hub_namespace
        self.client = Client()
        self.http = aiohttp.ClientSession()
        self.outages = Outages()
        self._watching = Client()
        self._pods: dict[str, View[Pod]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self.teams: View[Team] = View(
            self._watching,
            kube.collection(
                f"{names.API_GROUP}/{names.API_VERSION}",
                names.TEAM_PLURAL,
                namespace=hub_namespace,
            ),
            trim=Team.from_object,
            on_change=self._on_team,
        )
        self._inventory: View[Inventory] = View(
            self._watching,
            kube.collection("v1", "configmaps", namespace=hub_namespace),
            trim=_read_inventory,
            # rights on one name cover list and watch only with this selector
            field_selector=f"metadata.name={names.INVENTORY}",
        )
        self.teams.start()
        self._inventory.start()
        self._keeper = asyncio.get_running_loop().create_task(self._close_at_the_end())

    @classmethod
    def shared(cls, hub_namespace: str) -> "Views":
        """The views of this hub in the running event loop, made at the first call."""
        of_loop = _shared.setdefault(asyncio.get_running_loop(), {})
        if hub_namespace not in of_loop:
            of_loop[hub_namespace] = cls(hub_namespace)
        return of_loop[hub_namespace]

    @classmethod
    async def close_shared(cls) -> None:
        """Close what `shared` made in the running event loop; the next call makes it anew."""
        for views in _shared.pop(asyncio.get_running_loop(), {}).values():
            await views.close()

    @property
    def inventory(self) -> Inventory:
        return self._inventory.get(names.INVENTORY) or Inventory.UNKNOWN

    def pods(self, namespace: str) -> View[Pod]:
        """The servers of this hub in a namespace, watched from the first call on."""
        if namespace not in self._pods:
            view = View(
                self._watching,
                kube.collection("v1", "pods", namespace=namespace),
                trim=pods.trim,
                label_selector=(
                    f"{names.LABEL_HUB}={self.hub_namespace},"
                    f"{names.LABEL_COMPONENT}={names.COMPONENT_SERVER}"
                ),
                on_refused=lambda: self._forget_if_purged(namespace),
            )
            view.start()
            self._pods[namespace] = view
        return self._pods[namespace]

    def _forget_if_purged(self, namespace: str) -> None:
        """Stop asking about a namespace whose team, pods and rights are all gone."""
        view = self._pods[namespace]
        is_left = self.teams.synced and not any(t.namespace == namespace for t in self.teams)
        if is_left and view.synced and not len(view):
            _log.info("namespace %s and its team are gone: no longer watched", namespace)
            del self._pods[namespace]
            closing = asyncio.get_running_loop().create_task(view.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def events(
        self, namespace: str, field_selector: str, on_event: Callable[[Object], None]
    ) -> View[Object]:
        """Events that are selected, from the first to those still to come; the caller closes it."""
        view: View[Object] = View(
            self._watching,
            kube.collection("v1", "events", namespace=namespace),
            trim=_trim_event,
            field_selector=field_selector,
            on_change=lambda _key, _old, new: on_event(new) if new is not None else None,
        )
        view.start()
        return view

    async def close(self) -> None:
        views: list[View[Any]] = [self.teams, self._inventory, *self._pods.values()]
        for view in views:
            await view.close()
        await self._watching.close()
        await self.client.close()
        await self.http.close()
        if self._keeper is not asyncio.current_task():
            self._keeper.cancel()

    async def _close_at_the_end(self) -> None:
        """A hub that ends cancels all tasks; this one then closes the connections."""
        try:
            await asyncio.Event().wait()
        finally:
            await self.close()

    def _on_team(self, _key: str, _old: Team | None, team: Team | None) -> None:
        # watched before the first start, so that a start need not wait for it
        if team is not None and team.ready and team.namespace:
            self.pods(team.namespace)


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Views]] = WeakKeyDictionary()


def _read_inventory(obj: Object) -> Inventory:
    try:
        return Inventory.from_json((obj.get("data") or {})[names.INVENTORY_KEY])
    except (KeyError, ValueError) as error:
        _log.error("ConfigMap %s cannot be read: %r", names.INVENTORY, error)
        return Inventory.UNKNOWN


def _trim_event(obj: Object) -> Object:
    """Texts `reason`, `type`, `message`, `at` (the last time it was seen) and `claim`.

    The latter is the claim that it is about, "" if it is about something else.
    """
    about = obj.get("involvedObject") or {}
    moments = (
        obj.get("lastTimestamp"),
        (obj.get("series") or {}).get("lastObservedTime"),
        obj.get("eventTime"),
        obj["metadata"].get("creationTimestamp"),
    )
    return {
        **{key: obj.get(key) or "" for key in ("reason", "type", "message")},
        "at": next(filter(None, moments), ""),
        "claim": about.get("name", "") if about.get("kind") == "PersistentVolumeClaim" else "",
    }
