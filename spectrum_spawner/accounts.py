"""Accounts of teams: whose a server is that belongs to no person.

The servers of team `ops` are those of the JupyterHub user `team:ops`, which is in that team by
definition. No way to sign in gives anybody such a name.
"""

_PREFIX = "team:"


def account_of(team: str) -> str:
    return f"{_PREFIX}{team}"


def is_account(user: str) -> bool:
    return user.startswith(_PREFIX)


def team_of(user: str) -> str | None:
    """The team whose account a user is; None for a person."""
    return user.removeprefix(_PREFIX) if is_account(user) else None
