"""What people were told of servers and what they said to it, kept in the ledger's database.

What is told is kept first: a service that starts anew knows all that people know. Who changes
anything holds `changing` meanwhile.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from spectrum_spawner.activity import Hold
from spectrum_spawner.audit import Record
from spectrum_spawner.service import tables
from spectrum_spawner.service.culling.policy import Cause, Memory, Stretch
from spectrum_spawner.service.culling.rules import Subject
from spectrum_spawner.service.culling.standing import Action, Standing
from spectrum_spawner.service.culling.sweep import Key, Sweep
from spectrum_spawner.service.ledger import Ledger
from spectrum_spawner.service.moments import read_moment, stamp

REMEMBERED = ("unknown_since", "extended_until", "held_since")
TOLD = ("warned_at", "ends_at")
STRETCHES = ("idle", "gpu")
SEEN_EVERY = timedelta(minutes=10)  # as exactly as it is kept when a server was last seen idle


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """A hold, and the run of a server that it is for."""

    pod_uid: str
    hold: Hold


class Standings:
    """How servers stand, by owner and name. `load` before anything else.

    All that writes raises LedgerError, and nothing has changed then.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.changing = asyncio.Lock()
        self.by_key: Mapping[Key, Standing] = {}
        self.holds: Mapping[Key, Held] = {}
        self._ledger = ledger
        self._kept: dict[Key, Standing] | None = None  # as the database has them

    async def load(self) -> None:
        """Read what a service before this one left, once."""
        if self._kept is None:
            standings, holds = await self._ledger.work(_load)
            self.by_key, self.holds = standings, holds
            self._kept = {key: told for key in standings if (told := _told(standings[key]))}

    def find_holds(self, key: Key, pod_uid: str) -> tuple[Hold, ...]:
        held = self.holds.get(key)
        return (held.hold,) if held and held.pod_uid == pod_uid else ()

    async def change(
        self, standings: Mapping[Key, Standing], records: Sequence[Record] = ()
    ) -> None:
        """Put these in place of those before, and keep `records` with them."""
        changed = self._find_changed(standings)
        if changed or records:
            await self._ledger.work(_keep, changed, records=records)
            self._note_kept(changed)
        self.by_key = {**self.by_key, **standings}

    async def take(
        self,
        found: Sweep,
        before: Mapping[Key, Standing],
        tell: Callable[[Sweep, datetime], Sequence[Record]],
        now: datetime,
    ) -> list[tuple[Subject, Action]]:
        """Keep how servers stand after a sweep that began with those `before`, and tell people.

        Of a server for which somebody said something meanwhile nothing is kept: the next look
        knows of it. Returns the actions that are left.
        """
        async with self.changing:
            current = self.by_key
            same = {key for key in found.standings if current.get(key) is before.get(key)}
            found = select(found, same)
            await self.change(found.standings, tell(found, now))
        return found.actions

    async def hold(
        self, key: Key, held: Held | None, standing: Standing, records: Sequence[Record]
    ) -> None:
        """Keep somebody's hold, or with None end what holds there are."""
        changed = self._find_changed({key: standing})
        await self._ledger.work(_hold, key, held, changed, records=records)
        self._note_kept(changed)
        others = {each: kept for each, kept in self.holds.items() if each != key}
        self.holds = {**others, key: held} if held else others
        self.by_key = {**self.by_key, key: standing}

    def check(self, keys: Iterable[Key], now: datetime) -> None:
        """Note that a last look at these is asked for; nobody needs to know it later."""
        asked = {key: replace(self.by_key[key], checked_at=now) for key in keys}
        self.by_key = {**self.by_key, **asked}

    def list_keys(self) -> set[Key]:
        """All servers of which anything is kept."""
        return {*self.by_key, *self.holds}

    async def calm(self) -> None:
        """Take back every end that people were told of; what they said themselves stays."""
        async with self.changing:
            told = {key: each for key, each in self.by_key.items() if each.warned_at}
            await self.change(
                {
                    key: replace(each, warned_at=None, ends_at=None, cause=None, checked_at=None)
                    for key, each in told.items()
                }
            )

    async def forget(self, keys: Iterable[Key]) -> None:
        """Drop whatever is of these: it is known that they run no more."""
        gone = set(keys) & self.list_keys()
        if not gone:
            return
        await self._ledger.work(_forget, sorted(gone))
        self._kept = {key: kept for key, kept in (self._kept or {}).items() if key not in gone}
        self.by_key = {key: each for key, each in self.by_key.items() if key not in gone}
        self.holds = {key: each for key, each in self.holds.items() if key not in gone}

    def _find_changed(self, standings: Mapping[Key, Standing]) -> dict[Key, Standing | None]:
        """Those whose row is another now; None where there is nothing to be remembered."""
        kept = self._kept or {}
        changed: dict[Key, Standing | None] = {}
        for key, standing in standings.items():
            told = _told(standing)
            if told != kept.get(key):
                changed[key] = told and standing
        return changed

    def _note_kept(self, changed: Mapping[Key, Standing | None]) -> None:
        kept = {key: each for key, each in (self._kept or {}).items() if key not in changed}
        for key, standing in changed.items():
            if standing and (told := _told(standing)):
                kept[key] = told
        self._kept = kept


