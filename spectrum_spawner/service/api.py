"""The JSON API: each of its answers is what the pages show, each of its verbs what they do."""

from typing import Any

from spectrum_spawner.service import (
    board,
    dry_runs,
    gpu_rows,
    gpus,
    keeping,
    openapi,
    presentation,
    requests,
)
from spectrum_spawner.service.asking import read_sentence
from spectrum_spawner.service.handler import SignedIn
from spectrum_spawner.service.preferences import set_preferences
from spectrum_spawner.service.problem import Problem, quoted
from spectrum_spawner.service.stops import release_server, stop_server
from spectrum_spawner.service.telling import keep_report


class Teams(SignedIn):
    async def get(self) -> None:
        now = self.context.now()
        sheets = board.list_teams(self.context, self.viewer)
        self.write_json({"teams": [presentation.team_to_json(sheet, now) for sheet in sheets]})


class Team(SignedIn):
    async def get(self, name: str) -> None:
        sheet = self.context.find_team(self.viewer, name)
        self.write_json(presentation.team_to_json(sheet, self.context.now()))


class Preferences(SignedIn):
    async def put(self, name: str) -> None:
        await set_preferences(self.context, self.viewer, name, self.read_json())
        self.set_status(204)


class Servers(SignedIn):
    async def get(self) -> None:
        rows = await board.list_servers(
            self.context, self.viewer, team=self.get_query_argument("team", "")
        )
        snapshot = self.context.snapshot
        self.write_json(
            {
                "servers": [presentation.server_to_json(row) for row in rows],
                "asOf": snapshot.as_of and snapshot.as_of.isoformat(),
                "stale": bool(snapshot.error),
            }
        )


class Server(SignedIn):
    async def delete(self, user: str, name: str) -> None:
        body = _take(self.read_json(), "reason")
        reason = read_sentence("A reason", body.get("reason"), needed=False)
        await stop_server(self.context, self.viewer, user=user, server=name, reason=reason)
        self.set_status(202)


class Self(SignedIn):
    async def get(self) -> None:
        self.write_json(await gpus.describe_self(self.context, self.viewer))


class Keep(SignedIn):
    is_for_servers = True

    async def post(self, user: str, name: str) -> None:
        _take(self.read_json())
        await keeping.keep_server(self.context, self.viewer, user=user, server=name)
        self.set_status(204)


class Hold(SignedIn):
    is_for_servers = True

    async def post(self, user: str, name: str) -> None:
        fields = _take(self.read_json(), "until", "reason")
        await keeping.hold_server(self.context, self.viewer, user=user, server=name, fields=fields)
        self.set_status(204)

    async def delete(self, user: str, name: str) -> None:
        _take(self.read_json())
        await keeping.end_hold(self.context, self.viewer, user=user, server=name)
        self.set_status(204)


class Release(SignedIn):
    is_for_servers = True

    async def post(self, user: str, name: str) -> None:
        body = _take(self.read_json(), "reason")
        reason = read_sentence("A reason", body.get("reason"), needed=False)
        await release_server(self.context, self.viewer, user=user, server=name, reason=reason)
        self.set_status(202)


class Gpus(SignedIn):
    async def get(self) -> None:
        asked = {key: self.get_query_argument(key) for key in self.request.query_arguments}
        chosen = _take(asked, "team", "product", "state", "text")
        found = await gpus.read_board(self.context, self.viewer)
        rows = gpu_rows.sort_rows(gpu_rows.select_rows(found.rows, **chosen))
        snapshot = self.context.snapshot
        self.write_json(
            {
                "gpus": [gpu_rows.row_to_json(row) for row in rows],
                "products": [gpu_rows.product_to_json(product) for product in found.products],
                "asOf": found.round.at and found.round.at.isoformat(),
                "stale": bool(snapshot.error),
                "enabled": found.round.enabled,
                "problems": list(found.round.problems),
            }
        )


