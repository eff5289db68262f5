"""What pages and API show of the records."""

from datetime import UTC, datetime

import pytest

from spectrum_spawner.profiles import Profile
from spectrum_spawner.service.presentation import (
    bars,
    condition_text,
    csv_cells,
    gpus_text,
    grant_text,
    list_details,
    quota_text,
    team_to_json,
)
from spectrum_spawner.service.servers import Person, Server
from spectrum_spawner.service.team_sheet import Condition, TeamSheet

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"
READY = {"type": "Ready", "status": "True", "message": ""}
PROFILES = {
    "cpu": Profile(name="cpu", title="Small"),
    "gpu-2": Profile(name="gpu-2", title="Two GPUs", gpu=2),
}


def make_sheet(usage=None, conditions=(READY,), **spec) -> TeamSheet:
    status = {"conditions": list(conditions), "usage": {"gpus": usage or {}}}
    metadata = {"name": "ops", "uid": "1"}
    return TeamSheet.from_object({"metadata": metadata, "spec": spec, "status": status})


@pytest.mark.parametrize(
    ("usage", "spec", "text"),
    [
        ({GPU: {"used": 1, "hard": 2}}, {}, "1 of 2 in use"),
        ({GPU: {"used": 0, "hard": 0}}, {"quota": {"gpus": {GPU: 0}}}, "none"),
        ({}, {}, "no limit"),
        (
            {GPU: {"used": 1, "hard": 2}, MIG: {"used": 0, "hard": 4}},
            {},
            f"1 of 2 in use ({GPU}), 0 of 4 in use ({MIG})",
        ),
        (
            {GPU: {"used": 4, "hard": 2}},
            {},
            "4 in use, 2 allowed: nothing is stopped for that, and nothing more starts",
        ),
        ({GPU: {"used": 3}}, {}, "3 in use, no limit"),
    ],
)
def test_a_quota_in_words(usage, spec, text) -> None:
    assert quota_text(make_sheet(usage, **spec)) == text


def test_a_quota_that_is_not_counted_yet_is_not_called_empty() -> None:
    assert quota_text(make_sheet(conditions=(), quota={"gpus": {}})) == "not counted yet"


def test_a_bar_is_never_wider_than_its_place() -> None:
    usage = {GPU: {"used": 4, "hard": 2}, MIG: {"used": 1, "hard": 4}, "x.y/z": {"used": 1}}
    assert [bar.percent for bar in bars(make_sheet(usage).team)] == [100, 25, 100]


@pytest.mark.parametrize(
    ("kind", "status", "message", "text"),
    [
        ("Ready", "True", "", "Ready for servers."),
        ("Ready", "False", "No room.", "Not ready for servers yet: No room."),
        ("QuotaEnforced", "Unknown", "", "The quota does not count yet."),
        ("Else", "True", "Fine.", "Else: Fine."),
        ("Else", "False", "", "Not Else."),
    ],
)
def test_conditions_in_words(kind, status, message, text) -> None:
    assert condition_text(Condition(kind=kind, status=status, message=message)) == text


def test_a_team_for_the_api() -> None:
    grants = {
        "r-1": {"until": "2026-02-01T00:00:00Z", "gpus": {GPU: 2}, "profiles": ["gpu-2"]},
        "old": {"until": "2026-01-01T00:00:00Z", "gpus": {GPU: 9}},
    }
    sheet = make_sheet({GPU: {"used": 1, "hard": 2}}, grants=grants, idle={"minutes": 30})
    assert team_to_json(sheet, datetime(2026, 1, 31, tzinfo=UTC)) == {
        "name": "ops",
        "displayName": "ops",
        "ready": True,
        "conditions": [{"type": "Ready", "status": "True", "message": ""}],
        "gpus": {GPU: {"used": 1, "allowed": 2}},
        "grants": [
            {
                "id": "r-1",
                "gpus": {GPU: 2},
                "profiles": ["gpu-2"],
                "until": "2026-02-01T00:00:00.000000Z",
                "reason": "",
                "requestedBy": "",
                "approvedBy": "",
            }
        ],
        "defaultProfile": None,
        "idleMinutes": 30,
        "problem": "",
    }
    assert grant_text(sheet.grants[1], PROFILES) == f"2 × {GPU} and profile Two GPUs"


def test_a_profile_that_is_gone_has_unknown_gpus() -> None:
    def text(profile: str) -> str:
        return gpus_text(Server(user="a", name="", team="ops", profile=profile), PROFILES)

    assert [text(name) for name in ("cpu", "gpu-2", "gone")] == ["none", f"2 × {GPU}", "unknown"]


def test_a_record_tells_its_evidence_in_words() -> None:
    reading = {
        "source": "gpu",
        "answer": "idle",
        "text": "0 %",
        "since": "2026-01-31T09:00:00+00:00",
        "at": "2026-01-31T10:00:00+00:00",
    }
    told = {"source": "cpu", "answer": "unknown", "text": "", "since": None, "at": None}
    details = {"rule": "gpu", "warned_at": None, "extensions": 2, "evidence": [reading, told, 7]}
    assert list_details(details) == [
        ("gpu", "idle: 0 %, since 2026-01-31T09:00:00+00:00, measured 2026-01-31T10:00:00+00:00"),
        ("cpu", "unknown, never measured"),
        ("rule", "gpu"),
        ("extensions", "2"),
    ]


def test_a_spreadsheet_runs_nothing_that_somebody_wrote() -> None:
    assert csv_cells(["=1+1", "+1", "-1", "@x", "\t=1", "fine", ""]) == [
        "'=1+1",
        "'+1",
        "'-1",
        "'@x",
        "'\t=1",
        "fine",
        "",
    ]


def test_a_server_that_chose_nonsense_has_no_team() -> None:
    model = {"name": "", "user_options": {"team": ["x"]}, "started": None, "last_activity": None}
    person = Person.from_model({"name": "a", "groups": [], "servers": {"": model}})
    assert person.servers == (Server(user="a", name="", team="", profile=""),)
