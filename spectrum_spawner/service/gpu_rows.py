"""Rows of the GPU board: who holds which GPUs, what they do, and what comes next. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from spectrum_spawner.activity import Hold
from spectrum_spawner.inventory import Inventory
from spectrum_spawner.profiles import Profile
from spectrum_spawner.service.culling.history import find_utilisation
from spectrum_spawner.service.culling.memory import Memory
from spectrum_spawner.service.culling.policy import Cause, Verdict, find_hold
from spectrum_spawner.service.culling.round import Round
from spectrum_spawner.service.culling.rules import Rule, Subject
from spectrum_spawner.service.culling.standing import Standing
from spectrum_spawner.service.moments import stamp
from spectrum_spawner.service.rights import Viewer, may_keep_or_release
from spectrum_spawner.service.servers import Server

# what the GPUs of a server do, in the order in which people want to see them
ENDING, IDLE, UNKNOWN, HELD, WORKING = "ending", "idle", "unknown", "held", "working"
GPU_IDLE = "gpu-idle"  # the server works, and its GPUs have not for hours
STARTING, STOPPING = "starting", "stopping"
STATES = (ENDING, IDLE, GPU_IDLE, UNKNOWN, HELD, WORKING, STARTING, STOPPING)
AT_WORK = {WORKING, HELD, GPU_IDLE, UNKNOWN}  # of which something may be lost by a slip
KEEP, HOLD, END_HOLD = "keep", "hold", "end-hold"
CONTINUE, RELEASE = "continue", "release"
NO_PRODUCT = "GPU"  # of profiles that take any
WIDTH, HEIGHT = 60, 16  # of a sparkline


@dataclass(frozen=True, kw_only=True)
class GpuRow:
    """One server with GPUs, as somebody sees it who may do everything; `as_seen_by` others.

    `utilisation` is the highest of its GPUs in percent, `history` the same for each minute of the
    last hour, `memory` of all of them; None is what nobody measured. `idle_since`, `warn_at` and
    `ends_at` are set where they apply, `may` is what the viewer may do.
    """

    server: Server
    team_title: str
    product: str
    profile: str
    gpus: int
    state: str
    sentence: str
    rule: str = ""
    verdict: Verdict | None = None
    utilisation: float | None = None
    memory: Memory | None = None
    history: tuple[float | None, ...] = ()
    idle_since: datetime | None = None
    warn_at: datetime | None = None
    ends_at: datetime | None = None
    hold: Hold | None = None
    extensions_left: int = 0
    may: tuple[str, ...] = ()
    is_own: bool = False

    @property
    def key(self) -> str:
        """How forms name the server: a name has no slash."""
        return f"{self.server.user}/{self.server.name}"

    @property
    def may_work(self) -> bool:
        return self.state in AT_WORK

    def as_seen_by(self, viewer: Viewer) -> "GpuRow":
        may = self.may if may_keep_or_release(viewer, self.server) else ()
        is_own = self.server.user == viewer.name
        if (may, is_own) == (self.may, self.is_own):
            return self
        return replace(self, may=may, is_own=is_own)


@dataclass(frozen=True, kw_only=True)
class Product:
    """GPUs of one product, in GPUs; `total` and `free` are None where nobody has counted."""

    name: str
    held: int
    working: int
    idle: int
    unknown: int
    total: int | None = None
    free: int | None = None

    @property
    def text(self) -> str:
        """One line of words."""
        of_all = "" if self.total is None else f" of {self.total}"
        parts = ((self.working, "work"), (self.idle, "idle"), (self.unknown, "unknown"))
        told = ", ".join(f"{count} {word}" for count, word in parts if count)
        free = "" if self.free is None else f" · {self.free} free"
        return f"{self.held}{of_all} in use{': ' if told else ''}{told}{free}"


def make_row(
    server: Server,
    round: Round,
    *,
    profile: Profile | None,
    team_title: str,
    history: tuple[float | None, ...] = (),
    leaves_at: datetime | None = None,
    can_continue: bool = False,
    is_releasing: bool = False,
) -> GpuRow:
    """The row of a server that the hub knows, with what the last look found of its run.

    `leaves_at` is when it ends because its owner left the team, `can_continue` whether its team
    has a profile without a GPU for it, `is_releasing` that it ends with others, one by one.
    """
    if is_releasing:
        server = replace(server, pending="stop")
    key = (server.user, server.name)
    subject = find_subject(server, round)
    verdict = round.verdicts.get(key) if subject else None
    standing = round.standings.get(key) if subject else None
    evidence = round.evidence.get(key) if subject else None
    rule = verdict.rule if verdict else None
    hold = find_hold(evidence, rule, round.at) if evidence and rule and round.at else None
    warn_at, ends_at = _find_end(round, verdict, standing, leaves_at)
    left = rule.extensions - standing.extensions if rule and standing else 0
    state = find_state(server, verdict, standing)
    since = verdict and (verdict.gpu_idle_since if state == GPU_IDLE else verdict.idle_since)
    return GpuRow(
        server=server,
        team_title=team_title,
        product=product_of(profile),
        profile=profile.title if profile else server.profile,
        gpus=subject.run.gpus if subject else profile.gpu if profile else 0,
        state=state,
        sentence=_say(server, round, verdict, leaves_at),
        rule=rule.name if rule else "",
        verdict=verdict,
        utilisation=find_utilisation(subject, evidence, round.at) if subject and round.at else None,
        memory=round.memory.get(key) if subject else None,
        history=history,
        idle_since=since or None,
        warn_at=warn_at,
        ends_at=ends_at,
        hold=hold,
        extensions_left=max(left, 0),
        may=_list_actions(server, rule, standing, hold, can_continue),
    )


def list_holders(
    servers: Iterable[Server], round: Round, profiles: Mapping[str, Profile]
) -> Iterator[Server]:
    """Those that hold GPUs."""
    for server in servers:
        profile = profiles.get(server.profile)
        subject = round.subjects.get((server.user, server.name))
        if profile.gpu if profile else subject and subject.run.gpus:
            yield server


def find_subject(server: Server, round: Round) -> Subject | None:
    """The run that the last look saw, unless it was one before this."""
    subject = round.subjects.get((server.user, server.name))
    if subject is None or (server.started and not subject.is_of(server.started)):
        return None
    return subject


def find_state(server: Server, verdict: Verdict | None, standing: Standing | None) -> str:
    if server.pending:
        return STOPPING if server.pending == "stop" else STARTING
    if verdict is None:
        return UNKNOWN
    if standing and standing.warned_at and verdict.cause is not Cause.UNKNOWN:
        return ENDING
    if verdict.is_busy:
        return GPU_IDLE if verdict.is_gpu_idle_long else WORKING
    if verdict.cause in (Cause.HELD, Cause.EXEMPT):
        return HELD
    return IDLE if verdict.cause is Cause.IDLE else UNKNOWN


def product_of(profile: Profile | None) -> str:
    """The GPUs of a profile as people call them."""
    if profile is None:
        return NO_PRODUCT
    plain = profile.gpu_resource.rpartition("/")[2]
    return profile.gpu_product or (NO_PRODUCT if plain == "gpu" else plain)


def list_products(
    rows: Iterable[GpuRow], inventory: Inventory, profiles: Mapping[str, Profile]
) -> list[Product]:
    """What of each product is held and by how busy servers, whoever they belong to."""
    held: dict[str, list[GpuRow]] = {product_of(p): [] for p in profiles.values() if p.gpu}
    resources = {product_of(p): (p.gpu_resource, p.gpu_product) for p in profiles.values()}
    for row in rows:
        held.setdefault(row.product, []).append(row)

    def count(rows: Iterable[GpuRow], *states: str) -> int:
        return sum(row.gpus for row in rows if not states or row.state in states)

    found = []
    for name, mine in sorted(held.items()):
        resource, product = resources.get(name, ("", ""))
        found.append(
            Product(
                name=name,
                held=count(mine),
                working=count(mine, WORKING, HELD),
                idle=count(mine, IDLE, ENDING, GPU_IDLE),
                unknown=count(mine, UNKNOWN, STARTING, STOPPING),
                total=inventory.total(resource, product) if resource else None,
                free=inventory.free(resource, product) if resource else None,
            )
        )
    return found


def sort_rows(rows: Iterable[GpuRow], by: str = "") -> list[GpuRow]:
    """By what needs somebody first, or by a column."""
    return sorted(rows, key=lambda row: (_SORTS.get(by, _urgency)(row), row.key))


def select_rows(
    rows: Iterable[GpuRow], *, team: str = "", product: str = "", state: str = "", text: str = ""
) -> list[GpuRow]:
    """Those to which everything that is set applies; `text` is part of a name."""
    sought = text.casefold().strip()
    return [
        row
        for row in rows
        if (not team or row.server.team == team)
        and (not product or row.product == product)
        and (not state or row.state == state)
        and sought in f"{row.key} {row.team_title}".casefold()
    ]


def spark_points(history: tuple[float | None, ...]) -> list[str]:
    """Lines of an SVG of WIDTH by HEIGHT, one for each time that was measured without a break."""
    lines: list[list[str]] = [[]]
    for minute, value in enumerate(history):
        if value is None:
            lines.append([])
            continue
        y = HEIGHT - 1 - value / 100 * (HEIGHT - 2)
        lines[-1].append(f"{minute + 0.5:g},{y:.1f}")
    # one point alone is a line too
    return [" ".join(line if len(line) > 1 else [line[0], line[0]]) for line in lines if line]


def row_to_json(row: GpuRow) -> dict[str, Any]:
    """A row for the API."""
    server, hold = row.server, row.hold
    return {
        "product": row.product,
        "gpus": row.gpus,
        "team": server.team,
        "user": server.user,
        "server": server.name,
        "profile": server.profile,
        "since": _text(server.started),
        "pending": server.pending,
        "state": row.state,
        "utilisation": row.utilisation,
        "memory": _memory_to_json(row.memory),
        "last_hour": list(row.history),
        "idle_since": _text(row.idle_since),
        "rule": row.rule,
        "decision": str(row.verdict.decision) if row.verdict else "",
        "cause": str(row.verdict.cause) if row.verdict else "",
        "warn_at": _text(row.warn_at),
        "ends_at": _text(row.ends_at),
        "hold": hold_to_json(hold),
        "extensions_left": row.extensions_left,
        "sentence": row.sentence,
        "may": list(row.may),
    }


def _memory_to_json(memory: Memory | None) -> dict[str, int] | None:
    return None if memory is None else {"used": memory.used, "total": memory.total}


def hold_to_json(hold: Hold | None) -> dict[str, Any] | None:
    if hold is None:
        return None
    return {"by": hold.by, "until": stamp(hold.until), "reason": hold.reason}


def product_to_json(product: Product) -> dict[str, Any]:
    return {
        "product": product.name,
        "held": product.held,
        "working": product.working,
        "idle": product.idle,
        "unknown": product.unknown,
        "total": product.total,
        "free": product.free,
    }


def can_extend(standing: Standing, rule: Rule | None) -> bool:
    """Whether one click moves the end that people were told of."""
    return (
        rule is not None
        and standing.ends_at is not None
        and standing.cause is not Cause.LIFETIME
        and standing.extensions < rule.extensions
    )


def _find_end(
    round: Round, verdict: Verdict | None, standing: Standing | None, leaves_at: datetime | None
) -> tuple[datetime | None, datetime | None]:
    """When people hear of the end, and when it comes; what people were told never comes sooner."""
    warn_at = ends_at = None
    if round.enabled and verdict and verdict.ends_at:
        warn_at, ends_at = verdict.warn_at, verdict.ends_at
        if standing and standing.ends_at:
            ends_at = max(ends_at, standing.ends_at)
    if leaves_at and (ends_at is None or leaves_at < ends_at):
        return None, leaves_at
    return warn_at, ends_at


def _say(server: Server, round: Round, verdict: Verdict | None, leaves_at: datetime | None) -> str:
    if server.pending:
        return "It stops." if server.pending == "stop" else "It starts."
    if leaves_at:
        return "Its owner left the team, so it ends."
    if verdict:
        return verdict.text
    return "Nobody has looked at it yet." if round.at else "Nobody has looked at the servers yet."


def _list_actions(
    server: Server,
    rule: Rule | None,
    standing: Standing | None,
    hold: Hold | None,
    can_continue: bool,
) -> tuple[str, ...]:
    if server.pending == "stop":
        return ()
    found = [CONTINUE, RELEASE] if can_continue and not server.pending else [RELEASE]
    if rule and not hold and rule.hold and not server.pending:
        found.insert(0, HOLD)
    if hold:
        found.insert(0, END_HOLD)
    if standing and can_extend(standing, rule):
        found.insert(0, KEEP)
    return tuple(found)


def _urgency(row: GpuRow) -> tuple[Any, ...]:
    return (STATES.index(row.state), *_when(row.ends_at), *_when(row.idle_since))


def _when(moment: datetime | None) -> tuple[bool, float]:
    """Sorts what has no time behind the rest."""
    return moment is None, moment.timestamp() if moment else 0.0


_SORTS: dict[str, Any] = {
    "product": lambda row: (row.product.casefold(),),
    "team": lambda row: (row.team_title.casefold(),),
    "person": lambda row: (),
    "since": lambda row: _when(row.server.started),
    "utilisation": lambda row: (row.utilisation is None, row.utilisation or 0.0),
    "idle": lambda row: _when(row.idle_since),
    "ends": lambda row: _when(row.ends_at),
}
SORTS = ("", *_SORTS)


def _text(moment: datetime | None) -> str | None:
    return stamp(moment) if moment else None
