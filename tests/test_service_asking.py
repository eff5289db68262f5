"""Requests: how they are read, and what granting them writes."""

import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from spectrum_spawner.profiles import Profile
from spectrum_spawner.service.asking import (
    Request,
    make_grant_patch,
    make_team,
    read_request,
    read_sentence,
)
from spectrum_spawner.service.problem import Problem
from spectrum_spawner.service.team_sheet import TeamSheet

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
GPU = "nvidia.com/gpu"


def make_sheet(name: str, **spec) -> TeamSheet:
    return TeamSheet.from_object({"metadata": {"name": name, "uid": "1"}, "spec": spec})


TEAMS = {
    "ops": make_sheet("ops", quota={"gpus": {GPU: 2}}, profiles=["cpu-small"]),
    "free": make_sheet("free"),
}
PROFILES = {
    "cpu-small": Profile(name="cpu-small", title="Small"),
    "gpu-1": Profile(name="gpu-1", title="One GPU", gpu=1),
}
MORE = {
    "kind": "quota",
    "team": "ops",
    "resource": GPU,
    "amount": 2,
    "reason": "The spring model.",
    "until": "2026-03-31",
}
PROFILE = {
    "kind": "profile",
    "team": "ops",
    "profile": "gpu-1",
    "reason": "Try it.",
    "until": "2026-03-31T18:00:00Z",
}
NEW = {**MORE, "kind": "team", "team": "vision"}


def read(fields) -> Request:
    return read_request(fields, id="r-1", asked_by="alice", now=NOW, teams=TEAMS, profiles=PROFILES)


def without(fields, name):
    return {key: value for key, value in fields.items() if key != name}


def test_a_request_for_more_gpus() -> None:
    assert read(MORE) == Request(
        id="r-1",
        kind="quota",
        team="ops",
        team_uid="1",
        resource=GPU,
        amount=2,
        reason="The spring model.",
        until=datetime(2026, 3, 31, 23, 59, 59, tzinfo=UTC),
        asked_by="alice",
        asked_at=NOW,
    )


def test_numbers_of_a_form_come_as_text() -> None:
    assert read({**MORE, "amount": "2"}) == read(MORE)


def test_a_new_team_is_of_the_group_of_its_name_unless_told() -> None:
    assert read(NEW).group == "vision"
    assert read({**NEW, "group": "/research/vision/"}).group == "research/vision"


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({}, "A request is of kind"),
        ({**MORE, "kind": ["quota"]}, "A request is of kind"),
        ({**MORE, "namespace": "x"}, "has no “namespace”"),
        ({**MORE, "team": "nope"}, "There is no team “nope”"),
        ({**MORE, "team": "<script>"}, "There is no team"),
        ({**MORE, "team": 7}, "A team is needed"),
        ({**MORE, "resource": "amd.com/gpu"}, "Choose the accelerator"),
        ({**MORE, "amount": 0}, "from 1 to 1000"),
        ({**MORE, "amount": -1}, "from 1 to 1000"),
        ({**MORE, "amount": 1001}, "from 1 to 1000"),
        ({**MORE, "amount": 0.5}, "from 1 to 1000"),
        ({**MORE, "amount": float("nan")}, "from 1 to 1000"),
        ({**MORE, "amount": True}, "from 1 to 1000"),
        ({**MORE, "amount": "1e3"}, "from 1 to 1000"),
        ({**MORE, "amount": "²"}, "from 1 to 1000"),
        (without(MORE, "amount"), "from 1 to 1000"),
        ({**MORE, "reason": " \n "}, "A reason is needed"),
        ({**MORE, "reason": "x" * 10**6}, "please shorten it"),
        ({**MORE, "reason": "x" * 501}, "please shorten it"),
        ({**MORE, "reason": "a\0b"}, "characters that cannot be shown"),
        ({**MORE, "reason": "a\ud800b"}, "characters that cannot be shown"),
        ({**MORE, "reason": {}}, "must be a text, not dict"),
        (without(MORE, "until"), "An end date is needed"),
        ({**MORE, "until": "soon"}, "is no date"),
        ({**MORE, "until": "2026-01-30"}, "The end date is past"),
        ({**MORE, "until": "2027-03-01"}, "more than a year ahead"),
        ({**MORE, "until": "9999-99-99"}, "is no date"),
        ({**MORE, "until": "2026-02-30"}, "is no date"),
        ({**MORE, "until": "0001-01-01T00:00:00+23:59"}, "is no date"),
        ({**MORE, "team": "free"}, "has no limit on accelerators"),
        ({**PROFILE, "profile": "nope"}, "There is no such profile"),
        ({**PROFILE, "profile": []}, "There is no such profile"),
        ({**PROFILE, "profile": "cpu-small"}, "may use profile “cpu-small” already"),
        ({**PROFILE, "amount": 1}, "has no “amount”"),
        ({**NEW, "team": "ops"}, "There is a team “ops” already"),
        ({**NEW, "team": "Vision Team"}, "cannot be a team's name"),
        ({**NEW, "team": "a--b"}, "cannot be a team's name"),
        ({**NEW, "team": "x" * 64}, "cannot be a team's name"),
        ({**NEW, "group": "x" * 256}, "A group's name may be 255"),
        ({**NEW, "group": 5}, "must be a text"),
    ],
)
def test_what_cannot_be_asked_is_told_in_one_sentence(fields, sentence) -> None:
    with pytest.raises(Problem, match=re.escape(sentence)) as refused:
        read(fields)
    assert 400 <= refused.value.status < 500
    assert len(refused.value.sentence) < 400


def test_blanks_of_a_sentence_are_one_space() -> None:
    assert read_sentence("A reason", " for\r\n\tthe  model ") == "for the model"


def test_granting_more_gpus_takes_lapsed_grants_out() -> None:
    decided = replace(read(MORE), decided_by="admin")
    lapsed = {"until": "2026-01-30T00:00:00Z", "gpus": {GPU: 1}}
    active = {"until": "2026-02-01T00:00:00Z", "gpus": {GPU: 1}}
    sheet = make_sheet("ops", grants={"old": lapsed, "new": active})
    assert make_grant_patch(decided, sheet, NOW) == {
        "metadata": {"uid": "1"},
        "spec": {
            "grants": {
                "old": None,
                "r-1": {
                    "gpus": {GPU: 2},
                    "until": "2026-03-31T23:59:59Z",
                    "reason": "The spring model.",
                    "requestedBy": "alice",
                    "approvedBy": "admin",
                },
            }
        },
    }


def test_granting_a_profile() -> None:
    grants = make_grant_patch(read(PROFILE), None, NOW)["spec"]["grants"]
    assert grants["r-1"]["profiles"] == ["gpu-1"]
    assert "gpus" not in grants["r-1"]


def test_a_new_team_has_no_gpus_but_granted_ones() -> None:
    team = make_team(replace(read(NEW), decided_by="admin"), hub_namespace="hub")
    assert team == {
        "apiVersion": "spectrum.dev/v1alpha1",
        "kind": "Team",
        "metadata": {"name": "vision", "namespace": "hub"},
        "spec": {
            "groups": ["vision"],
            "quota": {"gpus": {GPU: 0}},
            "grants": {
                "r-1": {
                    "gpus": {GPU: 2},
                    "until": "2026-03-31T23:59:59Z",
                    "reason": "The spring model.",
                    "requestedBy": "alice",
                    "approvedBy": "admin",
                }
            },
        },
    }
