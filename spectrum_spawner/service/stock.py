"""How many GPUs of each product there are, as the controller counts them for everybody."""

import asyncio
import logging

from spectrum_spawner import names
from spectrum_spawner.inventory import Inventory
from spectrum_spawner.kube import Client, KubeError, item

FRESH = 30.0  # seconds for which what was read is good enough for a page
WITHIN = 3.0  # seconds that the API server may take

_log = logging.getLogger("spectrum.service")


class Stock:
    """The inventory in the hub's namespace, read when a page asks for it."""

    def __init__(self, client: Client, hub_namespace: str) -> None:
        self._client = client
        self._path = item("v1", "configmaps", names.INVENTORY, namespace=hub_namespace)
        self._inventory = Inventory.UNKNOWN
        self._tried: float | None = None

    async def read(self) -> Inventory:
        """The inventory of the last half minute, `Inventory.UNKNOWN` where nobody tells."""
        now = asyncio.get_running_loop().time()
        if self._tried is None or now - self._tried >= FRESH:
            self._tried = now
            self._inventory = await self._fetch()
        return self._inventory

    async def _fetch(self) -> Inventory:
        try:
            async with asyncio.timeout(WITHIN):
                found = await self._client.get(self._path)
            return Inventory.from_json(found["data"][names.INVENTORY_KEY])
        except (KubeError, TimeoutError, LookupError, TypeError, ValueError) as error:
            _log.warning("the inventory of GPUs cannot be read: %r", error)
            return Inventory.UNKNOWN
