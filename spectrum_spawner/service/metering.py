"""The meter of GPU hours: counts at each look, and keeps what it counted in the ledger's database.

Until when a pod was counted is kept together with its hours. So a service that was away counts
afterwards what runs on, and nothing twice; of what ended meanwhile it counts what it had seen.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from spectrum_spawner.activity import Evidence
from spectrum_spawner.service import tables
from spectrum_spawner.service.culling.rules import Subject
from spectrum_spawner.service.culling.sweep import Key
from spectrum_spawner.service.hours import Account, Hours, count
from spectrum_spawner.service.ledger import Ledger
from spectrum_spawner.service.moments import read_moment, stamp

KEEP_EVERY = timedelta(minutes=2)  # what is lost of the utilisation when the service dies
FORGET_AFTER = timedelta(days=7)  # that a pod was not seen: it does not come back


class Meter:
    """What was counted lately is here, all before it in the ledger's database."""

    def __init__(self, ledger: Ledger) -> None:
        self._totals: dict[tuple[str, str], Hours] = {}
        self._ledger = ledger
        self._until: dict[str, datetime] | None = None
        self._added: dict[Account, Hours] = {}
        self._moved: dict[str, datetime] = {}
        self._batch: tuple[dict[Account, Hours], dict[str, datetime]] | None = None
        self._kept_at: datetime | None = None
        self._counting = threading.Lock()  # looks count in a thread

    async def load(self) -> None:
        """Read what a service before this one counted, once; raises LedgerError."""
        if self._until is None:
            self._until = await self._ledger.work(_load)

    def note(
        self, subjects: Mapping[Key, Subject], evidence: Mapping[Key, Evidence], now: datetime
    ) -> None:
        """Count the servers that run until now; nothing before `load`."""
        if self._until is None:
            return
        added, counted = count(subjects, evidence, self._until, now)
        with self._counting:
            for account, hours in added.items():
                self._added[account] = self._added.get(account, Hours()) + hours
                place = account.team, account.profile
                self._totals[place] = self._totals.get(place, Hours()) + hours
            self._until.update(counted)
            self._moved.update(counted)

    async def keep(self, now: datetime, *, at_once: bool = False) -> bool:
        """Write down what was counted, now and then; whether it was time for that.

        Raises LedgerError, and nothing is lost then.
        """
        if self._kept_at and now - self._kept_at < KEEP_EVERY and not at_once:
            return False
        while batch := self._take_batch():
            await self._ledger.work(_keep, *batch, now - FORGET_AFTER)
            self._batch = None
        self._kept_at = now
        self._forget(now - FORGET_AFTER)
        return True

    def _take_batch(self) -> tuple[dict[Account, Hours], dict[str, datetime]] | None:
        """What is to be written: first what a try before this one did not."""
        if self._batch is None and self._moved:
            with self._counting:
                self._batch = self._added, self._moved
                self._added, self._moved = {}, {}
        return self._batch

    def _forget(self, before: datetime) -> None:
        """Drop pods that were not seen for long."""
        with self._counting:
            known = self._until or {}
            for uid in [uid for uid, until in known.items() if until < before]:
                del known[uid]

    def list_totals(self) -> dict[tuple[str, str], Hours]:
        """What was counted since the service began, by team and profile."""
        with self._counting:
            return dict(self._totals)

    async def list_month(self, month: str, *, teams: Sequence[str] = ()) -> dict[Account, Hours]:
        """Hours of a month such as `2026-01`, of these teams or of all; raises LedgerError.

        What was counted and is not written yet is in it.
        """
        found = await self._ledger.work(_list, month, teams)
        with self._counting:
            fresh = dict(self._added)
        for account, hours in fresh.items():
            if account.day.startswith(month) and (not teams or account.team in teams):
                found[account] = found.get(account, Hours()) + hours
        return found


def _load(connection: sa.Connection) -> dict[str, datetime]:
    rows = connection.execute(sa.select(tables.gpu_meters)).mappings()
    return {row["pod_uid"]: read_moment(row["until"]) for row in rows}


def _keep(
    connection: sa.Connection,
    added: Mapping[Account, Hours],
    moved: Mapping[str, datetime],
    forget: datetime,
) -> None:
    uid, last = next(iter(moved.items()))
    meter = sa.select(tables.gpu_meters.c.until).where(tables.gpu_meters.c.pod_uid == uid)
    if connection.scalar(meter) == stamp(last):
        return  # it was written, and the answer came too late
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    meters = insert(tables.gpu_meters)
    connection.execute(
        meters.on_conflict_do_update(
            index_elements=["pod_uid"], set_={"until": meters.excluded.until}
        ),
        [{"pod_uid": uid, "until": stamp(until)} for uid, until in moved.items()],
    )
    old = tables.gpu_meters.c.until < stamp(forget)
    connection.execute(tables.gpu_meters.delete().where(old))
    if added:
        hours, columns = insert(tables.gpu_hours), tables.gpu_hours.c
        sums: dict[str, Any] = {
            name: columns[name] + hours.excluded[name] for name in ("reserved", "used", "measured")
        }
        connection.execute(
            hours.on_conflict_do_update(
                index_elements=["day", "team", "user", "profile"], set_=sums
            ),
            [{**asdict(account), **asdict(each)} for account, each in added.items()],
        )


def _list(connection: sa.Connection, month: str, teams: Sequence[str]) -> dict[Account, Hours]:
    columns = tables.gpu_hours.c
    wanted = [columns.day >= f"{month}-01", columns.day <= f"{month}-31"]
    if teams:
        wanted.append(columns.team.in_(teams))
    rows = connection.execute(sa.select(tables.gpu_hours).where(*wanted)).mappings()
    return {
        Account(**{key: row[key] for key in ("day", "team", "user", "profile")}): Hours(
            **{key: row[key] for key in ("reserved", "used", "measured")}
        )
        for row in rows
    }
