"""The home page's form by which a member adds a server to those of a team."""

from typing import Any

from jupyterhub import orm
from jupyterhub.apihandlers.base import APIHandler
from jupyterhub.scopes import needs_scope
from jupyterhub.user import User
from jupyterhub.utils import url_escape_path
from tornado import web

from spectrum_spawner import accounts
from spectrum_spawner.admission import check_server_name
from spectrum_spawner.choice import OptionError
from spectrum_spawner.team_servers import admit_members
from spectrum_spawner.teams import Team

MOST = 10  # servers of a team


class TeamServers(APIHandler):
    """`{"team": "ops", "name": "evaluation"}`: a further server of a team that one is in.

    The answer says where it is started, `{"url": "/hub/spawn/…"}`.
    """

    @needs_scope("start:servers", post_filter=True)
    async def post(self) -> None:
        team, name = await self._find_team(), self._read_name()
        found = orm.User.find(self.db, accounts.account_of(team.name))
        if found is None:
            raise web.HTTPError(409, "The team has no servers yet: try again in a moment.")
        if name not in found.orm_spawners:
            if len(found.orm_spawners) >= MOST:
                raise web.HTTPError(409, f"A team has {MOST} servers at most: remove one first.")
            self.db.add(orm.Spawner(name=name, user=found))
            self.db.commit()
            admit_members(self.db, [team])
        place = f"{self.users[found.id].escaped_name}/{url_escape_path(name)}"
        self.finish({"url": f"{self.hub.base_url}spawn/{place}"})

    async def _find_team(self) -> Team:
        user, name = self.current_user, self._read("team")
        mine = await user.spawner.find_teams() if isinstance(user, User) else []
        team = next((each for each in mine if each.name == name), None)
        if team is None:
            raise web.HTTPError(404, "You are in no such team.")
        return team

    def _read_name(self) -> str:
        name = self._read("name").strip()
        try:
            check_server_name(name)
        except OptionError as error:
            raise web.HTTPError(400, "%s", error) from error
        if not name or "/" in name:
            raise web.HTTPError(400, "A server's name is not empty, and has no slash.")
        return name

    def _read(self, key: str) -> str:
        body: Any = self.get_json_body()
        value = body.get(key) if isinstance(body, dict) else None
        if not isinstance(value, str):
            raise web.HTTPError(400, f"{key} must be a text.")
        return value


# below the hub's own prefix
ROUTES = [(r"/spectrum/team-servers", TeamServers)]
