"""Group ids of teams: handed out once, in order, and never again."""

import asyncio
import logging
from collections.abc import Iterable

from spectrum_spawner import names
from spectrum_spawner.controller.settings import Settings
from spectrum_spawner.kube import Client, Conflict, Object, collection, item

HIGH_WATER_MARK = "team-gids"
NEXT = "next"

_log = logging.getLogger("spectrum.controller")


class GidsExhausted(Exception):  # noqa: N818 - says what happened
    """The range holds no gid that was never given away."""


class Gids:
    """Gids from a range, with the next one kept in a ConfigMap beside the hub.

    The mark only ever rises, and is raised before a gid is used: a crash in between wastes one.
    Should the ConfigMap be lost, the gids that namespaces carry (also orphaned ones) hold the
    mark up.
    """

    def __init__(self, client: Client, settings: Settings) -> None:
        self._client = client
        self._settings = settings
        self._lock = asyncio.Lock()  # else many new teams would outdo each other again and again

    async def allocate(self, in_use: Iterable[int]) -> int:
        """A gid above the mark and above all of `in_use`; raises GidsExhausted or a KubeError."""
        settings = self._settings
        ours = [gid for gid in in_use if settings.first_gid <= gid <= settings.last_gid]
        above = max(ours, default=settings.first_gid - 1) + 1
        async with self._lock:
            return await self._take(above)

    async def _take(self, above: int) -> int:
        settings = self._settings
        path = item("v1", "configmaps", HIGH_WATER_MARK, namespace=settings.hub_namespace)
        while True:
            mark = await self._read_mark()
            gid = max(above, _number((mark.get("data") or {}).get(NEXT)), settings.first_gid)
            if gid > settings.last_gid:
                raise GidsExhausted(
                    f"All group ids from {settings.first_gid} to {settings.last_gid} were given "
                    "away once; widen the controller's TEAM_GIDS."
                )
            version = {"resourceVersion": mark["metadata"]["resourceVersion"]}
            try:
                await self._client.patch(path, {"metadata": version, "data": {NEXT: str(gid + 1)}})
            except Conflict:
                continue
            return gid

    async def _read_mark(self) -> Object:
        namespace = self._settings.hub_namespace
        mark, _ = await self._client.create_if_absent(
            collection("v1", "configmaps", namespace=namespace), make_mark(namespace)
        )
        return mark


def make_mark(namespace: str) -> Object:
    """The ConfigMap as it is made first, without a mark yet."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": HIGH_WATER_MARK,
            "namespace": namespace,
            "labels": {names.LABEL_MANAGED_BY: names.MANAGED_BY},
        },
    }


def _number(text: str | None) -> int:
    if text is None:
        return 0
    if not text.isascii() or not text.isdigit():
        _log.warning("ConfigMap %s: %r is no group id and is ignored", HIGH_WATER_MARK, text)
        return 0
    return int(text)
