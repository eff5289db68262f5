"""Addresses outside the cluster, for which this machine answers: nothing leaves it."""

import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from threading import Thread

from local.commands import run, succeeds
from local.network import POD_BRIDGE

PORT = 80
# Only what comes from pods looks here: the machine's own way to such an address stays.
TABLE = "2310"
IP_TRANSPARENT = 19  # answers from an address that the machine does not have


@contextmanager
def answering(addresses: Sequence[str]) -> Iterator[None]:
    """Accept connections of pods to port 80 of each address."""
    rule = ["iif", POD_BRIDGE, "lookup", TABLE]
    succeeds(["ip", "rule", "delete", *rule])  # of a run that was killed
    with ExitStack() as stack:
        run(["ip", "rule", "add", *rule])
        stack.callback(run, ["ip", "rule", "delete", *rule])
        stack.callback(run, ["ip", "route", "flush", "table", TABLE])
        for address in addresses:
            run(["ip", "route", "replace", "local", f"{address}/32", "dev", "lo", "table", TABLE])
            stack.enter_context(_listening(address))
        yield


@contextmanager
def _listening(address: str) -> Iterator[None]:
    with socket.socket() as server:
        server.setsockopt(socket.SOL_IP, IP_TRANSPARENT, 1)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((address, PORT))
        server.listen()
        thread = Thread(target=_accept, args=(server,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def _accept(server: socket.socket) -> None:
    while True:
        try:
            server.accept()[0].close()
        except OSError:  # the end of the test
            return
