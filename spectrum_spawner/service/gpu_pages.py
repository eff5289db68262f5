"""Pages of the GPU board: all servers with GPUs, one of them, and dry runs of a policy."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import quote, urlencode

import yaml

from spectrum_spawner.service import budgets, dry_runs, gpu_rows, gpus, keeping, stops
from spectrum_spawner.service.appealing import appeal
from spectrum_spawner.service.asking import read_sentence
from spectrum_spawner.service.context import Context
from spectrum_spawner.service.continuing import continue_server
from spectrum_spawner.service.culling.sweep import Key
from spectrum_spawner.service.frame import PageHandler
from spectrum_spawner.service.gpu_rows import CONTINUE, END_HOLD, HOLD, KEEP, RELEASE
from spectrum_spawner.service.problem import Problem
from spectrum_spawner.service.releases import (
    Choice,
    of_person,
    of_team,
    read_keys,
    release_many,
)
from spectrum_spawner.service.rights import Viewer, may_release_team, may_try_policy
from spectrum_spawner.service.stops import end_server

FILTERS = ("team", "product", "state", "text", "sort")
USUAL_HOLD = timedelta(hours=4)
MOST_ROWS = 1000  # of the board that a page has at once


class BoardPage(PageHandler):
    """Every server with GPUs that the viewer may see. A script asks for it again and again."""

    async def get(self) -> None:
        await self.show_board(self._read_filters(self.get_query_argument))

    async def show_board(
        self, filters: Mapping[str, str], *, problem: Problem | None = None, reason: str = ""
    ) -> None:
        found = await gpus.read_board(self.context, self.viewer)
        self.set_header("Etag", f'"{found.version}"')
        if problem is None and self.check_etag_header():
            self.set_status(304)
            return
        sort = filters["sort"] if filters["sort"] in gpu_rows.SORTS else ""
        chosen = {key: value for key, value in filters.items() if key != "sort"}
        rows = await gpus.choose_rows(found, sort=sort, **chosen)
        teams = {row.server.team: row.team_title for row in found.rows}
        self.show(
            "gpus.html",
            board=found,
            rows=rows[:MOST_ROWS],
            fitting=len(rows),
            may_release_team=may_release_team(self.viewer, filters["team"]),
            teams=sorted(teams.items(), key=lambda team: team[1].casefold()),
            own=sum(row.is_own for row in found.rows),
            filters=filters,
            query={key: value for key, value in filters.items() if value},
            near=budgets.list_near(self.context, self.viewer),
            may_try=may_try_policy(self.viewer),
            problem=problem,
            reason=reason,
            now=self.context.now(),
            gpu_rows=gpu_rows,
        )

    def _read_filters(self, read: Any) -> dict[str, str]:
        return {key: read(key, "") for key in FILTERS}


class BoardForm(BoardPage):
    """What the buttons of the board do: one server's, or those of the servers that are chosen."""

    async def post(self) -> None:
        filters = self._read_filters(self.get_body_argument)
        form = self.read_form("reason", KEEP, END_HOLD, CONTINUE, RELEASE, "all")
        try:
            done = await self._do(form)
        except Problem as problem:
            self.set_status(problem.status)
            await self.show_board(filters, problem=problem, reason=form["reason"])
        else:
            query = {key: value for key, value in filters.items() if value}
            self.redirect(f"{self.context.settings.prefix}?{urlencode({**query, 'done': done})}")

    async def _do(self, form: Mapping[str, str]) -> str:
        """What the page says then; raises Problem."""
        context, viewer = self.context, self.viewer
        reason = read_sentence("A reason", form["reason"], needed=False)
        if form["all"]:
            chosen = self._choose(form["all"], self.get_body_argument("team", ""))
            if form["all"] == "asked":
                reason = read_sentence("A reason", form["reason"], needed=True)
                _tell(*await appeal(context, viewer, chosen, reason), "asked for")
                return "appealed"
            _tell(*await release_many(context, viewer, chosen, reason), "being stopped")
            return "released"
        for action in (KEEP, END_HOLD, CONTINUE, RELEASE):
            if not form[action]:
                continue
            [(user, server)] = read_keys([form[action]])
            return await do_to_server(
                context, viewer, action, user=user, server=server, reason=reason
            )
        raise Problem("Nothing was chosen: use one of the buttons.")

    def _choose(self, which: str, team: str) -> Choice:
        if which == "mine":
            return of_person(self.viewer.name)
        if which == "team":
            return of_team(self.viewer, team)
        if not (chosen := read_keys(self.get_body_arguments("pick"))):
            raise Problem("No server is selected: tick those that you mean.")
        return chosen


