"""One person's servers, by the hub's REST API in front and real pods behind."""

import json
from typing import Any

from spectrum_spawner import names
from tests.cluster.people import Person
from tests.cluster.waiting import wait_until
from tests.conftest import InstalledRelease

FLIGHT_GPU = {"team": "flight", "profile": "gpu-1"}
FLIGHT_TWO_GPUS = {"team": "flight", "profile": "gpu-2"}
OPS_CPU = {"team": "ops", "profile": "cpu-small"}


class Servers:
    """The servers of one person; all that it started is stopped at the end."""

    def __init__(self, release: InstalledRelease, person: Person) -> None:
        self.person = person
        self._release = release

    def start(self, options: dict[str, str], name: str = "") -> None:
        """Ask for a server and wait until it is ready."""
        answer = self.person.call("POST", self._path(name), {"user_options": options})
        assert answer.status_code in (201, 202), answer.text
        wait_until(lambda: self.read(name).get("ready"))

    def refuse(self, options: dict[str, Any], name: str = "") -> tuple[int, str]:
        """Ask for a server that one does not get: the status and the sentence."""
        answer = self.person.call("POST", self._path(name), {"user_options": options})
        return answer.status_code, answer.json()["message"]

    def stop(self, name: str = "") -> None:
        """Stop a server and wait until the hub says that it is gone."""
        answer = self.person.call("DELETE", self._path(name))
        assert answer.status_code in (202, 204), answer.text
        wait_until(lambda: not self.read(name))

    def remove(self, name: str) -> None:
        """Stop a named server and remove it, until the hub knows none of that name."""
        answer = self.person.call("DELETE", self._path(name), {"remove": True})
        assert answer.status_code in (202, 204), answer.text
        wait_until(lambda: name not in self._read_known())

    def stop_all(self) -> None:
        wait_until(lambda: all(not one["pending"] for one in self._read_all().values()))
        for name in self._read_all():
            self.stop(name)

    def read(self, name: str = "") -> dict[str, Any]:
        """The server as the hub shows it, empty once it is stopped."""
        return self._read_all().get(name, {})

    def _read_all(self) -> dict[str, dict[str, Any]]:
        found = self._read_known()
        return {name: one for name, one in found.items() if one["ready"] or one["pending"]}

    def _read_known(self) -> dict[str, dict[str, Any]]:
        """What the hub's API lists: what is active, and what waits to be started again."""
        path = f"users/{self.person.name}?include_stopped_servers=1"
        found: dict[str, dict[str, Any]] = self.person.call("GET", path).json()["servers"]
        return found

    def read_progress(self) -> list[str]:
        """The sentences that a pending start of the default server has told so far."""
        lines = self.person.follow(f"{self._path('')}/progress")
        return [json.loads(line.removeprefix("data:"))["message"] for line in lines if line]

    def find_pod(self, team: str, name: str = "") -> dict[str, Any]:
        """The pod of a server; empty if there is none."""
        pod = names.server_name(self.person.name, name)
        text = self._release.kubectl(
            *("-n", f"{self._release.namespace}-{team}", "get", "pod", pod),
            *("-o", "json", "--ignore-not-found"),
        )
        found: dict[str, Any] = json.loads(text or "{}")
        return found

    def run(self, team: str, *words: str, name: str = "") -> str:
        """Run a command in the container of a server."""
        pod = names.server_name(self.person.name, name)
        return self._release.kubectl(
            "-n", f"{self._release.namespace}-{team}", "exec", pod, "--", *words
        )

    def _path(self, name: str) -> str:
        return f"users/{self.person.name}/" + (f"servers/{name}" if name else "server")
