"""Who may sign in, who administers and who is in which group, from a table in the values.

The table has the last word. JupyterHub's own `load_groups`, `allowed_users` and `admin_users`
only ever add to what its database holds; here whoever leaves the table loses the group, the
admin role or the right to sign in when the hub starts again.
"""

from collections.abc import Mapping
from typing import Any

from jupyterhub import orm, roles
from jupyterhub.authenticators.shared import SharedPasswordAuthenticator
from sqlalchemy.orm import object_session
from traitlets import Dict, List, Unicode, default


def groups_of(name: str, members: Mapping[str, list[str]]) -> list[str]:
    """The groups that list `name`, in order; `members` maps a group to its members' names."""
    return sorted(group for group, names in members.items() if name in names)


class TableAuthenticator(SharedPasswordAuthenticator):
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

    @default("manage_groups")
    def _default_manage_groups(self) -> bool:
        return True

    @default("allow_existing_users")
    def _default_allow_existing_users(self) -> bool:
        return False

    @default("refresh_pre_spawn")
    def _default_refresh_pre_spawn(self) -> bool:
        return True

    @default("auth_refresh_strict")
    def _default_auth_refresh_strict(self) -> bool:
        return True

    async def authenticate(self, handler: Any, data: Mapping[str, str]) -> dict[str, Any] | None:
        found = await super().authenticate(handler, data)
        return found and {**found, "groups": groups_of(found["name"], self.members)}

    async def refresh_user(self, user: Any, handler: Any = None) -> dict[str, Any] | bool:
        """What the table says of a user now; False ends the session of one it does not list."""
        if user.name not in self.allowed_users:
            return False
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
