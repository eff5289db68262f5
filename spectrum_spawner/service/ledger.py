"""The ledger: audit records, requests and departures, in SQLite or PostgreSQL.

Records are only ever added; nothing here changes or deletes one. Whatever is changed together
with the record of it is one transaction. The database is worked on in threads, so that a slow
disk or a database that is away never stands in the way of a page.

Nothing is ever taken out, so the ledger grows: in SQLite a record with a sentence of 60 characters
costs 540 bytes with its indexes (measured over 20,000), ten a day of 100 people 200 MB a year.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from spectrum_spawner.audit import Record
from spectrum_spawner.service import tables
from spectrum_spawner.service.asking import Request
from spectrum_spawner.service.leaving import Departure
from spectrum_spawner.service.moments import read_moment, stamp
from spectrum_spawner.service.rights import AuditScope

T = TypeVar("T")

THREADS = 4
ANSWER_WITHIN = 20.0  # seconds that a database may take, whatever hangs: people wait for it
PAGE = 100  # records a page
BATCH = 1000  # records that an export reads at a time
STOPS = ("stop", "stop-request", "cull", "release", "end")


class LedgerError(Exception):
    """The ledger cannot be read or written now; the text says why."""


@dataclass(frozen=True, kw_only=True)
class Query:
    """Which records: those of `scope` to which everything else that is set applies.

    `person` acted or is whom it is about, `server` its owner and name. `before` is the place of a
    record: only older ones.
    """

    scope: AuditScope
    team: str = ""
    person: str = ""
    server: tuple[str, str] | None = None
    action: str = ""
    since: datetime | None = None
    until: datetime | None = None
    before: str = ""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A record and its place in the ledger, by which a next page begins."""

    place: str
    record: Record


