"""What decides whether a start may happen: the person's teams of now, the options, the cluster."""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from spectrum_spawner import accounts, names
from spectrum_spawner.choice import Choice, OptionError, choose
from spectrum_spawner.diagnosis import why_never_fits
from spectrum_spawner.disks import why_in_use
from spectrum_spawner.owner import Owner
from spectrum_spawner.profiles import Profile
from spectrum_spawner.quota import why_over_quota
from spectrum_spawner.refusals import Refusal
from spectrum_spawner.teams import Team, teams_of
from spectrum_spawner.views import Views

# Seconds that all of it may take: below JupyterHub's slow_spawn_timeout of 10 s, so that REST
# callers get the refusal.
PATIENCE = 8.0
MAX_SERVER_NAME = 253
# First parts of addresses of a server without a name, which one of that name would hide.
# fmt: off
RESERVED_NAMES = frozenset({
    "api", "custom", "doc", "edit", "favicon.ico", "files", "kernelspecs", "lab", "login", "logout",
    "lsp", "metrics", "nbconvert", "nbextensions", "notebooks", "oauth_callback", "proxy",
    "server-proxy", "spectrum", "static", "tensorboard", "terminals", "tree", "view", ".", "..",
})
# fmt: on


async def admit(
    views: Views,
    options: Mapping[str, Any],
    *,
    user: str,
    subject: str,
    server: str,
    groups: Iterable[str],
    profiles: Mapping[str, Profile],
    last_team: object,
) -> Choice:
    """Authorise one start of a user's `server`, within PATIENCE seconds.

    `options` and `last_team` as in `choice.choose`; `subject` as of an `Owner`; `groups` are
    those that the user is in now.
    The choice's team is prepared. Raises Refusal; creates nothing.
    """
    until = asyncio.get_running_loop().time() + PATIENCE
    try:
        check_server_name(server)
        _check_account(user, options)
        teams = await find_teams(views, user, groups)
        choice = choose(options, teams=teams, profiles=profiles, last_team=last_team)
    except OptionError as error:
        raise refusal_of_options(error) from error
    if never := why_never_fits(choice.profile, views.inventory):
        raise Refusal(never, reason="capacity", status_code=409)
    choice = await _wait_prepared(views, choice, until=until)
    if over := _find_over_quota(views, choice, user=user, server=server):
        raise Refusal(over, reason="quota", status_code=409, request="quota")
    own = Owner(
        hub=views.hub_namespace, team=choice.team.name, user=user, server=server, subject=subject
    )
    if in_use := _find_in_use(views, choice, own):
        raise Refusal(in_use, reason="in-use", status_code=409)
    return choice


def refusal_of_options(error: OptionError) -> Refusal:
    """The refusal of a start with such options."""
    return Refusal(str(error), reason="options", status_code=error.status, request=error.request)


async def find_teams(views: Views, user: str, groups: Iterable[str]) -> list[Team]:
    """Teams of a user in `groups`; raises Refusal while nobody knows the teams."""
    with suppress(TimeoutError):
        await views.teams.wait_synced(PATIENCE)
    if not views.teams.synced:
        raise Refusal(
            "The hub cannot read the teams from the cluster right now: try again in a minute.",
            reason="unreachable",
            status_code=503,
            log_message=views.teams.error,
        )
    return teams_of(user, groups, views.teams)


async def _wait_prepared(views: Views, choice: Choice, *, until: float) -> Choice:
    """The choice with its team once the controller has prepared that; else raises Refusal."""
    name = choice.team.name

    def find_prepared() -> Team | None:
        team = views.teams.get(name)
        return team if team is not None and team.ready and team.namespace else None

    left = max(0.0, until - asyncio.get_running_loop().time())
    try:
        team = await views.teams.wait(find_prepared, key=name, timeout=left)
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


def _find_over_quota(views: Views, choice: Choice, *, user: str, server: str) -> str:
    """A sentence if the team's GPUs are in use, "" also as long as nobody knows.

    Counted are the pods that the view has, not what the Team's status says is used: that is
    seconds behind, and somebody who just stopped a server would be refused the next one.
    """
    assert choice.team.namespace is not None
    view = views.pods(choice.team.namespace)
    if not view.synced or view.stale_since is not None:
        return ""
    own = names.server_name(user, server)
    others = [pod for pod in view if pod.name != own]
    return why_over_quota(choice, others, user=user, now=datetime.now(UTC))


def _find_in_use(views: Views, choice: Choice, own: Owner) -> str:
    """A sentence if another server has the scratch disk, "" also as long as nobody knows."""
    if not choice.scratch:
        return ""
    assert choice.team.namespace is not None
    pods = views.pods(choice.team.namespace)
    claim = names.scratch_claim(own.user, choice.scratch)
    return why_in_use(choice.scratch, claim, pods, own=own)


def _check_account(user: str, options: Mapping[str, Any]) -> None:
    own = accounts.team_of(user)
    if own is not None and options.get("team", own) != own:
        raise OptionError(
            f"A server of team “{own}” runs in that team alone: leave the team out.", status=403
        )


def check_server_name(name: str) -> None:
    """A server's name goes into annotations and URLs: printable, of bounded length, and its own.

    The address of one that were called `lab` is that of a page of the default server.
    """
    if name in RESERVED_NAMES:
        raise OptionError(
            f"A server cannot be called “{name}”: that is an address of the server without a name. "
            "Choose another name."
        )
    if len(name) > MAX_SERVER_NAME or not name.isprintable():
        raise OptionError(
            f"The name of a server has at most {MAX_SERVER_NAME} characters, all of them printable."
        )
