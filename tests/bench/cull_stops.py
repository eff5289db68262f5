"""The stops of idle servers: the culler's and jupyterhub-idle-culler's on the same hub.

    local/test bench, or: python -m tests.bench.cull_stops [--servers N] [--idle N]

A JupyterHub of its own, with its database in SQLite, believes that so many servers run; a stop of
one costs its spawner a set time. Each culler ends as many of them, ten at a time if it can: ours
asks the hub about each once more, writes each stop into a ledger and then asks for it; the other
reads the whole list first. Prints a table, and one JSON line at the end.
"""

import argparse
import asyncio
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import requests
from jupyterhub import orm

from local.listeners import find_free_port
from spectrum_spawner.activity import GPU, KERNELS, Evidence, Kernels, Run, Series
from spectrum_spawner.service.background import Background
from spectrum_spawner.service.culling.policy import Cause
from spectrum_spawner.service.culling.rules import Policy, Rule, Subject
from spectrum_spawner.service.culling.standing import Standing
from spectrum_spawner.service.ends import Ends
from spectrum_spawner.service.hub import Hub
from spectrum_spawner.service.ledger import Ledger
from spectrum_spawner.service.standings import Standings
from spectrum_spawner.service.telemetry import Telemetry
from tests.cluster.waiting import wait_until

CONCURRENCY = 10
BARS = {1.0: 6.0, 0.02: 1.4}  # times as fast, by the seconds that a stop costs
POLICY = Policy(rules=(Rule(name="gpu", evidence=(GPU, KERNELS)),))
DAYS = timedelta(days=2)

CONFIG = """
import asyncio, pathlib
from jupyterhub.proxy import Proxy
from jupyterhub.spawner import Spawner

class NoProxy(Proxy):
    should_start = False
    routes = {}
    async def add_route(self, spec, target, data):
        self.routes[spec] = {"routespec": spec, "target": target, "data": data}
    async def delete_route(self, spec):
        self.routes.pop(spec, None)
    async def get_all_routes(self):
        return dict(self.routes)

class Costly(Spawner):
    # only its stops cost anything
    stopping = most = 0
    ended = False
    async def start(self):
        return "127.0.0.1", STUB
    async def poll(self):
        return 0 if self.ended else None
    async def stop(self, now=False):
        Costly.stopping += 1
        if Costly.stopping > Costly.most:
            Costly.most = Costly.stopping
            pathlib.Path("most").write_text(str(Costly.most))
        if pathlib.Path("most").read_text() == "0":
            Costly.most = Costly.stopping
            pathlib.Path("most").write_text(str(Costly.most))
        await asyncio.sleep(COST)
        Costly.stopping -= 1
        self.ended = True

c.JupyterHub.proxy_class = NoProxy
c.JupyterHub.spawner_class = Costly
c.JupyterHub.authenticator_class = "null"
c.JupyterHub.allow_named_servers = False
c.JupyterHub.db_url = "sqlite:///hub.sqlite"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:PORT/hub/"
c.JupyterHub.bind_url = "http://127.0.0.1:PORT/"
c.JupyterHub.log_level = "ERROR"
c.Spawner.poll_interval = 0
c.Spawner.http_timeout = 300
c.JupyterHub.cookie_secret_file = "cookie_secret"
c.JupyterHub.services = [{"name": "culler", "api_token": "TOKEN"}]
c.JupyterHub.load_roles = [{
    "name": "culler", "services": ["culler"],
    "scopes": ["list:users", "read:users", "read:users:activity", "read:servers",
               "delete:servers"],
}]
"""

THEIRS = """
import asyncio, logging, sys, time
from jupyterhub_idle_culler import cull_idle
async def main():
    begun = time.monotonic()
    await cull_idle(sys.argv[1], sys.argv[2], 86400, logging.getLogger(), concurrency=10)
    print(time.monotonic() - begun)
asyncio.run(main())
"""