class Ledger:
    """One database. `open` before anything else; everything here raises LedgerError.

    `errors` counts how often that was. Records that are new are handed to who listens, once they
    are kept.
    """

    def __init__(self, url: str) -> None:
        self.errors = 0
        self._hear: Callable[[Sequence[Record]], None] = lambda _: None
        try:
            self._engine = tables.make_engine(url)
        except (sa.exc.ArgumentError, ImportError, ValueError) as error:
            raise LedgerError(
                "service.dbUrl: must be empty or a URL such as postgresql://user@host/ledger"
            ) from error
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="ledger")

    async def open(self) -> None:
        """Make the tables and columns that are missing, unless a newer release made them."""
        await self._run(self._open)

    async def close(self) -> None:
        self._threads.shutdown()
        self._engine.dispose()

    def listen(self, hear: Callable[[Sequence[Record]], None]) -> None:
        """Let `hear` be called with new records; it must return at once."""
        self._hear = hear

    async def add(self, records: Iterable[Record]) -> None:
        """Keep records; those whose id is known already are left out."""
        self._hear(await self._run(self._add, list(records)))

    async def find(self, query: Query, *, limit: int = PAGE) -> list[Entry]:
        """The newest records first."""
        return await self._run(self._find, query, limit)

    async def export(self, query: Query) -> AsyncIterator[list[Entry]]:
        """All records of a query, in batches, the newest first."""
        while batch := await self.find(query, limit=BATCH):
            yield batch
            query = replace(query, before=batch[-1].place)

    async def add_request(self, request: Request, record: Record) -> None:
        await self._run(self._add_request, request, record)

    async def find_request(self, id: str) -> Request | None:
        found = await self._run(self._find_requests, tables.requests.c.id == id, 1)
        return found[0] if found else None

    async def list_requests(
        self,
        *,
        asked_by: str | None = None,
        states: Sequence[str] = (),
        since: datetime | None = None,
        limit: int = PAGE,
    ) -> list[Request]:
        """The newest first; of everybody, in any state and of any age unless told otherwise."""
        wanted: list[sa.ColumnElement[bool]] = [sa.true()]
        if asked_by is not None:
            wanted.append(tables.requests.c.asked_by == asked_by)
        if states:
            wanted.append(tables.requests.c.state.in_(states))
        if since is not None:
            wanted.append(tables.requests.c.asked_at > stamp(since))
        return await self._run(self._find_requests, sa.and_(*wanted), limit)

    async def change_request(
        self, id: str, *, was: str, records: Sequence[Record] = (), **changes: Any
    ) -> bool:
        """Change a request that is in state `was`; False, and nothing kept, if it is not."""
        return await self._run(self._change_request, id, was, records, changes)

    async def list_departures(self) -> list[Departure]:
        return await self._run(self._list_departures)

    async def add_departure(self, departure: Departure, record: Record) -> None:
        """Keep a departure, in place of one of an earlier run of the same server."""
        self._hear(await self._run(self._replace_departure, departure, departure, [record]))

    async def remove_departure(self, departure: Departure, *records: Record) -> None:
        self._hear(await self._run(self._replace_departure, departure, None, records))

    async def work(self, work: Callable[..., T], *args: Any, records: Sequence[Record] = ()) -> T:
        """Call `work(connection, *args)` in a thread, within one transaction with `records`."""
        result, new = await self._run(self._work, work, args, records)
        self._hear(new)
        return result

    async def _run(self, work: Callable[..., T], *args: Any) -> T:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                return await loop.run_in_executor(self._threads, partial(work, *args))
        except TimeoutError as error:
            self.errors += 1
            raise LedgerError(f"no answer within {ANSWER_WITHIN:g} seconds") from error
        except sa.exc.SQLAlchemyError as error:
            self.errors += 1
            raise LedgerError(str(getattr(error, "orig", None) or error)) from error

    def _open(self) -> None:
        with self._engine.begin() as connection:
            tables.create_missing(connection)
            found = connection.scalar(sa.select(sa.func.max(tables.ledger_version.c.version)))
            if found is None:
                connection.execute(tables.ledger_version.insert().values(version=tables.VERSION))
            elif found > tables.VERSION:
                raise LedgerError(
                    f"The ledger is of version {found}, and this release knows {tables.VERSION} at "
                    "most: install the newer release again, or name another database."
                )

    def _work(
        self, work: Callable[..., T], args: Sequence[Any], records: Sequence[Record]
    ) -> tuple[T, list[Record]]:
        with self._engine.begin() as connection:
            new = self._insert(connection, records)
            return work(connection, *args), new

    def _add(self, records: Sequence[Record]) -> list[Record]:
        with self._engine.begin() as connection:
            return self._insert(connection, records)

    def _insert(self, connection: sa.Connection, records: Sequence[Record]) -> list[Record]:
        """Those that were not there."""
        is_postgresql = self._engine.dialect.name == "postgresql"
        insert = (
            postgresql.insert(tables.records) if is_postgresql else sqlite.insert(tables.records)
        )
        if not records:
            return []
        ids = tables.records.c.id
        wanted = sa.select(ids).where(ids.in_([record.id for record in records]))
        known = set(connection.scalars(wanted))
        rows = [_to_row(record) for record in records]
        connection.execute(insert.on_conflict_do_nothing(), rows)
        return [record for record in records if record.id not in known]

    def _find(self, query: Query, limit: int) -> list[Entry]:
        newest = tables.records.c.at.desc(), tables.records.c.seq.desc()
        wanted = sa.and_(sa.true(), *_conditions(query))
        select = sa.select(tables.records).where(wanted).order_by(*newest).limit(limit)
        with self._engine.connect() as connection:
            return [_to_entry(row) for row in connection.execute(select).mappings()]

    def _add_request(self, request: Request, record: Record) -> None:
        with self._engine.begin() as connection:
            connection.execute(tables.requests.insert().values(_to_texts(asdict(request))))
            self._insert(connection, [record])

    def _find_requests(self, wanted: sa.ColumnElement[bool], limit: int) -> list[Request]:
        newest = tables.requests.c.asked_at.desc(), tables.requests.c.id
        select = sa.select(tables.requests).where(wanted).order_by(*newest).limit(limit)
        with self._engine.connect() as connection:
            return [_to_request(row) for row in connection.execute(select).mappings()]

    def _change_request(
        self, id: str, was: str, records: Sequence[Record], changes: dict[str, Any]
    ) -> bool:
        mine = sa.and_(tables.requests.c.id == id, tables.requests.c.state == was)
        with self._engine.begin() as connection:
            changed = connection.execute(
                tables.requests.update().where(mine).values(_to_texts(changes))
            ).rowcount
            if changed:
                self._insert(connection, records)
        return bool(changed)

    def _list_departures(self) -> list[Departure]:
        with self._engine.connect() as connection:
            rows = connection.execute(sa.select(tables.leaving)).mappings()
            return [_to_departure(row) for row in rows]

    def _replace_departure(
        self, old: Departure, new: Departure | None, records: Sequence[Record]
    ) -> list[Record]:
        mine = sa.and_(tables.leaving.c.user == old.user, tables.leaving.c.server == old.server)
        with self._engine.begin() as connection:
            connection.execute(tables.leaving.delete().where(mine))
            if new is not None:
                connection.execute(tables.leaving.insert().values(_to_texts(asdict(new))))
            return self._insert(connection, records)


