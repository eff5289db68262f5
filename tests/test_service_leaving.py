"""Who left the team in which their server runs."""

from datetime import UTC, datetime, timedelta

from spectrum_spawner.service.leaving import Departure, Steps, decide, explanation, warning
from spectrum_spawner.service.servers import Person, Server
from spectrum_spawner.teams import Team

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
STARTED = datetime(2026, 1, 31, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)
OPS = Team(name="ops", uid="1", display_name="Operations", groups=frozenset({"ops", "ops-guests"}))
SERVER = Server(user="alice", name="", team="ops", profile="gpu-1", started=STARTED)
LEFT = Departure(user="alice", server="", team="ops", started=STARTED, seen_at=NOON)


def look(groups=(), *, known=(), now=NOON, server=SERVER, teams=None) -> Steps:
    """One look at alice with one server."""
    people = [Person(name="alice", groups=frozenset(groups), servers=(server,) if server else ())]
    teams = {"ops": OPS} if teams is None else teams
    return decide(people, teams, known, now=now, grace=HOUR)


def test_a_member_is_left_alone() -> None:
    assert look(["ops"]) == Steps()
    assert look(["ops-guests", "else"]) == Steps()


def test_a_teams_own_server_has_left_no_team() -> None:
    server = Server(user="team:ops", name="", team="ops", profile="gpu-1", started=STARTED)
    account = Person(name="team:ops", groups=frozenset(), servers=(server,))
    assert decide([account], {"ops": OPS}, [], now=NOON, grace=HOUR) == Steps()


def test_who_is_outside_is_warned_once() -> None:
    assert look([]) == Steps(warn=(LEFT,))
    assert look([], known=[LEFT], now=NOON + HOUR / 2) == Steps()


def test_the_server_ends_when_the_time_of_grace_is_over() -> None:
    assert look([], known=[LEFT], now=NOON + HOUR) == Steps(stop=(LEFT,))


def test_who_is_added_again_keeps_the_server() -> None:
    assert look(["ops"], known=[LEFT], now=NOON + 2 * HOUR) == Steps(back=(LEFT,))


def test_a_server_that_ended_is_forgotten() -> None:
    assert look([], known=[LEFT], server=None) == Steps(gone=(LEFT,))


def test_the_next_run_of_a_server_has_its_own_time_of_grace() -> None:
    later = Server(user="alice", name="", team="ops", profile="gpu-1", started=NOON)
    expected = Departure(user="alice", server="", team="ops", started=NOON, seen_at=NOON + HOUR)
    assert look([], known=[LEFT], now=NOON + HOUR, server=later) == Steps(
        warn=(expected,), gone=(LEFT,)
    )


def test_of_a_team_that_is_not_there_nothing_follows() -> None:
    assert look([], teams={}) == Steps()
    assert look([], known=[LEFT], now=NOON + 2 * HOUR, teams={}) == Steps()


def test_a_start_that_is_pending_is_not_judged() -> None:
    pending = Server(user="alice", name="", team="ops", profile="gpu-1", pending="spawn")
    assert look([], server=pending) == Steps()


def test_the_warning_says_what_to_do() -> None:
    assert warning("Operations") == (
        "You are no longer in team Operations: this server will be stopped unless you are added "
        "again. Save your work."
    )


def test_the_record_of_a_warning_says_when_and_what_somebody_who_left_still_has() -> None:
    when = (
        "alice is no longer in team Operations: the server is stopped at 2026-01-31 13:00 UTC "
        "unless that changes."
    )
    assert explanation(LEFT, "Operations", HOUR, has_bucket=False) == when
    assert explanation(LEFT, "Operations", HOUR, has_bucket=True) == (
        f"{when} The keys of the team's bucket stay valid: ask a cluster administrator for new "
        "ones."
    )
