"""Who may do what, by the pure rules. The table of the running service is in tests/hub."""

import pytest

from spectrum_spawner.service.rights import (
    AuditScope,
    Viewer,
    audit_scope,
    find_viewer,
    may_ask,
    may_decide,
    may_keep_or_release,
    may_see_hours,
    may_see_server,
    may_see_team,
    may_set_preferences,
    may_stop,
    may_try_policy,
)
from spectrum_spawner.service.servers import Server
from spectrum_spawner.teams import Team

ACT = "custom:spectrum:act"
OPS = Team(
    name="ops",
    uid="1",
    display_name="Operations",
    groups=frozenset({"ops"}),
    leads=frozenset({"bob"}),
    lead_groups=frozenset({"chiefs"}),
)
FLIGHT = Team(name="flight", uid="2", display_name="Flight", groups=frozenset({"flight"}))
IN_OPS = Server(user="alice", name="gpu", team="ops", profile="gpu-1")
IN_OPS_OF_BOB = Server(user="bob", name="", team="ops", profile="gpu-1")
IN_FLIGHT = Server(user="alice", name="", team="flight", profile="gpu-1")


def view(name: str, *groups: str, scopes=(ACT,), admin=False, kind="user") -> Viewer | None:
    model = {"name": name, "groups": list(groups), "scopes": list(scopes), "admin": admin}
    return find_viewer({**model, "kind": kind}, [OPS, FLIGHT], [IN_OPS, IN_FLIGHT])


def test_rights_come_from_groups_of_now() -> None:
    assert view("alice", "ops") == Viewer(name="alice", teams=frozenset({"ops"}))
    assert view("alice") == Viewer(name="alice")


def test_a_named_lead_leads_while_in_the_team_and_a_lead_group_by_itself() -> None:
    assert view("bob", "ops").leads == {"ops"}
    assert view("bob").leads == frozenset()
    assert view("carol", "chiefs") == Viewer(name="carol", leads=frozenset({"ops"}))


def test_the_team_of_the_server_decides_who_may_stop_it() -> None:
    bob = view("bob", "ops", "flight")
    assert may_stop(bob, IN_OPS)
    assert not may_stop(bob, IN_FLIGHT)
    assert may_see_server(bob, IN_FLIGHT)


def test_a_teams_server_is_stopped_by_its_members() -> None:
    shared = Server(user="team:ops", name="", team="ops", profile="gpu-1")
    assert may_stop(view("alice", "ops"), shared)
    assert not may_stop(view("alice", "flight"), shared)
    assert not may_stop(view("alice", "ops"), IN_OPS_OF_BOB)
    assert not may_see_server(view("alice", "flight"), shared)


def test_ones_own_server_can_be_stopped_after_leaving_the_team() -> None:
    assert may_stop(view("alice"), IN_OPS)
    assert not may_see_team(view("alice"), "ops")


def test_a_servers_own_token_reads_that_server_and_its_team_only() -> None:
    viewer = view("alice", "ops", "flight", scopes=["custom:spectrum:report!server=alice/gpu"])
    assert viewer == Viewer(name="alice", teams=frozenset({"ops"}), server=("alice", "gpu"))
    assert may_see_team(viewer, "ops")
    assert not may_see_team(viewer, "flight")
    assert may_see_server(viewer, IN_OPS)
    assert not may_see_server(viewer, IN_FLIGHT)
    assert not may_stop(viewer, IN_OPS)
    assert not may_ask(viewer, "team", "new")
    assert audit_scope(viewer) == AuditScope(server=("alice", "gpu"))


def test_a_servers_own_token_keeps_and_releases_that_server_alone() -> None:
    viewer = view("alice", "ops", "flight", scopes=["custom:spectrum:report!server=alice/gpu"])
    assert may_keep_or_release(viewer, IN_OPS)
    assert not may_keep_or_release(viewer, IN_FLIGHT)
    bob = view("bob", "ops", "flight")
    assert may_keep_or_release(bob, IN_OPS)
    assert not may_keep_or_release(bob, IN_FLIGHT)


def test_policies_are_tried_by_who_answers_for_servers() -> None:
    admin, lead = view("admin", admin=True), view("bob", "ops", "flight")
    assert may_try_policy(admin)
    assert may_try_policy(admin, "flight")
    assert may_try_policy(lead)
    assert may_try_policy(lead, "ops")
    assert not may_try_policy(lead, "flight")
    assert not may_try_policy(view("alice", "ops"))
    server = view("alice", "chiefs", scopes=["custom:spectrum:report!server=alice/gpu"])
    assert not may_try_policy(server)


def test_a_servers_own_token_sees_no_team_that_its_owner_left() -> None:
    assert view("alice", scopes=["custom:spectrum:report!server=alice/gpu"]).teams == frozenset()


def test_an_administrators_server_has_no_rights_of_an_administrator() -> None:
    viewer = view("alice", "ops", scopes=["custom:spectrum:report!server=alice/"], admin=True)
    assert not viewer.admin
    assert not may_decide(viewer)
    assert not may_set_preferences(viewer, "ops")


@pytest.mark.parametrize(
    "scopes",
    [
        [],
        ["access:services!service=spectrum"],
        ["custom:spectrum:report!server=bob/"],
        ["custom:spectrum:report!server=alice/", "custom:spectrum:report!server=alice/gpu"],
        ["custom:spectrum:report!user=alice"],
        ["access:servers!server=alice/"],  # of a visit
    ],
)
def test_a_token_that_may_not_act_and_stands_for_no_server_sees_nothing(scopes) -> None:
    assert view("alice", "ops", scopes=scopes) is None


def test_services_see_nothing_whatever_their_scopes() -> None:
    assert view("board", kind="service", admin=True) is None


def test_gpu_hours_are_ones_own_and_those_of_teams_that_one_leads() -> None:
    bob = view("bob", "ops", "flight")
    assert may_see_hours(bob, user="alice", team="ops")
    assert may_see_hours(bob, user="bob", team="flight")
    assert not may_see_hours(bob, user="alice", team="flight")
    assert may_see_hours(view("admin", admin=True), user="alice", team="flight")
    server = view("alice", "ops", scopes=["custom:spectrum:report!server=alice/gpu"])
    assert not may_see_hours(server, user="alice", team="ops")


def test_members_ask_for_their_teams_and_anybody_for_a_new_one() -> None:
    alice = view("alice", "ops")
    assert may_ask(alice, "quota", "ops")
    assert not may_ask(alice, "profile", "flight")
    assert may_ask(view("erin"), "team", "vision")
    assert may_ask(view("carol", "chiefs"), "quota", "ops")


def test_who_reads_which_records() -> None:
    assert audit_scope(view("admin", admin=True)) == AuditScope(everything=True)
    assert audit_scope(view("bob", "ops", "flight")) == AuditScope(
        person="bob", teams=frozenset({"ops"}), stops_in=frozenset({"ops", "flight"})
    )
