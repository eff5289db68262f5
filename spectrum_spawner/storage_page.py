"""The home page's part about storage: what a person has, and how full it is, as JSON."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from jupyterhub.apihandlers.base import APIHandler
from jupyterhub.scopes import needs_scope
from jupyterhub.user import User
from tornado import web

from spectrum_spawner import identity, kube
from spectrum_spawner.figures import FiguresByVolume, NoFigures, fetch_figures
from spectrum_spawner.holdings import list_holdings
from spectrum_spawner.kube import KubeError, Object
from spectrum_spawner.owner import Owner
from spectrum_spawner.refusals import Refusal
from spectrum_spawner.teams import Team
from spectrum_spawner.volumes import is_pending, list_volumes

LIST_WITHIN = 5.0  # seconds that the API server may take for one team


class Volumes(APIHandler):
    """Answers a person, or whoever has a token that reads their servers, about their volumes."""

    # a person may read their own servers, and has no other way to anybody's volumes here
    @needs_scope("read:servers", post_filter=True)
    async def get(self) -> None:
        if not isinstance(self.current_user, User):
            raise web.HTTPError(403, "Only people have volumes.")
        try:
            found = await find_volumes(self.current_user)
        except Refusal as refusal:
            raise web.HTTPError(503, refusal.jupyterhub_message) from refusal
        self.set_header("Cache-Control", "no-store")
        self.finish(found)


async def find_volumes(user: User) -> dict[str, list[Any]]:
    """The volumes of a person in each team of theirs, and notes on what could not be read.

    Raises Refusal while nobody knows the teams.
    """
    spawner = user.spawners[""]
    teams = [team for team in await spawner.find_teams() if team.namespace]
    subject = await identity.subject_of(user)
    client = spawner.views.client
    owners = [
        Owner(hub=spawner.hub_namespace, team=team.name, user=user.name, subject=subject)
        for team in teams
    ]
    (figures, notes), listed = await asyncio.gather(
        _fetch_figures(spawner, teams),
        asyncio.gather(*map(partial(_list_claims, client), teams, owners)),
    )
    volumes: list[dict[str, Any]] = []
    now = asyncio.get_running_loop().time()
    for team, owner, (claims, events, note) in zip(teams, owners, listed, strict=True):
        assert team.namespace is not None
        left_out = spawner.views.outages.find(team.namespace, now=now)
        found = list_volumes(team, owner, claims, events=events, figures=figures, left_out=left_out)
        volumes += [volume.as_dict(team) for volume in found]
        notes += note
    return {"volumes": volumes, "notes": notes}


async def _fetch_figures(spawner: Any, teams: Sequence[Team]) -> tuple[FiguresByVolume, list[str]]:
    """Figures and notes: the page shows sizes also where nobody tells what is in use."""
    if not spawner.volumes_url:
        return {}, []
    try:
        return await fetch_figures(
            spawner.views.http,
            spawner.volumes_url,
            spawner.audit_token,
            user=spawner.user.name,
            teams=[team.name for team in teams],
        ), []
    except NoFigures as error:
        spawner.log.warning("no figures of volumes: %s", error)
        return {}, ["How full your volumes are is not known now: try again in a minute."]


async def _list_claims(
    client: kube.Client, team: Team, owner: Owner
) -> tuple[list[Object], list[Object], list[str]]:
    """Claims of a person and of their team, events about those that are pending, and notes."""
    assert team.namespace is not None
    try:
        async with asyncio.timeout(LIST_WITHIN):
            claims = await list_holdings(client, owner, namespace=team.namespace)
            return claims, await _list_events(client, team.namespace, claims), []
    except (KubeError, TimeoutError):
        note = f"The volumes of team {team.display_name} cannot be listed now: "
        return [], [], [f"{note}try again in a minute. Servers and data are not affected."]


async def _list_events(
    client: kube.Client, namespace: str, claims: Sequence[Object]
) -> list[Object]:
    """What was said of the claims that have yet to be made."""
    path = kube.collection("v1", "events", namespace=namespace)
    about = "involvedObject.kind=PersistentVolumeClaim,involvedObject.name="
    pending = [claim["metadata"]["name"] for claim in claims if is_pending(claim)]
    answers = await asyncio.gather(
        *(client.list(path, {"fieldSelector": f"{about}{name}"}) for name in pending)
    )
    return [event for answer in answers for event in answer["items"]]


# below the hub's own prefix
ROUTES = [(r"/spectrum/volumes", Volumes)]
