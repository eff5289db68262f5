"""The Team record, and which teams somebody is in."""

from spectrum_spawner.teams import Team, teams_of


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
        "profiles": ["gpu-1"],
        "storage": {"home": {"size": "5Gi", "storageClass": "fast"}},
    }
    status = {
        "namespace": "spectrum-flight",
        "gid": 100000,
        "conditions": [{"type": "Ready", "status": "True", "message": "all there"}],
        "usage": {"gpus": {"nvidia.com/gpu": {"used": 1, "hard": 2}, "amd.com/gpu": {"used": 0}}},
    }
    assert Team.from_object(make_object("flight", spec, status)) == Team(
        name="flight",
        uid="uid-flight",
        display_name="Flight",
        groups=frozenset({"flight", "pilots"}),
        leads=frozenset({"alice"}),
        profiles=frozenset({"gpu-1"}),
        home_size="5Gi",
        home_storage_class="fast",
        namespace="spectrum-flight",
        gid=100000,
        ready=True,
        message="all there",
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


def test_one_is_in_the_teams_of_ones_groups_in_the_order_of_their_display_names() -> None:
    teams = [
        Team.from_object(make_object("z", {"displayName": "alpha", "groups": ["a"]})),
        Team.from_object(make_object("b", {"displayName": "Beta", "groups": ["b", "a"]})),
        Team.from_object(make_object("c", {"groups": ["c"]})),
    ]
    assert [team.name for team in teams_of(["a", "unknown"], teams)] == ["z", "b"]
    assert teams_of([], teams) == []
