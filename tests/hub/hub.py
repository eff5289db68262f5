"""A JupyterHub in the test's own process, driven by its REST API.

It has everything of a real one but signals and a proxy of its own: database, tornado
application, API, service tokens. `kill` ends it without a goodbye and `start` makes a new one on
the same database, so that a restart of the hub is a matter of milliseconds.
"""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from jupyterhub import orm
from jupyterhub.app import JupyterHub
from jupyterhub.httpclient import JupyterHubHTTPClient
from jupyterhub.proxy import Proxy
from jupyterhub.spawner import Spawner
from sqlalchemy import event
from sqlalchemy.engine import Engine
from traitlets.config import Config
from yarl import URL

from local.listeners import find_free_port
from spectrum_spawner.notices import Notices
from spectrum_spawner.outbox import Outbox
from spectrum_spawner.views import Views
from tests.hub.clock import wait_until
from tests.hub.spawners import Setup

ADMIN_TOKEN = "test-admin-token"  # of a service that may do everything
TEST_SERVICE = {"name": "test", "api_token": ADMIN_TOKEN}
TEST_ROLE = {
    "name": "test",
    "services": ["test"],
    "scopes": [
        *("admin:users", "admin:groups", "admin:servers"),
        *("admin:server_state", "tokens", "read:hub"),
    ],
}
_owner: ContextVar["Hub | None"] = ContextVar("owner", default=None)


@event.listens_for(Engine, "connect")
def _write_without_sync(connection: Any, _record: Any) -> None:
    """A hub that is killed loses nothing by it; only a power cut would."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous=OFF")


class RememberingProxy(Proxy):
    """Keeps routes in a table and sends no traffic anywhere."""

    should_start = False

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.routes: dict[str, dict[str, Any]] = {}

    async def add_route(self, routespec: str, target: str, data: dict[str, Any]) -> None:
        self.routes[routespec] = {"routespec": routespec, "target": target, "data": data}

    async def delete_route(self, routespec: str) -> None:
        self.routes.pop(routespec, None)

    async def get_all_routes(self) -> dict[str, dict[str, Any]]:
        return dict(self.routes)


class HubInProcess(JupyterHub):
    """JupyterHub without what belongs to a process: signals, files, handlers of the log."""

    def init_signal(self) -> None:
        """Signals are the test runner's."""

    def load_config_file(self, *args: Any, **kwargs: Any) -> None:
        """The configuration is the one given."""

    def init_logging(self) -> None:
        super().init_logging()
        self.log.handlers.clear()
        self.log.propagate = True


@dataclass(frozen=True)
class Answer:
    """What the hub's REST API answered; `body` is parsed JSON, or text."""

    status: int
    body: Any

    @property
    def message(self) -> str:
        return self.body["message"]


