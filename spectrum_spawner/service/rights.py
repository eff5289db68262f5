"""Who may do what. Pure, and the only place that decides it.

A server's team decides, never the other teams of whoever owns it: the lead of one team has no
say over what its members run in another. Rights come from the groups of now. A token without
the scope to act, such as a server's own, reads at most its own server and that server's team.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from spectrum_spawner import accounts
from spectrum_spawner.service.asking import NEW_TEAM, Request
from spectrum_spawner.service.servers import Server
from spectrum_spawner.service.settings import ACT_SCOPE
from spectrum_spawner.teams import Team, is_lead, teams_of

# what a server's own token has, for that server
SERVER_SCOPE = "custom:spectrum:report!server="


@dataclass(frozen=True, kw_only=True)
class Viewer:
    """Who asks. `teams` and `leads` are names of teams that the person is in, and leads, now.

    `server` is set for a server's own token: owner and name of the one server it stands for.
    """

    name: str
    admin: bool = False
    teams: frozenset[str] = frozenset()
    leads: frozenset[str] = frozenset()
    server: tuple[str, str] | None = None

    @property
    def actor(self) -> str:
        """How records call them. Whoever is in a server has its token, guests included."""
        if self.server is None:
            return f"user:{self.name}"
        user, name = self.server
        return f"server:{user}/{name}"

    @property
    def may_act(self) -> bool:
        return self.server is None


@dataclass(frozen=True, kw_only=True)
class AuditScope:
    """Which records somebody may read: all, or those to which any of the rest applies.

    `person` is whom they are about or who acted, `teams` are led teams, `stops_in` teams of
    which only stops are shown, `server` (owner, name) a server's token's only part.
    """

    everything: bool = False
    person: str | None = None
    teams: frozenset[str] = frozenset()
    stops_in: frozenset[str] = frozenset()
    server: tuple[str, str] | None = None


def find_viewer(
    model: Mapping[str, Any], teams: Iterable[Team], servers: Iterable[Server]
) -> Viewer | None:
    """Who a user model of the hub is; None for one that may do nothing here.

    `model` is the hub's answer to the token of now, `servers` are the person's active ones.
    """
    if model.get("kind", "user") != "user":
        return None  # whatever acts here acts for a person
    name, scopes, groups = model["name"], frozenset(model["scopes"]), model["groups"]
    mine = teams_of(name, groups, known := list(teams))
    if ACT_SCOPE in scopes:
        return Viewer(
            name=name,
            admin=bool(model.get("admin")),
            teams=frozenset(team.name for team in mine),
            leads=frozenset(team.name for team in known if is_lead(name, groups, team)),
        )
    key = find_server_of_token(model)
    server = next((each for each in servers if (each.user, each.name) == key), None)
    if server is None:
        return None
    of_server = frozenset({server.team}) & {team.name for team in mine}
    return Viewer(name=name, teams=of_server, server=(server.user, server.name))


def find_server_of_token(model: Mapping[str, Any]) -> tuple[str, str] | None:
    """Owner and name of the one server whose own token it is; None for any other token.

    `model` is the hub's answer to the token. A default server's scope ends in a slash.
    """
    scopes = frozenset(model["scopes"])
    if model.get("kind", "user") != "user" or ACT_SCOPE in scopes:
        return None
    named = {s.removeprefix(SERVER_SCOPE) for s in scopes if s.startswith(SERVER_SCOPE)}
    owner, found = f"{model['name']}/", named.pop() if len(named) == 1 else ""
    return (model["name"], found.removeprefix(owner)) if found.startswith(owner) else None


def may_see_team(viewer: Viewer, team: str) -> bool:
    return viewer.admin or team in viewer.teams or team in viewer.leads


def may_see_server(viewer: Viewer, server: Server) -> bool:
    if viewer.server is not None:
        return viewer.server == (server.user, server.name)
    return server.user == viewer.name or may_see_team(viewer, server.team)


def may_stop(viewer: Viewer, server: Server) -> bool:
    """One's own always, also after leaving the team; a team's as a member; others' as a lead."""
    own = server.user == viewer.name or accounts.team_of(server.user) in viewer.teams
    return viewer.may_act and (own or viewer.admin or server.team in viewer.leads)


def may_keep_or_release(viewer: Viewer, server: Server) -> bool:
    """To extend a server's time, hold it or end it for its GPUs: who may stop it, and the server's
    own token."""
    return viewer.server == (server.user, server.name) or may_stop(viewer, server)


def may_release_team(viewer: Viewer, team: str) -> bool:
    """To end all servers of a team that hold GPUs."""
    return viewer.may_act and (viewer.admin or team in viewer.leads)


def may_try_policy(viewer: Viewer, team: str | None = None) -> bool:
    """To see what a policy would end in a team, or in any: administrators, and its leads."""
    leads = bool(viewer.leads) if team is None else team in viewer.leads
    return viewer.may_act and (viewer.admin or leads)


def may_see_hours(viewer: Viewer, *, user: str, team: str) -> bool:
    """One's own GPU hours, and whoever's in teams that one leads; a server's token sees none."""
    if not viewer.may_act:
        return False
    return viewer.admin or user == viewer.name or team in viewer.leads


def may_set_preferences(viewer: Viewer, team: str) -> bool:
    return viewer.may_act and (viewer.admin or team in viewer.leads)


def may_ask(viewer: Viewer, kind: str, team: str) -> bool:
    """Anybody for a new team, members and leads for more in theirs."""
    if not viewer.may_act:
        return False
    return kind == NEW_TEAM or team in viewer.teams or team in viewer.leads


def may_see_request(viewer: Viewer, request: Request) -> bool:
    return viewer.may_act and (viewer.admin or request.asked_by == viewer.name)


def may_withdraw(viewer: Viewer, request: Request) -> bool:
    return viewer.may_act and request.asked_by == viewer.name


def may_decide(viewer: Viewer) -> bool:
    return viewer.may_act and viewer.admin


def may_download_audit(viewer: Viewer) -> bool:
    return viewer.may_act and viewer.admin


def audit_scope(viewer: Viewer) -> AuditScope:
    if viewer.server is not None:
        return AuditScope(server=viewer.server)
    if viewer.admin:
        return AuditScope(everything=True)
    return AuditScope(person=viewer.name, teams=viewer.leads, stops_in=viewer.teams)
