"""Going on without a GPU: the same server again, on a profile of its team that has none.

It is written down, stopped, and once its pod is gone started anew. Should that not work, the
server is stopped and its files are there: its owner's home page says so, and why.
"""

import asyncio
import logging

from spectrum_spawner.audit import Record
from spectrum_spawner.profiles import Profile, cpu_profiles, default_profile
from spectrum_spawner.service.context import Context
from spectrum_spawner.service.hub import HubError, HubRefused
from spectrum_spawner.service.ledger import LedgerError
from spectrum_spawner.service.problem import Problem, quoted
from spectrum_spawner.service.records import SERVICE, name_of
from spectrum_spawner.service.rights import Viewer
from spectrum_spawner.service.servers import Server
from spectrum_spawner.service.stops import (
    WRITE_WITHIN,
    find_mine,
    refuse_shared,
    stop,
    tell_failure,
)
from spectrum_spawner.teams import Team

PAUSE = 1.0  # seconds between two looks for the end of a server
GONE_WITHIN = 300.0  # seconds that the end of a server may take until it is not started any more

_log = logging.getLogger("spectrum.service")


async def continue_server(
    context: Context, viewer: Viewer, *, user: str, server: str, profile: str = ""
) -> Profile:
    """Restart a server without a GPU, on the named `profile` or the one that fits best.

    Returns the profile once the end of the server was asked for; the rest goes on by itself.
    Raises Problem, and nothing has changed then.
    """
    found = await find_mine(context, viewer, user, server, verb="restarted")
    if viewer.server is not None:
        await refuse_shared(context, found)
    chosen = _choose(context, found, profile)
    record = context.make_record(
        "continue",
        viewer.actor,
        user=found.user,
        server=found.name,
        team=found.team,
        reason=f"It goes on without a GPU, on profile {chosen.title}.",
        details={"profile": chosen.name, "before": found.profile},
    )
    await _write_first(context, record)
    reason = (
        f"{name_of(viewer.actor)} goes on without a GPU, on profile “{chosen.title}”. Should it "
        "not start by itself, start it here: its files are kept."
    )
    # in the name of the service, so that the owner's home page says so until the next start
    await stop(context, found, by=SERVICE, reason=reason)
    context.background.begin(_start_again(context, found, chosen, by=viewer.actor))
    return chosen


def find_profile(
    team: Team, profiles: dict[str, Profile], *, image: str, wanted: str = ""
) -> Profile | None:
    """The profile without a GPU on which a server with this image goes on; None for none."""
    found = cpu_profiles(team, profiles)
    if wanted:
        return next((profile for profile in found if profile.name == wanted), None)
    same = [profile for profile in found if any(each.name == image for each in profile.images)]
    return default_profile(same or found, preferred=team.default_profile)


def _choose(context: Context, server: Server, wanted: str) -> Profile:
    profiles = dict(context.settings.profiles)
    now = profiles.get(server.profile)
    if server.pending:
        raise Problem("The server is starting or stopping: try again in a minute.", status=409)
    if now is not None and not now.gpu:
        raise Problem("This server has no GPU, so there is nothing to go on without.", status=409)
    sheet = context.sheets.get(server.team)
    team = sheet.team if sheet else None
    chosen = team and find_profile(team, profiles, image=server.image, wanted=wanted)
    if not chosen:
        title = context.title_of(server.team)
        which = f"no profile {quoted(wanted)} without a GPU" if wanted else "none without a GPU"
        raise Problem(
            f"Of the profiles that team {quoted(title)} may use there is {which}: ask an "
            "administrator for one, or stop the server.",
            status=409,
        )
    return chosen


async def _write_first(context: Context, record: Record) -> None:
    try:
        async with asyncio.timeout(WRITE_WITHIN):
            await context.ledger.add([record])
    except (LedgerError, TimeoutError) as error:
        raise Problem(
            "The server runs on as it is, since the restart could not be written down: try again "
            "in a minute, or tell an administrator.",
            status=503,
        ) from error


async def _start_again(context: Context, server: Server, profile: Profile, *, by: str) -> None:
    """Start it once it is gone, unless somebody else did; tell if that does not work."""
    images = [image.name for image in profile.images]
    options = {
        "team": server.team,
        "profile": profile.name,
        "image": server.image if server.image in images else images[0],
        "scratch": server.scratch,
    }
    try:
        if await _wait_gone(context, server):
            reason = "It goes on without a GPU."
            await context.hub.start(server.user, server.name, options, by=by, reason=reason)
    except (HubError, TimeoutError) as error:
        why = str(error) or f"it did not end within {GONE_WITHIN:.0f} seconds"
        _log.warning("server of %s not started again: %s", server.title, why)
        text = f"It is stopped, its files are there, and it did not start: {why}"
        await tell_failure(context, server, text if text.endswith(".") else f"{text}.")
    finally:
        context.snapshot.forget()


async def _wait_gone(context: Context, server: Server) -> bool:
    """Whether the hub has no such server any more; False where somebody started it meanwhile.

    Raises HubError or TimeoutError.
    """
    async with asyncio.timeout(GONE_WITHIN):
        while True:
            try:
                person = await context.hub.find_person(server.user)
            except HubRefused:
                raise
            except HubError as error:
                # a hub that restarts goes on with the stop
                _log.info("the hub does not tell whether %s is gone: %s", server.title, error)
            else:
                servers = person.servers if person else ()
                now = next((each for each in servers if each.name == server.name), None)
                if now is None:
                    return person is not None
                is_same = now.pending == "stop" or now.started == server.started
                if now.pending == "spawn" or not is_same:
                    return False
            await asyncio.sleep(PAUSE)
