"""Servers as people get them: the hub's REST API in front, real pods of a real node behind."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from local.kubectl import Kubectl
from local.progress import Progress
from local.release import CHART
from spectrum_spawner import names
from spectrum_spawner.inventory import Inventory
from tests.cluster.people import Person
from tests.cluster.test_release import helm
from tests.conftest import InstalledRelease

GPU = "nvidia.com/gpu"
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
        wait_until(lambda: self.read(name).get("ready"), within=120)

    def refuse(self, options: dict[str, Any], name: str = "") -> tuple[int, str]:
        """Ask for a server that one does not get: the status and the sentence."""
        answer = self.person.call("POST", self._path(name), {"user_options": options})
        return answer.status_code, answer.json()["message"]

    def stop(self, name: str = "") -> None:
        """Stop a server and wait until the hub says that it is gone."""
        answer = self.person.call("DELETE", self._path(name))
        assert answer.status_code in (202, 204), answer.text
        wait_until(lambda: not self.read(name), within=60)

    def stop_all(self) -> None:
        wait_until(lambda: all(not one["pending"] for one in self._read_all().values()), within=120)
        for name in self._read_all():
            self.stop(name)

    def read(self, name: str = "") -> dict[str, Any]:
        """The server as the hub shows it, empty once it is stopped."""
        return self._read_all().get(name, {})

    def _read_all(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]]
        found = self.person.call("GET", f"users/{self.person.name}").json()["servers"]
        return {name: one for name, one in found.items() if one["ready"] or one["pending"]}

    def find_pod(self, team: str, name: str = "") -> dict[str, Any]:
        """The pod of a server; empty if there is none."""
        pod = names.server_name(self.person.name, name)
        text = self._release.kubectl(
            *("-n", f"{self._release.namespace}-{team}", "get", "pod", pod),
            *("-o", "json", "--ignore-not-found"),
        )
        found: dict[str, Any] = json.loads(text or "{}")
        return found

    def run(self, team: str, *words: str) -> str:
        """Run a command in the container of the default server."""
        pod = names.server_name(self.person.name, "")
        return self._release.kubectl(
            "-n", f"{self._release.namespace}-{team}", "exec", pod, "--", *words
        )

    def _path(self, name: str) -> str:
        return f"users/{self.person.name}/" + (f"servers/{name}" if name else "server")


@pytest.fixture
def kubectl(release: InstalledRelease) -> Kubectl:
    return release.kubectl


@pytest.fixture
def enter(release: InstalledRelease) -> Iterator[Callable[[str], Servers]]:
    """Sign somebody in; their servers are stopped afterwards."""
    entered: list[Servers] = []

    def sign_in(name: str) -> Servers:
        servers = Servers(release, Person(release.url, name))
        assert servers.person.sign_in(release.user_password)
        entered.append(servers)
        return servers

    yield sign_in
    for servers in entered:
        with servers.person:
            servers.stop_all()


@pytest.fixture
def alice(enter: Callable[[str], Servers]) -> Servers:
    return enter("alice")


@pytest.fixture
def bob(enter: Callable[[str], Servers]) -> Servers:
    return enter("bob")


def test_a_server_runs_in_its_teams_namespace_and_gives_its_gpu_back(
    release: InstalledRelease, alice: Servers
) -> None:
    wait_until(lambda: read_free(release) == 4, within=60)
    team = read_team(release, "flight")
    alice.start(FLIGHT_GPU)
    assert read_owner(alice.find_pod("flight")) == {
        "owner-hub": release.namespace,
        "owner-team": "flight",
        "owner-team-uid": team["metadata"]["uid"],
        "owner-user": "alice",
        "owner-server": "",
    }
    ids = alice.run("flight", "sh", "-c", "id -u; id -G").split()
    assert ids == ["1000", "1000", str(team["status"]["gid"])]
    wait_until(lambda: read_free(release) == 3, within=30)
    alice.stop()
    assert alice.find_pod("flight") == {}
    wait_until(lambda: read_free(release) == 4, within=5)


def test_a_server_without_gpu_sees_none_and_has_no_token(alice: Servers) -> None:
    alice.start(OPS_CPU)
    script = "echo $NVIDIA_VISIBLE_DEVICES; ls /var/run/secrets 2>&1 | wc -w; df -h /dev/shm"
    devices, secrets, *shared_memory = alice.run("ops", "sh", "-c", script).splitlines()
    assert (devices, shared_memory[-1].split()[1]) == ("void", "256M")
    assert "kubernetes.io" not in secrets


def test_files_survive_a_stop_and_stay_in_their_team(alice: Servers) -> None:
    alice.start(OPS_CPU)
    alice.run("ops", "sh", "-c", "echo kept > /home/jovyan/note.txt")
    alice.stop()
    alice.start(FLIGHT_GPU)
    assert "note.txt" not in alice.run("flight", "ls", "/home/jovyan")
    alice.stop()
    alice.start(OPS_CPU)
    assert alice.run("ops", "cat", "/home/jovyan/note.txt").strip() == "kept"


def test_whoever_is_not_in_a_team_starts_nothing_there(
    release: InstalledRelease, bob: Servers
) -> None:
    before = list_objects(release, "flight")
    status, sentence = bob.refuse(FLIGHT_GPU)
    assert (status, sentence) == (
        403,
        "You are not in a team called “flight”: yours are “ops”.",
    )
    assert list_objects(release, "flight") == before


def test_a_full_quota_is_told_in_numbers_and_leaves_no_pod(alice: Servers) -> None:
    alice.start(FLIGHT_TWO_GPUS)
    status, sentence = alice.refuse(FLIGHT_GPU, "second")
    assert (status, sentence) == (
        409,
        "The quota of team flight is used up: 2 of 2 GPUs in use, 1 more needed. "
        "Stop a server of the team, or ask for more quota.",
    )
    assert alice.find_pod("flight", "second") == {}
    assert alice.read()["ready"]


def test_a_server_whose_pod_is_deleted_is_noticed_at_once(
    release: InstalledRelease, alice: Servers
) -> None:
    alice.start(OPS_CPU)
    pod = alice.find_pod("ops")["metadata"]
    release.kubectl("-n", pod["namespace"], "delete", "pod", pod["name"], "--grace-period=1")
    wait_until(lambda: not alice.read(), within=5)


def test_servers_outlive_a_restart_and_an_upgrade_of_the_hub(
    release: InstalledRelease, alice: Servers
) -> None:
    alice.start(OPS_CPU)
    pod = alice.find_pod("ops")
    before = read_uid(release, "hub")
    helm(release, "upgrade", CHART, "--reuse-values", "--set", "auth.contact=somebody else")
    try:
        release.chart.wait_until_ready(Progress())
        assert read_uid(release, "hub") != before
        wait_until(lambda: alice.read().get("ready"), within=30)
    finally:
        helm(release, "rollback")
        release.chart.wait_until_ready(Progress())
    wait_until(lambda: alice.read().get("ready"), within=30)
    after = alice.find_pod("ops")
    assert (after["metadata"]["uid"], after["status"]["containerStatuses"][0]["restartCount"]) == (
        pod["metadata"]["uid"],
        0,
    )
    alice.stop()
    assert alice.find_pod("ops") == {}


def read_free(release: InstalledRelease) -> int | None:
    """GPUs that a new pod could get now, as the controller publishes them."""
    found = release.kubectl.get("-n", release.namespace, "configmap", names.INVENTORY)
    return Inventory.from_json(found["data"][names.INVENTORY_KEY]).free(GPU)


def read_team(release: InstalledRelease, team: str) -> dict[str, Any]:
    found: dict[str, Any] = release.kubectl.get("-n", release.namespace, "team", team)
    return found


def read_owner(obj: dict[str, Any]) -> dict[str, str]:
    found = obj["metadata"]["annotations"]
    mark = f"{names.API_GROUP}/owner-"
    return {
        key.removeprefix(f"{names.API_GROUP}/"): value
        for key, value in found.items()
        if key.startswith(mark)
    }


def read_uid(release: InstalledRelease, component: str) -> str:
    """The uid of the one pod of a component."""
    label = f"{names.LABEL_COMPONENT}={component}"
    pods = release.kubectl.get("-n", release.namespace, "pods", "-l", label)["items"]
    (uid,) = (pod["metadata"]["uid"] for pod in pods)
    return str(uid)


def list_objects(release: InstalledRelease, team: str) -> list[str]:
    kinds = "pods,persistentvolumeclaims,services,secrets,configmaps"
    namespace = f"{release.namespace}-{team}"
    return sorted(release.kubectl("-n", namespace, "get", kinds, "-o", "name").split())


def wait_until(condition: Callable[[], Any], *, within: float) -> None:
    """Return once a condition is true; asking costs little, and there is nothing to watch."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"not within {within} s"
        time.sleep(0.2)
