"""A PostgreSQL of a test's own: Debian's, on a socket, by an account without rights."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from urllib.parse import quote

PROGRAMS = Path("/usr/lib/postgresql/15/bin")
ACCOUNT = "nobody"  # where root runs the tests, as which PostgreSQL refuses to run
PATIENCE = "30"  # seconds that a start or a stop may take
# Only on its socket; what it has written need not outlive a crash of the machine.
SETTINGS = "listen_addresses=''", "fsync=off", "autovacuum=off"


class PostgreSQL:
    """A server, its data and its socket in one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._data = directory / "data"
        self._numbers = count(1)

    def make(self) -> None:
        """Make the cluster of databases, sorted as people do and not byte by byte."""
        sorted_ = ("--encoding=UTF8", "--locale=C.UTF-8", "--locale-provider=icu")
        auth = ("--auth=trust", "--username=spectrum", "--no-sync")
        self._run("initdb", f"--pgdata={self._data}", *sorted_, "--icu-locale=en-US", *auth)

    def start(self) -> None:
        settings = " ".join(f"-c {each}" for each in SETTINGS)
        options = f"-k {self._directory} {settings}"
        log = f"--log={self._directory / 'log'}"
        self._control("start", f"--options={options}", log)

    def stop(self) -> None:
        """End it as a crash would, whoever is connected."""
        self._control("stop", "--mode=immediate")

    def make_database(self) -> str:
        """The URL of a new database, as an administrator writes it in the values."""
        name = f"ledger_{next(self._numbers)}"
        self._run("createdb", f"--host={self._directory}", "--username=spectrum", name)
        return f"postgresql://spectrum@/{name}?host={quote(str(self._directory), safe='')}"

    def _control(self, *arguments: str) -> None:
        wait = ("--wait", f"--timeout={PATIENCE}", "--silent")
        self._run("pg_ctl", *arguments, f"--pgdata={self._data}", *wait)

    def _run(self, program: str, *arguments: str) -> None:
        told = self._directory / "told"
        # a file, since the server that pg_ctl leaves behind would hold a pipe open
        with told.open("ab") as output:
            ended = subprocess.run(
                [PROGRAMS / program, *arguments],
                user=ACCOUNT if os.geteuid() == 0 else None,
                cwd=self._directory,
                env={"LC_ALL": "C.UTF-8"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
        assert ended.returncode == 0, told.read_text()


@contextmanager
def running_postgresql() -> Iterator[PostgreSQL]:
    """A server that ends with the block, and leaves nothing."""
    # not below pytest's directory, which is its own account's alone; short, as sockets need it
    directory = Path(tempfile.mkdtemp(prefix="postgresql-", dir="/tmp"))
    if os.geteuid() == 0:
        os.chown(directory, pwd.getpwnam(ACCOUNT).pw_uid, -1)
    server = PostgreSQL(directory)
    try:
        server.make()
        server.start()
        yield server
    finally:
        if (directory / "data" / "postmaster.pid").exists():
            server.stop()
        shutil.rmtree(directory)
