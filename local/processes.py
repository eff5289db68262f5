"""Long-running processes that outlive the command that started them.

Each has a record `<directory>/run/<name>.json` with its pid, its start time in clock ticks (the
two together name one process of this boot), and a fingerprint of its command and configuration.
Processes are found and stopped by that record alone, never by name.
"""

import hashlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from local.errors import Refusal

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# The process writes its own record before it becomes the daemon: a caller killed in between
# leaves no process without a record. The start time survives exec.
_RECORD_THEN_EXEC = """
ticks=$(cut -d' ' -f22 /proc/$$/stat)
printf '{"pid": %d, "started": %d, "boot": "%s", "fingerprint": "%s"}' \
  "$$" "$ticks" "$(cat /proc/sys/kernel/random/boot_id)" "$2" > "$1.new" && mv "$1.new" "$1"
shift 2
exec "$@"
"""

# pid → process that this one started. They outlive whoever started them here, and only this process
# can reap them.
_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True)
class Record:
    """One process that was started; `boot` is the kernel's boot id of then."""

    pid: int
    started: int
    boot: str
    fingerprint: str

    def is_alive(self) -> bool:
        return self.boot == _read_boot_id() and _read_start(self.pid) == self.started

    def send(self, number: signal.Signals) -> None:
        """Signal just this process; nothing happens when it has ended, whoever got its pid."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            # The descriptor holds one process: the check is still true when the signal is sent.
            if self.is_alive():
                signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return
        finally:
            os.close(descriptor)


class Daemons:
    """The processes of one directory."""

    def __init__(self, directory: Path, *, die_with_parent: bool = False) -> None:
        self.records = directory / "run"
        self.logs = directory / "logs"
        self._die_with_parent = die_with_parent

    def find_log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def find_record(self, name: str) -> Record | None:
        try:
            return Record(**json.loads((self.records / f"{name}.json").read_text()))
        except FileNotFoundError:
            return None

    def is_alive(self, name: str) -> bool:
        record = self.find_record(name)
        if record is None:
            return False
        _reap(record.pid)
        return record.is_alive()

    def list_names(self) -> list[str]:
        """List recorded processes, the first started first, dead ones included."""
        records = sorted(self.records.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
        return [path.stem for path in records]

    def ensure(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        environment: Mapping[str, str] | None = None,
        configuration: Iterable[Path] = (),
    ) -> bool:
        """Start the process unless it runs with just this command and these files' contents.

        Returns whether it was started anew. Of the caller's environment nothing is passed on.
        """
        words = [str(word) for word in command]
        variables = {"PATH": PATH, **(environment or {})}
        fingerprint = _hash(words, variables, configuration)
        record = self.find_record(name)
        if record is not None:
            if self.is_alive(name) and record.fingerprint == fingerprint:
                return False
            self.stop(name)
        self._start(name, words, variables, fingerprint)
        return True

    def stop(self, name: str, *, kill: bool = False, grace: float = 5.0) -> None:
        """Stop the process and forget it; after `grace` seconds of SIGTERM it is killed.

        The grace is short: kube-apiserver would wait a minute for watches to end, and etcd has
        all that matters.
        """
        record = self.find_record(name)
        if record is None:
            return
        if self.is_alive(name):
            record.send(signal.SIGKILL if kill else signal.SIGTERM)
            if not self._wait_for_end(name, grace):
                record.send(signal.SIGKILL)
                self._wait_for_end(name, grace)
        _reap(record.pid)
        (self.records / f"{name}.json").unlink(missing_ok=True)

    def read_last_line(self, name: str) -> str:
        """Return the last line of the process's log, shortened, for an error message."""
        try:
            lines = self.find_log(name).read_text(errors="replace").strip().splitlines()
        except FileNotFoundError:
            return ""
        return lines[-1][:300] if lines else ""

    def _start(
        self, name: str, words: list[str], variables: Mapping[str, str], fingerprint: str
    ) -> None:
        self.records.mkdir(parents=True, exist_ok=True)
        self.logs.mkdir(parents=True, exist_ok=True)
        path = self.records / f"{name}.json"
        path.unlink(missing_ok=True)
        wrapper = ["sh", "-c", _RECORD_THEN_EXEC, "sh", str(path), fingerprint]
        if self._die_with_parent:
            wrapper = ["setpriv", "--pdeathsig", "KILL", *wrapper]
        with self.find_log(name).open("ab") as log:
            child = subprocess.Popen(
                [*wrapper, *words],
                env=dict(variables),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
            )
        _children[child.pid] = child
        deadline = time.monotonic() + 10
        while not path.exists():
            if child.poll() is not None or time.monotonic() > deadline:
                raise Refusal(f"{name} did not start: {self.read_last_line(name)}")
            time.sleep(0.005)

    def _wait_for_end(self, name: str, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.is_alive(name):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True


def _reap(pid: int) -> None:
    """Reap a child that has ended; one that was started by another command is not ours."""
    child = _children.get(pid)
    if child is not None and child.poll() is not None:
        del _children[pid]


def _hash(words: list[str], variables: Mapping[str, str], configuration: Iterable[Path]) -> str:
    digest = hashlib.sha256(json.dumps([words, dict(variables)], sort_keys=True).encode())
    for path in configuration:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _read_boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _read_start(pid: int) -> int | None:
    """Return when the process started, in ticks since boot; None when it is gone or a zombie."""
    try:
        # The command's name, in parentheses, may hold spaces and parentheses itself.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])
