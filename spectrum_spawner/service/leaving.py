"""Who left the team in which their server runs, and what follows when. Pure.

Unknown is never "left": of a team that cannot be read nothing follows, and what was noticed
before stays as it is.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from spectrum_spawner.service.moments import show
from spectrum_spawner.service.servers import Person, Server
from spectrum_spawner.teams import Team, teams_of

Run = tuple[str, str, str, datetime | None]  # owner, server, team, and when this run began


@dataclass(frozen=True, kw_only=True)
class Departure:
    """A running server whose owner was found outside its team.

    `started` tells one run of the server from the next; `seen_at` is when the time of grace
    began.
    """

    user: str
    server: str
    team: str
    started: datetime | None
    seen_at: datetime

    @property
    def run(self) -> Run:
        return self.user, self.server, self.team, self.started

    def ends_at(self, grace: timedelta) -> datetime:
        return self.seen_at + grace


@dataclass(frozen=True, kw_only=True)
class Steps:
    """What one look asks for: `warn` of those that are new, `stop` those whose time is over,
    `back` are in their team again, `gone` run no more."""

    warn: tuple[Departure, ...] = ()
    stop: tuple[Departure, ...] = ()
    back: tuple[Departure, ...] = ()
    gone: tuple[Departure, ...] = ()


def decide(
    people: Iterable[Person],
    teams: Mapping[str, Team],
    known: Iterable[Departure],
    *,
    now: datetime,
    grace: timedelta,
) -> Steps:
    """What follows from who is in which group now.

    `people` are all who have an active server, `teams` all that exist, `known` what earlier
    looks noticed. A start that is still pending is nobody's business: it is checked by itself.
    """
    inside = {
        _run_of(server): _is_inside(person, teams.get(server.team))
        for person in people
        for server in person.servers
        if server.pending != "spawn"
    }
    before = {departure.run: departure for departure in known}
    left = [before[run] for run in before if inside.get(run) is False]
    return Steps(
        warn=tuple(
            Departure(user=run[0], server=run[1], team=run[2], started=run[3], seen_at=now)
            for run, is_inside in inside.items()
            if is_inside is False and run not in before
        ),
        stop=tuple(departure for departure in left if departure.ends_at(grace) <= now),
        back=tuple(before[run] for run in before if inside.get(run) is True),
        gone=tuple(before[run] for run in before if run not in inside),
    )


def warning(team: str) -> str:
    """What the owner reads beside the time at which it ends; `team` is what people call it."""
    return (
        f"You are no longer in team {team}: this server will be stopped unless you are added "
        "again. Save your work."
    )


def explanation(departure: Departure, team: str, grace: timedelta, *, has_bucket: bool) -> str:
    """What the record of the warning says, which leads read; `has_bucket` is of the team."""
    sentence = (
        f"{departure.user} is no longer in team {team}: the server is stopped at "
        f"{show(departure.ends_at(grace))} unless that changes."
    )
    if has_bucket:
        sentence += (
            " The keys of the team's bucket stay valid: ask a cluster administrator for new ones."
        )
    return sentence


def _run_of(server: Server) -> Run:
    return server.user, server.name, server.team, server.started


def _is_inside(person: Person, team: Team | None) -> bool | None:
    """Whether somebody is in a team; None while nobody knows the team."""
    return None if team is None else bool(teams_of(person.name, person.groups, [team]))
