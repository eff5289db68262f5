"""Who has a scratch disk."""

from dataclasses import replace

from spectrum_spawner.disks import find_holders, why_in_use
from spectrum_spawner.owner import Owner
from spectrum_spawner.pods import Pod

OWNER = Owner(hub="spectrum", team="flight", user="alice", server="two")
HOLDER = Pod(
    name="jupyter-alice-two",
    uid="1",
    owner=OWNER,
    start_id="s",
    phase="Running",
    claims=("home-alice", "scratch-1"),
)
OWN = replace(OWNER, server="")


def ask(*pods: Pod) -> str:
    return why_in_use("exp1", "scratch-1", pods, own=OWN)


def test_another_server_that_has_the_disk_is_named() -> None:
    assert ask(HOLDER) == (
        "Your scratch disk “exp1” is in use by your server “two”, and only one server at a time "
        "can use it: stop that one, or start this one with another disk or with none."
    )
    default = replace(HOLDER, owner=OWN)
    assert why_in_use("exp1", "scratch-1", [default], own=OWNER).startswith(
        "Your scratch disk “exp1” is in use by your default server, and only one server"
    )


def test_a_disk_is_free_that_only_the_server_itself_or_what_is_over_has() -> None:
    assert ask() == ""
    assert ask(replace(HOLDER, owner=OWN)) == ""
    assert ask(replace(HOLDER, claims=("home-alice", "scratch-2"))) == ""
    assert ask(replace(HOLDER, phase="Failed"), replace(HOLDER, phase="Succeeded")) == ""


def test_somebody_elses_server_is_not_named_whatever_their_claim_is_called() -> None:
    before = replace(OWNER, subject="idp|1")  # who was called alice before
    now = replace(OWN, subject="idp|2")
    assert find_holders([replace(HOLDER, owner=before)], "scratch-1", own=now) == []
    renamed = replace(HOLDER, owner=replace(OWNER, user="al", subject="idp|2"))
    assert find_holders([renamed], "scratch-1", own=now) == [renamed]
    for other in ({"user": "bob"}, {"team": "ops"}, {"hub": "other"}):
        assert ask(replace(HOLDER, owner=replace(OWNER, **other))) == ""


def test_a_server_that_stops_is_waited_for() -> None:
    stopping = replace(HOLDER, deleting=True)
    assert ask(stopping) == ""
    assert find_holders([stopping], "scratch-1", own=OWN) == [stopping]
