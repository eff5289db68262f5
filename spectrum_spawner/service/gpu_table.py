"""All rows of the GPU board, made once for everybody and anew only once they show something else.

Of ten thousand servers that takes a while, and hundreds of open boards ask every few seconds.
"""

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime

from spectrum_spawner.inventory import Inventory
from spectrum_spawner.profiles import Profile, cpu_profiles
from spectrum_spawner.service.culling.history import History
from spectrum_spawner.service.culling.round import Round
from spectrum_spawner.service.culling.sweep import Key
from spectrum_spawner.service.gpu_rows import (
    GpuRow,
    Product,
    list_holders,
    list_products,
    make_row,
)
from spectrum_spawner.service.leaving import Run
from spectrum_spawner.service.servers import Person, Server
from spectrum_spawner.service.team_sheet import TeamSheet


@dataclass(frozen=True, kw_only=True, eq=False)
class Parts:
    """What rows are made of: who runs what as the hub last told, when servers end whose owners
    left their team, and those that are `releasing`, which the hub does not know yet."""

    round: Round
    people: tuple[Person, ...]
    sheets: Mapping[str, TeamSheet]
    leaving: Mapping[Run, datetime]
    releasing: frozenset[Key]
    inventory: Inventory
    profiles: Mapping[str, Profile]

    def is_as(self, other: "Parts | None") -> bool:
        """Whether rows of both show the same: what did not change is the same object."""
        if other is None:
            return False
        pairs = ((getattr(self, each.name), getattr(other, each.name)) for each in fields(self))
        return all(mine is yours or mine == yours for mine, yours in pairs)


class GpuTable:
    """`rows` are as somebody sees them who may do everything; `version` is another for others."""

    def __init__(self) -> None:
        self.rows: tuple[GpuRow, ...] = ()
        self.products: tuple[Product, ...] = ()
        self.version = ""
        self._parts: Parts | None = None
        self._making = asyncio.Lock()

    async def refresh(self, parts: Parts, history: History) -> None:
        """Make the rows anew if they show something else by now."""
        async with self._making:
            if parts.is_as(self._parts):
                return
            rows = await asyncio.to_thread(_make_rows, parts, history)
            self.rows = tuple(rows)
            self.products = tuple(list_products(rows, parts.inventory, parts.profiles))
            self.version, self._parts = uuid.uuid4().hex, parts


def make_one(server: Server, parts: Parts, history: History) -> GpuRow:
    """The row of one server, with GPUs or without."""
    key = server.user, server.name
    subject, sheet = parts.round.subjects.get(key), parts.sheets.get(server.team)
    profile = parts.profiles.get(server.profile)
    at = parts.round.at
    return make_row(
        server,
        parts.round,
        profile=profile,
        team_title=sheet.team.display_name if sheet else server.team,
        history=history.of(subject, at) if subject and at else (),
        leaves_at=parts.leaving.get((server.user, server.name, server.team, server.started)),
        can_continue=can_continue(profile, sheet, parts.profiles),
        is_releasing=key in parts.releasing,
    )


def _make_rows(parts: Parts, history: History) -> list[GpuRow]:
    servers = (server for person in parts.people for server in person.servers)
    holders = list_holders(servers, parts.round, parts.profiles)
    return [make_one(server, parts, history) for server in holders]


def can_continue(
    profile: Profile | None, sheet: TeamSheet | None, profiles: Mapping[str, Profile]
) -> bool:
    """Whether a server holds a GPU, and its team may use a profile without one."""
    if profile is None or not profile.gpu or sheet is None:
        return False
    return bool(cpu_profiles(sheet.team, profiles))