class ServerPage(PageHandler):
    """What is known of one server, and what may be done."""

    async def get(self, user: str, name: str) -> None:
        await self.show_server(user, name)

    async def show_server(
        self,
        user: str,
        name: str,
        *,
        problem: Problem | None = None,
        form: Mapping[str, str] | None = None,
    ) -> None:
        row = await gpus.find_row(self.context, self.viewer, user=user, server=name)
        now = self.context.now()
        rule = row.verdict.rule if row.verdict else None
        longest = rule.hold if rule else USUAL_HOLD
        self.show(
            "server.html",
            row=row,
            longest=now + longest,
            usual=now + min(USUAL_HOLD, longest),
            now=now,
            problem=problem,
            form=form or {"until": "", "reason": ""},
            gpu_rows=gpu_rows,
        )


class ServerForm(ServerPage):
    async def post(self, user: str, name: str, action: str) -> None:
        form = self.read_form("until", "reason")
        try:
            reason = read_sentence("A reason", form["reason"], needed=False)
            done = await do_to_server(
                self.context,
                self.viewer,
                action,
                user=user,
                server=name,
                reason=reason,
                until=form["until"],
            )
        except Problem as problem:
            self.set_status(problem.status)
            await self.show_server(user, name, problem=problem, form=form)
        else:
            path = (
                ""
                if action in (CONTINUE, RELEASE)
                else f"gpus/{quote(user, safe='')}/{quote(name)}"
            )
            self.done(path, done)


class DryRunPage(PageHandler):
    """What the policy that holds, or an edited one, would end now."""

    async def prepare(self) -> None:
        """The page itself shows the policy, so whoever may not try one sees nothing of it."""
        await super().prepare()
        if not self._finished:
            dry_runs.check_viewer(self.viewer)

    async def get(self) -> None:
        self._show(await dry_runs.try_policy(self.context, self.viewer), typed="")

    async def post(self) -> None:
        typed = self.read_form("policy")["policy"]
        try:
            run = await dry_runs.try_policy(self.context, self.viewer, typed)
        except Problem as problem:
            self.set_status(problem.status)
            self._show(None, typed=typed, problem=problem)
        else:
            self._show(run, typed=typed)

    def _show(
        self, run: dry_runs.DryRun | None, *, typed: str, problem: Problem | None = None
    ) -> None:
        culling = {
            key: value
            for key, value in self.context.settings.culling.values.items()
            if key not in dry_runs.PACE
        }
        self.show(
            "dry_run.html",
            run=run,
            order=dry_runs.ORDER,
            policy=typed or yaml.safe_dump(culling, sort_keys=False, allow_unicode=True),
            enabled=self.context.culler.round.enabled,
            problem=problem,
            title_of=self.context.title_of,
        )


def _tell(done: list[Key], failed: dict[Key, Problem], what: str) -> None:
    """Raises Problem where that was not done to all of many servers."""
    if not failed:
        return
    told = [f"{user}/{name}: {why.sentence}" for (user, name), why in failed.items()]
    more = f" And {len(told) - 3} more." if len(told) > 3 else ""
    raise Problem(
        f"{len(done)} of {len(done) + len(failed)} servers are {what}. {' '.join(told[:3])}{more}",
        status=409,
    )


async def do_to_server(
    context: Context,
    viewer: Viewer,
    action: str,
    *,
    user: str,
    server: str,
    reason: str,
    until: str = "",
) -> str:
    """One of the actions that a row offers, and what the page says then; raises Problem."""
    if action == KEEP:
        await keeping.keep_server(context, viewer, user=user, server=server)
        return "kept"
    if action == HOLD:
        # the field of the form knows no zone, and a script of the page sends UTC
        moment = f"{until}Z" if until and len(until) <= len("2026-03-31T18:00:00") else until
        fields = {"until": moment, "reason": reason}
        await keeping.hold_server(context, viewer, user=user, server=server, fields=fields)
        return "held"
    if action == END_HOLD:
        await keeping.end_hold(context, viewer, user=user, server=server)
        return "unheld"
    if action == CONTINUE:
        await continue_server(context, viewer, user=user, server=server)
        return "continued"
    await end_server(context, viewer, stops.RELEASE, user=user, server=server, reason=reason)
    return "released"


ROUTES: list[tuple[str, type[PageHandler]]] = [
    (r"", BoardPage),
    (r"gpus", BoardForm),
    (r"gpus/([^/]+)/([^/]*)", ServerPage),
    (rf"gpus/([^/]+)/([^/]*)/({KEEP}|{HOLD}|{END_HOLD}|{CONTINUE}|{RELEASE})", ServerForm),
    (r"dry-run", DryRunPage),
]