class Hub:
    """One hub over its restarts."""

    def __init__(self, directory: Path, setup: Setup) -> None:
        """`directory` keeps the database; the setup's config is laid over the tests' defaults."""
        port = find_free_port()
        self._directory = directory
        self.config = _make_config(directory, port)
        self.config.merge(setup.config)
        self._setup = setup
        self.app: HubInProcess
        self._api = f"http://127.0.0.1:{port}/hub/api"
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        """Start a hub on the database as it is."""
        _record_tasks(asyncio.get_running_loop())
        # What KubeSpawner keeps on its class ends with the process of a real hub.
        spawner_class = self._setup.spawner_class
        fresh = type(spawner_class.__name__, (spawner_class,), {"reflectors": {}})
        self.config.JupyterHub.spawner_class = fresh
        token = _owner.set(self)
        try:
            self.app = HubInProcess(config=self.config)
            await asyncio.create_task(self.app.initialize([]))
            await asyncio.create_task(self.app.start())
        finally:
            _owner.reset(token)

    async def kill(self) -> None:
        """End the hub as a crash would: nobody is stopped, nothing more is written."""
        self.app.http_server.stop()
        for callback in self.app._periodic_callbacks.values():
            callback.stop()
        self.app.metrics_collector.stop()
        for user in self.app.users.values():
            for spawner in user.spawners.values():
                spawner.stop_polling()
        while self._tasks:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        # only now, when nobody is left who would make them anew
        for shared in (Views, Outbox, Notices):
            await shared.close_shared()
        self._forget_reflectors()
        await self.app.http_server.close_all_connections()
        await JupyterHubHTTPClient.loop_instance().close()
        self.app.db.close()
        self.app.db.get_bind().dispose()

    def _forget_reflectors(self) -> None:
        """Look at why KubeSpawner's reflectors failed, as nobody else does any more."""
        for reflector in self.config.JupyterHub.spawner_class.reflectors.values():
            loaded = reflector.first_load_future
            if loaded.done() and not loaded.cancelled():
                loaded.exception()

    @property
    def url(self) -> str:
        """Address of the REST API."""
        return self._api

    async def call(
        self, method: str, path: str, body: Any = None, *, token: str = ADMIN_TOKEN
    ) -> Answer:
        """One request to the REST API; `path` starts after `/hub/api` and is sent as it is."""
        headers = {"Authorization": f"token {token}"}
        url = URL(self._api + path, encoded=True)
        data = None if body is None else json.dumps(body)
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url, data=data, headers=headers) as answer,
        ):
            text = await answer.text()
            return Answer(answer.status, _parse(text))

    async def start_server(
        self, user: str, options: dict[str, Any] | None = None, server: str = ""
    ) -> Answer:
        """Ask for a server: 201 when it is up, 202 when that takes longer.

        The options are by default those that are right for alice and bob.
        """
        body = {"user_options": self._setup.options if options is None else options}
        return await self.call("POST", _find_server(user, server), body)

    def answer_after(self, seconds: float) -> None:
        """Answer with 202 when a start takes longer than this; a hub by itself does after 10 s."""
        self.app.tornado_application.settings["slow_spawn_timeout"] = seconds

    async def stop_server(self, user: str, server: str = "") -> Answer:
        """Ask for the end of a server: 204 when it is gone, 202 when that takes longer."""
        return await self.call("DELETE", _find_server(user, server))

    async def find_server(self, user: str, server: str = "") -> dict[str, Any] | None:
        """The server as the REST API shows it while it is active, else None."""
        servers = (await self.call("GET", f"/users/{user}")).body["servers"]
        return servers.get(server)

    async def read_progress(self, user: str) -> list[str]:
        """The sentences that the progress page of a pending start shows by now."""
        headers, told = {"Authorization": f"token {ADMIN_TOKEN}"}, []
        url = f"{self._api}/users/{user}/server/progress"
        async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
            with suppress(TimeoutError):
                async with asyncio.timeout(2):
                    async for line in answer.content:
                        if line.startswith(b"data:"):
                            told.append(json.loads(line.removeprefix(b"data:"))["message"])
        return told

    async def is_ready(self, user: str, server: str = "") -> bool:
        found = await self.find_server(user, server)
        return found is not None and found["ready"]

    @asynccontextmanager
    async def sign_in(self, user: str, password: str = "any") -> AsyncIterator["Pages"]:
        """The hub's pages as a user sees them; most tests' authenticators take any password."""
        url = self._api.removesuffix("/api")
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
            pages = Pages(url, session)
            await pages.read("/login")
            await pages.send("/login", {"username": user, "password": password})
            yield pages

    async def wait_absent(self, user: str, server: str = "", *, within: float) -> None:
        """Until the hub has no such server, not even one that stops."""

        async def is_absent() -> bool:
            return await self.find_server(user, server) is None

        await wait_until(is_absent, within=within, what=f"the end of {user}'s server")

    def find_spawner(self, user: str, server: str = "") -> Spawner:
        found = orm.User.find(self.app.db, user)
        return self.app.users[found.id].spawners[server]

    def read_options(self, user: str, server: str = "") -> Any:
        """The options saved for the next start, None when there never was one."""
        self.app.db.expire_all()
        spawner = orm.User.find(self.app.db, user).orm_spawners.get(server)
        return spawner and spawner.user_options

    def read_failure(self, user: str) -> str:
        """What the pages say about the last start of a user's server, which failed."""
        return self.find_spawner(user)._spawn_future.exception().jupyterhub_message

    @property
    def failures(self) -> int:
        """Failures in a row that the hub holds against itself."""
        return self.app.tornado_settings.get("failure_count", 0)

    def read_audit(self) -> list[dict[str, Any]]:
        """The records in the hub's outbox, from which nobody sends them."""
        with closing(sqlite3.connect(self._directory / "audit.sqlite")) as database:
            rows = database.execute("SELECT body FROM pending ORDER BY place").fetchall()
        return [json.loads(body) for (body,) in rows]

    def make_token(self, user: str) -> str:
        """An API token with all rights of a user."""
        return orm.User.find(self.app.db, user).new_api_token()


class Pages:
    """The hub's pages in the session of one user; paths start after `/hub`."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._session = session

    async def read(self, path: str) -> str:
        async with self._session.get(self._url + path) as answer:
            return await answer.text()

    async def find_redirect(self, path: str) -> str:
        """Where the address leads, "" where there is a page."""
        async with self._session.get(self._url + path, allow_redirects=False) as answer:
            return answer.headers.get("Location", "")

    async def send(self, path: str, form: dict[str, str]) -> str:
        """The page that answers a form."""
        cookies = self._session.cookie_jar.filter_cookies(URL(f"{self._url}/"))
        query = {"_xsrf": cookies["_xsrf"].value}
        async with self._session.post(
            self._url + path, data=form, params=query, allow_redirects=False
        ) as answer:
            return await answer.text()


def _make_config(directory: Path, port: int) -> Config:
    config = Config()
    config.JupyterHub.db_url = f"sqlite:///{directory / 'hub.sqlite'}"
    config.JupyterHub.cookie_secret = b"0" * 32
    config.JupyterHub.hub_ip = "127.0.0.1"
    config.JupyterHub.hub_port = port
    config.JupyterHub.bind_url = "http://127.0.0.1:8000"
    config.JupyterHub.proxy_class = RememberingProxy
    config.JupyterHub.authenticator_class = "dummy"
    config.JupyterHub.cleanup_servers = False
    config.JupyterHub.allow_named_servers = True
    config.JupyterHub.log_level = "INFO"
    # However long a busy machine takes, an answer tells how a start went.
    config.JupyterHub.tornado_settings = {"slow_spawn_timeout": 60}
    config.JupyterHub.services = [TEST_SERVICE]
    config.JupyterHub.load_roles = [TEST_ROLE]
    config.SpectrumSpawner.audit_file = str(directory / "audit.sqlite")
    config.Authenticator.allow_all = True
    config.Spawner.start_timeout = 300
    config.Spawner.http_timeout = 10
    return config


def _record_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Let every task know the hub in whose context it was created."""
    if loop.get_task_factory() is not None:
        return

    def create(loop: asyncio.AbstractEventLoop, work: Any, **kwargs: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **kwargs)
        hub = _owner.get()
        if hub is not None:
            hub._tasks.add(task)
            task.add_done_callback(hub._tasks.discard)
        return task

    loop.set_task_factory(create)


def _find_server(user: str, server: str) -> str:
    return f"/users/{user}/servers/{server}" if server else f"/users/{user}/server"


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
