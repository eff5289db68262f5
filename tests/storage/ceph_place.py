"""A Ceph in a directory of its own, on ports of its own, beside the cluster's."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from local.ceph import NAMES, Ceph
from local.ceph_config import Ports
from local.listeners import FREE_PORTS, find_free_port
from local.paths import CHECKOUT
from local.processes import Daemons
from local.progress import Progress

_START = """
import json, sys
from tests.storage.ceph_place import CephPlace
CephPlace(*json.loads(sys.argv[1])).start()
"""


class CephPlace:
    """A directory, and the ports on 127.0.0.1 of monitor (version 2, 1) and gateway."""

    def __init__(self, directory: str, *ports: int) -> None:
        self.words = (directory, *ports)
        state = Path(directory)
        # The others of Ceph take free ones by themselves, below those that tests draw by chance.
        others = range(FREE_PORTS.start - 1000, FREE_PORTS.start)
        self.ceph = Ceph(
            state,
            Daemons(state),
            address="127.0.0.1",
            sockets=state / "sockets",
            ports=Ports(*ports, others=others),
        )

    def start(self) -> None:
        with Progress().step("starting Ceph") as step:
            self.ceph.start(step)

    def start_until(self, mark: str) -> None:
        """Start it in a process of its own, which is killed as soon as a file has that name.

        The name, below Ceph's directory, may be a pattern.
        """
        words = [sys.executable, "-c", _START, json.dumps(self.words)]
        with subprocess.Popen(words, cwd=CHECKOUT, start_new_session=True) as command:
            while not any(self.ceph.directory.glob(mark)):
                assert command.poll() is None, f"it ended before there was {mark}"
                time.sleep(0.002)
            os.killpg(command.pid, signal.SIGKILL)

    def kill(self) -> None:
        """Kill every process of it at once, as a power cut does."""
        for name in NAMES:
            if record := self.ceph.daemons.find_record(name):
                record.send(signal.SIGKILL)

    def count_processes(self) -> int:
        return sum(self.ceph.daemons.is_alive(name) for name in NAMES)

    def measure_memory(self) -> int:
        """Return the bytes of memory that its processes hold."""
        pages = 0
        for name in NAMES:
            record = self.ceph.daemons.find_record(name)
            assert record is not None, f"{name} was not started"
            pages += int(Path(f"/proc/{record.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


def make_place(directory: Path) -> CephPlace:
    return CephPlace(str(directory), *(find_free_port() for _ in range(3)))
