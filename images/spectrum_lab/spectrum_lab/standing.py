"""How this server stands at the service, asked while somebody looks at JupyterLab."""

import asyncio
from typing import Any

from spectrum_lab.service import Service, ServiceError

FRESH = 15.0  # seconds for which all pages that look have the same answer
PATIENCE = 2.0  # seconds that a page waits for one: what it shows otherwise must not


class Standing:
    """What the service said last: `known`, or the sentence `silence` on why it says nothing."""

    def __init__(self, service: Service) -> None:
        self.known: dict[str, Any] | None = None
        self.silence = ""
        self._service = service
        self._asking: asyncio.Task[None] | None = None
        self._due = 0.0

    async def look(self) -> None:
        """Ask the service, unless it just was; a late answer is there at the next look."""
        loop = asyncio.get_running_loop()
        if self._asking is None and loop.time() >= self._due:
            self._asking = loop.create_task(self._ask())
        if self._asking is not None:
            await asyncio.wait({self._asking}, timeout=PATIENCE)

    def forget(self) -> None:
        """Something was done with the server: the next look asks anew."""
        self._due = 0.0

    async def _ask(self) -> None:
        pause = FRESH
        try:
            self.known, self.silence = _read(await self._service.read_row()), ""
        except ServiceError as error:
            self.known, self.silence = None, str(error)
            pause = max(FRESH, error.wait)
        finally:
            self._due = asyncio.get_running_loop().time() + pause
            self._asking = None


def _read(row: dict[str, Any]) -> dict[str, Any]:
    """What pages need of it."""
    return {
        "gpus": row.get("gpus", 0),
        "utilisation": row.get("utilisation"),
        "memory": row.get("memory"),
        "ends_at": row.get("ends_at"),
        "held_until": (row.get("hold") or {}).get("until"),
        "sentence": row.get("sentence", ""),
    }
