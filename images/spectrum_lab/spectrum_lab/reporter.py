"""The reporter: looks at the server once a minute, and tells the service what it sees."""

import asyncio
import logging
import random
from dataclasses import asdict
from typing import Any

from spectrum_lab.activity import Watch
from spectrum_lab.documents import OpenDocuments
from spectrum_lab.service import Service, ServiceError
from spectrum_lab.volumes import Figures, Probe, Volume, find_warning

PAUSE = 60.0  # seconds between two reports, on average
JITTER = 0.2  # share of the pause by which it varies: servers must not beat together
FIRST_PAUSE = 10.0  # the hub may not have known of the server yet when it reported first
GLANCE = 2.0  # seconds after which it is noticed, and told again, that somebody began to work

log = logging.getLogger(__name__)


class Reporter:
    """Looks once a minute and when somebody begins to work, and tells the service.

    `service` is None where there is none. For the person, `notices` are what the service last told
    of the server's end.
    """

    def __init__(
        self,
        probes: list[Probe],
        watch: Watch,
        documents: OpenDocuments,
        service: Service | None,
    ) -> None:
        self.notices: list[dict[str, Any]] = []
        self._of_volumes: list[str] = []
        self._of_documents: list[str] = []
        self._probes = probes
        self._watch = watch
        self._documents = documents
        self._service = service
        self._unheard = 0  # reports in a row that nobody took
        self._asked = 0.0  # seconds for which the service wants to be left alone
        self._task: asyncio.Task[None] | None = None

    @property
    def warnings(self) -> list[str]:
        """Sentences on volumes as of the last look, and on documents that others have open too."""
        return [*self._of_volumes, *self._of_documents]

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
                await self._wait(pause)
            except Exception:
                # the next look must come whatever this one met
                log.exception("The server could not be looked at")
                await asyncio.sleep(spread(pause))
            pause = PAUSE

    async def _wait(self, pause: float) -> None:
        """Until the pause is over or there is news.

        News that nobody took is told again soon, since a server that is thought to be idle may be
        stopped meanwhile; then less and less often, so that thousands let the service come back,
        and never before it wants to hear anything.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + max(spread(pause), self._asked)
        glance = max(GLANCE * 2 ** min(self._unheard, 5), self._asked)
        while (left := end - loop.time()) > 0:
            await asyncio.sleep(min(left, glance))
            if self._watch.is_news():
                return

    async def _look(self) -> None:
        figures = await asyncio.gather(*(probe.read() for probe in self._probes))
        found = [(probe.volume, each) for probe, each in zip(self._probes, figures, strict=True)]
        self._of_volumes = [text for volume, each in found if (text := find_warning(volume, each))]
        activity = await self._watch.look()
        if self._service is None:
            self._watch.note_heard()
            return
        volumes = [_to_entry(volume, each) for volume, each in found]
        report = {"volumes": volumes, "activity": activity}
        if (documents := await self._documents.find()) is not None:
            report["documents"] = documents
        await self._tell(self._service, report)

    async def _tell(self, service: Service, report: dict[str, Any]) -> None:
        try:
            answer = await service.report(report)
            self.notices, self._of_documents = answer.notices, answer.warnings
            self._unheard, self._asked = 0, 0.0
            self._watch.note_heard()
        except ServiceError as error:
            # once: that the service is away for a day is no news every minute
            level = logging.DEBUG if self._unheard else logging.WARNING
            log.log(level, "The service takes no reports now: %s", error)
            self._of_documents = []  # nobody knows any more what others have open
            self._unheard += 1
            self._asked = error.wait


def spread(pause: float) -> float:
    """A pause of about that length."""
    return pause * random.uniform(1 - JITTER, 1 + JITTER)


def _to_entry(volume: Volume, figures: Figures) -> dict[str, Any]:
    return {"kind": volume.kind, "name": volume.name, **asdict(figures)}
