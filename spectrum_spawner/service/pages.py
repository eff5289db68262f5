"""Pages of teams and requests: what `board` shows, and forms whose input survives an error."""

from collections.abc import Mapping
from typing import Any

from spectrum_spawner.profiles import allowed_profiles
from spectrum_spawner.service import asking, board, requests
from spectrum_spawner.service.frame import PageHandler
from spectrum_spawner.service.preferences import set_preferences
from spectrum_spawner.service.problem import Problem
from spectrum_spawner.service.rights import may_ask, may_decide, may_set_preferences
from spectrum_spawner.service.stops import STOP, end_server


class TeamsPage(PageHandler):
    async def get(self) -> None:
        self.show("teams.html", sheets=board.list_teams(self.context, self.viewer))


class TeamPage(PageHandler):
    async def get(self, name: str) -> None:
        await self.show_team(name)

    async def show_team(self, name: str, **typed: Any) -> None:
        """The page, with what was typed into one of its forms and could not be done."""
        context, viewer = self.context, self.viewer
        sheet = context.find_team(viewer, name)
        rows = await board.list_servers(context, viewer, team=name)
        profiles = allowed_profiles(sheet.team, context.settings.profiles)
        forms = {"stopping": {}, "preferences": {}, "problem": None, **typed}
        self.show(
            "team.html",
            sheet=sheet,
            rows=rows,
            grants=sheet.active_grants(context.now()),
            profiles=profiles,
            known_profiles=context.settings.profiles,
            may_set=may_set_preferences(viewer, name),
            limits=context.settings.idle_minutes,
            **forms,
        )


class StopForm(TeamPage):
    async def post(self, name: str) -> None:
        form = self.read_form("user", "server", "reason")
        try:
            reason = asking.read_sentence("A reason", form["reason"], needed=False)
            await end_server(
                self.context,
                self.viewer,
                STOP,
                user=form["user"],
                server=form["server"],
                reason=reason,
            )
        except Problem as problem:
            self.set_status(problem.status)
            await self.show_team(name, problem=problem, stopping=form)
        else:
            self.done(_team_path(name), "stopped")


class PreferencesForm(TeamPage):
    async def post(self, name: str) -> None:
        form = self.read_form("defaultProfile", "idleMinutes")
        try:
            await set_preferences(self.context, self.viewer, name, form)
        except Problem as problem:
            self.set_status(problem.status)
            await self.show_team(name, problem=problem, preferences=form)
        else:
            self.done(_team_path(name), "saved")


class RequestsPage(PageHandler):
    fields = ("kind", "team", "new_team", "group", "resource", "amount", "profile", "reason")

    async def get(self) -> None:
        chosen = {name: self.get_query_argument(name, "") for name in ("kind", "team", "profile")}
        await self.show_requests(asked=chosen)

    async def post(self) -> None:
        form = self.read_form(*self.fields, "until")
        try:
            await requests.ask(self.context, self.viewer, _fields_of(form))
        except Problem as problem:
            self.set_status(problem.status)
            await self.show_requests(asked=form, problem=problem)
        else:
            self.done("requests", "asked")

    async def show_requests(
        self,
        *,
        problem: Problem | None = None,
        asked: Mapping[str, str],
        answered: str = "",
        answer: str = "",
    ) -> None:
        """The page; `answered` is the id of the request whose answer could not be given."""
        context, viewer = self.context, self.viewer
        sheets, profiles = context.sheets, context.settings.profiles
        self.show(
            "requests.html",
            queue=await requests.list_queue(context, viewer),
            decided=await requests.list_decided(context, viewer),
            mine=await requests.list_own(context, viewer),
            may_decide=may_decide(viewer),
            teams=[s.team for s in sheets.values() if may_ask(viewer, asking.QUOTA, s.name)],
            resources=asking.accelerators(sheets, profiles),
            profiles=profiles,
            today=context.now().date(),
            last_day=(context.now() + asking.LONGEST).date(),
            form=dict.fromkeys((*self.fields, "until"), "") | dict(asked),
            problem=problem,
            answered=answered,
            answer=answer,
        )


class DecisionForm(RequestsPage):
    async def post(self, id: str) -> None:  # type: ignore[override]
        form = self.read_form("decision", "answer")
        try:
            await requests.decide(self.context, self.viewer, id, form)
        except Problem as problem:
            self.set_status(problem.status)
            await self.show_requests(problem=problem, asked={}, answered=id, answer=form["answer"])
        else:
            self.done("requests", "decided")


class WithdrawalForm(RequestsPage):
    async def post(self, id: str) -> None:  # type: ignore[override]
        try:
            await requests.withdraw(self.context, self.viewer, id)
        except Problem as problem:
            self.set_status(problem.status)
            await self.show_requests(problem=problem, asked={})
        else:
            self.done("requests", "withdrawn")


def _fields_of(form: Mapping[str, str]) -> dict[str, str]:
    """What the fields of a kind hold; those of other kinds stay in the form and are no matter."""
    known = asking.FIELDS.get(form["kind"], {"kind"})
    team = form["new_team"] if form["kind"] == asking.NEW_TEAM else form["team"]
    fields = {**form, "team": team}
    return {key: value.strip() for key, value in fields.items() if key in known}


def _team_path(name: str) -> str:
    return f"teams/{name}"


ROUTES: list[tuple[str, type[PageHandler]]] = [
    (r"teams", TeamsPage),
    (r"teams/([^/]+)", TeamPage),
    (r"teams/([^/]+)/stop", StopForm),
    (r"teams/([^/]+)/preferences", PreferencesForm),
    (r"requests", RequestsPage),
    (r"requests/([^/]+)/decide", DecisionForm),
    (r"requests/([^/]+)/withdraw", WithdrawalForm),
]
