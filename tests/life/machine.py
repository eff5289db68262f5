"""What of a cluster can be seen on the machine, and the commands as a person runs them."""

import json
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from local.cgroups import NAME, list_pod_processes
from local.commands import run, succeeds
from local.mounts import list_mounts
from local.network import SETTINGS
from local.node import DEVICE_PLUGINS
from local.paths import CHECKOUT, RUNTIME
from local.teardown import CACHE_PARTS, CNI_RESULTS


@dataclass(frozen=True)
class Place:
    """Directories of one cluster, as SPECTRUM_STATE and SPECTRUM_CACHE name them."""

    state: Path
    cache: Path

    @property
    def environment(self) -> dict[str, str]:
        chosen = {"SPECTRUM_STATE": str(self.state), "SPECTRUM_CACHE": str(self.cache)}
        return {**os.environ, **chosen}

    def start(self, *words: str, cwd: Path = CHECKOUT) -> subprocess.Popen[str]:
        """Start `local/<words>` in a process group of its own; what it prints is in its stdout."""
        return subprocess.Popen(
            [CHECKOUT / "local" / words[0], *words[1:]],
            env=self.environment,
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *words: str, cwd: Path = CHECKOUT) -> str:
        """Run the command to its good end and return what it printed."""
        with self.start(*words, cwd=cwd) as command:
            printed = command.communicate()[0]
        assert command.returncode == 0, printed
        return printed

    def run_until(self, step: str, *words: str) -> None:
        """Run the command until it says that the step begins, and kill it with its children."""
        with self.start(*words) as command:
            assert command.stdout is not None
            printed = []
            for line in command.stdout:
                printed.append(line)
                if step in line:
                    break
            else:
                raise AssertionError(f"{step} was never begun:\n{''.join(printed)}")
            os.killpg(command.pid, signal.SIGKILL)

    def list_processes(self) -> list[str]:
        """List the cluster's processes, in and outside of pods, by their command lines."""
        marks = [str(path).encode() for path in (self.state, self.cache, RUNTIME)]
        inside = list_pod_processes()
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                command = (process / "cmdline").read_bytes()
            except OSError:
                continue  # it has ended
            if int(process.name) in inside or any(mark in command for mark in marks):
                found.append(command.replace(b"\0", b" ").decode(errors="replace"))
        return found

    def list_mounts(self) -> list[Path]:
        places = (self.state, self.cache, RUNTIME)
        paths = [path for path, _ in list_mounts()]
        return [path for path in paths if any(path.is_relative_to(place) for place in places)]

    def list_files(self) -> list[Path]:
        """List those directories of the cluster that exist."""
        parts = [self.cache / part for part in CACHE_PARTS]
        groups = [path / NAME for path, kind in list_mounts() if kind.startswith("cgroup")]
        results = [path for path in CNI_RESULTS.glob("*") if str(RUNTIME) in path.read_text()]
        directories = (self.state, RUNTIME, DEVICE_PLUGINS, *parts, *groups)
        return [path for path in directories if path.exists()] + results


def read_kernel() -> dict[str, object]:
    """Read what of networking a cluster changes: links, rules, sets, settings."""
    links = json.loads(run(["ip", "-json", "link"]))
    settings = {name: Path("/proc/sys", *name.split(".")).read_text() for name in SETTINGS}
    rules = [line for family in ("iptables", "ip6tables") for line in read_rules(family)]
    sets = run(["ipset", "list", "-n"]).split() if succeeds(["ipset", "list", "-n"]) else []
    names = sorted(link["ifname"] for link in links)
    return {"links": names, "rules": rules, "sets": sets, "settings": settings}


def read_rules(family: str) -> list[str]:
    """Read the chains and rules without their counters; none where the kernel has none."""
    if not succeeds([f"{family}-save"]):
        return []
    lines = run([f"{family}-save"]).splitlines()
    return [line.split(" [")[0] for line in lines if line.startswith((":", "-"))]


def link_tree(source: Path, target: Path) -> None:
    """Make the directory anew with hard links to the files of another."""
    shutil.copytree(source, target, copy_function=os.link)
