"""buildah with a layer storage of its own, in a folder that only one build uses at a time.

A build that was killed leaves nothing that the next one trusts: archives are renamed into place
when they are whole, working containers and mounts are removed before and after each use.
"""

import configparser
import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from local.errors import Refusal
from local.mounts import unmount_below
from local.progress import HEARTBEAT_SECONDS, format_elapsed

CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")


class Buildah:
    """`archives` is the folder's own; `scratch`, below it, is emptied before and after each use."""

    def __init__(self, archives: Path, log: Callable[[str], None], lock: int) -> None:
        self.archives = archives
        self.scratch = archives / "scratch"
        self._storage = archives / "buildah"
        self._log = log
        self._lock = lock
        self._command = ["buildah", "--root", str(self._storage / "root"), "--runroot"]
        self._command += [str(self._storage / "run"), "--storage-driver", "overlay"]

    def has(self, stored: str) -> bool:
        """Tell whether the storage holds an image of that name."""
        return self._succeeds("inspect", "--type", "image", stored)

    def build(
        self,
        title: str,
        dockerfile: Path,
        context: Path,
        *,
        stored: str,
        needs: Mapping[str, str] | None = None,
    ) -> None:
        """Build the Dockerfile into the image `stored`; `needs` are its arguments, by name.

        Only what this machine needs to reach its package registries is mounted in addition.
        """
        command = [*self._command, "bud", "--isolation", "chroot", "--layers", "--pull-never"]
        if needs:
            command += self._write_settings()
        for argument, name in (needs or {}).items():
            command += ["--build-arg", f"{argument}={name}"]
        command += ["--file", str(dockerfile), "--tag", stored, str(context)]
        self.run(title, command)

    def push(self, title: str, stored: str, reference: str) -> Path:
        """Write the image, under the name `reference`, to an archive in the scratch folder."""
        archive = self.scratch / "image.tar"
        archive.unlink(missing_ok=True)
        target = f"docker-archive:{archive}:{reference}"
        self.run(title, [*self._command, "push", "--quiet", stored, target])
        return archive

    def run_inside(self, stored: str, *words: str) -> str:
        """Run a command in a container of the image and return what it printed."""
        container = self._read("from", "--pull-never", stored).strip()
        try:
            return self._read("run", "--isolation", "chroot", container, "--", *words)
        finally:
            self._succeeds("rm", container)

    def forget(self, stored: str) -> None:
        """Remove an image with the layers that only it has."""
        self._succeeds("rmi", stored)

    def forget_all_but(self, stored: set[str]) -> None:
        """Remove every other named image with the layers that only it has."""
        listed = self._read("images", "--format", "{{.Name}}:{{.Tag}}").split()
        stale = [name for name in listed if "<none>" not in name and name not in stored]
        if stale:
            self._succeeds("rmi", *stale)

    def run(self, title: str, command: Sequence[str]) -> None:
        """Run the command with its output in `<title>.log`; say every few seconds how far it is."""
        path = self.archives / f"{title.replace(' ', '-')}.log"
        began = time.monotonic()
        self._log(f"{title} …")
        with path.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "TMPDIR": str(self.scratch)},
                pass_fds=[self._lock],
            )
            try:
                while process.poll() is None:
                    try:
                        process.wait(HEARTBEAT_SECONDS)
                    except subprocess.TimeoutExpired:
                        elapsed = format_elapsed(time.monotonic() - began)
                        self._log(f"{title} … {elapsed}{_read_step(path)}")
            finally:
                if process.poll() is None:
                    process.terminate()
                    process.wait()
        if process.returncode != 0:
            raise Refusal(f"{title} failed{_read_step(path)}; the log is {path}")

    def clean(self) -> None:
        """Remove working containers, mounts and half-written files of builds that were killed."""
        if self._storage.exists() and not self._succeeds("rm", "--all"):
            self._log("the layers of earlier image builds are damaged and are begun anew")
            unmount_below(self._storage)
            shutil.rmtree(self._storage)
        if self.scratch.exists():
            unmount_below(self.scratch)
            shutil.rmtree(self.scratch)
        self.scratch.mkdir()

    def _succeeds(self, *words: str) -> bool:
        command = [*self._command, *words]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def _read(self, *words: str) -> str:
        command = [*self._command, *words]
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout

    def _write_settings(self) -> list[str]:
        """Write this machine's settings for pip and npm; return the options that mount them.

        The images keep no more of them than empty files at the places of the mounts.
        """
        options: list[str] = []
        pip = _read_pip_settings()
        npmrc = [line for line in _read_lines(Path.home() / ".npmrc") if "registry" in line]
        if CA_BUNDLE.exists():
            inside = "/run/build-ca.crt"
            options += ["--volume", f"{CA_BUNDLE}:{inside}:ro"]
            pip["cert"] = inside
            npmrc.append(f"cafile={inside}")
        pip_conf = ["[global]", *(f"{key} = {value}" for key, value in pip.items())]
        for inside, lines in (("/etc/pip.conf", pip_conf), ("/root/.npmrc", npmrc)):
            path = self.scratch / Path(inside).name
            path.write_text("".join(f"{line}\n" for line in lines))
            options += ["--volume", f"{path}:{inside}:ro"]
        return options


@contextmanager
def open_buildah(archives: Path, log: Callable[[str], None]) -> Iterator[Buildah]:
    """Hold the folder for this process alone, waiting for another build to end.

    The commands inherit the lock: when this process is killed, the folder is free only once the
    last of them is gone.
    """
    archives.mkdir(parents=True, exist_ok=True)
    with (archives / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log("waiting for another build of the images to end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        buildah = Buildah(archives, log, lock.fileno())
        buildah.clean()
        try:
            yield buildah
        finally:
            buildah.clean()


def _read_pip_settings() -> dict[str, str]:
    """Read where pip finds packages on this machine: files first, the environment over them."""
    wanted = ("index-url", "extra-index-url", "trusted-host", "proxy")
    found: dict[str, str] = {}
    for path in (Path("/etc/pip.conf"), Path.home() / ".config/pip/pip.conf"):
        parser = configparser.RawConfigParser()
        parser.read(path)
        if parser.has_section("global"):
            found |= {key: value for key, value in parser.items("global") if key in wanted}
    for key in wanted:
        if value := os.environ.get(f"PIP_{key.replace('-', '_').upper()}"):
            found[key] = value
    return found


def _read_lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _read_step(path: Path) -> str:
    """Return ", in <the step a build has reached, shortened>", else the last line of its log."""
    lines = path.read_text(errors="replace").strip().splitlines()
    steps = [line for line in lines if line.partition("STEP ")[1]]
    shown = (steps or lines)[-1:]
    return f", in {' '.join(shown[0].split())[:90]}" if shown else ""
