"""The board's rows of everybody are made once, and anew only once they show something else."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from spectrum_spawner.inventory import Inventory
from spectrum_spawner.profiles import Profile
from spectrum_spawner.service.culling.history import History
from spectrum_spawner.service.culling.round import Round
from spectrum_spawner.service.gpu_table import GpuTable, Parts
from spectrum_spawner.service.servers import Person, Server

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
SERVER = Server(user="alice", name="", team="ops", profile="a100", started=NOW)
ALICE = Person(name="alice", groups=frozenset(), servers=(SERVER, replace(SERVER, profile="cpu")))
PARTS = Parts(
    round=Round(at=NOW),
    people=(ALICE,),
    sheets={},
    leaving={},
    releasing=frozenset(),
    inventory=Inventory.UNKNOWN,
    profiles={
        "a100": Profile(name="a100", title="One A100", gpu=1),
        "cpu": Profile(name="cpu", title="None"),
    },
)


async def test_rows_are_made_once_for_everybody() -> None:
    table = GpuTable()
    await table.refresh(PARTS, History())
    rows, version = table.rows, table.version
    assert [(row.key, row.team_title, row.state) for row in rows] == [("alice/", "ops", "unknown")]
    # the same words in other objects show nothing else
    await table.refresh(replace(PARTS, leaving={}, people=(ALICE,)), History())
    assert table.rows is rows
    assert table.version == version


@pytest.mark.parametrize(
    "changes",
    [
        {"round": Round(at=NOW + timedelta(minutes=1))},
        {"people": (replace(ALICE, servers=(replace(SERVER, pending="stop"),)),)},
        {"leaving": {("alice", "", "ops", NOW): NOW}},
        {"releasing": frozenset({("alice", "")})},
    ],
)
async def test_whatever_a_row_shows_makes_them_anew(changes) -> None:
    table = GpuTable()
    await table.refresh(PARTS, History())
    rows, version = table.rows, table.version
    await table.refresh(replace(PARTS, **changes), History())
    assert table.rows is not rows
    assert table.version != version
