"""What a pass over all servers costs the hub: the culler's and jupyterhub-idle-culler's.

    local/test bench, or: python -m tests.bench.cull_pass [--servers N] [--rounds N]

A JupyterHub of its own, with its database in SQLite, believes that so many servers run. In each
round both cullers pass over them, with nothing over and with 3 % of the servers over, which are
stopped, and started again afterwards. Ours also finds as many in use as it looks once more, and
looks again when those that it stopped are gone. The same stops are asked for without any pass as
well, and so is the list of everybody, which the service reads for its pages, every 30 s to see who
left, and at each look where a rule has `hub` among its evidence. The CPU of the hub's process is
read around each pass; of every pass there is a second one, during which another process asks the
hub for its health every 20 ms. Prints a table, and one JSON line at the end; `met` is for all that
ours does besides stops, and for the slowest answer meanwhile.

It is not in the figures how often each culler passes. Pods and what
servers tell are made up, spawner and proxy cost nothing, and no people use the hub. A pass less its
stops is a difference of two figures, with the noise of both, and whoever asks for a user first also
pays for what the hub reads of it: the pass with servers in use shows better what is asked besides
stops. What else the machine does slows answers too: the row without a pass shows how much. A wait
that began between two questions of the prober is seen up to 20 ms too short.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

import requests

from spectrum_spawner.service.culler import Culler
from spectrum_spawner.service.culling.rules import Subject
from spectrum_spawner.service.hub import Hub
from spectrum_spawner.service.metering import Meter
from spectrum_spawner.service.settings import Culling
from spectrum_spawner.service.snapshot import Snapshot
from tests.crowded_hub import (
    CONCURRENCY,
    LATELY,
    POLICY,
    Ours,
    Place,
    Reports,
    Running,
    cull_theirs,
    make_subject,
    make_warned,
    name_of,
    now,
    open_ours,
    serve,
)

SHARE_BAR = 1 / 5  # of the hub's CPU in their pass
SLOWEST_BAR = 0.2  # seconds that an answer may take
OVER = 0.03  # of all servers
STOP_COST = 0.02  # seconds
PAUSE = 0.5  # seconds after a pass: what the hub still does for it then counts as well
REST = 2.0  # seconds that count as no pass
DAY = timedelta(days=1)
NEVER = 1000 * DAY
TICKS = os.sysconf("SC_CLK_TCK")  # a second, in which the kernel counts CPU

NO_PASS = "no pass"
NOTHING_OVER = "nothing over"
IN_USE = "over, in use after all"
STOPPED = "over, stopped"
GONE = "look once they are gone"
LIST = "list of everybody"
STOPS = "the stops alone"
OURS, THEIRS = "ours", "theirs"

PROBE = """
import http.client, json, select, sys, time
connection = http.client.HTTPConnection(sys.argv[1], timeout=60)
def ask():
    begun = time.monotonic()
    connection.request("GET", "/hub/health")
    connection.getresponse().read()
    return time.monotonic() - begun
ask()
print("ready", flush=True)
answers, due = [], time.monotonic()
while not select.select([sys.stdin], [], [], max(0.0, due - time.monotonic()))[0]:
    answers.append(ask())
    due = max(due + 0.02, time.monotonic())
print(json.dumps(answers))
"""

Row = tuple[str, str]  # what is measured, and whose it is


@dataclass
class Figures:
    """Of one row, by round: seconds of the hub's CPU, what it was asked, and seconds that each
    answer to the prober took."""

    cpu: list[float] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)
    answers: list[list[float]] = field(default_factory=list)


@dataclass
class Notes:
    """What is measured at a hub. While `probing` it is how fast it answers, otherwise what it
    does: the prober's own questions cost CPU."""

    place: Place
    probing: bool = False
    rows: dict[Row, Figures] = field(default_factory=lambda: defaultdict(Figures))

    @contextmanager
    def measure(self, what: str, whose: str = "") -> Iterator[None]:
        figures = self.rows[what, whose]
        if self.probing:
            with probe(self.place) as answers:
                yield
                time.sleep(PAUSE)
            figures.answers.append(answers)
            return
        asked, cpu = count_requests(self.place), read_cpu(self.place.pid)
        yield
        time.sleep(PAUSE)
        figures.cpu.append(read_cpu(self.place.pid) - cpu)
        figures.requests.append((count_requests(self.place) - asked).total())


@contextmanager
def probe(place: Place) -> Iterator[list[float]]:
    """Seconds of each answer meanwhile, which are there at the end."""
    address = place.url.removeprefix("http://").split("/")[0]
    command = [sys.executable, "-c", PROBE, address]
    answers: list[float] = []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as prober:
        assert prober.stdout
        prober.stdout.readline()
        yield answers
        answers += json.loads(prober.communicate()[0])


def count_requests(place: Place) -> Counter[str]:
    """Requests that the hub ever answered, by the name of what answered; not those that measure."""
    text = requests.get(place.url.removesuffix("/api") + "/metrics", timeout=60).text
    found: Counter[str] = Counter()
    pattern = r'^jupyterhub_request_duration_seconds_count{.*handler="([^"]*)".*} (\S+)$'
    for handler, count in re.findall(pattern, text, re.MULTILINE):
        found[handler.split(".")[-1]] += int(float(count))
    del found["MetricsHandler"], found["HealthCheckHandler"]
    return found


