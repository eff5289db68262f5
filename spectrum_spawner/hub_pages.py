"""The hub's pages as JupyterHub's configuration takes them: templates, handlers, what they know."""

from functools import partial
from pathlib import Path
from typing import Any

from spectrum_spawner import keep_page, people_page, share_page, storage_page, team_page


def say_whose(visitor: Any, spawner: Any) -> str:
    """Whose server it is, as part of a sentence to somebody who is signed in."""
    if spawner.team_name:
        return f"the server of team {spawner.team_title}"
    owner = spawner.user.name
    return "your server" if visitor and visitor.name == owner else f"the server of {owner}"


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
