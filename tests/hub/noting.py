"""A spawner that starts nothing: for a hub that is tested without a cluster."""

from typing import Any

from jupyterhub.spawner import Spawner

from spectrum_spawner import actor
from spectrum_spawner.identity import check_known


class NotingSpawner(Spawner):
    """Starts nothing; as SpectrumSpawner does, it asks first whether the groups are known."""

    options_form = "<input name='any'>"
    running = False
    started: list[tuple[str, list[str]]]
    stopped: list[str]

    async def start(self) -> tuple[str, int]:
        await check_known(self.user)
        self.started.append((actor.current(), groups_of(self.user)))
        self.running = True
        return "127.0.0.1", self.port

    async def stop(self, now: bool = False) -> None:
        self.stopped.append(actor.current())
        self.running = False

    async def poll(self) -> int | None:
        return None if self.running else 0


def groups_of(user: Any) -> list[str]:
    return sorted(group.name for group in user.groups)