def read_cpu(pid: int) -> float:
    """Seconds of CPU of a process and of all that it began, those that ended included."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(map(int, words[11:15])) / TICKS + sum(read_cpu(int(child)) for child in children)


@dataclass
class Pods(Running):
    """The pods of these servers run."""

    subjects: list[Subject]

    async def follow(self, _: Mapping[str, Any]) -> None:
        pass

    def list_subjects(self) -> tuple[list[Subject], list[str]]:
        return self.subjects, []


class Teams(dict[str, Any]):
    """They are known, and there are none."""

    synced = True
    stale_since = None


def make_culler(ours: Ours, pods: Pods, reports: Reports) -> Culler:
    return Culler(
        Culling(enabled=True, concurrency=CONCURRENCY, policy=POLICY),
        teams=Teams(),  # type: ignore[arg-type]
        snapshot=Snapshot(ours.hub, now),
        pods=pods,  # type: ignore[arg-type]
        meter=Meter(ours.ledger),
        standings=ours.standings,
        gatherer=reports,  # type: ignore[arg-type]
        ends=ours.ends,
        telemetry=ours.telemetry,
        now=now,
    )


async def pass_ours(notes: Notes, what: str, servers: int, over: Sequence[int]) -> None:
    """One pass of ours, with these servers over; `what` says what becomes of them."""
    subjects = [make_subject(number) for number in range(servers)]
    candidates = [subjects[number] for number in over]
    due = {subject.key for subject in candidates}
    reports = Reports(busy={subject.key for subject in subjects} - due)
    pods = Pods(subjects)
    async with open_ours(notes.place, pods, reports) as ours:
        await ours.standings.change({subject.key: make_warned(subject) for subject in candidates})
        culler = make_culler(ours, pods, reports)
        with notes.measure(what, OURS):
            await culler.look()
            if what == IN_USE:
                reports.busy |= due
            await ours.wait_ended()
        if what == STOPPED:
            pods.subjects = [subject for subject in subjects if subject.key not in due]
            with notes.measure(GONE, OURS):
                await culler.look()
        if culler.problems:
            raise SystemExit(f"the culler met: {culler.problems}")


async def stop(place: Place, numbers: Sequence[int]) -> None:
    """Ask for these stops as the culler does, without anything else."""
    slots = asyncio.Semaphore(CONCURRENCY)

    async def ask(number: int) -> None:
        async with slots:
            await hub.stop(name_of(number), "", by="bench", reason="It is measured.")

    async with Hub(place.url, place.token) as hub:
        await asyncio.gather(*map(ask, numbers))


async def read_list(place: Place) -> None:
    async with Hub(place.url, place.token) as hub:
        await hub.list_active()


def restart(place: Place, numbers: Sequence[int], servers: int) -> None:
    """Bring back those that must have been stopped, and no others."""
    gone = {name_of(number) for number in range(servers)} - place.list_active()
    if gone != {name_of(number) for number in numbers}:
        raise SystemExit(f"{len(gone)} servers were stopped, not the {len(numbers)} in question")
    for name in sorted(gone):
        answer = requests.post(
            f"{place.url}/users/{name}/server",
            headers={"Authorization": f"token {place.token}"},
            timeout=60,
        )
        answer.raise_for_status()
    deadline = time.monotonic() + 60
    while len(place.list_active()) < servers:
        if time.monotonic() > deadline:
            raise SystemExit("servers did not come back")
        time.sleep(0.2)


@dataclass(frozen=True)
class Groups:
    """Servers in groups of `size`, each of which is stopped once: what starts anew is not quite
    what the database told of. The first `idle` groups are for their culler, and it finds one at a
    time: each is unused for a day less than the one before."""

    servers: int
    idle: int

    @property
    def size(self) -> int:
        return max(1, round(self.servers * OVER))

    def list_unused(self) -> list[timedelta]:
        times = [self.find_unused(group) for group in range(self.idle) for _ in range(self.size)]
        return times + [LATELY] * (self.servers - len(times))

    def find_unused(self, group: int) -> timedelta:
        return (self.idle - group + 2) * DAY

    def list_numbers(self, group: int) -> range:
        return range(group * self.size, (group + 1) * self.size)


def play_round(notes: Notes, groups: Groups, number: int) -> None:
    place, servers = notes.place, groups.servers
    theirs, ours, others = (groups.list_numbers(number + n * groups.idle) for n in range(3))
    with notes.measure(NO_PASS):
        time.sleep(REST)
    with notes.measure(NOTHING_OVER, THEIRS):
        cull_theirs(place, NEVER)
    with notes.measure(LIST, OURS):
        asyncio.run(read_list(place))
    asyncio.run(pass_ours(notes, NOTHING_OVER, servers, []))
    asyncio.run(pass_ours(notes, IN_USE, servers, ours))
    restart(place, [], servers)
    with notes.measure(STOPPED, THEIRS):
        cull_theirs(place, groups.find_unused(number) - DAY / 2)
    restart(place, theirs, servers)
    asyncio.run(pass_ours(notes, STOPPED, servers, ours))
    restart(place, ours, servers)
    with notes.measure(STOPS):
        asyncio.run(stop(place, others))
    restart(place, others, servers)


def play(servers: int, rounds: int) -> dict[Row, Figures]:
    groups = Groups(servers, idle=2 * rounds)
    if 3 * groups.idle * groups.size > servers:
        raise SystemExit(f"{rounds} rounds stop more than {servers} servers: play fewer")
    with serve(groups.list_unused(), STOP_COST) as place:
        notes = Notes(place)
        for number in range(groups.idle):
            notes.probing = number % 2 == 1
            play_round(notes, groups, number)
    return notes.rows


def sum_up(row: Row, figures: Figures) -> dict[str, Any]:
    """Medians of the rounds, in milliseconds; `hub_cpu_rounds_ms` is each round's, `slow_ms` the
    slowest answer of a round, `slowest_ms` that of all rounds."""
    rounds = [round(1000 * cpu) for cpu in figures.cpu]
    return {
        "what": row[0],
        "whose": row[1],
        "requests": round(median(figures.requests)),
        "hub_cpu_ms": round(median(rounds)),
        "hub_cpu_rounds_ms": rounds,
        "answer_ms": round(1000 * median(map(median, figures.answers)), 1),
        "slow_ms": round(1000 * median(map(max, figures.answers))),
        "slowest_ms": round(1000 * max(map(max, figures.answers))),
    }


def compare(rows: Mapping[Row, Mapping[str, Any]]) -> dict[str, Any]:
    """Shares of the hub's CPU, theirs = 1, and what of the bars is met.

    Their culler looks at nothing once more, so servers in use cost it what all others do.
    """
    cpu = {row: found["hub_cpu_ms"] for row, found in rows.items()}
    nothing, stopped, stops = cpu[NOTHING_OVER, THEIRS], cpu[STOPPED, THEIRS], cpu[STOPS, ""]
    ended = cpu[STOPPED, OURS] + cpu[GONE, OURS]
    shares = {
        "nothing_over": find_share(cpu[NOTHING_OVER, OURS], nothing),
        "list": find_share(cpu[LIST, OURS], nothing),
        "in_use": find_share(cpu[IN_USE, OURS], nothing),
        "stopped": find_share(cpu[STOPPED, OURS], stopped),
        "stopped_and_gone": find_share(ended, stopped),
        "stopped_less_stops": find_share(cpu[STOPPED, OURS] - stops, stopped - stops),
        "stopped_and_gone_less_stops": find_share(ended - stops, stopped - stops),
    }
    met_shares = {name: share is not None and share <= SHARE_BAR for name, share in shares.items()}
    ours = [found for (_, whose), found in rows.items() if whose == OURS]
    slow, slowest = (max(found[name] for found in ours) for name in ("slow_ms", "slowest_ms"))
    met_slowest = slowest <= 1000 * SLOWEST_BAR
    return {
        "shares": shares,
        "met_shares": met_shares,
        "slow_ms": slow,
        "met_slow": slow <= 1000 * SLOWEST_BAR,
        "slowest_ms": slowest,
        "met_slowest": met_slowest,
        "met": all(met_shares[name] for name in ("nothing_over", "list", "in_use")) and met_slowest,
    }


def find_share(ours: float, theirs: float) -> float | None:
    """None where theirs is too little to be seen."""
    return round(ours / theirs, 2) if theirs > 0 else None


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare what passes over servers cost the hub.")
    parser.add_argument("--servers", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    found = play(arguments.servers, arguments.rounds)
    rows = {row: sum_up(row, figures) for row, figures in found.items()}
    over = Groups(arguments.servers, 0).size
    print(f"{arguments.servers} servers, {over} of them over; medians of {arguments.rounds} rounds")
    print(
        f"{'':<34}{'requests':>9}{'hub CPU':>9}{'from, to':>12}{'answer':>8}{'slow':>6}"
        f"{'slowest':>9}"
    )
    for (what, whose), row in rows.items():
        spread = f"{min(row['hub_cpu_rounds_ms'])}, {max(row['hub_cpu_rounds_ms'])}"
        print(
            f"{f'{what}, {whose}' if whose else what:<34}{row['requests']:>9}"
            f"{row['hub_cpu_ms']:>9}{spread:>12}{row['answer_ms']:>8}{row['slow_ms']:>6}"
            f"{row['slowest_ms']:>9}"
        )
    print("in ms; slow is the slowest answer of a round, slowest that of all rounds")
    compared = compare(rows)
    for name, share in compared["shares"].items():
        print(f"{name.replace('_', ' '):<34}{share!s:>9} of theirs, bar {SHARE_BAR:g}")
    line = {
        "what": "cull pass",
        "servers": arguments.servers,
        "over": over,
        "rounds": arguments.rounds,
        "rows": list(rows.values()),
        **compared,
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
