"""From the click to JupyterLab, and from Stop to a free GPU: SpectrumSpawner and KubeSpawner.

    local/test bench, or: python -m tests.bench.click_to_lab [--rounds N]

Both run in the hub of one release on the local cluster, in turns of a few rounds: real kubelet,
containerd, network policies and proxy; the same image, command, GPU, resources, namespace and
volumes: home and share on CephFS, a scratch disk on RBD. Of the plain hub nothing but the spawner
differs. A start lasts from the POST until the REST API calls the server ready, a stop from the
DELETE until no pod holds the GPU any more.

The figures are of a warm image and volumes that exist, one server at a time, on a machine that
also runs the whole cluster. Prints one JSON line for each round, and a table.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from local.progress import Progress
from local.release import Release
from local.trial import URL, trial_release
from tests.bench.spawn_lag import find_percentile
from tests.cluster.people import Person

USER, TEAM = "alice", "flight"
OPTIONS = {"team": TEAM, "profile": "gpu-1", "scratch": "bench"}
VOLUMES = {"home", "share", "scratch"}
TURN = 5  # rounds before the other spawner has its turn
ASK = 0.02  # seconds between two questions
BARS = {"start": 5.0, "stop": 4.0}  # seconds, for the 95th percentile
PLAIN_CONFIG = "/etc/spectrum/bench/plain.py"
PLAIN = """
load_subconfig("/usr/local/etc/jupyterhub/jupyterhub_config.py")
c.JupyterHub.spawner_class = "kubespawner.KubeSpawner"
c.KubeSpawner.update({settings!r})
"""


def make_plain_settings(manifest: dict[str, Any]) -> dict[str, Any]:
    """Traits that make KubeSpawner start the same pod as the one that SpectrumSpawner made."""
    spec = manifest["spec"]
    (container,) = spec["containers"]
    resources = container["resources"]
    gpus = {key: value for key, value in resources["limits"].items() if "/" in key}
    return {
        "namespace": manifest["metadata"]["namespace"],
        "image": container["image"],
        "image_pull_policy": container["imagePullPolicy"],
        "cmd": container["args"],
        "uid": spec["securityContext"].get("runAsUser")
        or container["securityContext"]["runAsUser"],
        "service_account": spec["serviceAccountName"],
        "pod_security_context": spec["securityContext"],
        "container_security_context": container["securityContext"],
        "extra_resource_limits": gpus,
        "extra_resource_guarantees": gpus,
        "extra_pod_config": {
            "affinity": spec.get("affinity"),
            "tolerations": spec.get("tolerations"),
            "enableServiceLinks": False,
        },
        "volumes": spec["volumes"],
        "volume_mounts": container["volumeMounts"],
    }


class Trial:
    """One release, one person in it, and what its hub runs at the moment."""

    def __init__(self, release: Release) -> None:
        self._kubectl, self._namespace = release.kubectl, release.namespace
        self._team_namespace = f"{release.namespace}-{TEAM}"
        self._person = Person(URL, USER)
        if not self._person.sign_in(release.read_secret()["userPassword"]):
            raise SystemExit(f"{USER} could not sign in at {URL}")
        self.times: dict[str, dict[str, list[float]]] = {}

    def warm_up(self) -> dict[str, Any]:
        """Starts and stops that do not count, until one finds every volume as it is to be.

        Returns the manifest of that one's pod.
        """
        for _ in range(5):
            self._start(OPTIONS)
            (manifest,) = self._kubectl.get("-n", self._team_namespace, "pods")["items"]
            self._stop()
            found = {one["name"] for one in manifest["spec"]["volumes"]}
            if found >= VOLUMES and not manifest["spec"].get("initContainers"):
                return manifest
        raise SystemExit(f"a start does not find {', '.join(sorted(VOLUMES))}")

    @contextmanager
    def plain_config(self, settings: dict[str, Any]) -> Iterator[None]:
        """Within this context the hub's pod has a configuration with KubeSpawner at hand."""
        text = PLAIN.format(settings=settings)
        volume = {"name": "bench", "configMap": {"name": "bench"}}
        mount = {"name": "bench", "mountPath": str(Path(PLAIN_CONFIG).parent)}
        self._kube("create", "configmap", "bench", f"--from-literal=plain.py={text}")
        try:
            self._patch_hub({"volumeMounts": [mount]}, volumes=[volume])
            yield
        finally:
            self._patch_hub({"args": None, "volumeMounts": [mount | {"$patch": "delete"}]})
            self._patch_hub({}, volumes=[volume | {"$patch": "delete"}])
            self._kube("delete", "configmap", "bench")

    def run_turn(self, spawner: str, numbers: range) -> None:
        """Some rounds with one spawner; the hub has restarted before the first."""
        plain = spawner == "KubeSpawner"
        self._patch_hub({"args": ["jupyterhub", "-f", PLAIN_CONFIG] if plain else None})
        # anything but nothing: with no options JupyterHub repeats those of the other spawner
        options = {"any": "one"} if plain else OPTIONS
        times = self.times.setdefault(spawner, {"start": [], "stop": []})
        for number in numbers:
            times["start"].append(self._start(options))
            times["stop"].append(self._stop())
            line = {what: round(seconds[-1], 3) for what, seconds in times.items()}
            print(json.dumps({"spawner": spawner, "round": number, **line}), flush=True)

    def _start(self, options: dict[str, str]) -> float:
        begun = time.perf_counter()
        answer = self._person.call("POST", f"users/{USER}/server", options)
        if answer.status_code not in (201, 202):
            raise SystemExit(f"the start was refused: {answer.status_code} {answer.text}")
        _wait_until(lambda: self._servers().get("", {}).get("ready"))
        return time.perf_counter() - begun

    def _stop(self) -> float:
        begun = time.perf_counter()
        self._person.call("DELETE", f"users/{USER}/server")
        _wait_until(lambda: not self._holds_gpu())
        seconds = time.perf_counter() - begun
        _wait_until(lambda: not self._servers())
        return seconds

    def _servers(self) -> dict[str, Any]:
        return self._person.call("GET", f"users/{USER}").json()["servers"]

    def _holds_gpu(self) -> bool:
        phases = self._kubectl(
            *("-n", self._team_namespace, "get", "pods", "-o", "jsonpath={.items[*].status.phase}")
        )
        return any(phase in ("Pending", "Running") for phase in phases.split())

    def _patch_hub(self, container: dict[str, Any], **pod: Any) -> None:
        patch = {
            "spec": {"template": {"spec": {"containers": [{"name": "hub"} | container]} | pod}}
        }
        self._kube("patch", "deployment", "hub", "-p", json.dumps(patch))
        self._kube("rollout", "status", "deployment/hub", "--timeout=180s")
        # the way to a pod that is ready takes the proxy a moment to learn
        _wait_until(lambda: self._person.call("GET", f"users/{USER}").status_code == 200)

    def _kube(self, *words: str) -> None:
        self._kubectl("-n", self._namespace, *words)


