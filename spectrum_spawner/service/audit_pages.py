"""The audit: its page, and its download."""

import csv
import io
import json
from collections.abc import Iterable

from spectrum_spawner.audit import ACTIONS
from spectrum_spawner.service import board, presentation
from spectrum_spawner.service.frame import PageHandler
from spectrum_spawner.service.ledger import PAGE, Entry, Query
from spectrum_spawner.service.problem import Problem
from spectrum_spawner.service.rights import may_download_audit

COLUMNS = ("at", "action", "actor", "user", "team", "server", "reason", "writer", "id", "details")


class AuditPage(PageHandler):
    async def get(self) -> None:
        problem, entries, fields = None, [], self._read_filters()
        try:
            entries = await self.context.ledger.find(
                board.read_query(self.viewer, fields), limit=PAGE + 1
            )
        except Problem as found:
            self.set_status(found.status)
            problem = found
        self.show(
            "audit.html",
            entries=entries[:PAGE],
            older=entries[PAGE - 1].place if len(entries) > PAGE else "",
            filters=dict.fromkeys(board.FILTERS, "") | fields,
            actions=sorted(ACTIONS),
            may_download=may_download_audit(self.viewer),
            problem=problem,
        )

    def _read_filters(self) -> dict[str, str]:
        known = {name: self.get_query_argument(name, "") for name in board.FILTERS}
        return {name: value for name, value in known.items() if value}


class AuditDownload(AuditPage):
    """The records of a query as a file, however many there are."""

    async def get(self) -> None:
        if not may_download_audit(self.viewer):
            raise Problem("The audit is the administrators' to download: ask one.", status=403)
        query = board.read_query(self.viewer, self._read_filters())
        kind = self.get_query_argument("format", "csv")
        if kind not in ("csv", "json"):
            raise Problem("The audit is given as csv or json: choose one.")
        self.set_header("Content-Disposition", f'attachment; filename="audit.{kind}"')
        await (self._write_csv(query) if kind == "csv" else self._write_json(query))

    async def _write_csv(self, query: Query) -> None:
        self.set_header("Content-Type", "text/csv; charset=utf-8")
        self.write(_to_csv([COLUMNS]))
        async for batch in self.context.ledger.export(query):
            self.write(_to_csv(map(_to_cells, batch)))
            await self.flush()

    async def _write_json(self, query: Query) -> None:
        self.set_header("Content-Type", "application/json")
        between = "[\n"
        async for batch in self.context.ledger.export(query):
            self.write(between + ",\n".join(json.dumps(e.record.as_dict()) for e in batch))
            await self.flush()
            between = ",\n"
        self.write("[]\n" if between == "[\n" else "\n]\n")


def _to_cells(entry: Entry) -> list[str]:
    record = entry.record.as_dict()
    return [json.dumps(record[c]) if c == "details" else record[c] for c in COLUMNS]


def _to_csv(rows: Iterable[Iterable[str]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(presentation.csv_cells(row) for row in rows)
    return text.getvalue()


ROUTES: list[tuple[str, type[PageHandler]]] = [
    (r"audit", AuditPage),
    (r"audit/download", AuditDownload),
]