@dataclass(frozen=True)
class Place:
    """A hub that runs, at `url`, and where it lies."""

    path: Path
    url: str
    token: str

    def list_active(self) -> set[str]:
        found: set[str] = set()
        for offset in range(0, 10**6, 200):
            page = requests.get(
                f"{self.url}/users?state=ready&limit=200&offset={offset}",
                headers={"Authorization": f"token {self.token}"},
                timeout=60,
            ).json()
            found |= {model["name"] for model in page}
            if len(page) < 200:
                break
        return found

    def take_most(self) -> int:
        """How many stops were under way at most since this was asked before."""
        most = int((self.path / "most").read_text())
        (self.path / "most").write_text("0")
        return most


def fill(path: Path, servers: int, idle: int, port: int) -> None:
    """A database whose servers run; nobody used the first `idle` of them for days."""
    db = orm.new_session_factory(f"sqlite:///{path / 'hub.sqlite'}")()
    now = datetime.now(UTC).replace(tzinfo=None)
    for number in range(servers):
        used = now - (DAYS if number < idle else timedelta(minutes=10))
        user = orm.User(name=name_of(number), last_activity=used)
        server = orm.Server(proto="http", ip="127.0.0.1", port=port, base_url=f"/user/{user.name}/")
        spawner = orm.Spawner(
            name="",
            user=user,
            server=server,
            state={"running": True},
            started=now - DAYS,
            last_activity=used,
            user_options={"team": "ops"},
        )
        db.add_all([user, server, spawner])
    db.commit()
    db.close()


def name_of(number: int) -> str:
    return f"user-{number:04}"


