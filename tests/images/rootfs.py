"""An image's root filesystem, unpacked from its archive, and commands run in it as in a pod.

A container runtime is not needed: a command runs in its own mount and process namespaces, with
the image as its root, as the image's user, without capabilities and without the right to gain
any. It shares the network with the tests. Needs root.
"""

import json
import os
import signal
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

# What a command writes goes to memory, over the image's files, and is gone with the command;
# /dev is the host's.
_ENTER = """
set -eu
root=$1 home=$2 keep=$3; shift 3
if [ "$keep" = no ]; then
    mount -t tmpfs tmpfs /mnt
    mkdir /mnt/upper /mnt/work /mnt/root
    mount -t overlay overlay -o "lowerdir=$root,upperdir=/mnt/upper,workdir=/mnt/work" /mnt/root
    root=/mnt/root
fi
mount --rbind "$home" "$root/home/jovyan" 2>/dev/null || true
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
cp /etc/hosts /etc/resolv.conf "$root/etc/"
exec chroot "$root" /usr/bin/setpriv --reuid 1000 --regid 1000 --clear-groups --no-new-privs \
    --bounding-set=-all --inh-caps=-all "$@"
"""


@dataclass(frozen=True)
class RootFilesystem:
    """`config` is the image's own: User, Entrypoint, Cmd, Env, WorkingDir.

    What commands write stays only if `keeps_changes`.
    """

    path: Path
    config: dict[str, Any] = field(repr=False)
    keeps_changes: bool = False

    @property
    def packages(self) -> Path:
        """Where the Python of the image, of whatever version, has its packages."""
        (found,) = self.path.glob("opt/spectrum/lib/python3.*/site-packages")
        return found

    @property
    def environment(self) -> dict[str, str]:
        return dict(entry.split("=", 1) for entry in self.config["Env"])

    def start(
        self,
        command: Sequence[str],
        *,
        home: Path,
        environment: Mapping[str, str] | None = None,
        output: IO[bytes] | int = subprocess.PIPE,
    ) -> subprocess.Popen[bytes]:
        """Start the command in the image, `home` mounted over /home/jovyan if the image has it.

        `stop` ends it.
        """
        wrapper = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork"]
        wrapper += ["sh", "-c", _ENTER, "sh", str(self.path), str(home)]
        wrapper += ["yes" if self.keeps_changes else "no"]
        workdir = self.config.get("WorkingDir") or "/"
        variables = self.environment | dict(environment or {})
        inside = ["/usr/bin/env", "--ignore-environment", f"--chdir={workdir}"]
        inside += [f"{name}={value}" for name, value in variables.items()]
        return subprocess.Popen(
            [*wrapper, *inside, *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )

    def run(
        self,
        *command: str,
        home: Path,
        environment: Mapping[str, str] | None = None,
        timeout: float = 120,
    ) -> str:
        """Run the command to its end and return what it printed; a failure shows that too."""
        process = self.start(command, home=home, environment=environment)
        try:
            printed, _ = process.communicate(timeout=timeout)
        finally:
            stop(process)
        text = printed.decode(errors="replace")
        assert process.returncode == 0, f"{command} ended with {process.returncode}:\n{text}"
        return text


def stop(process: subprocess.Popen[bytes]) -> None:
    """Kill the command and, since it is process 1 of its own namespace, all that it started."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    if process.poll() is None:
        for child in children.read_text().split():
            os.kill(int(child), signal.SIGKILL)
        process.wait(10)


def unpack(archive: Path, target: Path, *, keeps_changes: bool = False) -> RootFilesystem:
    """Unpack a docker-archive file's layers, the lowest first, into `target` unless it is there."""
    with tarfile.open(archive) as outer:
        manifest = _read_json(outer, "manifest.json")[0]
        config = _read_json(outer, manifest["Config"])["config"]
    if not target.exists():
        partial = target.with_name(f".{target.name}.partial")
        _remove(partial)
        partial.mkdir(parents=True)
        for layer in manifest["Layers"]:
            _apply_layer(archive, layer, partial)
        partial.rename(target)
    return RootFilesystem(target, config, keeps_changes)


def _apply_layer(archive: Path, layer: str, target: Path) -> None:
    read = f"tar --extract --to-stdout --file '{archive}' '{layer}'"
    listed = subprocess.check_output(["sh", "-c", f"{read} | tar --list"], text=True)
    for name in listed.splitlines():
        parent, base = os.path.split(name)
        if base.startswith(".wh."):
            _remove(target / parent / base.removeprefix(".wh."))
    unpacked = f"tar --extract --preserve-permissions --numeric-owner --directory '{target}'"
    command = f"{read} | {unpacked} --exclude='.wh.*'"
    subprocess.run(["sh", "-c", command], check=True)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        subprocess.run(["rm", "-rf", "--one-file-system", str(path)], check=True)
    else:
        path.unlink(missing_ok=True)


def _read_json(tar: tarfile.TarFile, name: str) -> Any:
    file = tar.extractfile(name)
    assert file is not None, name
    return json.load(file)
