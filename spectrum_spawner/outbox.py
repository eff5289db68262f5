"""Outbox: audit records on their way to the ledger, in a file, so that none is lost.

Writing a record never stands in the way of what it is about: one that cannot be stored is
logged in full.
"""

import asyncio
import json
import logging
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar
from weakref import WeakKeyDictionary

import aiohttp

from spectrum_spawner.audit import MAX_TEXT, Record
from spectrum_spawner.kube import Backoff

BATCH = 500  # records a request
MAX_PENDING = 100_000  # records that wait at most
DROPPED_AT_ONCE = 1000  # records that make room when there is none
MAX_REFUSED = 1000  # records that are kept of those that the ledger does not take
LONGEST_PAUSE = 30.0  # seconds between two tries at most, unless the ledger asks for more
LONGEST_RETRY_AFTER = 300.0  # seconds that the ledger may ask for
TIMEOUT = 10.0  # seconds that one request may take
BUSY = 1.0  # seconds that a record waits for a locked file, and with it whatever it is about

_SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE IF NOT EXISTS pending (place INTEGER PRIMARY KEY, id TEXT UNIQUE, body TEXT);
CREATE TABLE IF NOT EXISTS refused (place INTEGER PRIMARY KEY, body TEXT, why TEXT);
"""

T = TypeVar("T")

_log = logging.getLogger("spectrum.outbox")


class NotSent(Exception):  # noqa: N818 - reads as the answer that it is
    """The ledger did not take the records now; `retry_after` is in seconds."""

    def __init__(self, why: str, *, retry_after: float = 0.0) -> None:
        super().__init__(why)
        self.retry_after = retry_after


class Outbox:
    """Records on their way to the ledger, in a SQLite file of one process's own.

    What `append` has returned for is on the disk, and leaves it only once the ledger has
    answered with 2xx. The order is kept. At most MAX_PENDING records wait: of more, the oldest
    and the newest halves stay, since the beginning of an outage and the present tell the most,
    and those between are dropped and counted in the log. A record that the ledger calls
    malformed is set aside in the table `refused`, so that the others go on. A file that turns out
    to be damaged is set aside under another name, and a new one begun.
    """

    def __init__(self, path: Path | str, url: str, token: str) -> None:
        """`url` is where records are posted; with "" they stay in the file."""
        self.path = Path(path)
        self._url = url
        self._token = token
        self._batch = BATCH
        self._count = 0
        self._database: sqlite3.Connection | None = None
        self._appended = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None

    @classmethod
    def shared(cls, path: Path | str, url: str, token: str) -> "Outbox":
        """The outbox of a file in the running event loop, which sends from the first call on."""
        of_loop = _shared.setdefault(asyncio.get_running_loop(), {})
        if path not in of_loop:
            outbox = of_loop[path] = cls(path, url, token)
            outbox._sender = asyncio.get_running_loop().create_task(outbox.run())
        return of_loop[path]

    @classmethod
    async def close_shared(cls) -> None:
        """Close what `shared` made in the running event loop; the next call makes it anew."""
        for outbox in _shared.pop(asyncio.get_running_loop(), {}).values():
            await outbox.close()

    @property
    def pending(self) -> int:
        """Records that wait, as far as is known."""
        return self._count

    def append(self, record: Record) -> None:
        """Store a record durably. What fails is logged and never raised."""
        row = (record.id, json.dumps(record.as_dict()))
        try:
            stored = self._use(
                lambda database: database.execute(
                    "INSERT OR IGNORE INTO pending (id, body) VALUES (?, ?)", row
                )
            )
            self._count += stored.rowcount
            if self._count > MAX_PENDING:
                self._make_room()
        except Exception as error:
            # whatever it is about must go on, and the log is the last place to keep it
            _log.error("audit record not stored: %s: %r", error, record)
        self._appended.set()

    async def close(self) -> None:
        """Stop sending; what waits is sent by whoever opens the file next."""
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)
        self._close()

    async def run(self) -> None:
        """Send records as they come, until cancelled."""
        if not self._url:
            return
        backoff = Backoff(longest=LONGEST_PAUSE)
        while True:
            self._appended.clear()
            try:
                await self.send_pending()
            except NotSent as error:
                _log.warning("%d audit records wait for the ledger: %s", self._count, error)
                await asyncio.sleep(backoff.next(at_least=error.retry_after))
            except Exception:
                # a sender that ends is worse than any answer that cannot be read
                _log.exception("audit records could not be sent")
                await asyncio.sleep(backoff.next(at_least=1.0))
            else:
                backoff.reset()
                await self._appended.wait()

    async def send_pending(self) -> None:
        """Send all that waits now, once; raises NotSent at the first that is not taken."""
        limits = aiohttp.ClientTimeout(total=TIMEOUT)
        try:
            async with aiohttp.ClientSession(timeout=limits) as session:
                while batch := self._read_batch():
                    await self._send(session, batch)
        except (TimeoutError, aiohttp.ClientError, OSError, sqlite3.Error) as error:
            raise NotSent(str(error) or type(error).__name__) from error

    async def _send(self, session: aiohttp.ClientSession, batch: list[tuple[int, str]]) -> None:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        body = f'{{"records": [{", ".join(record for _, record in batch)}]}}'
        async with session.post(self._url, data=body.encode(), headers=headers) as answer:
            if answer.status in range(200, 300):
                self._forget(batch)
                self._batch = BATCH
            elif answer.status in (400, 413, 422):
                self._narrow_down(batch, (await answer.text(errors="replace"))[:MAX_TEXT])
            else:
                raise NotSent(
                    f"{answer.status} {answer.reason}",
                    retry_after=_seconds(answer.headers.get("Retry-After", "")),
                )

    def _narrow_down(self, batch: list[tuple[int, str]], why: str) -> None:
        """Halve a batch that is refused until the record is alone for which it is."""
        if len(batch) > 1:
            self._batch = len(batch) // 2
            return
        ((place, record),) = batch
        _log.error("audit record set aside, the ledger says: %s: %s", why, record)

        def move(database: sqlite3.Connection) -> int:
            database.execute("INSERT INTO refused (body, why) VALUES (?, ?)", (record, why))
            database.execute(
                "DELETE FROM refused WHERE place <= (SELECT max(place) FROM refused) - ?",
                (MAX_REFUSED,),
            )
            gone = database.execute("DELETE FROM pending WHERE place = ?", (place,))
            return gone.rowcount

        self._count -= self._use(move)
        self._batch = BATCH

    def _read_batch(self) -> list[tuple[int, str]]:
        query = "SELECT place, body FROM pending ORDER BY place LIMIT ?"
        return self._use(lambda database: database.execute(query, (self._batch,)).fetchall())

    def _forget(self, batch: list[tuple[int, str]]) -> None:
        places = [(place,) for place, _ in batch]
        gone = self._use(
            lambda database: database.executemany("DELETE FROM pending WHERE place = ?", places)
        )
        self._count -= gone.rowcount

    def _make_room(self) -> None:
        middle = "SELECT place FROM pending ORDER BY place LIMIT ? OFFSET ?"
        gone = self._use(
            lambda database: database.execute(
                f"DELETE FROM pending WHERE place IN ({middle})",
                (DROPPED_AT_ONCE, MAX_PENDING // 2),
            )
        )
        self._count -= gone.rowcount
        _log.error("%d audit records dropped: more than %d wait", gone.rowcount, MAX_PENDING)

    def _use(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` gives, in one transaction; in a new file if this one is damaged."""
        try:
            return self._work(work)
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            self._set_aside(error)
            return self._work(work)

    def _work(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._open() as database:
            return work(database)

    def _open(self) -> sqlite3.Connection:
        """The database; tried anew as long as it cannot be opened."""
        if self._database is None:
            database = sqlite3.connect(self.path, timeout=BUSY)
            try:
                database.executescript(_SCHEMA)
                (self._count,) = database.execute("SELECT count(*) FROM pending").fetchone()
            except sqlite3.Error:
                database.close()
                raise
            self._database = database
        return self._database

    def _set_aside(self, error: sqlite3.Error) -> None:
        """Rename the file. What SQLite keeps beside it, it drops at the sight of a new one."""
        self._close()
        aside = f"{self.path}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
        self.path.rename(aside)
        _log.error(
            "%s is damaged (%s): kept as %s, its records are not sent", self.path, error, aside
        )

    def _close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            with suppress(sqlite3.Error):
                database.close()


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Path | str, Outbox]] = (
    WeakKeyDictionary()
)


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Whether the file itself is at fault; an error of this module's own SQL has no code."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without what it is in detail
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _seconds(header: str) -> float:
    """What `Retry-After` asks for, within reason; dates are not understood."""
    return min(float(header), LONGEST_RETRY_AFTER) if header.isdecimal() else 0.0
