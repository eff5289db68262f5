"""The page of GPU hours, and its download."""

import csv
import io
import json

from spectrum_spawner.service import budgets, presentation
from spectrum_spawner.service.frame import PageHandler
from spectrum_spawner.service.hour_board import (
    COLUMNS,
    list_hours,
    read_month,
    row_to_json,
)
from spectrum_spawner.service.problem import Problem

FIGURES = ("reserved", "used", "measured")
VIEWS = {
    "team": ("team", "profile"),
    "person": ("team", "user", "profile"),
    "day": ("day", "team"),
}


class HoursPage(PageHandler):
    async def get(self) -> None:
        view = self.get_query_argument("by", "team")
        columns = VIEWS.get(view, VIEWS["team"])
        problem, rows, month = None, [], ""
        try:
            month = read_month(self.context, self.get_query_argument("month", ""))
            rows = await list_hours(self.context, self.viewer, month=month, by=columns)
        except Problem as found:
            self.set_status(found.status)
            problem = found
        self.show(
            "hours.html",
            rows=rows,
            columns=columns,
            view=view if view in VIEWS else "team",
            views=list(VIEWS),
            month=month,
            title_of=self.context.title_of,
            profile_of=lambda name: presentation.title_of(name, self.context.settings.profiles),
            near=budgets.list_near(self.context, self.viewer),
            problem=problem,
        )


class HoursDownload(PageHandler):
    """Every day, team, person and profile of a month, as far as the viewer may see them."""

    async def get(self) -> None:
        month = read_month(self.context, self.get_query_argument("month", ""))
        kind = self.get_query_argument("format", "csv")
        if kind not in ("csv", "json"):
            raise Problem("GPU hours are given as csv or json: choose one.")
        rows = await list_hours(self.context, self.viewer, month=month)
        found = [row_to_json(row, COLUMNS) for row in rows]
        self.set_header("Content-Disposition", f'attachment; filename="gpu-hours-{month}.{kind}"')
        if kind == "json":
            self.set_header("Content-Type", "application/json")
            self.write(json.dumps({"month": month, "hours": found}, indent=1))
            return
        self.set_header("Content-Type", "text/csv; charset=utf-8")
        text, heads = io.StringIO(), (*COLUMNS, *FIGURES)
        csv.writer(text).writerow(heads)
        csv.writer(text).writerows(
            presentation.csv_cells([str(row[head]) for head in heads]) for row in found
        )
        self.write(text.getvalue())


ROUTES: list[tuple[str, type[PageHandler]]] = [
    (r"hours", HoursPage),
    (r"hours/download", HoursDownload),
]
