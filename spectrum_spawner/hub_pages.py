"""The hub's pages as JupyterHub's configuration takes them: templates, handlers, what they know."""

from functools import partial
from pathlib import Path
from typing import Any

from spectrum_spawner import keep_page, people_page, share_page, storage_page, team_page


def say_whose(visitor: Any, spawner: Any) -> str:
    """Whose server it is, as part of a sentence to somebody who is signed in."""
    server = f"server “{spawner.name}”" if spawner.name else "server"
    owner = spawner.user.name
    if not spawner.team_name and visitor and visitor.name == owner:
        return f"your {server}"
    return f"the {server} of {f'team {spawner.team_title}' if spawner.team_name else owner}"


# Traits of JupyterHub. On pages of somebody's server `user` is its owner: `visitor` is who reads.
SETTINGS: dict[str, Any] = {
    "template_paths": [str(Path(__file__).with_name("templates"))],
    "template_vars": {
        "visitor": lambda visitor: visitor,
        "whose": lambda visitor: partial(say_whose, visitor),
    },
    "extra_handlers": [
        *storage_page.ROUTES,
        *keep_page.ROUTES,
        *share_page.ROUTES,
        *team_page.ROUTES,
        *people_page.ROUTES,
    ],
}