def _conditions(query: Query) -> list[sa.ColumnElement[bool]]:
    columns = tables.records.c
    found = [_in_scope(query.scope)]
    if query.team:
        found.append(columns.team == query.team)
    if query.person:
        found.append(_about(query.person))
    if query.server is not None:
        found.append(_of_server(query.server))
    if query.action:
        found.append(columns.action == query.action)
    if query.since is not None:
        found.append(columns.at >= stamp(query.since))
    if query.until is not None:
        found.append(columns.at <= stamp(query.until))
    if query.before:
        at, _, seq = query.before.partition(",")
        older = sa.and_(columns.at == at, columns.seq < int(seq))
        found.append(sa.or_(columns.at < at, older))
    return found


def _in_scope(scope: AuditScope) -> sa.ColumnElement[bool]:
    if scope.everything:
        return sa.true()
    columns = tables.records.c
    found: list[sa.ColumnElement[bool]] = [sa.false()]
    if scope.person is not None:
        found.append(_about(scope.person))
    if scope.teams:
        found.append(columns.team.in_(sorted(scope.teams)))
    if scope.stops_in:
        found.append(columns.team.in_(sorted(scope.stops_in)) & columns.action.in_(STOPS))
    if scope.server is not None:
        found.append(_of_server(scope.server))
    return sa.or_(*found)


def _of_server(key: tuple[str, str]) -> sa.ColumnElement[bool]:
    """What is about a server has a team, other than what is about its owner."""
    columns = tables.records.c
    return (columns.user == key[0]) & (columns.server == key[1]) & (columns.team != "")


def _about(person: str) -> sa.ColumnElement[bool]:
    return (tables.records.c.user == person) | (tables.records.c.actor == f"user:{person}")


def _to_row(record: Record) -> dict[str, Any]:
    row = record.as_dict()
    return {**row, "at": stamp(read_moment(record.at)), "details": json.dumps(row["details"])}


def _to_entry(row: Any) -> Entry:
    values = {each.name: row[each.name] for each in fields(Record)}
    values["details"] = json.loads(values["details"])
    return Entry(place=f"{row['at']},{row['seq']}", record=Record(**values))


def _to_texts(values: dict[str, Any]) -> dict[str, Any]:
    return {key: stamp(v) if isinstance(v, datetime) else v for key, v in values.items()}


def _to_moments(row: Any, *keys: str) -> dict[str, Any]:
    return {**row, **{key: row[key] and read_moment(row[key]) for key in keys}}


def _to_request(row: Any) -> Request:
    return Request(**_to_moments(row, "until", "asked_at", "decided_at"))


def _to_departure(row: Any) -> Departure:
    return Departure(**_to_moments(row, "started", "seen_at"))
