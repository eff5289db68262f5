"""The JSON API: each of its answers is what the pages show, each of its verbs what they do."""

from typing import Any

from spectrum_spawner.service import board, presentation, requests
from spectrum_spawner.service.asking import read_sentence
from spectrum_spawner.service.handler import SignedIn
from spectrum_spawner.service.preferences import set_preferences
from spectrum_spawner.service.problem import Problem, quoted
from spectrum_spawner.service.reporting import FromServer
from spectrum_spawner.service.stops import stop_server
from spectrum_spawner.service.volumes import keep_report


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
    """What servers tell of themselves, each minute."""

    async def post(self) -> None:
        keep_report(self.context, self.server, self.read_json())
        self.set_status(204)


class Nothing(SignedIn):
    """Whatever else is asked for."""

    async def prepare(self) -> None:
        await super().prepare()
        raise Problem("There is nothing at this address: look at teams, servers.", status=404)


def _take(body: dict[str, Any], *known: str) -> dict[str, Any]:
    if extra := sorted(body.keys() - set(known)):
        raise Problem(f"The body has no place for {quoted(', '.join(extra))}: leave it out.")
    return body


ROUTES: list[tuple[str, type[SignedIn]]] = [
    (r"teams", Teams),
    (r"teams/([^/]+)", Team),
    (r"teams/([^/]+)/preferences", Preferences),
    (r"servers", Servers),
    (r"servers/([^/]+)/([^/]*)", Server),
    (r"requests", Requests),
    (r"requests/([^/]+)/decide", Decision),
    (r"requests/([^/]+)/withdraw", Withdrawal),
    (r"audit", Audit),
    (r"report", Report),
    (r".*", Nothing),
]
