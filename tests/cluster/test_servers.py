"""Servers as people get them: the hub's REST API in front, real pods of a real node behind."""

import re
import time
from typing import Any

from local.release import CHART
from spectrum_spawner import names
from spectrum_spawner.inventory import Inventory
from tests.cluster.servers import FLIGHT_GPU, FLIGHT_TWO_GPUS, OPS_CPU, Servers
from tests.cluster.test_release import helm
from tests.cluster.waiting import wait_until
from tests.conftest import InstalledRelease

GPU = "nvidia.com/gpu"


def test_a_server_runs_in_its_teams_namespace_and_gives_its_gpu_back(
    release: InstalledRelease, alice: Servers
) -> None:
    wait_until(lambda: read_free(release) == 4)
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
    wait_until(lambda: read_free(release) == 3)
    alice.stop()
    assert alice.find_pod("flight") == {}
    wait_until(lambda: read_free(release) == 4)


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
        "You are not in a team called “flight”: yours are “Ops”.",
    )
    assert list_objects(release, "flight") == before


def test_a_full_quota_is_told_in_words_at_once_and_leaves_nothing(
    release: InstalledRelease, alice: Servers
) -> None:
    alice.start(FLIGHT_TWO_GPUS)
    before = list_objects(release, "flight")
    begun = time.monotonic()
    status, sentence = alice.refuse(FLIGHT_GPU, "second")
    assert time.monotonic() - begun < 5
    assert status == 409
    assert re.fullmatch(
        r"Team Flight has 2 of 2 GPUs in use \(you: gpu-2 since [0-9:]{5} UTC\)\. "
        r"Stop one, or request more\.",
        sentence,
    )
    assert list_objects(release, "flight") == before
    assert alice.read()["ready"]


def test_a_server_whose_pod_is_deleted_is_noticed_at_once(
    release: InstalledRelease, alice: Servers
) -> None:
    alice.start(OPS_CPU)
    pod = alice.find_pod("ops")["metadata"]
    release.kubectl("-n", pod["namespace"], "delete", "pod", pod["name"], "--grace-period=1")
    wait_until(lambda: not alice.read())


def test_servers_outlive_a_restart_and_an_upgrade_of_the_hub(
    release: InstalledRelease, alice: Servers
) -> None:
    alice.start(OPS_CPU)
    pod = alice.find_pod("ops")
    before = read_uid(release, "hub")
    helm(release, "upgrade", CHART, "--reuse-values", "--set", "auth.contact=somebody else")
    try:
        release.wait_until_ready()
        assert read_uid(release, "hub") != before
        wait_until(lambda: alice.read().get("ready"))
    finally:
        helm(release, "rollback")
        release.wait_until_ready()
    wait_until(lambda: alice.read().get("ready"))
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