def select(found: Sweep, keys: Collection[Key]) -> Sweep:
    """What a sweep says of some servers."""
    return Sweep(
        verdicts=found.verdicts,
        standings={key: each for key, each in found.standings.items() if key in keys},
        actions=[(subject, action) for subject, action in found.actions if subject.key in keys],
    )


def _told(standing: Standing) -> Standing | None:
    """What of a standing has to be kept, None for nothing.

    When a server was last busy changes at each look, and all evidence says it again by itself.
    """
    memory = standing.memory
    idle, gpu = _round(memory.idle), _round(memory.gpu)
    remembered = idle or gpu or any(getattr(memory, name) for name in REMEMBERED)
    if not (remembered or standing.warned_at or standing.extensions or standing.reported):
        return None
    memory = replace(memory, last_busy=None, idle=idle, gpu=gpu)
    return replace(standing, memory=memory, checked_at=None)


def _round(stretch: Stretch | None) -> Stretch | None:
    """It goes on with each look, which is not worth writing down each time; nor are short ones."""
    if stretch is None:
        return None
    seen = stretch.seen - timedelta(seconds=stretch.seen.timestamp() % SEEN_EVERY.total_seconds())
    return Stretch(by=stretch.by, since=stretch.since, seen=seen) if seen > stretch.since else None


def _load(connection: sa.Connection) -> tuple[dict[Key, Standing], dict[Key, Held]]:
    standings = connection.execute(sa.select(tables.standings)).mappings()
    holds = connection.execute(sa.select(tables.holds)).mappings()
    return (
        {(row["user"], row["server"]): _to_standing(row) for row in standings},
        {(row["user"], row["server"]): _to_held(row) for row in holds},
    )


def _keep(connection: sa.Connection, changed: Mapping[Key, Standing | None]) -> None:
    _delete(connection, tables.standings, changed)
    rows = [_to_row(key, standing) for key, standing in changed.items() if standing]
    if rows:
        connection.execute(tables.standings.insert(), rows)


def _hold(
    connection: sa.Connection, key: Key, held: Held | None, changed: Mapping[Key, Standing | None]
) -> None:
    _keep(connection, changed)
    _delete(connection, tables.holds, [key])
    if held:
        hold = {**asdict(held.hold), "made_at": stamp(held.hold.made_at)}
        row = {**_name(key), "pod_uid": held.pod_uid, **hold, "until": stamp(held.hold.until)}
        connection.execute(tables.holds.insert(), [row])


def _forget(connection: sa.Connection, keys: Sequence[Key]) -> None:
    for table in (tables.standings, tables.holds):
        _delete(connection, table, keys)


def _delete(connection: sa.Connection, table: sa.Table, keys: Iterable[Key]) -> None:
    mine = [{"u": user, "s": server} for user, server in keys]
    if mine:
        where = (table.c.user == sa.bindparam("u")) & (table.c.server == sa.bindparam("s"))
        connection.execute(table.delete().where(where), mine)


def _name(key: Key) -> dict[str, str]:
    return {"user": key[0], "server": key[1]}


def _to_row(key: Key, standing: Standing) -> dict[str, Any]:
    memory = standing.memory
    rows: dict[str, str | None] = {}
    for name in STRETCHES:
        stretch = _round(getattr(memory, name))
        rows[f"{name}_by"] = stretch.by if stretch else ""
        rows[f"{name}_since"] = stamp(stretch.since) if stretch else None
        rows[f"{name}_seen"] = stamp(stretch.seen) if stretch else None
    moments = {
        **{name: getattr(memory, name) for name in REMEMBERED},
        **{name: getattr(standing, name) for name in TOLD},
    }
    return {
        **_name(key),
        "pod_uid": standing.pod_uid,
        "cause": standing.cause or "",
        "extensions": standing.extensions,
        "reported": standing.reported,
        **{name: moment and stamp(moment) for name, moment in moments.items()},
        **rows,
    }


def _to_standing(row: Any) -> Standing:
    moments = {name: row[name] and read_moment(row[name]) for name in (*REMEMBERED, *TOLD)}
    idle, gpu = (_to_stretch(row, name) for name in STRETCHES)
    return Standing(
        pod_uid=row["pod_uid"],
        memory=Memory(
            unknown_since=moments["unknown_since"],
            extended_until=moments["extended_until"],
            held_since=moments["held_since"],
            idle=idle,
            gpu=gpu,
        ),
        warned_at=moments["warned_at"],
        ends_at=moments["ends_at"],
        cause=Cause(row["cause"]) if row["cause"] else None,
        extensions=row["extensions"],
        reported=row["reported"],
    )


def _to_stretch(row: Any, name: str) -> Stretch | None:
    if not row[f"{name}_since"]:
        return None
    since, seen = (read_moment(row[f"{name}_{key}"]) for key in ("since", "seen"))
    return Stretch(by=row[f"{name}_by"], since=since, seen=seen)


def _to_held(row: Any) -> Held:
    hold = Hold(
        by=row["by"],
        made_at=read_moment(row["made_at"]),
        until=read_moment(row["until"]),
        reason=row["reason"],
    )
    return Held(pod_uid=row["pod_uid"], hold=hold)
