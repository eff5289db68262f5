"""Where kopf calls in: begin, end, and "something happened to this Team".

Teams are watched by kopf's plain events, which need neither finalizers (a Team can always be
deleted, also without a controller) nor bookkeeping annotations.
"""

import asyncio
import dataclasses
import itertools
import logging
from contextlib import suppress
from typing import Any

import kopf

from spectrum_spawner import names
from spectrum_spawner.controller.cluster import Cluster
from spectrum_spawner.controller.crd import ensure_definition
from spectrum_spawner.controller.journal import Journal
from spectrum_spawner.controller.publish import Publisher
from spectrum_spawner.controller.reconcile import TEAMS_VERSION, Reconciler
from spectrum_spawner.controller.settings import Settings, add_networks
from spectrum_spawner.controller.work import Work
from spectrum_spawner.kube import (
    Client,
    KubeError,
    NotFound,
    collection,
    item,
    load_configuration,
    persist,
)
from spectrum_spawner.outbox import NotSent, Outbox

# Everything is looked at again after this many seconds, should an event ever have been missed.
RESYNC = 1200
TEAM_WATCH_SECONDS = 300  # life of kopf's watch of the teams
# Teams are looked at without a count of their servers if that takes longer than these seconds.
PATIENCE = 10
LAST_WORDS = 3  # seconds for audit records at the end; the others wait for the next start

_log = logging.getLogger("spectrum.controller")


class Controller:
    """The parts of the controller, wired; `start` and `close` are its life."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Raises DefinitionMissing if the cluster has no Teams at all."""
        configuration = await load_configuration()
        self._client, self._watching = Client(configuration), Client(configuration)
        await persist(lambda: ensure_definition(self._client))
        self.work = Work(self._reconcile)
        self._cluster = Cluster(self._watching, self.settings.hub_namespace, on_team=self.work.add)
        self._publisher = Publisher(
            self._watching, self._cluster, self.settings, on_team=self.work.add
        )
        audit = self.settings.audit
        self._outbox = Outbox(audit.outbox, audit.url, audit.token)
        self._reconciler = Reconciler(
            self._client,
            self._cluster,
            Journal(self._outbox),
            self.settings,
            again=self.work.add,
            count_servers=self._publisher.count_servers,
            prepared_at=self._publisher.prepared_at,
        )
        await persist(self._shut_out_api_server)
        self._cluster.start()
        self._publisher.start()
        loop = asyncio.get_running_loop()
        self._synced = loop.create_task(self._wait_synced())
        self._tasks = [
            loop.create_task(self._publisher.run()),
            loop.create_task(self._resync()),
        ]
        if audit.url:
            self._tasks.append(loop.create_task(self._outbox.run()))

    async def close(self) -> None:
        tasks = [*self._tasks, self._synced]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.work.close()
        await self._reconciler.buckets.close()
        await self._publisher.close()
        await self._cluster.close()
        await self._close_outbox()
        await self._watching.close()
        await self._client.close()

    def check(self) -> None:
        """Raises RuntimeError if a part that must run for ever has ended."""
        ended = [task for task in self._tasks if task.done()]
        if ended:
            raise RuntimeError(f"{len(ended)} parts of the controller have ended")

    async def _reconcile(self, team: str) -> float | None:
        await asyncio.shield(self._synced)
        return await self._reconciler.reconcile(team)

    async def _wait_synced(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await self._publisher.wait_synced()

    async def _close_outbox(self) -> None:
        if self.settings.audit.url:
            with suppress(TimeoutError, NotSent):
                async with asyncio.timeout(LAST_WORDS):
                    await self._outbox.send_pending()
        await self._outbox.close()

    async def _resync(self) -> None:
        while True:
            await asyncio.sleep(RESYNC)
            try:
                await self._shut_out_api_server()
                await self._add_all()
            except KubeError as error:
                _log.warning("not everything could be looked at again: %s", error)

    async def _add_all(self) -> None:
        path = collection(TEAMS_VERSION, names.TEAM_PLURAL, namespace=self.settings.hub_namespace)
        for team in (await self._client.list(path))["items"]:
            self.work.add(team["metadata"]["name"])
        for team in set(self._cluster.team_of().values()):
            self.work.add(team)

    async def _shut_out_api_server(self) -> None:
        """Keep the addresses of the Kubernetes API out of the "internet" of the policies.

        On some clusters they are public ones.
        """
        path = item("discovery.k8s.io/v1", "endpointslices", "kubernetes", namespace="default")
        try:
            endpoints = (await self._client.get(path)).get("endpoints") or []
        except NotFound:
            return
        addresses = sorted({a for endpoint in endpoints for a in endpoint["addresses"]})
        network = self.settings.network
        closed = add_networks(network.internet_except, addresses)
        self._reconciler.spaces.settings = dataclasses.replace(
            self.settings, network=dataclasses.replace(network, internet_except=closed)
        )


def make_registry(controller: Controller) -> kopf.OperatorRegistry:
    """The handlers of one controller, apart from kopf's global registry."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def on_login(**facts: Any) -> kopf.ConnectionInfo | None:
        in_pod = kopf.login_with_service_account(**facts)
        return in_pod or kopf.login_with_kubeconfig(**facts)

    # kopf would repeat what fails; a controller that cannot start says so and ends instead
    @kopf.on.startup(registry=registry, errors=kopf.ErrorsMode.PERMANENT)
    async def on_startup(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        settings.scanning.disabled = True  # one kind, in one namespace, known beforehand
        settings.watching.server_timeout = TEAM_WATCH_SECONDS
        settings.networking.error_backoffs = itertools.repeat(5)  # an outage is sat out
        # kopf's watch has been seen to survive its own cancellation and go on reconnecting; the
        # next controller finds everything in the cluster, so nothing is lost with this one
        settings.process.ultimate_exiting_timeout = 10
        await controller.start()

    @kopf.on.cleanup(registry=registry)
    async def on_cleanup(**_: Any) -> None:
        await controller.close()

    @kopf.on.probe(id="controller", registry=registry, errors=kopf.ErrorsMode.PERMANENT)
    async def on_probe(**_: Any) -> str:
        controller.check()
        return "ok"

    @kopf.on.event(names.API_GROUP, names.API_VERSION, names.TEAM_PLURAL, registry=registry)
    async def on_team(name: str, **_: Any) -> None:
        controller.work.add(name)

    return registry
