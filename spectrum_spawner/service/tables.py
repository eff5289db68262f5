"""The ledger's tables, and the database that holds them.

Moments are texts of one width (`moments.stamp`), which sort as they do in any database.
"""

from typing import Any

import sqlalchemy as sa

VERSION = 1  # of these tables; a ledger of a higher one is a newer release's
CONNECT_WITHIN = 5  # seconds that a PostgreSQL may take
ANSWER_WITHIN = 10  # seconds that it may take for one statement, locks of others included
# seconds: a connection of which nothing is heard any more is given up, such as after a partition
KEEPALIVE = {"keepalives_idle": 5, "keepalives_interval": 5, "keepalives_count": 2}
SILENT = 15
BUSY = 10  # seconds that SQLite waits for another thread's transaction

metadata = sa.MetaData()
ledger_version = sa.Table("ledger_version", metadata, sa.Column("version", sa.Integer))
records = sa.Table(
    "records",
    metadata,
    sa.Column("seq", sa.Integer, primary_key=True),
    sa.Column("id", sa.Text, nullable=False, unique=True),
    sa.Column("at", sa.String(27), nullable=False),
    *(sa.Column(name, sa.Text, nullable=False) for name in ("writer", "action", "actor")),
    *(sa.Column(name, sa.Text, nullable=False) for name in ("user", "team", "server")),
    *(sa.Column(name, sa.Text, nullable=False) for name in ("reason", "details")),
    sa.Index("records_by_time", "at", "seq"),
    sa.Index("records_by_action", "action", "at", "seq"),
    sa.Index("records_by_actor", "actor", "at", "seq"),
    sa.Index("records_by_user", "user", "at", "seq"),
    sa.Index("records_by_team", "team", "at", "seq"),
)
requests = sa.Table(
    "requests",
    metadata,
    sa.Column("id", sa.String(63), primary_key=True),
    *(sa.Column(name, sa.Text, nullable=False) for name in ("kind", "team", "reason")),
    *(sa.Column(name, sa.String(27), nullable=False) for name in ("until", "asked_at")),
    *(sa.Column(name, sa.Text, nullable=False) for name in ("resource", "profile", "group")),
    sa.Column("amount", sa.Integer, nullable=False),
    *(sa.Column(name, sa.Text, nullable=False) for name in ("asked_by", "state")),
    *(sa.Column(name, sa.Text, nullable=False) for name in ("answer", "decided_by")),
    sa.Column("decided_at", sa.String(27)),
    # not in the first ledgers; what knows nothing of it may go on writing
    sa.Column("team_uid", sa.Text, nullable=False, server_default=""),
    sa.Index("requests_by_asker", "asked_by", "asked_at"),
    sa.Index("requests_by_state", "state", "asked_at"),
)
leaving = sa.Table(
    "leaving",
    metadata,
    *(sa.Column(name, sa.String(255), primary_key=True) for name in ("user", "server")),
    sa.Column("team", sa.Text, nullable=False),
    sa.Column("started", sa.String(27)),
    sa.Column("seen_at", sa.String(27), nullable=False),
)

# what servers last told of their volumes; of what all of a team have in common, user is ""
figures = sa.Table(
    "figures",
    metadata,
    *(sa.Column(key, sa.String(255), primary_key=True) for key in ("team", "kind", "user", "name")),
    sa.Column("server", sa.Text, nullable=False),
    *(sa.Column(key, sa.BigInteger) for key in ("total", "used", "files_total", "files_used")),
    sa.Column("read_only", sa.Boolean),
    sa.Column("error", sa.Text, nullable=False),
    sa.Column("at", sa.String(27), nullable=False),
    sa.Index("figures_by_time", "at"),
)

# what people were told of a run of a server, where they were told anything
standings = sa.Table(
    "standings",
    metadata,
    *(sa.Column(key, sa.String(255), primary_key=True) for key in ("user", "server")),
    sa.Column("pod_uid", sa.Text, nullable=False),
    *(sa.Column(key, sa.String(27)) for key in ("unknown_since", "extended_until", "held_since")),
    *(sa.Column(key, sa.String(27)) for key in ("warned_at", "ends_at")),
    # since when nothing was done, and as of when: by all that counts, and by the GPUs alone
    *(sa.Column(key, sa.Text, nullable=False) for key in ("idle_by", "gpu_by")),
    *(sa.Column(f"idle_{key}", sa.String(27)) for key in ("since", "seen")),
    *(sa.Column(f"gpu_{key}", sa.String(27)) for key in ("since", "seen")),
    sa.Column("cause", sa.Text, nullable=False),
    sa.Column("extensions", sa.Integer, nullable=False),
    sa.Column("reported", sa.Boolean, nullable=False),
)
# the last word of somebody that a run of a server works until a moment
holds = sa.Table(
    "holds",
    metadata,
    *(sa.Column(key, sa.String(255), primary_key=True) for key in ("user", "server")),
    *(sa.Column(key, sa.Text, nullable=False) for key in ("pod_uid", "by", "reason")),
    *(sa.Column(key, sa.String(27), nullable=False) for key in ("made_at", "until")),
)

# what people held of GPUs each day (of UTC), in seconds of one GPU
gpu_hours = sa.Table(
    "gpu_hours",
    metadata,
    sa.Column("day", sa.String(10), primary_key=True),
    *(sa.Column(key, sa.String(255), primary_key=True) for key in ("team", "user", "profile")),
    *(sa.Column(key, sa.Float, nullable=False) for key in ("reserved", "used", "measured")),
)
# until when each pod is counted in them
gpu_meters = sa.Table(
    "gpu_meters",
    metadata,
    sa.Column("pod_uid", sa.String(255), primary_key=True),
    sa.Column("until", sa.String(27), nullable=False),
)


def make_engine(url: str) -> sa.Engine:
    """A SQLite or PostgreSQL that answers soon or not at all."""
    if sa.make_url(url).get_backend_name() == "postgresql":
        told = {"connect_timeout": CONNECT_WITHIN, "tcp_user_timeout": SILENT * 1000, **KEEPALIVE}
        engine = sa.create_engine(url, pool_pre_ping=True, connect_args=told)
        sa.event.listen(engine, "connect", _prepare_postgresql)
        return engine
    engine = sa.create_engine(url)
    sa.event.listen(engine, "connect", _prepare_sqlite)
    return engine


def create_missing(connection: sa.Connection) -> None:
    """Make the tables, and in those of an earlier release the columns that it did not have."""
    metadata.create_all(connection)
    for table in metadata.sorted_tables:
        known = {column["name"] for column in sa.inspect(connection).get_columns(table.name)}
        for column in table.columns:
            if column.name not in known:
                made = sa.schema.CreateColumn(column).compile(dialect=connection.dialect)
                connection.execute(sa.text(f"ALTER TABLE {table.name} ADD COLUMN {made}"))


def _prepare_postgresql(connection: Any, _record: object) -> None:
    """By a statement, since poolers take no options with a connection."""
    connection.execute(f"SET statement_timeout = {ANSWER_WITHIN * 1000:.0f}")
    connection.commit()


def _prepare_sqlite(connection: Any, _record: object) -> None:
    """In this mode readers and the writer do not wait for each other."""
    for pragma in ("journal_mode=WAL", "synchronous=FULL", f"busy_timeout={BUSY * 1000}"):
        connection.execute(f"PRAGMA {pragma}")