@contextmanager
def serve(servers: int, idle: int, cost: float) -> Iterator[Place]:
    with tempfile.TemporaryDirectory() as folder:
        path, port, stub = Path(folder), find_free_port(), find_free_port()
        token = secrets.token_hex(16)
        (path / "most").write_text("0")
        told = {"STUB": str(stub), "COST": str(cost), "PORT": str(port), "TOKEN": token}
        config = CONFIG
        for word, value in told.items():
            config = config.replace(word, value)
        (path / "config.py").write_text(config)
        fill(path, servers, idle, stub)
        answering = subprocess.Popen(
            [sys.executable, "-m", "http.server", str(stub), "--bind", "127.0.0.1"],
            cwd=path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        hub = subprocess.Popen(
            [sys.executable, "-m", "jupyterhub", "-f", "config.py"],
            cwd=path,
            env={**os.environ, "JUPYTERHUB_CRYPT_KEY": secrets.token_hex(32)},
        )
        place = Place(path, f"http://127.0.0.1:{port}/hub/api", token)
        try:
            wait_until(lambda: _is_whole(place, servers), within=600)
            yield place
        finally:
            for process in (hub, answering):
                process.terminate()
                process.wait()


def _is_whole(place: Place, servers: int) -> bool:
    try:
        return len(place.list_active()) == servers
    except (requests.RequestException, ValueError, TypeError):
        return False


def cull_theirs(place: Place) -> float:
    """Seconds of one pass."""
    command = [sys.executable, "-c", THEIRS, place.url, place.token]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return float(printed.splitlines()[-1])


async def cull_ours(place: Place, numbers: range) -> float:
    """Seconds in which servers whose time is over are ended."""
    subjects = [make_subject(number) for number in numbers]
    async with AsyncExitStack() as stack:
        ledger = Ledger(f"sqlite:///{place.path / 'ledger.sqlite'}")
        stack.push_async_callback(ledger.close)
        await ledger.open()
        standings = Standings(ledger)
        await standings.load()
        warned = {subject.key: make_warned(subject) for subject in subjects}
        await standings.change(warned)
        background = Background()
        ends = Ends(
            POLICY,
            concurrency=CONCURRENCY,
            ledger=ledger,
            hub=await stack.enter_async_context(Hub(place.url, place.token)),
            pods=Running(),  # type: ignore[arg-type]
            standings=standings,
            gatherer=Idle(),  # type: ignore[arg-type]
            telemetry=Telemetry(),
            background=background,
            now=now,
        )
        begun = time.monotonic()
        ends.offer(subjects)
        while background.tasks:
            await asyncio.wait(background.tasks)
        return time.monotonic() - begun


def now() -> datetime:
    return datetime.now(UTC)


def make_subject(number: int) -> Subject:
    return Subject(
        user=name_of(number),
        server="",
        team="ops",
        profile="gpu-1",
        namespace="spectrum-ops",
        pod=f"jupyter-{name_of(number)}",
        run=Run(pod_uid=f"uid-{number}", started=now() - DAYS + timedelta(minutes=1), gpus=1),
    )


def make_warned(subject: Subject) -> Standing:
    end = now() - timedelta(seconds=1)
    return Standing(
        pod_uid=subject.run.pod_uid,
        warned_at=end - timedelta(minutes=10),
        ends_at=end,
        cause=Cause.IDLE,
    )


class Running:
    """All pods run."""

    unknown: frozenset[str] = frozenset()

    def find(self, _: Subject) -> object:
        return SimpleNamespace()


class Idle:
    """Nothing works in any server."""

    async def gather(
        self, subjects: list[Subject], _: Policy
    ) -> tuple[dict[tuple[str, str], Evidence], dict[str, str]]:
        return {subject.key: self.renew(subject) for subject in subjects}, {}

    def renew(self, subject: Subject, *_: Any, **__: Any) -> Evidence:
        at, since = now(), subject.run.started
        series = Series(source=GPU, device="GPU-1", at=at, value=0.0, idle_since={1.0: since})
        return Evidence(series=(series,), kernels=Kernels(at=at, watched_since=since))


def play(servers: int, idle: int, cost: float) -> dict[str, Any]:
    with serve(servers, idle, cost) as place:
        theirs = cull_theirs(place)
        their_most, left = place.take_most(), len(place.list_active())
        if left != servers - idle:
            raise SystemExit(f"jupyterhub-idle-culler left {left} of {servers} servers")
        ours = asyncio.run(cull_ours(place, range(idle, 2 * idle)))
        our_most, left = place.take_most(), len(place.list_active())
        if left != servers - 2 * idle:
            raise SystemExit(f"the culler left {left} of {servers - idle} servers")
    return {
        "cost": cost,
        "ours": round(ours, 2),
        "theirs": round(theirs, 2),
        "times": round(theirs / ours, 2),
        "in_flight": our_most,
        "in_flight_theirs": their_most,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare how fast idle servers are stopped.")
    parser.add_argument("--servers", type=int, default=1000)
    parser.add_argument("--idle", type=int, default=300)
    parser.add_argument("--costs", type=float, nargs="+", default=list(BARS))
    arguments = parser.parse_args()
    rows = [play(arguments.servers, arguments.idle, cost) for cost in arguments.costs]
    print(f"{arguments.idle} stops of {arguments.servers} servers, in seconds")
    print(
        f"{'a stop':>8}{'ours':>9}{'at once':>9}{'theirs':>9}{'at once':>9}{'times':>8}{'bar':>6}"
    )
    for row in rows:
        print(
            f"{row['cost']:>8g}{row['ours']:>9.1f}{row['in_flight']:>9}{row['theirs']:>9.1f}"
            f"{row['in_flight_theirs']:>9}{row['times']:>8.1f}{BARS.get(row['cost'], 1.0):>6g}"
        )
    flights = [row["in_flight"] for row in rows]
    fast = all(row["times"] >= BARS.get(row["cost"], 1.0) for row in rows)
    met = fast and max(flights) == CONCURRENCY
    print(json.dumps({"what": "cull stops", "rows": rows, "met": met}))


if __name__ == "__main__":
    main()
