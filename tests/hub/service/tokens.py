"""Somebody who has a token and no browser."""

import json

import aiohttp

from tests.hub.cluster import Cluster
from tests.hub.service.browser import PREFIX, Shown
from tests.hub.team import Team


class Token:
    """Calls the service at `url` with a token of the hub's; "" is nobody."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._headers = {"Authorization": f"token {token}"} if token else {}

    async def call(self, method: str, path: str, body: object = None) -> Shown:
        return await self._ask(method, f"{PREFIX}api/{path}", body)

    async def open(self, path: str) -> Shown:
        return await self._ask("GET", f"{PREFIX}{path}")

    async def visit(self, path: str) -> Shown:
        """A path outside the service's prefix."""
        return await self._ask("GET", path)

    async def _ask(self, method: str, path: str, body: object = None) -> Shown:
        async with (
            aiohttp.ClientSession(headers=self._headers) as session,
            session.request(
                method, self._url + path, data=body and json.dumps(body), allow_redirects=False
            ) as answer,
        ):
            return Shown(answer.status, answer.url.path, await answer.text())


async def read_server_token(cluster: Cluster, team: Team, user: str, server: str = "") -> str:
    """The token that the pod of somebody's server has."""
    pod = await cluster.get(team.find_pod(user, server))
    environment = pod["spec"]["containers"][0]["env"]
    return next(e["value"] for e in environment if e["name"] == "JUPYTERHUB_API_TOKEN")
