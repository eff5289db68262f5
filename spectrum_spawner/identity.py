"""What Spectrum asks of every way to sign in, and sign-in by shared password.

Of a table in the values the last word is the table's. JupyterHub's own `load_groups`,
`allowed_users` and `admin_users` only ever add to what its database holds; here whoever leaves
the table loses the group, the admin role or the right to sign in when the hub starts again.
"""

import asyncio
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from jupyterhub import orm, roles
from jupyterhub.auth import Authenticator
from jupyterhub.authenticators.shared import SharedPasswordAuthenticator
from kubespawner.clients import load_config
from sqlalchemy.orm import object_session
from traitlets import Dict, List, Unicode, default

from spectrum_spawner import accounts, actor, membership, turns
from spectrum_spawner.admittance import Admittance
from spectrum_spawner.audit import make_record
from spectrum_spawner.outbox import Outbox
from spectrum_spawner.refusals import Refusal
from spectrum_spawner.team_templates import TeamTemplate, ensure_teams, read_templates
from spectrum_spawner.views import Views

TEAMS_PATIENCE = 2.0  # seconds that a sign-in waits until the hub knows the teams there are


class Identity(Authenticator):
    """An authenticator that says who somebody is, in which groups, and who asks for what.

    Groups are its own business alone, and asked for again before each start. Before each start
    and stop it notes who asks (`actor`).
    """

    hub_namespace = Unicode(config=True, help="Namespace in which the hub runs.")
    team_templates = Dict(
        config=True,
        help="""
        Templates by which groups become teams when somebody in them signs in, as in the chart's
        `teamTemplates` (pattern, max). Default: none, teams are made by administrators.
        """,
    )
    audit_url = Unicode(
        config=True,
        help="Where audit records are sent. Default: nowhere, they are kept in `audit_file`.",
    )
    audit_token = Unicode(config=True, help="Token that the ledger knows the hub by.")
    audit_file = Unicode(
        config=True,
        help="""
        File that keeps audit records until the ledger has them. Default: none, and changes of
        membership and refused sign-ins are recorded nowhere.
        """,
    )

    _admittance: Admittance | None = None
    _admitting: asyncio.Task[None] | None = None

    @default("manage_groups")
    def _default_manage_groups(self) -> bool:
        return True

    @default("allow_existing_users")
    def _default_allow_existing_users(self) -> bool:
        return False

    @default("refresh_pre_spawn")
    def _default_refresh_pre_spawn(self) -> bool:
        return True

    @default("refresh_pre_stop")
    def _default_refresh_pre_stop(self) -> bool:
        return True

    @default("auth_refresh_strict")
    def _default_auth_refresh_strict(self) -> bool:
        return True

    def validate_username(self, username: str) -> bool:
        """Nobody signs in, or is added, under the name of a team's account."""
        return not accounts.is_account(username) and super().validate_username(username)

    def subject_of(self, user: Any) -> str:
        """Who a user is beyond the name, for good; "" where nobody says."""
        return ""

    async def why_no_start(self, user: Any) -> str:
        """Why a user's groups of now are not known well enough to start a server; "" if they are.

        One sentence for the person who asks for the start.
        """
        return ""

    def is_barred(self, name: str) -> bool:
        """Whether the provider has said of a user of the hub that they may not be here."""
        return False

    def admit_anew(self) -> None:
        """What `is_barred` says of somebody is other than it was."""
        if self._admittance is not None:
            self._admittance.wake()

    def add_user(self, user: Any) -> None:
        if not accounts.is_account(user.name):
            super().add_user(user)
        membership.watch(object_session(getattr(user, "orm_user", user)), self.audit)

    def get_handlers(self, app: Any) -> list[tuple[Any, ...]]:
        membership.watch(app.db, self.audit)
        if self.hub_namespace:
            # at once, so that the first sign-in finds the teams known
            teams = self._find_views().teams
            self._admittance = Admittance(
                app.db,
                teams,
                find_user=lambda id: app.users[id],
                # the settings are made after this
                trust=lambda clients: app.tornado_settings["oauth_no_confirm_list"].update(clients),
                is_barred=self.is_barred,
            )
            self._admitting = asyncio.get_running_loop().create_task(self._admittance.run())
        return [*turns.ROUTES, *super().get_handlers(app)]

    def audit(self, **what: Any) -> None:
        """Record something that the identity provider decided (see `audit.make_record`)."""
        if self.audit_file:
            record = make_record(writer="hub", actor="identity-provider", **what)
            Outbox.shared(self.audit_file, self.audit_url, self.audit_token).append(record)

    @cached_property
    def _templates(self) -> dict[str, TeamTemplate]:
        return read_templates(self.team_templates)

    def _find_views(self) -> Views:
        load_config()  # a spawner does it as well, but there may be none yet
        return Views.shared(self.hub_namespace)

    async def offer_teams(self, groups: Iterable[str]) -> None:
        """Let groups that belong to no team become teams, where a template says so.

        Nothing of it is a reason not to let somebody in.
        """
        if not self._templates:
            return
        try:
            views = self._find_views()
            await views.teams.wait_synced(TEAMS_PATIENCE)
            await ensure_teams(
                views.client, self.hub_namespace, groups, views.teams, self._templates
            )
        except Exception:
            self.log.exception("no teams were made for %s", sorted(groups))


