"""Pages of the GPU board: all servers with GPUs, one of them, and dry runs of a policy."""

import hashlib
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import quote, urlencode

import yaml

from spectrum_spawner.service import dry_runs, gpu_rows, gpus, keeping
from spectrum_spawner.service.asking import read_sentence
from spectrum_spawner.service.context import Context
from spectrum_spawner.service.frame import PageHandler
from spectrum_spawner.service.gpu_rows import END_HOLD, HOLD, KEEP, RELEASE, GpuRow
from spectrum_spawner.service.problem import Problem
from spectrum_spawner.service.rights import Viewer, may_try_policy
from spectrum_spawner.service.stops import release_server

FILTERS = ("team", "product", "state", "text", "sort")
USUAL_HOLD = timedelta(hours=4)
MAX_POLICY = 48 * 1024  # characters of a policy that somebody types


class BoardPage(PageHandler):
    """Every server with GPUs that the viewer may see. A script asks for it again and again."""

    async def get(self) -> None:
        await self.show_board(self._read_filters(self.get_query_argument))

    async def show_board(
        self, filters: Mapping[str, str], *, problem: Problem | None = None, reason: str = ""
    ) -> None:
        found = await gpus.read_board(self.context, self.viewer)
        sort = filters["sort"] if filters["sort"] in gpu_rows.SORTS else ""
        chosen = {key: value for key, value in filters.items() if key != "sort"}
        rows = gpu_rows.sort_rows(gpu_rows.select_rows(found.rows, **chosen), sort)
        self.set_header("Etag", self._find_version(found, rows))
        if problem is None and self.check_etag_header():
            self.set_status(304)
            return
        teams = {row.server.team: row.team_title for row in found.rows}
        self.show(
            "gpus.html",
            board=found,
            rows=rows,
            teams=sorted(teams.items(), key=lambda team: team[1].casefold()),
            own=sum(row.is_own for row in found.rows),
            filters=filters,
            query={key: value for key, value in filters.items() if value},
            may_try=may_try_policy(self.viewer),
            problem=problem,
            reason=reason,
            now=self.context.now(),
            gpu_rows=gpu_rows,
        )

    def _read_filters(self, read: Any) -> dict[str, str]:
        return {key: read(key, "") for key in FILTERS}

    def _find_version(self, found: gpus.Board, rows: list[GpuRow]) -> str:
        """Changes with whatever the page shows; times that pass are the reader's own clock's."""
        shown = [
            (row.key, row.state, row.server.started, row.idle_since, row.ends_at, row.hold, row.may)
            for row in rows
        ]
        parts = (
            shown,
            found.products,
            found.round.at,
            found.round.problems,
            self.context.snapshot.error,
            self.viewer,
            self.request.query,
        )
        return f'"{hashlib.sha256(repr(parts).encode()).hexdigest()[:32]}"'


class BoardForm(BoardPage):
    """What the buttons of the board do: one server's, or those of the servers that are chosen."""

    async def post(self) -> None:
        filters = self._read_filters(self.get_body_argument)
        form = self.read_form("reason", KEEP, END_HOLD, RELEASE, "all")
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
            return await self._release(await self._find_chosen(form["all"]), reason)
        for action in (KEEP, END_HOLD, RELEASE):
            if not form[action]:
                continue
            [(user, server)] = keeping.read_keys([form[action]])
            return await do_to_server(
                context, viewer, action, user=user, server=server, reason=reason
            )
        raise Problem("Nothing was chosen: use one of the buttons.")

    async def _find_chosen(self, which: str) -> list[keeping.Key]:
        if which == "mine":
            return await keeping.list_own(self.context, self.viewer)
        if not (chosen := keeping.read_keys(self.get_body_arguments("pick"))):
            raise Problem("No server is selected: tick those that you want to release.")
        return chosen

    async def _release(self, keys: list[keeping.Key], reason: str) -> str:
        ended, failed = await keeping.release_many(self.context, self.viewer, keys, reason=reason)
        if failed:
            told = [f"{user}/{name}: {why.sentence}" for (user, name), why in failed.items()]
            more = f" And {len(told) - 3} more." if len(told) > 3 else ""
            raise Problem(
                f"{len(ended)} of {len(keys)} servers are being stopped. "
                f"{' '.join(told[:3])}{more}",
                status=409,
            )
        return "released"


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
            path = "" if action == RELEASE else f"gpus/{quote(user, safe='')}/{quote(name)}"
            self.done(path, done)


class DryRunPage(PageHandler):
    """What the policy that holds, or an edited one, would end now."""

    async def get(self) -> None:
        run = await dry_runs.try_policy(self.context, self.viewer)
        self._show(run, typed="")

    async def post(self) -> None:
        typed = self.read_form("policy")["policy"]
        try:
            run = await dry_runs.try_policy(self.context, self.viewer, _read_policy(typed))
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
    await release_server(context, viewer, user=user, server=server, reason=reason)
    return "released"


def _read_policy(typed: str) -> dict[str, Any]:
    """The table that somebody typed as YAML; raises Problem."""
    if len(typed) > MAX_POLICY:
        raise Problem(f"A policy has {MAX_POLICY} characters at most: please shorten it.")
    try:
        # moments are texts in values of a release
        values = json.loads(json.dumps(yaml.safe_load(typed), default=lambda v: v.isoformat()))
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        raise Problem(f"The policy is no YAML{where}: please correct it.") from error
    if isinstance(values, dict) and values.keys() == {"culling"}:
        values = values["culling"]
    if not isinstance(values, dict):
        raise Problem("The policy must be a table with rules and exemptions: please correct it.")
    return values


ROUTES: list[tuple[str, type[PageHandler]]] = [
    (r"", BoardPage),
    (r"gpus", BoardForm),
    (r"gpus/([^/]+)/([^/]*)", ServerPage),
    (rf"gpus/([^/]+)/([^/]*)/({KEEP}|{HOLD}|{END_HOLD}|{RELEASE})", ServerForm),
    (r"dry-run", DryRunPage),
]
