"""A thousand races of people against the culler: who used a server is not stopped after that.

    local/test bench, or: python -m tests.bench.cull_races

The time of all servers is over, and the culler looks at each once more, writes its stop down and
asks the hub for it. Somewhere in between somebody clicks on *Keep*, or a report of the server comes
in by which a cell runs. Ledger and culler are the real ones, hub and evidence are made up. Prints
one JSON line.
"""

import asyncio
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from spectrum_spawner.service.background import Background
from spectrum_spawner.service.culling.rules import Subject
from spectrum_spawner.service.culling.standing import GUARD, extend
from spectrum_spawner.service.ends import Ends
from spectrum_spawner.service.ledger import Ledger
from spectrum_spawner.service.problem import Problem
from spectrum_spawner.service.servers import Person, Server
from spectrum_spawner.service.standings import Standings
from spectrum_spawner.service.telemetry import Telemetry
from tests.crowded_hub import DAYS, POLICY, Reports, Running, make_subject, make_warned, now

RACES, AT_ONCE = 1000, 50
ANSWER = 0.01  # seconds that the hub takes at most


@dataclass
class HubStub:
    """Knows all servers to run, answers after a while, and notes when it was asked for a stop."""

    dice: random.Random
    stops: dict[str, datetime] = field(default_factory=dict)

    async def find_people(self, names: Iterable[str]) -> tuple[dict[str, Person], dict[str, str]]:
        await asyncio.sleep(self.dice.uniform(0, ANSWER))
        return {name: self._make_person(name) for name in names}, {}

    def _make_person(self, name: str) -> Person:
        server = Server(user=name, name="", team="ops", profile="gpu-1", started=now() - DAYS)
        return Person(name=name, groups=frozenset(), servers=(server,))

    async def stop(self, user: str, _: str, **__: str) -> None:
        self.stops[user] = now()
        await asyncio.sleep(self.dice.uniform(0, ANSWER))


@dataclass
class Races:
    """The culler, and people who use servers within the time that it takes, in seconds; `used` says
    who did, and when."""

    ends: Ends
    standings: Standings
    reports: Reports
    dice: random.Random
    within: float = 0.0
    used: dict[str, datetime] = field(default_factory=dict)
    too_late: Counter[str] = field(default_factory=Counter)

    async def use(self, subject: Subject) -> None:
        await asyncio.sleep(self.dice.uniform(0, self.within))
        if self.dice.random() < 0.5:
            self.reports.busy.add(subject.key)
            self.used[subject.user] = now()
            return
        try:
            await self._keep(subject)
        except Problem:
            self.too_late["click"] += 1
        else:
            self.used[subject.user] = now()

    async def _keep(self, subject: Subject) -> None:
        """As the culler takes somebody's word."""
        with self.ends.hold_back(subject):
            async with self.standings.changing:
                before = self.standings.by_key[subject.key]
                after = extend(before, subject, POLICY.rules[0], now=now())
                await self.standings.change({subject.key: after})


async def race() -> dict[str, Any]:
    dice = random.Random(1)
    hub, reports, background = HubStub(dice), Reports(), Background()
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(f"sqlite:///{folder}/ledger.sqlite")
        await ledger.open()
        standings = Standings(ledger)
        await standings.load()
        ends = Ends(
            POLICY,
            concurrency=10,
            ledger=ledger,
            hub=hub,  # type: ignore[arg-type]
            pods=Running(),  # type: ignore[arg-type]
            standings=standings,
            gatherer=reports,  # type: ignore[arg-type]
            telemetry=Telemetry(),
            background=background,
            now=now,
        )
        races = Races(ends, standings, reports, dice)
        # the first round is nobody's: it says how long one takes
        for begin in range(-AT_ONCE, RACES, AT_ONCE):
            subjects = [make_subject(number) for number in range(begin, begin + AT_ONCE)]
            await standings.change({subject.key: make_warned(subject) for subject in subjects})
            begun = time.monotonic()
            ends.offer(subjects)
            if begin >= 0:
                await asyncio.gather(*map(races.use, subjects))
            while background.tasks:
                await asyncio.wait(background.tasks)
            if begin < 0:
                races.within = time.monotonic() - begun
                hub.stops.clear()
        await ledger.close()
    both = hub.stops.keys() & races.used.keys()
    waits = [hub.stops[user] - races.used[user] for user in both]
    vain = [wait for wait in waits if timedelta() <= wait < GUARD]
    return {
        "what": "cull races",
        "races": RACES,
        "stopped": len(hub.stops),
        "kept": RACES - len(hub.stops),
        "clicks_too_late": races.too_late["click"],
        "stopped_within_5_s_of_use": len(vain),
        "met": not vain and min(len(hub.stops), RACES - len(hub.stops)) > RACES / 10,
    }


def main() -> None:
    print(json.dumps(asyncio.run(race())))


if __name__ == "__main__":
    main()
