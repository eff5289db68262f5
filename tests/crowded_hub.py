"""A JupyterHub of its own whose database believes that many servers run, for benches of cullers.

A start costs its spawner nothing, a stop a set time. There is no proxy, no pod and no cluster: what
the service sees of those is made up here, and so is what servers tell. jupyterhub-idle-culler ends
servers of this hub, or the service's own culler does.
"""

import asyncio
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
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
from spectrum_spawner.service.culling.sweep import Key
from spectrum_spawner.service.ends import Ends
from spectrum_spawner.service.hub import Hub
from spectrum_spawner.service.ledger import Ledger
from spectrum_spawner.service.standings import Standings
from spectrum_spawner.service.telemetry import Telemetry
from tests.cluster.waiting import wait_until

CONCURRENCY = 10
POLICY = Policy(rules=(Rule(name="gpu", evidence=(GPU, KERNELS)),))
DAYS = timedelta(days=2)
LATELY = timedelta(minutes=10)

CONFIG = """
import asyncio, pathlib
from spectrum_spawner import people_page
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
        self.ended = False
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
c.JupyterHub.authenticate_prometheus = False
c.Spawner.poll_interval = 0
c.Spawner.http_timeout = 300
c.JupyterHub.cookie_secret_file = "cookie_secret"
c.JupyterHub.extra_handlers = people_page.ROUTES
c.JupyterHub.services = [{"name": "culler", "api_token": "TOKEN"}]
c.JupyterHub.load_roles = [{
    "name": "culler", "services": ["culler"],
    "scopes": ["list:users", "read:users", "read:users:activity", "read:servers",
               "start:servers", "delete:servers"],
}]
"""

THEIRS = """
import asyncio, logging, sys, time
from jupyterhub_idle_culler import cull_idle
async def main():
    begun = time.monotonic()
    url, token, limit = sys.argv[1:]
    await cull_idle(url, token, float(limit), logging.getLogger(), concurrency=10)
    print(time.monotonic() - begun)
asyncio.run(main())
"""


@dataclass(frozen=True)
class Place:
    """A hub that runs as process `pid`, with its API at `url`, and where it lies."""

    path: Path
    url: str
    token: str
    pid: int

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


def fill(path: Path, unused: Sequence[timedelta], port: int) -> None:
    """A database whose servers run; nobody used each of them for as long as `unused` says."""
    db = orm.new_session_factory(f"sqlite:///{path / 'hub.sqlite'}")()
    now = datetime.now(UTC).replace(tzinfo=None)
    for number, time_unused in enumerate(unused):
        used = now - time_unused
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
def serve(unused: Sequence[timedelta], cost: float) -> Iterator[Place]:
    """A hub with a server for each of `unused`; a stop costs so many seconds."""
    with tempfile.TemporaryDirectory() as folder:
        path, port, stub = Path(folder), find_free_port(), find_free_port()
        token = secrets.token_hex(16)
        (path / "most").write_text("0")
        told = {"STUB": str(stub), "COST": str(cost), "PORT": str(port), "TOKEN": token}
        config = CONFIG
        for word, value in told.items():
            config = config.replace(word, value)
        (path / "config.py").write_text(config)
        fill(path, unused, stub)
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
        place = Place(path, f"http://127.0.0.1:{port}/hub/api", token, hub.pid)
        try:
            wait_until(lambda: _is_whole(place, len(unused)), within=600)
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


def cull_theirs(place: Place, limit: timedelta = DAYS / 2) -> float:
    """Seconds of one pass of theirs, which ends what nobody used for that long."""
    command = [sys.executable, "-c", THEIRS, place.url, place.token, str(limit.total_seconds())]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return float(printed.splitlines()[-1])


@dataclass(frozen=True, kw_only=True)
class Ours:
    """What of the service ends servers of a hub, with a ledger that was empty."""

    ends: Ends
    hub: Hub
    ledger: Ledger
    standings: Standings
    background: Background
    telemetry: Telemetry

    async def wait_ended(self) -> None:
        """Until nothing is looked at once more or stopped."""
        while self.background.tasks:
            await asyncio.wait(self.background.tasks)


@asynccontextmanager
async def open_ours(place: Place, pods: "Running", gatherer: "Idle") -> AsyncIterator[Ours]:
    async with AsyncExitStack() as stack:
        ledger = Ledger(f"sqlite:///{place.path / f'ledger-{secrets.token_hex(4)}.sqlite'}")
        stack.push_async_callback(ledger.close)
        await ledger.open()
        standings = Standings(ledger)
        await standings.load()
        hub = await stack.enter_async_context(Hub(place.url, place.token))
        background, telemetry = Background(), Telemetry()
        ends = Ends(
            POLICY,
            concurrency=CONCURRENCY,
            ledger=ledger,
            hub=hub,
            pods=pods,  # type: ignore[arg-type]
            standings=standings,
            gatherer=gatherer,  # type: ignore[arg-type]
            telemetry=telemetry,
            background=background,
            now=now,
        )
        yield Ours(
            ends=ends,
            hub=hub,
            ledger=ledger,
            standings=standings,
            background=background,
            telemetry=telemetry,
        )


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

    async def gather_memory(self, *_: Any) -> tuple[dict[Key, Any], dict[str, str]]:
        return {}, {}

    def renew(self, subject: Subject, *_: Any, **__: Any) -> Evidence:
        at, since = now(), subject.run.started
        series = Series(source=GPU, device="GPU-1", at=at, value=0.0, idle_since={1.0: since})
        return Evidence(series=(series,), kernels=Kernels(at=at, watched_since=since))


@dataclass
class Reports(Idle):
    """Nothing works but what was told to."""

    busy: set[Key] = field(default_factory=set)

    def renew(self, subject: Subject, *_: Any, **__: Any) -> Evidence:
        evidence = super().renew(subject)
        if subject.key not in self.busy:
            return evidence
        return replace(evidence, kernels=Kernels(at=now(), watched_since=now() - DAYS, busy=1))
