"""Rows of the GPU board: states, ends, actions and sparklines, by the pure builders."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from spectrum_spawner.activity import GPU, Answer, Evidence, Hold, Reading, Run, Series
from spectrum_spawner.inventory import GPUs, Inventory
from spectrum_spawner.profiles import Profile
from spectrum_spawner.service.culling.memory import Memory
from spectrum_spawner.service.culling.policy import Cause, Decision, Verdict
from spectrum_spawner.service.culling.round import Round
from spectrum_spawner.service.culling.rules import Policy, Rule, Subject
from spectrum_spawner.service.culling.standing import Standing
from spectrum_spawner.service.gpu_rows import (
    GpuRow,
    Product,
    list_products,
    make_row,
    row_to_json,
    select_rows,
    sort_rows,
    spark_points,
)
from spectrum_spawner.service.rights import Viewer
from spectrum_spawner.service.servers import Server

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
STARTED = NOW - timedelta(hours=5)
RULE = Rule(name="gpu", gpu=True, evidence=(GPU,), extensions=2)
PROFILE = Profile(name="a100", title="Two A100", gpu=2, gpu_product="NVIDIA-A100")
KEY = ("alice", "lab")
SERVER = Server(user="alice", name="lab", team="ops", profile="a100", started=STARTED)
SUBJECT = Subject(
    user="alice",
    server="lab",
    team="ops",
    profile="a100",
    namespace="hub-ops",
    pod="jupyter-alice-lab",
    run=Run(pod_uid="uid", started=STARTED + timedelta(seconds=3), gpus=2),
)
IDLE = Verdict(
    decision=Decision.WARN,
    cause=Cause.IDLE,
    at=NOW,
    rule=RULE,
    idle=timedelta(hours=1),
    idle_since=NOW - 55 * MINUTE,
    warn_at=NOW - 5 * MINUTE,
    ends_at=NOW + 5 * MINUTE,
)
BUSY = Verdict(decision=Decision.KEEP, cause=Cause.BUSY, at=NOW, rule=RULE)
STANDING = Standing(pod_uid="uid")
WARNED = replace(
    STANDING,
    warned_at=NOW - 5 * MINUTE,
    ends_at=NOW + 6 * MINUTE,
    cause=Cause.IDLE,
    extensions=1,
)


def make_round(
    verdict: Verdict = BUSY,
    standing: Standing = STANDING,
    *,
    value: float | None = 0.0,
    holds: tuple[Hold, ...] = (),
    **changes,
) -> Round:
    series = Series(source=GPU, device="0", at=NOW, value=value)
    return Round(
        **{
            "at": NOW,
            "enabled": True,
            "policy": Policy(rules=(RULE,)),
            "subjects": {KEY: SUBJECT},
            "evidence": {KEY: Evidence(series=(series,), holds=holds)},
            "verdicts": {KEY: verdict},
            "standings": {KEY: standing},
            **changes,
        }
    )


def row_of(round: Round, server: Server = SERVER, **changes) -> GpuRow:
    told = {"profile": PROFILE, "team_title": "Operations", **changes}
    return make_row(server, round, **told)


def test_a_server_whose_end_is_near_for_the_api() -> None:
    memory = {KEY: Memory(used=12 * 2**30, total=160 * 2**30)}
    round = make_round(IDLE, WARNED, memory=memory)
    assert row_to_json(row_of(round, history=(None, 0.0))) == {
        "product": "NVIDIA-A100",
        "gpus": 2,
        "team": "ops",
        "user": "alice",
        "server": "lab",
        "profile": "a100",
        "since": "2026-01-31T07:00:00.000000Z",
        "pending": "",
        "state": "ending",
        "utilisation": 0.0,
        "memory": {"used": 12884901888, "total": 171798691840},
        "last_hour": [None, 0.0],
        "idle_since": "2026-01-31T11:05:00.000000Z",
        "rule": "gpu",
        "decision": "warn",
        "cause": "idle",
        "warn_at": "2026-01-31T11:55:00.000000Z",
        # what people were told never comes sooner
        "ends_at": "2026-01-31T12:06:00.000000Z",
        "hold": None,
        "extensions_left": 1,
        "sentence": "This server has done nothing since 2026-01-31 11:05 UTC (): rule gpu ends "
        "what is idle for 1 h.",
        "may": ["keep", "hold", "release"],
    }


@pytest.mark.parametrize(
    ("server", "verdict", "state"),
    [
        (SERVER, BUSY, "working"),
        (SERVER, replace(BUSY, gpu_idle_since=NOW - 179 * MINUTE), "working"),
        (SERVER, replace(BUSY, gpu_idle_since=NOW - 180 * MINUTE), "gpu-idle"),
        (SERVER, replace(IDLE, decision=Decision.KEEP), "idle"),
        (SERVER, replace(BUSY, cause=Cause.UNKNOWN), "unknown"),
        (SERVER, replace(BUSY, cause=Cause.HELD), "held"),
        (SERVER, replace(BUSY, cause=Cause.EXEMPT), "held"),
        (SERVER, replace(BUSY, cause=Cause.NO_RULE, rule=None), "unknown"),
        (
            SERVER,
            replace(BUSY, cause=Cause.HELD, evidence=(Reading(source=GPU, answer=Answer.BUSY),)),
            "working",
        ),
        (replace(SERVER, pending="spawn"), BUSY, "starting"),
        (replace(SERVER, pending="stop"), IDLE, "stopping"),
    ],
)
def test_what_a_server_does_in_a_word(server, verdict, state) -> None:
    assert row_of(make_round(verdict), server).state == state


def test_a_former_runs_verdict_says_nothing_of_a_server_that_was_started_again() -> None:
    again = replace(SERVER, started=NOW - MINUTE)
    memory = {KEY: Memory(used=12 * 2**30, total=160 * 2**30)}
    row = row_of(make_round(IDLE, WARNED, memory=memory), again)
    assert (row.state, row.ends_at, row.utilisation, row.memory, row.may) == (
        "unknown",
        None,
        None,
        None,
        ("release",),
    )
    assert row.sentence == "Nobody has looked at it yet."


def test_while_culling_is_off_nothing_ends_and_may_be_held_for_when_it_is_on_again() -> None:
    row = row_of(make_round(replace(IDLE, decision=Decision.KEEP), enabled=False))
    assert (row.state, row.ends_at, row.may) == ("idle", None, ("hold", "release"))


def test_while_nobody_knows_what_a_warned_server_does_no_end_is_told() -> None:
    unknown = replace(BUSY, cause=Cause.UNKNOWN)
    row = row_of(make_round(unknown, WARNED))
    assert (row.state, row.ends_at) == ("unknown", None)


def test_a_server_that_works_and_whose_gpus_do_not_tells_since_when() -> None:
    since = NOW - 200 * MINUTE
    row = row_of(make_round(replace(BUSY, gpu_idle_since=since)))
    assert (row.state, row.idle_since) == ("gpu-idle", since)


def test_a_server_that_ends_with_others_stops_before_the_hub_knows() -> None:
    row = row_of(make_round(IDLE, WARNED), is_releasing=True)
    assert (row.state, row.sentence, row.may) == ("stopping", "It stops.", ())


def test_a_hold_is_shown_and_can_be_ended() -> None:
    hold = Hold(by="alice", made_at=NOW - MINUTE, until=NOW + 60 * MINUTE, reason="training")
    row = row_of(make_round(replace(BUSY, cause=Cause.HELD), holds=(hold,)))
    assert (row.hold, row.may) == (hold, ("end-hold", "release"))


def test_everybody_sees_the_buttons_that_are_theirs() -> None:
    row = row_of(make_round(IDLE, WARNED))
    member = Viewer(name="bob", teams=frozenset({"ops"}))
    assert row.as_seen_by(member) == replace(row, may=())
    lead = Viewer(name="bob", leads=frozenset({"ops"}))
    assert row.as_seen_by(lead) is row
    assert row.as_seen_by(Viewer(name="alice")) == replace(row, is_own=True)


def test_a_click_that_is_used_up_or_that_nothing_moves_is_not_offered() -> None:
    for standing in (
        replace(WARNED, extensions=2),
        replace(WARNED, cause=Cause.LIFETIME),
        STANDING,
    ):
        assert row_of(make_round(IDLE, standing)).may == ("hold", "release")


def test_who_left_the_team_ends_for_that_first() -> None:
    row = row_of(make_round(IDLE), leaves_at=NOW + MINUTE)
    assert (row.ends_at, row.sentence) == (NOW + MINUTE, "Its owner left the team, so it ends.")


@pytest.mark.parametrize("value", [None, float("nan"), 101.0])
def test_what_cannot_be_measured_is_not_shown_as_use(value) -> None:
    assert row_of(make_round(value=value)).utilisation is None


def test_memory_that_nobody_measures_is_null() -> None:
    assert row_to_json(row_of(make_round()))["memory"] is None


def test_rows_that_need_somebody_come_first() -> None:
    rows = [
        row_of(make_round(verdict, standing), replace(SERVER, user=user))
        for user, verdict, standing in [("alice", BUSY, STANDING), ("alice", IDLE, WARNED)]
    ]
    later = replace(rows[1], server=replace(SERVER, user="bob"), ends_at=NOW + 50 * MINUTE)
    assert sort_rows([rows[0], later, rows[1]]) == [rows[1], later, rows[0]]
    assert sort_rows([later, rows[0]], "person") == [rows[0], later]
    assert sort_rows([rows[0], rows[1]], "ends") == [rows[1], rows[0]]


def test_rows_are_chosen_by_parts_of_names() -> None:
    rows = [row_of(make_round()), row_of(make_round(IDLE, WARNED), replace(SERVER, user="bob"))]
    assert select_rows(rows, text=" BOB/l ") == rows[1:]
    assert select_rows(rows, text="operat") == rows
    assert select_rows(rows, state="working", team="ops", product="NVIDIA-A100") == rows[:1]
    assert select_rows(rows, team="flight") == []


def test_products_count_gpus_of_everybody_and_those_nobody_holds() -> None:
    rows = [row_of(make_round()), row_of(make_round(IDLE, WARNED))]
    inventory = Inventory(
        gpus=(GPUs(resource="nvidia.com/gpu", product="NVIDIA-A100", total=8, free=3),)
    )
    mig = Profile(name="mig", title="Slice", gpu=1, gpu_resource="nvidia.com/mig-1g.10gb")
    assert list_products(rows, inventory, {"a100": PROFILE, "mig": mig}) == [
        Product(name="NVIDIA-A100", held=4, working=2, idle=2, unknown=0, total=8, free=3),
        Product(name="mig-1g.10gb", held=0, working=0, idle=0, unknown=0, total=0, free=0),
    ]
    (product,) = list_products(rows, Inventory.UNKNOWN, {"a100": PROFILE})
    assert (product.total, product.free) == (None, None)


def test_a_sparkline_breaks_where_nothing_was_measured() -> None:
    assert spark_points((0.0, 100.0, None, 50.0)) == ["0.5,15.0 1.5,1.0", "3.5,8.0 3.5,8.0"]
    assert spark_points((None,) * 60) == []
