"""What goes on beside a running server: its reporter, and what people may ask of the service."""

import asyncio
import os
from collections.abc import Coroutine, Mapping
from typing import Any

from spectrum_lab.activity import Watch
from spectrum_lab.documents import OpenDocuments
from spectrum_lab.reporter import Reporter
from spectrum_lab.service import Service, ServiceError
from spectrum_lab.standing import Standing
from spectrum_lab.volumes import Probe, list_volumes


class State:
    """The reporter of a Jupyter Server, and the service that it tells."""

    def __init__(self, server: Any) -> None:
        service = Service.from_environment(os.environ)
        self._service = service if service.url else None
        self._standing = Standing(service) if service.url else None
        self._going_on: set[asyncio.Task[None]] = set()
        volumes = list_volumes(os.environ)
        share = next((each.path for each in volumes if each.kind == "share"), "")
        self.reporter = Reporter(
            [Probe(volume) for volume in volumes],
            Watch(Inside(server), os.environ.get("SPECTRUM_POD_UID", "")),
            OpenDocuments(server, share),
            self._service,
        )

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Let something go on for as long as the server runs."""
        self._going_on.add(asyncio.get_running_loop().create_task(work))

    async def describe(self) -> dict[str, Any]:
        """What JupyterLab's pages say; of the service nothing where there is none."""
        told = {"warnings": self.reporter.warnings, "notices": self.reporter.notices}
        if self._service is None or self._standing is None:
            return told
        await self._standing.look()
        standing = {"standing": self._standing.known, "silence": self._standing.silence}
        return told | standing | self._service.find_pages(os.environ)

    async def act(self, verb: str, body: Mapping[str, Any]) -> None:
        """Keep, hold, release or continue the server. Raises ServiceError."""
        if self._service is None or self._standing is None:
            raise ServiceError("This server knows no service of Spectrum.")
        await self._service.act(verb, body)
        self._standing.forget()
        if verb in ("keep", "hold"):
            self.reporter.notices = await self._service.list_notices()


class Inside:
    """A running Jupyter Server as the reporter sees it."""

    def __init__(self, server: Any) -> None:
        self._server = server

    def list_kernels(self) -> list[dict[str, Any]]:
        return self._server.kernel_manager.list_kernels()

    def list_terminals(self) -> list[dict[str, Any]]:
        return self._terminals.list() if self._terminals else []

    def list_kernel_pids(self) -> set[int]:
        manager = self._server.kernel_manager
        kernels = [manager.get_kernel(each["id"]) for each in self.list_kernels()]
        pids = {getattr(kernel.provisioner, "pid", None) for kernel in kernels}
        return {pid for pid in pids if pid}

    def list_terminal_pids(self) -> set[int]:
        found = self._terminals.terminals.values() if self._terminals else ()
        return {terminal.ptyproc.pid for terminal in found}

    @property
    def _terminals(self) -> Any:
        """Made by an extension that a person may have turned off."""
        return self._server.web_app.settings.get("terminal_manager")
