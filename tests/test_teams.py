"""The Team record, and which teams somebody is in."""

import pytest

from spectrum_spawner.teams import (
    Bucket,
    Dataset,
    Scratch,
    Share,
    Team,
    Withheld,
    is_lead,
    teams_of,
)


def make_object(name: str, spec: dict | None = None, status: dict | None = None) -> dict:
    return {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": spec or {},
        **({"status": status} if status else {}),
    }


def test_a_prepared_team_is_read_whole() -> None:
    spec = {
        "displayName": "Flight",
        "groups": ["flight", "pilots"],
        "leads": ["alice"],
        "leadGroups": ["captains"],
        "profiles": ["gpu-1"],
        "defaultProfile": "gpu-1",
        "idle": {"minutes": 45},
        "template": "crew",
        "storage": {"home": {"size": "5Gi", "storageClass": "fast"}},
    }
    status = {
        "namespace": "spectrum-flight",
        "gid": 100000,
        "servers": 3,
        "granted": {"profiles": ["gpu-8"], "gpus": {"nvidia.com/gpu": 8}},
        "conditions": [{"type": "Ready", "status": "True", "message": "all there"}],
        "storage": {
            "share": {"claim": "share", "size": "50Gi", "phase": "Bound", "prepared": True},
            "scratch": {"size": "20Gi", "storageClass": "rook-ceph-block"},
            "datasets": [
                {"name": "digits", "title": "Digits", "claim": "dataset-digits", "size": "1Gi"}
            ],
            "withheld": [{"kind": "dataset", "name": "iris", "why": "It is not bound."}],
            "missingClasses": ["typo"],
            "bucket": {"name": "flight", "endpoint": "http://rgw.rook-ceph.svc", "ready": True},
        },
        "usage": {"gpus": {"nvidia.com/gpu": {"used": 1, "hard": 2}, "amd.com/gpu": {"used": 0}}},
    }
    assert Team.from_object(make_object("flight", spec, status)) == Team(
        name="flight",
        uid="uid-flight",
        display_name="Flight",
        groups=frozenset({"flight", "pilots"}),
        leads=frozenset({"alice"}),
        lead_groups=frozenset({"captains"}),
        profiles=frozenset({"gpu-1"}),
        granted_profiles=frozenset({"gpu-8"}),
        default_profile="gpu-1",
        idle_minutes=45,
        template="crew",
        home_size="5Gi",
        home_storage_class="fast",
        share=Share(claim="share", prepared=True),
        scratch=Scratch(size="20Gi", storage_class="rook-ceph-block"),
        datasets=(Dataset(name="digits", title="Digits", claim="dataset-digits", size="1Gi"),),
        bucket=Bucket(name="flight", ready=True),
        withheld=(Withheld(kind="dataset", name="iris", why="It is not bound."),),
        missing_classes=frozenset({"typo"}),
        namespace="spectrum-flight",
        gid=100000,
        ready=True,
        message="all there",
        servers=3,
        gpus_used={"nvidia.com/gpu": 1, "amd.com/gpu": 0},
        gpus_hard={"nvidia.com/gpu": 2},
    )


def test_a_team_of_which_only_the_name_is_known_is_its_own_group_and_not_ready() -> None:
    assert Team.from_object(make_object("ops")) == Team(
        name="ops",
        uid="uid-ops",
        display_name="ops",
        groups=frozenset({"ops"}),
        gpus_used={},
        gpus_hard={},
    )


def test_storage_of_which_little_is_known_yet_is_read_as_far_as_it_goes() -> None:
    storage = {
        "share": {"claim": "share", "phase": "Pending"},
        "scratch": {"size": "20Gi"},
        "datasets": [{"name": "digits", "claim": "dataset-digits"}],
        "bucket": {"name": "flight"},
    }
    team = Team.from_object(make_object("flight", status={"storage": storage}))
    assert (team.share, team.scratch, team.datasets, team.bucket) == (
        Share(claim="share", prepared=False),
        Scratch(size="20Gi", storage_class=""),
        (Dataset(name="digits", title="digits", claim="dataset-digits"),),
        Bucket(name="flight", ready=False),
    )


@pytest.mark.parametrize(
    "storage",
    [{}, {"share": {}, "scratch": {}, "datasets": [], "bucket": {}}, {"share": {"size": "1Gi"}}],
)
def test_what_a_team_is_not_offered_is_none(storage: dict) -> None:
    team = Team.from_object(make_object("flight", status={"storage": storage}))
    assert (team.share, team.scratch, team.datasets, team.bucket) == (None, None, (), None)


def test_groups_are_written_with_or_without_the_slashes_around_them() -> None:
    spec = {"groups": ["/lines/flight", "pilots/"], "leadGroups": ["/captains/"]}
    team = Team.from_object(make_object("flight", spec))
    assert team.groups == {"lines/flight", "pilots"}
    assert team.lead_groups == {"captains"}


def test_one_is_in_the_teams_of_ones_groups_in_the_order_of_their_display_names() -> None:
    teams = [
        Team.from_object(make_object("z", {"displayName": "alpha", "groups": ["a"]})),
        Team.from_object(make_object("b", {"displayName": "Beta", "groups": ["b", "a"]})),
        Team.from_object(make_object("c", {"groups": ["c"]})),
    ]
    assert [team.name for team in teams_of("alice", ["a", "unknown"], teams)] == ["z", "b"]
    assert teams_of("alice", [], teams) == []


def test_an_account_of_a_team_is_in_that_team_alone() -> None:
    teams = [Team.from_object(make_object(name, {})) for name in ("ops", "flight")]
    assert [team.name for team in teams_of("team:ops", [], teams)] == ["ops"]
    assert teams_of("team:elsewhere", [], teams) == []


@pytest.mark.parametrize(
    ("name", "groups", "leads"),
    [
        pytest.param("alice", ["flight"], True, id="named, and in the team"),
        pytest.param("alice", ["ops"], False, id="named, and no longer in the team"),
        pytest.param("alice", [], False, id="named, and in no team"),
        pytest.param("bob", ["flight"], False, id="a member"),
        pytest.param("carol", ["captains"], True, id="in a lead group, and in no other"),
        pytest.param("carol", ["flight", "captains"], True, id="in a lead group and in the team"),
        pytest.param("carol", ["captain"], False, id="in a group of another name"),
    ],
)
def test_named_leads_lead_while_they_are_members_and_lead_groups_by_themselves(
    name: str, groups: list[str], leads: bool
) -> None:
    spec = {"leads": ["alice"], "leadGroups": ["captains"]}
    team = Team.from_object(make_object("flight", spec))
    assert is_lead(name, groups, team) is leads
