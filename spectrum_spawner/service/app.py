"""The whole service: what it holds open, what it does by itself, and what it listens to."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

from jupyterhub.httpclient import JupyterHubHTTPClient
from jupyterhub.services.auth import HubOAuth
from tornado.httpserver import HTTPServer
from tornado.web import Application, RequestHandler

from spectrum_spawner import kube
from spectrum_spawner.audit import Record
from spectrum_spawner.service import (
    api,
    appealing,
    approvals,
    audit_pages,
    budgets,
    departures,
    frame,
    gpu_pages,
    hour_pages,
    ingest,
    pages,
    reporting,
    volumes,
)
from spectrum_spawner.service.background import Background
from spectrum_spawner.service.context import Context
from spectrum_spawner.service.culler import Culler
from spectrum_spawner.service.culling.pods import Pods
from spectrum_spawner.service.culling.report import Told
from spectrum_spawner.service.ends import Ends
from spectrum_spawner.service.events import make_event
from spectrum_spawner.service.evidence import Gatherer
from spectrum_spawner.service.hub import Hub
from spectrum_spawner.service.ledger import Ledger, LedgerError
from spectrum_spawner.service.metering import Meter
from spectrum_spawner.service.notifying import Notifier
from spectrum_spawner.service.settings import NAME, Settings
from spectrum_spawner.service.snapshot import Snapshot
from spectrum_spawner.service.standings import Standings
from spectrum_spawner.service.stock import Stock
from spectrum_spawner.service.team_sheet import TeamSheet
from spectrum_spawner.service.telemetry import Telemetry
from spectrum_spawner.watch import View

FIRST_SYNC = 10.0  # seconds that the first look of the culler waits to know the teams
LOOK_EVERY = 30.0  # seconds between two looks for people who left
IDENTITY_AGE = 5  # seconds for which the hub's answer to a token holds: membership is of now
MAX_BODY = 8 * 2**20  # bytes of a request that are read at all; handlers take less

# the last one takes whatever no other did
PAGES = [*gpu_pages.ROUTES, *pages.ROUTES, *audit_pages.ROUTES, *hour_pages.ROUTES, *frame.ROUTES]

_log = logging.getLogger("spectrum.service")


def utc_now() -> datetime:
    return datetime.now(UTC)


@asynccontextmanager
async def serve(
    settings: Settings,
    configuration: kube.Configuration,
    *,
    now: Callable[[], datetime] = utc_now,
    look_every: float = LOOK_EVERY,
    cull_every: float | None = None,
) -> AsyncIterator[Context]:
    """Run a service until the block ends; `configuration` says how to reach the API server.

    The culler looks as often as the settings say, unless `cull_every` does. Raises LedgerError if
    there is no ledger.
    """
    async with AsyncExitStack() as stack:
        context = await open_context(stack, settings, configuration, now)
        await appealing.load(context)
        server = HTTPServer(make_app(context), max_body_size=MAX_BODY, xheaders=True)
        server.listen(settings.port)
        stack.push_async_callback(server.close_all_connections)
        stack.callback(server.stop)
        rounds = asyncio.create_task(_make_rounds(context, look_every))
        stack.push_async_callback(_end, rounds)
        pause = settings.culling.every if cull_every is None else cull_every
        culling = asyncio.create_task(_cull(context, pause))
        stack.push_async_callback(_end, culling)
        yield context


def make_app(context: Context) -> Application:
    prefix = context.settings.prefix
    known = {"context": context}
    return Application(
        [
            *((path, handler, known) for path, handler in ingest.ROUTES),
            (f"{prefix}static/(.*)", frame.Files, {"path": str(frame.HUB_FILES / "static")}),
            (f"{prefix}files/(.*)", frame.Files, {"path": str(frame.OWN_FILES)}),
            *((f"{prefix}api/{path}", handler, known) for path, handler in api.ROUTES),
            *((f"{prefix}{path}", handler, known) for path, handler in PAGES),
        ],
        content_security_policy=(
            "frame-ancestors 'none'; base-uri 'none'; object-src 'none'; form-action 'self'; "
            f"report-uri {context.settings.base_url}hub/security/csp-report"
        ),
        cookie_secret=context.settings.cookie_secret,
        log_function=_log_request,
        default_handler_class=ingest.Nowhere,
        default_handler_args=known,
    )


def make_sign_in(settings: Settings) -> HubOAuth:
    """Sign-in through the hub, for browsers and for tokens."""
    return HubOAuth(
        api_url=settings.api_url,
        api_token=settings.api_token,
        base_url=settings.prefix,
        hub_prefix=f"{settings.base_url}hub/",
        oauth_client_id=settings.client_id,
        oauth_redirect_uri=f"{settings.prefix}oauth_callback",
        access_scopes={f"access:services!service={NAME}"},
        cache_max_age=IDENTITY_AGE,
    )


async def open_context(
    stack: AsyncExitStack,
    settings: Settings,
    configuration: kube.Configuration,
    now: Callable[[], datetime],
) -> Context:
    """Everything that a context holds; the stack closes it."""
    ledger = Ledger(settings.database)
    stack.push_async_callback(ledger.close)
    await ledger.open()
    client, watching = kube.Client(configuration), kube.Client(configuration)
    stack.push_async_callback(client.close)
    stack.push_async_callback(watching.close)
    hub = await stack.enter_async_context(Hub(settings.api_url, settings.api_token))
    teams = View(
        watching, Context.find_teams_path(settings.hub_namespace), trim=TeamSheet.from_object
    )
    teams.start()
    stack.push_async_callback(teams.close)
    snapshot, telemetry = Snapshot(hub, now), Telemetry()
    told = Told()
    standings, background, meter = Standings(ledger), Background(), Meter(ledger)
    gpu_resources = {profile.gpu_resource for profile in settings.profiles.values() if profile.gpu}
    pods = Pods(watching, settings.hub_namespace, gpu_resources)
    stack.push_async_callback(pods.close)
    gatherer = Gatherer(settings.culling, snapshot=snapshot, standings=standings, told=told)
    stack.callback(gatherer.close)
    ends = Ends(
        settings.culling.policy,
        concurrency=settings.culling.concurrency,
        ledger=ledger,
        hub=hub,
        pods=pods,
        standings=standings,
        gatherer=gatherer,
        telemetry=telemetry,
        background=background,
        now=now,
    )
    context = Context(
        settings=settings,
        ledger=ledger,
        hub=hub,
        sign_in=make_sign_in(settings),
        snapshot=snapshot,
        stock=Stock(client, settings.hub_namespace),
        client=client,
        teams=teams,
        now=now,
        told=told,
        telemetry=telemetry,
        background=background,
        meter=meter,
        culler=Culler(
            settings.culling,
            meter=meter,
            teams=teams,
            snapshot=snapshot,
            pods=pods,
            standings=standings,
            gatherer=gatherer,
            ends=ends,
            telemetry=telemetry,
            now=now,
        ),
    )
    stack.push_async_callback(_write_figures, context)
    stack.push_async_callback(background.close)
    stack.push_async_callback(_keep_hours, context)
    notifier = Notifier(settings.webhook, partial(_make_event, context))
    ledger.listen(notifier.tell)
    sending = asyncio.create_task(notifier.run())
    stack.push_async_callback(_end, sending)
    stack.push_async_callback(notifier.wait_sent)
    # by which the sign-in asks the hub
    stack.push_async_callback(JupyterHubHTTPClient.loop_instance().close)
    return context


async def _write_figures(context: Context) -> None:
    """What servers told since the last round, as the service ends."""
    try:
        await volumes.write_down(context)
    except LedgerError as error:
        _log.warning("figures of volumes are lost: %s", error)


async def _make_rounds(context: Context, pause: float) -> None:
    """What the service does by itself, again and again."""
    await context.teams.wait_synced()
    while True:
        for work in (
            approvals.finish,
            approvals.find_granted,
            departures.look,
            volumes.write_down,
            volumes.forget_old,
            reporting.forget_ended,
            budgets.look,
        ):
            try:
                await work(context)
            except LedgerError as error:
                _log.warning("the ledger does not answer: %s", error)
            except Exception:
                # the next round must come whatever this one met
                _log.exception("a round of the service failed")
        await asyncio.sleep(pause)


async def _cull(context: Context, pause: float) -> None:
    """The culler's looks, again and again, each with a word on what it could not know."""
    with suppress(TimeoutError):
        await context.teams.wait_synced(FIRST_SYNC)
    while True:
        await context.culler.look()
        await asyncio.sleep(pause)


def _make_event(context: Context, record: Record) -> dict[str, Any] | None:
    """What a webhook is told of a record, with the leads that its team has now."""
    sheet = context.teams.get(record.team)
    return make_event(
        record,
        leads=sheet.team.leads if sheet else (),
        lead_groups=sheet.team.lead_groups if sheet else (),
        prefix=context.settings.prefix,
    )


async def _keep_hours(context: Context) -> None:
    """What is not written down now is counted again by the next service, as held."""
    try:
        await context.meter.keep(context.now(), at_once=True)
    except LedgerError as error:
        _log.warning("the last GPU hours are not in the ledger: %s", error)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _log_request(handler: RequestHandler) -> None:
    """Only what went wrong here: who looked at which page is nobody's business."""
    if handler.get_status() >= 500:
        request = handler.request
        _log.warning("%d %s %s", handler.get_status(), request.method, request.path)
