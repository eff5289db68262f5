"""What hub and controller ask inside the cluster: to keep records, for notices and figures.

These paths lie outside the service's prefix, so no route of the proxy leads to them.
"""

from hmac import compare_digest

from spectrum_spawner.audit import Record, RecordError
from spectrum_spawner.service import departures, exposition, gpus, volumes
from spectrum_spawner.service.continuing import continue_server
from spectrum_spawner.service.handler import Answering
from spectrum_spawner.service.problem import Problem
from spectrum_spawner.service.rights import Viewer

MAX_RECORDS = 500  # of one request


class Internal(Answering):
    """Answers who has the token of one of Spectrum's processes."""

    writer: str

    def prepare(self) -> None:
        kind, _, token = self.request.headers.get("Authorization", "").partition(" ")
        found = [
            writer
            for writer, secret in self.context.settings.writers.items()
            if compare_digest(token.encode(), secret.encode())
        ]
        if kind.lower() != "bearer" or not found:
            raise Problem("This address needs the token of the hub or the controller.", status=403)
        self.writer = found[0]


class Ingest(Internal):
    async def post(self) -> None:
        await self.context.ledger.add(self._read_records())
        self.set_status(204)

    def _read_records(self) -> list[Record]:
        """All records of the body, or none: raises Problem."""
        body = self.read_json()
        given = body.get("records")
        if body.keys() != {"records"} or not isinstance(given, list) or len(given) > MAX_RECORDS:
            raise Problem(f"The body must hold a list records of {MAX_RECORDS} at most.")
        try:
            records = [Record.from_dict(value) for value in given]
        except RecordError as error:
            raise Problem(str(error)) from error
        if any(record.writer != self.writer for record in records):
            raise Problem(f"This token is the {self.writer}'s: it may not write for others.")
        return records


class Notices(Internal):
    async def get(self) -> None:
        if self.writer != "hub":
            raise Problem("Notices are for the hub.", status=403)
        leaving = await departures.list_notices(self.context)
        self.write_json({"notices": [*leaving, *gpus.list_notices(self.context)]})


class Click(Internal):
    """What somebody clicked on the home page, and may: so the hub says."""

    def prepare(self) -> None:
        super().prepare()
        if self.writer != "hub":
            raise Problem("What people click is for the hub to tell.", status=403)

    def read_texts(self, *names: str) -> list[str]:
        """The texts of which the body consists, by name; raises Problem."""
        body = self.read_json()
        texts = [text for name in names if isinstance(text := body.get(name), str)]
        if len(texts) != len(names) or len(body) != len(names):
            raise Problem(f"The body must hold these texts, and nothing else: {', '.join(names)}.")
        return texts


class Keep(Click):
    """Somebody keeps a server that they may stop."""

    async def post(self) -> None:
        user, server, by = self.read_texts("user", "server", "by")
        await self.context.culler.extend((user, server), by=f"user:{by}")
        self.set_status(204)


class Continue(Click):
    """A server goes on without a GPU, as its owner wants."""

    async def post(self) -> None:
        user, server = self.read_texts("user", "server")
        await continue_server(self.context, Viewer(name=user), user=user, server=server)
        self.set_status(204)


class Volumes(Internal):
    """How full volumes are, for the home page of a user who is in teams."""

    async def get(self) -> None:
        if self.writer != "hub":
            raise Problem("Figures of volumes are for the hub.", status=403)
        user, teams = self.get_query_argument("user"), self.get_query_arguments("team")
        found = await volumes.list_volumes(self.context, user=user, teams=teams)
        self.write_json({"volumes": found})


class Health(Answering):
    """That the service lives; what its culler cannot know is told beside, and no reason to end."""

    async def get(self) -> None:
        self.write_json({"culling": self.context.culler.health()})


class Nowhere(Answering):
    """Whatever lies outside all paths."""

    def prepare(self) -> None:
        raise Problem("There is nothing at this address.", status=404)


ROUTES: list[tuple[str, type[Answering]]] = [
    (r"/internal/audit", Ingest),
    (r"/internal/notices", Notices),
    (r"/internal/keep", Keep),
    (r"/internal/continue", Continue),
    (r"/internal/volumes", Volumes),
    (r"/healthz", Health),
    (r"/metrics", exposition.Exposition),
]