class ReleaseMany(SignedIn):
    async def post(self) -> None:
        body = _take(self.read_json(), "servers", "mine", "reason")
        reason = read_sentence("A reason", body.get("reason"), needed=False)
        ended, failed = await keeping.release_many(
            self.context, self.viewer, await self._find(body), reason=reason
        )
        self.set_status(202)
        self.write_json(
            {
                "released": [{"user": user, "server": server} for user, server in ended],
                "failed": [
                    {"user": user, "server": server, "message": problem.sentence}
                    for (user, server), problem in sorted(failed.items())
                ],
            }
        )

    async def _find(self, body: dict[str, Any]) -> list[keeping.Key]:
        """The servers that are named, or all of one's own."""
        named = body.get("servers")
        if body.get("mine") is True and named is None:
            return await keeping.list_own(self.context, self.viewer)
        if "mine" in body or not isinstance(named, list) or not named:
            raise Problem('Name servers as a list, or all of your own by {"mine": true}.')
        return keeping.read_keys(named)


class DryRun(SignedIn):
    async def post(self) -> None:
        culling = _take(self.read_json(), "culling").get("culling")
        if culling is not None and not isinstance(culling, dict):
            raise Problem("culling must be a table as in the values of the release: correct it.")
        run = await dry_runs.try_policy(self.context, self.viewer, culling)
        self.write_json(dry_runs.dry_run_to_json(run))


class Requests(SignedIn):
    async def get(self) -> None:
        found = await requests.list_visible(self.context, self.viewer)
        self.write_json({"requests": [presentation.request_to_json(each) for each in found]})

    async def post(self) -> None:
        request = await requests.ask(self.context, self.viewer, self.read_json())
        self.set_status(201)
        self.write_json(presentation.request_to_json(request))


class Decision(SignedIn):
    async def post(self, id: str) -> None:
        await requests.decide(self.context, self.viewer, id, self.read_json())
        self.set_status(204)


class Withdrawal(SignedIn):
    async def post(self, id: str) -> None:
        _take(self.read_json())
        await requests.withdraw(self.context, self.viewer, id)
        self.set_status(204)


class Audit(SignedIn):
    async def get(self) -> None:
        fields = {key: self.get_query_argument(key) for key in self.request.query_arguments}
        entries = await self.context.ledger.find(board.read_query(self.viewer, fields))
        self.write_json(
            {
                "records": [entry.record.as_dict() for entry in entries],
                "before": entries[-1].place if entries else None,
            }
        )


class Report(SignedIn):
    """What servers tell of themselves, each minute; the answer is what they have coming."""

    is_for_servers = True

    async def post(self) -> None:
        server = await keep_report(self.context, self.viewer, self.read_json())
        self.write_json({"notices": gpus.list_own_notices(self.context, server)})


class Description(SignedIn):
    """What this API takes and gives."""

    async def get(self) -> None:
        self.write_json(openapi.describe(self.context.settings.prefix))


class Nothing(SignedIn):
    """Whatever else is asked for."""

    async def prepare(self) -> None:
        await super().prepare()
        raise Problem("There is nothing at this address: look at teams, servers, gpus.", status=404)


def _take(body: dict[str, Any], *known: str) -> dict[str, Any]:
    if extra := sorted(body.keys() - set(known)):
        raise Problem(f"The body has no place for {quoted(', '.join(extra))}: leave it out.")
    return body


ROUTES: list[tuple[str, type[SignedIn]]] = [
    (r"teams", Teams),
    (r"teams/([^/]+)", Team),
    (r"teams/([^/]+)/preferences", Preferences),
    (r"servers", Servers),
    (r"servers/self", Self),
    (r"servers/([^/]+)/([^/]*)", Server),
    (r"servers/([^/]+)/([^/]*)/keep", Keep),
    (r"servers/([^/]+)/([^/]*)/hold", Hold),
    (r"servers/([^/]+)/([^/]*)/release", Release),
    (r"gpus", Gpus),
    (r"gpus/release", ReleaseMany),
    (r"cull/dry-run", DryRun),
    (r"requests", Requests),
    (r"requests/([^/]+)/decide", Decision),
    (r"requests/([^/]+)/withdraw", Withdrawal),
    (r"audit", Audit),
    (r"report", Report),
    (r"openapi\.json", Description),
    (r".*", Nothing),
]
