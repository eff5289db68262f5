"""Who listens on a TCP port of this machine, and which port nobody does."""

import os
import random
import socket
from collections import deque
from pathlib import Path

# Below the ports that the kernel gives to outgoing connections (32768 on), which may take one
# between here and its use, and below the node ports of Kubernetes (30000 on).
FREE_PORTS = range(12000, 30000)

RESERVED = 64  # ports of a process

_LISTEN = "0A"
_reserved: deque[int] = deque()


def find_free_port(address: str = "127.0.0.1") -> int:
    """Return a TCP port of the address that nobody listens on now, drawn by chance.

    Whoever else of this machine draws one does not get it while it is among the last of this
    process: until it is listened on, it looks free.
    """
    while True:
        port = random.SystemRandom().choice(FREE_PORTS)
        if _is_free(address, port) and _reserve(port):
            return port


def _is_free(address: str, port: int) -> bool:
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((address, port))
        except OSError:
            return False
    return True


def _reserve(port: int) -> bool:
    """Take the one name of the port that there is on this machine; it goes with the process."""
    mark = socket.socket(socket.AF_UNIX)
    try:
        mark.bind(f"\0spectrum-port-{port}")
    except OSError:
        mark.close()
        return False
    _reserved.append(mark.detach())
    if len(_reserved) > RESERVED:
        os.close(_reserved.popleft())
    return True


def find_listener(port: int) -> tuple[int, str] | None:
    """Return pid and command of a process that listens on the port; None when it is free.

    The pid is 0 when the process cannot be seen, as that of another user or namespace.
    """
    sockets = {
        fields[9]
        for table in ("tcp", "tcp6")
        for fields in _read_table(Path("/proc/net") / table)
        if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port
    }
    if not sockets:
        return None
    for process in Path("/proc").glob("[0-9]*"):
        if _holds_socket(process, sockets):
            return int(process.name), (process / "comm").read_text().strip()
    return 0, "an unknown process"


def _read_table(path: Path) -> list[list[str]]:
    try:
        return [line.split() for line in path.read_text().splitlines()[1:]]
    except FileNotFoundError:
        return []


def _holds_socket(process: Path, sockets: set[str]) -> bool:
    try:
        links = list((process / "fd").iterdir())
    except OSError:
        return False
    targets = {_read_link(link) for link in links}
    return any(f"socket:[{inode}]" in targets for inode in sockets)


def _read_link(link: Path) -> str:
    """Return where the link leads; nowhere, when the file was closed meanwhile."""
    try:
        return os.readlink(link)
    except OSError:
        return ""
