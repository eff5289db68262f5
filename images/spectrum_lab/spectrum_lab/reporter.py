"""The reporter: reads a server's volumes once a minute, and tells the service how full they are."""

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest

from spectrum_lab.volumes import Figures, Probe, Volume, find_warning, list_volumes

PAUSE = 60.0  # seconds between two reports
FIRST_PAUSE = 10.0  # the hub may not have known of the server yet when it reported first
TIMEOUT = 10.0  # seconds that the service may take

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
            await self._look()
            await asyncio.sleep(pause)
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
        try:
            await AsyncHTTPClient().fetch(request)
            self._is_heard = True
        except (HTTPClientError, OSError) as error:
            # once: that the service is away for a day is no news every minute
            level = logging.WARNING if self._is_heard else logging.DEBUG
            log.log(level, "The service takes no figures of volumes now: %s", error)
            self._is_heard = False


def make_reporter(environment: Mapping[str, str]) -> Reporter:
    """The reporter of the server that JupyterHub's variables and SPECTRUM_* describe."""
    base = environment.get("SPECTRUM_URL")
    return Reporter(
        [Probe(volume) for volume in list_volumes(environment)],
        f"{base}api/report" if base else "",
        environment.get("JUPYTERHUB_API_TOKEN", ""),
    )


def _to_entry(volume: Volume, figures: Figures) -> dict[str, Any]:
    return {"kind": volume.kind, "name": volume.name, **asdict(figures)}