def ask_for_sign_in(handler: Any) -> bool:
    """What `refresh_user` returns to have JupyterHub lead a person to the sign-in."""
    if handler is not None:
        # JupyterHub 6.1.1 then reads it of every request, but sets it for those with a token
        handler._token_authenticated = getattr(handler, "_token_authenticated", False)
    return False


async def subject_of(user: Any) -> str:
    """Who a user is to the identity provider, for good; "" where nobody says."""
    known = user.authenticator
    return known.subject_of(user) if isinstance(known, Identity) else ""


async def check_known(user: Any) -> None:
    """Raise Refusal unless the user's groups of now are known well enough for a start.

    Of a team's account nobody tells any: whoever starts its server has to be known.
    """
    known = user.authenticator
    asker = _find_asker(user) if accounts.is_account(user.name) else user
    asks = isinstance(known, Identity) and asker is not None
    if asks and (why := await known.why_no_start(asker)):
        raise Refusal(why, reason="identity", status_code=403)


def _find_asker(user: Any) -> Any:
    """The person whose request it is; None for a service's, and the hub's own."""
    errand = actor.errand()
    kind, _, name = (errand.by if errand else actor.current()).partition(":")
    return user.settings["users"].get(name) if kind == "user" else None


def groups_of(name: str, members: Mapping[str, list[str]]) -> list[str]:
    """The groups that list `name`, in order; `members` maps a group to its members' names."""
    return sorted(group for group, names in members.items() if name in names)


class TableAuthenticator(Identity, SharedPasswordAuthenticator):
    """Shared passwords, and memberships from `members`.

    Users sign in with one password and administrators with another, so a user can pass for any
    other user, but not for an administrator.
    """

    members = Dict(
        value_trait=List(Unicode()),
        key_trait=Unicode(),
        config=True,
        help="""
        Names of the members of each group.

        Whoever is not listed in a group is not in it, whatever the database says.
        Members may sign in only if `allowed_users` names them as well.
        """,
    )

    async def authenticate(self, handler: Any, data: Mapping[str, str]) -> dict[str, Any] | None:
        found = await super().authenticate(handler, data)
        if not found:
            return None
        groups = groups_of(found["name"], self.members)
        await self.offer_teams(groups)
        return {**found, "groups": groups}

    async def refresh_user(self, user: Any, handler: Any = None) -> dict[str, Any] | bool:
        """What the table says of a user now; False ends the session of one it does not list."""
        actor.note(handler)
        if accounts.is_account(user.name):
            return True
        if user.name not in self.allowed_users:
            return ask_for_sign_in(handler)
        return {
            "name": user.name,
            "admin": user.name in self.admin_users,
            "groups": groups_of(user.name, self.members),
        }

    def add_user(self, user: Any) -> None:
        """Take from a user what the table does not give; JupyterHub adds the rest at sign-in.

        JupyterHub calls this for each user in its database when it starts, after it has loaded
        the roles and before it takes the admin role for granted to whoever has it.
        """
        super().add_user(user)
        known: orm.User = getattr(user, "orm_user", user)
        mine = groups_of(known.name, self.members)
        known.groups = [group for group in known.groups if group.name in mine]
        known.admin = known.name in self.admin_users
        roles.assign_default_roles(object_session(known), known)
