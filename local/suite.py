"""`local/test`: lint and every part of the tests, the cheapest first."""

import os
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from local.binaries import ensure_go_tool, ensure_kube, ensure_prometheus
from local.cluster import ensure_binaries
from local.environment import ensure_environment
from local.errors import Refusal
from local.images import build_all
from local.java import ensure_keycloak
from local.packages import ensure_packages
from local.paths import CHECKOUT, find_cache
from local.preflight import check_machine
from local.progress import Progress
from local.trial import make_test_environment, trial_release

SCRIPTS = ("local/up", "local/down", "local/test", "local/python", ".ci/run")


@dataclass(frozen=True)
class Part:
    """Tests that are named together; `needs_release` ones run against a release of their own.

    Files of a part with several `workers` run beside each other.
    """

    paths: str
    needs_release: bool = False
    is_long: bool = False
    workers: int = 1


PARTS = {
    "unit": Part("tests/test_*.py", workers=3),
    "chart": Part("tests/chart/test_*.py", workers=3),
    "hub": Part("tests/hub/test_*.py", workers=4),
    "faults": Part("tests/hub/faults/test_*.py", workers=3),
    "service": Part("tests/hub/service/test_*.py", workers=3),
    "images": Part("tests/images/test_*.py", workers=2),
    "cluster": Part("tests/cluster", needs_release=True),
    # Stops processes of Ceph and starts them again, under the demo as well.
    "storage": Part("tests/storage/test_*.py", needs_release=True),
    "browser": Part("tests/browser", needs_release=True),
    # Fetches gigabytes of CUDA.
    "cuda": Part("tests/images/cuda", is_long=True),
    "outages": Part("tests/storage/outages", needs_release=True, is_long=True),
    "keycloak": Part("tests/keycloak", is_long=True),
    "bench": Part("tests/bench/*.py", is_long=True),
    # Takes the machine's one cluster down and starts it again: nothing may run beside it.
    "life": Part("tests/life", is_long=True),
}


@dataclass(frozen=True)
class Counts:
    """How many tests ended how."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped
        )

    def __str__(self) -> str:
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.passed} passed, {self.failed} failed{skipped}"


def choose_parts(named: Sequence[str], *, long: bool) -> list[str]:
    """Return the parts to run, the cheapest first: those named, else all but the long ones."""
    if named:
        return [name for name in PARTS if name in named]
    return [name for name, part in PARTS.items() if long or not part.is_long]


def run_suite(named: Sequence[str], *, long: bool, progress: Progress) -> int:
    """Run the parts until one fails; return the exit code."""
    parts = choose_parts(named, long=long)
    python = ensure_environment(progress)
    if "unit" in parts:
        _lint(python, progress)
    counts = Counts()
    for needs_release, names in groupby(parts, key=lambda name: PARTS[name].needs_release):
        if not counts.failed:
            run = run_with_release if needs_release else run_alone
            counts += run(list(names), python, progress)
    progress.say("every part that was to run has run" if not counts.failed else "stopped there")
    print(counts, flush=True)
    return 1 if counts.failed or not counts.passed else 0


def run_alone(names: Sequence[str], python: Path, progress: Progress) -> Counts:
    """Run parts until one fails."""
    counts = Counts()
    for name in names:
        _prepare(name, progress)
        counts += run_part(name, python, {}, progress)
        if counts.failed:
            break
    return counts


def run_with_release(names: Sequence[str], python: Path, progress: Progress) -> Counts:
    """Run parts against one release until one fails."""
    counts = Counts()
    if "browser" in names:
        ensure_packages("debian-browser", progress)
    with trial_release(progress) as release:
        for name in names:
            counts += run_part(name, python, make_test_environment(release), progress)
            if counts.failed:
                break
    return counts


def run_part(name: str, python: Path, environment: Mapping[str, str], progress: Progress) -> Counts:
    """Run one part and count its tests; whatever else goes wrong counts as a failure."""
    files = sorted(CHECKOUT.glob(PARTS[name].paths))
    if not files:
        raise Refusal(f"part {name} has no tests at {PARTS[name].paths}")
    variables = {**os.environ, **environment, "PYTHONPATH": str(CHECKOUT)}
    with progress.step(f"part {name}"):
        if name == "bench":
            return _run_benches(files, python, variables, progress)
        with tempfile.NamedTemporaryFile(suffix=".xml") as report:
            command = [str(python), "-m", "pytest", "--durations=5", f"--junitxml={report.name}"]
            if PARTS[name].workers > 1:
                # The largest file first: the one that ends last decides how long it takes.
                files.sort(key=lambda file: file.stat().st_size, reverse=True)
                command += ["--numprocesses", str(PARTS[name].workers)]
                command += ["--dist", "loadfile", "--no-loadscope-reorder"]
            command += map(str, files)
            code = subprocess.run(command, env=variables, cwd=CHECKOUT, check=False).returncode
            counts = read_counts(Path(report.name))
    return counts if code == 0 or counts.failed else counts + Counts(failed=1)


def read_counts(report: Path) -> Counts:
    """Count the tests of a JUnit report; an empty one, of a run that broke off, has none."""
    if report.stat().st_size == 0:
        return Counts()
    total = Counts()
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):
        tests, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        total += Counts(tests - failed - skipped, failed, skipped)
    return total


def _prepare(name: str, progress: Progress) -> None:
    """Build what the part's tests stand on, with progress and outside their time limits."""
    if name in ("chart", "hub", "faults", "service"):
        ensure_go_tool("helm", progress)
        ensure_kube(progress)
    if name in ("service", "images", "keycloak"):
        ensure_packages("debian-browser", progress)
    if name == "service":
        ensure_prometheus(progress)
        ensure_packages("debian-postgresql", progress)
    if name in ("keycloak", "life"):
        ensure_binaries(progress)
    if name == "keycloak":
        ensure_keycloak(progress)
    if name in ("images", "cuda", "keycloak", "life"):
        check_machine()
        ensure_packages("debian", progress)
        build_all(find_cache(), progress.say)


def _run_benches(
    files: Sequence[Path], python: Path, variables: Mapping[str, str], progress: Progress
) -> Counts:
    counts = Counts()
    for file in files:
        progress.say(f"bench {file.stem}")
        ended = subprocess.run([python, file], env=dict(variables), cwd=CHECKOUT, check=False)
        counts += Counts(passed=1) if ended.returncode == 0 else Counts(failed=1)
    return counts


def _lint(python: Path, progress: Progress) -> None:
    tools = python.parent
    helm = ensure_go_tool("helm", progress) / "helm"
    with progress.step("lint") as step:
        commands: list[list[str | Path]] = [
            [tools / "ruff", "check", "."],
            [tools / "ruff", "format", "--check", "."],
            [tools / "mypy"],
            [tools / "lint-imports"],
            [tools / "shellcheck", *SCRIPTS],
            [tools / "hadolint", *sorted(CHECKOUT.glob("images/*/Dockerfile"))],
            [helm, "lint", "--quiet", "helm/spectrum", "-f", "local/values.yaml"],
        ]
        for command in commands:
            step.awaited = Path(command[0]).name
            ended = subprocess.run(
                command, cwd=CHECKOUT, capture_output=True, text=True, check=False
            )
            if ended.returncode != 0:
                print(ended.stdout + ended.stderr, flush=True)
                raise Refusal(f"lint: {step.awaited} found what is printed above")
