"""Servers of a service with a culler, and what is told of them, in time that a test moves."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from spectrum_spawner import names
from spectrum_spawner.profile_values import read_profiles
from spectrum_spawner.service.culler import Culler
from spectrum_spawner.service.culling.metrics import read_metrics
from spectrum_spawner.service.culling.policy_values import read_policy
from spectrum_spawner.service.culling.report import read_report
from spectrum_spawner.service.ledger import Query
from spectrum_spawner.service.rights import AuditScope
from spectrum_spawner.service.settings import Culling
from tests.hub.clock import wait_until
from tests.hub.hub import Hub
from tests.hub.service.conftest import Running
from tests.hub.service.measuring import CPU, MEMORY, UTILISATION, Meter, PrometheusStub
from tests.hub.spawners import IMAGES, PROFILES
from tests.hub.team import Team

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
GPU = {"team": "flight", "profile": "gpu-1"}
ALICE = ("alice", "")
RULES = {
    "gpu": {
        "order": 1,
        "gpu": True,
        "idleMinutes": 60,
        "graceMinutes": 5,
        "warnMinutes": 10,
        "extendMinutes": 30,
        "extensions": 1,
        "holdMinutes": 480,
        "unknownMinutes": 120,
        "evidence": ["gpu", "kernels", "processes", "cpu"],
    }
}
StartService = Callable[..., Awaitable[Running]]


def make_culling(url: str, prefix: str, **changes: Any) -> Culling:
    told = {
        "enabled": True,
        "policy": read_policy(
            {"rules": RULES},
            read_profiles(PROFILES, IMAGES),
            measured=bool(changes.get("prometheus_url", url)),
        ),
        "values": {"enabled": True, "rules": RULES},
        "prometheus_url": url,
        "metrics": read_metrics({}),
        "team_prefix": prefix,
    }
    return Culling(**{**told, **changes})


@dataclass
class Floor:
    """Servers of a service with a culler, and what is told of them."""

    running: Running
    hub: Hub
    team: Team
    stub: PrometheusStub
    start: Callable[..., Awaitable[Running]]

    @property
    def now(self) -> datetime:
        return self.running.wall()

    @property
    def culler(self) -> Culler:
        return self.running.context.culler

    async def look(self, *, later: timedelta = timedelta()) -> None:
        self.running.wall.ahead += later
        await self.culler.look()
        await self.settle()

    async def settle(self) -> None:
        """Until all servers whose time was over were looked at once more, and stopped."""
        await asyncio.gather(*self.running.context.background.tasks)

    async def restart(self, *, enabled: bool = True) -> None:
        """A new service on the same ledger, at the same time."""
        ahead = self.running.wall.ahead
        self.running = await self.start(enabled=enabled, port=0)
        self.running.wall.ahead = ahead
        self.stub.now = self.running.wall

    def idle(self, user: str = "alice", since: datetime | None = None) -> None:
        """Nothing works in somebody's server since a moment, and everybody tells so."""
        since = since or self.now
        self.measure(user, Meter(below_since=since))
        self.stub.set(CPU, self.team, names.server_name(user, ""), Meter(below_since=since))
        self.tell(user, watched_since=since)

    def measure(self, user: str, *meters: Meter) -> None:
        """What the GPU of somebody's server does."""
        self.stub.set(UTILISATION, self.team, names.server_name(user, ""), *meters)

    def measure_memory(self, user: str, *meters: Meter) -> None:
        """What the GPUs of somebody's server have of memory."""
        self.stub.set(MEMORY, self.team, names.server_name(user, ""), *meters)

    def tell(self, user: str, *, watched_since: datetime, **parts: Any) -> None:
        """What somebody's server last told of itself."""
        told = {
            "at": self.now.isoformat(),
            "watched_since": watched_since.isoformat(),
            "processes_watched_since": watched_since.isoformat(),
            "kernels": [],
            "processes": [],
            **parts,
        }
        self.running.context.told[user, ""] = read_report(told, now=self.now)

    async def tell_again(self, user: str = "alice") -> None:
        """The same report as of now, as a server sends it each minute."""
        since = self.running.context.told[user, ""].kernels
        assert since
        self.tell(user, watched_since=since.watched_since)

    async def pass_idle(self, time: timedelta, *, user: str = "alice") -> None:
        """Time goes by, and each of two looks in it finds what it found before."""
        self.running.wall.ahead += time
        await self.tell_again(user)
        await self.look()

    async def wait_seen(self, user: str = "alice") -> None:
        """Until the service sees somebody's server run."""
        pods = self.culler._pods
        await wait_until(
            lambda: any(subject.user == user for subject in pods.list_subjects()[0]),
            within=10,
            what="the sight of a server",
        )

    async def read(self, *actions: str) -> list[tuple[str, str, str]]:
        """Action, actor and reason of records, of these kinds or of all."""
        found = await self.running.read_audit()
        return [(a, by, why) for a, by, _, why in found if not actions or a in actions]

    async def actions(self) -> list[str]:
        return [action for action, _, _ in await self.read()]

    async def details(self, action: str) -> dict[str, Any]:
        ledger = self.running.context.ledger
        found = await ledger.find(Query(scope=AuditScope(everything=True), action=action))
        return dict(found[0].record.details)


async def start_floor(
    start_service: StartService, stub: PrometheusStub, hub: Hub, team: Team, **changes: Any
) -> Floor:
    prefix = team.namespace.removesuffix("flight")

    async def start(*, enabled: bool = True, **rest: Any) -> Running:
        culling = make_culling(stub.url, prefix, **{"enabled": enabled, **changes})
        return await start_service(culling=culling, **rest)

    running = await start()
    stub.now = running.wall
    return Floor(running, hub, team, stub, start)
