"""The reporter: reads a server's volumes once a minute, and tells the service how full they are."""

import asyncio
import json
import logging
import random
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest

from spectrum_lab.volumes import Figures, Probe, Volume, find_warning, list_volumes

PAUSE = 60.0  # seconds between two reports, on average
JITTER = 0.2  # share of the pause by which it varies: servers must not beat together
FIRST_PAUSE = 10.0  # the hub may not have known of the server yet when it reported first
TIMEOUT = 10.0  # seconds that the service may take
LONGEST_WAIT = 3600.0  # seconds that the service may ask to be left alone

log = logging.getLogger(__name__)


class Reporter:
    """Reads the volumes once a minute, and tells the service as long as it listens.

    `url` is where it takes reports, "" for nowhere; `token` is the server's own. `warnings` are
    sentences for the person, as of the last look.
    """

    def __init__(self, probes: list[Probe], url: str, token: str) -> None:
        self.warnings: list[str] = []
        self._probes = probes
        self._url = url
        self._token = token
        self._is_heard = True
        self._wait = 0.0  # seconds that the service asked for
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin in the running event loop; it ends with that, or by `stop`."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                await self._look()
            except Exception:
                # the next look must come whatever this one met
                log.exception("The volumes could not be looked at")
            await asyncio.sleep(max(spread(pause), self._wait))
            pause = PAUSE

    async def _look(self) -> None:
        figures = await asyncio.gather(*(probe.read() for probe in self._probes))
        found = [(probe.volume, each) for probe, each in zip(self._probes, figures, strict=True)]
        self.warnings = [text for volume, each in found if (text := find_warning(volume, each))]
        if self._url:
            await self._post({"volumes": [_to_entry(volume, each) for volume, each in found]})

    async def _post(self, report: dict[str, Any]) -> None:
        request = HTTPRequest(
            self._url,
            method="POST",
            body=json.dumps(report),
            headers={"Authorization": f"token {self._token}", "Content-Type": "application/json"},
            request_timeout=TIMEOUT,
            follow_redirects=False,
        )
        self._wait = 0.0
        try:
            await AsyncHTTPClient().fetch(request)
            self._is_heard = True
        except (HTTPClientError, OSError) as error:
            # once: that the service is away for a day is no news every minute
            level = logging.WARNING if self._is_heard else logging.DEBUG
            log.log(level, "The service takes no figures of volumes now: %s", error)
            self._is_heard = False
            self._wait = _read_wait(error)


def make_reporter(environment: Mapping[str, str]) -> Reporter:
    """The reporter of the server that JupyterHub's variables and SPECTRUM_* describe."""
    base = environment.get("SPECTRUM_URL")
    return Reporter(
        [Probe(volume) for volume in list_volumes(environment)],
        f"{base}api/report" if base else "",
        environment.get("JUPYTERHUB_API_TOKEN", ""),
    )


def spread(pause: float) -> float:
    """A pause of about that length."""
    return pause * random.uniform(1 - JITTER, 1 + JITTER)


def _read_wait(error: Exception) -> float:
    """Seconds for which the service wants to be left alone, an hour at most; 0 if it said none."""
    response = getattr(error, "response", None)
    asked = response.headers.get("Retry-After", "") if response else ""
    return min(float(asked), LONGEST_WAIT) if asked.isdecimal() else 0.0


def _to_entry(volume: Volume, figures: Figures) -> dict[str, Any]:
    return {"kind": volume.kind, "name": volume.name, **asdict(figures)}