def _wait_until(condition: Callable[[], object], *, within: float = 120) -> None:
    until = time.monotonic() + within
    while not condition():
        if time.monotonic() > until:
            raise SystemExit(f"nothing happened within {within:.0f} s")
        time.sleep(ASK)


def _print_table(times: dict[str, dict[str, list[float]]]) -> None:
    print(f"{'seconds':<18}{'':<7}{'p50':>8}{'p95':>8}{'max':>8}")
    for spawner, figures in times.items():
        for what, values in figures.items():
            row = statistics.median(values), find_percentile(values, 95), max(values)
            print(f"{spawner:<18}{what:<7}" + "".join(f"{value:>8.2f}" for value in row))
    for what, bar in BARS.items():
        ours = find_percentile(times["SpectrumSpawner"][what], 95)
        plain = find_percentile(times["KubeSpawner"][what], 95)
        line = {"what": what, "p95": ours, "bar": bar, "met": ours <= bar, "to_plain": ours / plain}
        print(json.dumps(line))


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare click to Lab and Stop to free GPU.")
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    with trial_release(Progress()) as release:
        trial = Trial(release)
        manifest = trial.warm_up()
        with trial.plain_config(make_plain_settings(manifest)):
            for first in range(0, rounds, TURN):
                numbers = range(first, min(first + TURN, rounds))
                turns = ["SpectrumSpawner", "KubeSpawner"]
                for spawner in turns if (first // TURN) % 2 == 0 else turns[::-1]:
                    trial.run_turn(spawner, numbers)
        _print_table(trial.times)


if __name__ == "__main__":
    main()
