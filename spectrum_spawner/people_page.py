"""Who runs what, for the service: of many people with one question, as JupyterHub's API tells it.

That API makes each user's model by itself, which costs the hub milliseconds a user, and its pages
are places in a list, so that one which changes meanwhile lacks somebody.
"""

from collections.abc import Sequence
from typing import Any

from jupyterhub import orm
from jupyterhub.apihandlers.base import APIHandler
from jupyterhub.scopes import needs_scope
from jupyterhub.utils import isoformat
from tornado import web

MOST = 1000  # people of whom one answer tells


class People(APIHandler):
    """Tells of people: name, groups, and the servers that are active, by name.

    GET `?after=<id>&limit=<number>` gives the next of those who have an active server, and `after`
    for the rest, which is null where there is none; the body `{"names": [...]}` of a POST names
    some, of whom those are told that there are.
    """

    # of some people alone JupyterHub's own API tells
    @needs_scope("list:users")
    @needs_scope("read:users:groups")
    @needs_scope("read:servers")
    def get(self) -> None:
        limit = min(self._read_number("limit", MOST, least=1), MOST)
        found = (
            self.db.query(orm.Spawner.user_id)
            .filter(orm.Spawner.server_id.is_not(None))
            .filter(orm.Spawner.user_id > self._read_number("after", 0))
        )
        ids = [id for (id,) in found.distinct().order_by(orm.Spawner.user_id).limit(limit)]
        rest = ids[-1] if len(ids) == limit else None
        self.finish({"people": self._list_models(ids), "after": rest})

    @needs_scope("list:users")
    @needs_scope("read:users:groups")
    @needs_scope("read:servers")
    def post(self) -> None:
        body = self.get_json_body()
        names = body.get("names") if isinstance(body, dict) else None
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise web.HTTPError(400, "names must be a list of texts.")
        if len(names) > MOST:
            raise web.HTTPError(400, "Ask for %d people at most.", MOST)
        found = self.db.query(orm.User.id).filter(orm.User.name.in_(names))
        self.finish({"people": self._list_models([id for (id,) in found])})

    def _read_number(self, name: str, default: int, *, least: int = 0) -> int:
        text = self.get_query_argument(name, str(default))
        if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text) >= least):
            raise web.HTTPError(400, "%s must be a number from %d on.", name, least)
        return int(text)

    def _list_models(self, ids: Sequence[int]) -> list[dict[str, Any]]:
        """A model of each of these users, by their ids in the database."""
        users = self.db.query(orm.User.id, orm.User.name).filter(orm.User.id.in_(ids))
        models: dict[int, dict[str, Any]] = {
            id: {"name": name, "groups": [], "servers": {}}
            for id, name in users.order_by(orm.User.id)
        }
        groups = self.db.query(orm.User.id, orm.Group.name).join(orm.Group.users)
        for id, group in groups.filter(orm.User.id.in_(ids)):
            models[id]["groups"].append(group)
        for id, model in models.items():
            # a start that has just begun is in no database yet
            active = {s.name: s for s in self.users[id].spawners.values() if s.active}
            model["servers"] = {name: _make_model(active[name]) for name in sorted(active)}
        return list(models.values())


def _make_model(spawner: Any) -> dict[str, Any]:
    server = spawner.orm_spawner
    return {
        "name": server.name,
        "user_options": server.user_options,
        "started": isoformat(server.started),
        "last_activity": isoformat(server.last_activity),
        "pending": spawner.pending,
    }


# below the hub's own prefix
ROUTES = [(r"/spectrum/people", People)]
