"""The JSON API: each of its answers is what the pages show, each of its verbs what they do."""

from typing import Any

from spectrum_spawner.service import (
    board,
    dry_runs,
    gpu_rows,
    gpus,
    hour_board,
    keeping,
    openapi,
    presentation,
    requests,
)
from spectrum_spawner.service.appealing import appeal
from spectrum_spawner.service.asking import read_sentence
from spectrum_spawner.service.continuing import continue_server
from spectrum_spawner.service.culling.sweep import Key
from spectrum_spawner.service.handler import SignedIn
from spectrum_spawner.service.preferences import set_preferences
from spectrum_spawner.service.problem import Problem, quoted
from spectrum_spawner.service.releases import (
    Choice,
    of_person,
    of_team,
    read_keys,
    release_many,
)
from spectrum_spawner.service.reporting import FromServer
from spectrum_spawner.service.rights import Viewer
from spectrum_spawner.service.stops import RELEASE, STOP, end_server
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
        await end_server(self.context, self.viewer, STOP, user=user, server=name, reason=reason)
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
        await end_server(self.context, self.viewer, RELEASE, user=user, server=name, reason=reason)
        self.set_status(202)


class Continue(SignedIn):
    is_for_servers = True

    async def post(self, user: str, name: str) -> None:
        profile = _take(self.read_json(), "profile").get("profile", "")
        if not isinstance(profile, str):
            raise Problem("A profile is named by a text: correct it, or leave it out.")
        chosen = await continue_server(
            self.context, self.viewer, user=user, server=name, profile=profile
        )
        self.set_status(202)
        self.write_json({"profile": chosen.name})


class Gpus(SignedIn):
    async def get(self) -> None:
        asked = {key: self.get_query_argument(key) for key in self.request.query_arguments}
        chosen = _take(asked, "team", "product", "state", "text")
        found = await gpus.read_board(self.context, self.viewer)
        rows = await gpus.choose_rows(found, **chosen)
        snapshot = self.context.snapshot
        self.write_json(
            {
                "gpus": [gpu_rows.row_to_json(row) for row in rows],
                "products": [gpu_rows.product_to_json(product) for product in found.products],
                "asOf": found.round.at and found.round.at.isoformat(),
                "stale": bool(snapshot.error),
                "enabled": found.round.enabled,
                "problems": list(found.problems),
            }
        )


class ReleaseMany(SignedIn):
    """Of those that are told to be released the ends follow after the answer."""

    async def post(self) -> None:
        body = _take(self.read_json(), "servers", "mine", "team", "reason")
        reason = read_sentence("A reason", body.get("reason"), needed=False)
        ended, failed = await release_many(
            self.context, self.viewer, _choose(self.viewer, body), reason
        )
        self.set_status(202)
        self.write_json({"released": _name(ended), "failed": _explain(failed)})


class Appeal(SignedIn):
    """To ask the owners of servers to release them; nothing ends by it."""

    async def post(self) -> None:
        body = _take(self.read_json(), "servers", "team", "reason")
        reason = read_sentence("A reason", body.get("reason"), needed=True)
        asked, failed = await appeal(self.context, self.viewer, _choose(self.viewer, body), reason)
        self.set_status(202)
        self.write_json({"asked": _name(asked), "failed": _explain(failed)})


class GpuHours(SignedIn):
    async def get(self) -> None:
        asked = {key: self.get_query_argument(key) for key in self.request.query_arguments}
        chosen = _take(asked, "month", "team", "by")
        month = hour_board.read_month(self.context, chosen.get("month", ""))
        columns = [each for each in chosen.get("by", "").split(",") if each] or hour_board.COLUMNS
        rows = await hour_board.list_hours(
            self.context, self.viewer, month=month, team=chosen.get("team", ""), by=columns
        )
        self.write_json(
            {"month": month, "hours": [hour_board.row_to_json(row, columns) for row in rows]}
        )


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


class Report(FromServer):
    """What servers tell of themselves, each minute; the answer is what they have coming."""

    async def prepare(self) -> None:
        try:
            await super().prepare()
        except Problem as problem:
            # a word that was not heard may have been that it works again
            if problem.status == 429:
                self.context.told.pop((self.server.user, self.server.name), None)
            elif problem.status >= 500:
                self.context.told.missed_at = self.context.now()
            raise

    async def post(self) -> None:
        keep_report(self.context, self.server, self.read_json())
        key = (self.server.user, self.server.name)
        self.write_json(
            {
                "notices": gpus.list_own_notices(self.context, key),
                "warnings": self.context.documents.list_warnings(key, now=self.context.now()),
            }
        )


class Description(SignedIn):
    """What this API takes and gives."""

    async def get(self) -> None:
        self.write_json(openapi.describe(self.context.settings.prefix))


class Nothing(SignedIn):
    """Whatever else is asked for."""

    async def prepare(self) -> None:
        await super().prepare()
        raise Problem("There is nothing at this address: look at teams, servers, gpus.", status=404)


def _choose(viewer: Viewer, body: dict[str, Any]) -> Choice:
    """The servers that are named, all of one's own, or all of a team that one leads."""
    named, team = body.get("servers"), body.get("team")
    if sum(key in body for key in ("servers", "mine", "team")) == 1:
        if body.get("mine") is True:
            return of_person(viewer.name)
        if isinstance(team, str) and team:
            return of_team(viewer, team)
        if isinstance(named, list) and named:
            return read_keys(named)
    raise Problem(
        'Name servers as a list, or all of your own by {"mine": true}, or a team: one of these.'
    )


def _name(servers: list[Key]) -> list[dict[str, str]]:
    return [{"user": user, "server": server} for user, server in servers]


def _explain(failed: dict[Key, Problem]) -> list[dict[str, str]]:
    """Of which servers something was not done, and why."""
    return [
        {"user": user, "server": server, "message": problem.sentence}
        for (user, server), problem in sorted(failed.items())
    ]


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
    (r"servers/([^/]+)/([^/]*)/continue", Continue),
    (r"gpus", Gpus),
    (r"gpus/release", ReleaseMany),
    (r"gpus/appeal", Appeal),
    (r"hours", GpuHours),
    (r"cull/dry-run", DryRun),
    (r"requests", Requests),
    (r"requests/([^/]+)/decide", Decision),
    (r"requests/([^/]+)/withdraw", Withdrawal),
    (r"audit", Audit),
    (r"report", Report),
    (r"openapi\.json", Description),
    (r".*", Nothing),
]
