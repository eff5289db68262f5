"""What leads and administrators ask of people: to release a server that others wait for. Pure.

An appeal ends nothing. The owner hears of it on the home page and in JupyterLab.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from spectrum_spawner.audit import Record
from spectrum_spawner.service.moments import read_moment, stamp
from spectrum_spawner.service.records import make_record, name_of
from spectrum_spawner.service.servers import Server

LASTS = timedelta(days=1)  # after which nobody is told of it any more


@dataclass(frozen=True, kw_only=True)
class Appeal:
    """One, on one run of a server: that which `started` then. `by` is an actor."""

    user: str
    server: str
    team: str
    started: datetime | None
    by: str
    reason: str
    at: datetime

    @property
    def key(self) -> tuple[str, str]:
        return self.user, self.server

    @property
    def text(self) -> str:
        return f"{name_of(self.by)} asks you to release this server: {self.reason}"

    def holds(self, server: Server | None, now: datetime) -> bool:
        """Whether its owner is to hear of it."""
        return server is not None and server.started == self.started and now < self.at + LASTS

    def as_notice(self) -> dict[str, Any]:
        return {
            "user": self.user,
            "server": self.server,
            "team": self.team,
            "kind": "asked",
            "text": self.text,
            "at": stamp(self.at),
            "ends_at": "",
            "keep": False,
        }

    def as_record(self) -> Record:
        """What `read_appeal` reads."""
        return make_record(
            "warn",
            self.by,
            at=self.at,
            user=self.user,
            server=self.server,
            team=self.team,
            reason=f"Asked to release it: {self.reason}",
            details={"appeal": self.reason, "started": self.started and stamp(self.started)},
        )


def read_appeal(record: Record) -> Appeal | None:
    """The appeal that a record tells of, if it does."""
    reason, started = record.details.get("appeal"), record.details.get("started")
    if not isinstance(reason, str):
        return None
    return Appeal(
        user=record.user,
        server=record.server,
        team=record.team,
        started=read_moment(started) if started else None,
        by=record.actor,
        reason=reason,
        at=read_moment(record.at),
    )
