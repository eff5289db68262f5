"""Keycloak as one process: an identity provider of this machine, for tests.

It speaks plain HTTP, so it listens on an address that nobody else reaches.
"""

import secrets
import urllib.request
from pathlib import Path

from local.errors import Refusal
from local.java import Distribution
from local.listeners import find_free_port
from local.processes import Daemons
from local.progress import Progress
from local.realm import Realm

NAME = "keycloak"
READY_SECONDS = 240


class Keycloak:
    """The Keycloak of one directory: its data outlive a stop, and it ends with who started it.

    That is the thread which called `start`, as the kernel sees it.

    Its port and its administrator's password are chosen anew for each object.
    """

    def __init__(
        self, directory: Path, distribution: Distribution, *, address: str = "127.0.0.1"
    ) -> None:
        """`address` is where Keycloak listens and what browsers and hubs call it."""
        self.port = find_free_port(address)
        self.url = f"http://{address}:{self.port}"
        self._address = address
        self._directory = directory
        self._distribution = distribution
        self._daemons = Daemons(directory, die_with_parent=True)
        self._password = secrets.token_urlsafe(24)

    @property
    def realm(self) -> Realm:
        return Realm(self.url, self._password)

    def start(self, progress: Progress) -> None:
        """Start it and return once it answers."""
        command = self._distribution.make_command("start", "--optimized")
        with progress.step("starting Keycloak") as step:
            self._daemons.ensure(NAME, command, environment=self._make_environment())
            step.wait_for(
                "Keycloak's answer",
                self._is_ready,
                timeout=READY_SECONDS,
                hint=lambda: self._daemons.read_last_line(NAME),
            )

    def stop(self) -> None:
        """Stop it; nobody answers at its address any more."""
        self._daemons.stop(NAME, grace=15)

    def _is_ready(self) -> bool:
        if not self._daemons.is_alive(NAME):
            raise Refusal(f"Keycloak ended: {self._daemons.read_last_line(NAME)}")
        try:
            with urllib.request.urlopen(f"{self.url}/realms/master", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _make_environment(self) -> dict[str, str]:
        database = self._directory / "keycloak" / "database"
        return {
            "KC_BOOTSTRAP_ADMIN_USERNAME": "admin",
            "KC_BOOTSTRAP_ADMIN_PASSWORD": self._password,
            "KC_CACHE": "local",
            # Keycloak's own tables use a word that is one of SQL's.
            "KC_DB_URL": f"jdbc:h2:file:{database};NON_KEYWORDS=VALUE",
            "KC_HOSTNAME": self.url,
            "KC_HTTP_ENABLED": "true",
            "KC_HTTP_HOST": self._address,
            "KC_HTTP_PORT": str(self.port),
            "KC_LOG_LEVEL": "warn",
        }
