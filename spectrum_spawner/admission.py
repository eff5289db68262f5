"""What a start needs to know of teams now: which ones somebody is in, and that one is prepared."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from spectrum_spawner.profiles import Choice, OptionError
from spectrum_spawner.refusals import Refusal
from spectrum_spawner.teams import Team, teams_of
from spectrum_spawner.views import Views

PATIENCE = 8.0  # seconds, below JupyterHub's slow_spawn_timeout: REST callers get the refusal
MAX_SERVER_NAME = 253


async def find_teams(views: Views, groups: Iterable[str]) -> list[Team]:
    """Teams of somebody in `groups`; raises Refusal while nobody knows the teams."""
    with suppress(TimeoutError):
        await views.teams.wait_synced(PATIENCE)
    if not views.teams.synced:
        raise Refusal(
            "The hub cannot read the teams from the cluster right now: try again in a minute.",
            reason="unreachable",
            status_code=503,
            log_message=views.teams.error,
        )
    return teams_of(groups, views.teams)


async def wait_prepared(views: Views, choice: Choice) -> Choice:
    """The choice with its team once the controller has prepared that; else raises Refusal."""
    name = choice.team.name

    def find_prepared() -> Team | None:
        team = views.teams.get(name)
        return team if team is not None and team.ready and team.namespace else None

    try:
        team = await views.teams.wait(find_prepared, key=name, timeout=PATIENCE)
    except TimeoutError:
        known = views.teams.get(name)
        why = f" ({known.message})" if known is not None and known.message else ""
        raise Refusal(
            f"Team {choice.team.display_name} is not ready yet{why}: try again in a moment, "
            "and ask a cluster administrator if this stays.",
            reason="team",
            status_code=409,
        ) from None
    return replace(choice, team=team)


def check_server_name(name: str) -> None:
    """A server's name goes into annotations and URLs: printable, and of bounded length."""
    if len(name) > MAX_SERVER_NAME or not name.isprintable():
        raise OptionError(
            f"The name of a server has at most {MAX_SERVER_NAME} characters, all of them printable."
        )
