"""What a person wants done before their server ends: the script ~/.spectrum/pre-stop.

It runs while the server, its kernels and all else still do, for LIMIT seconds at most: a pod has
30 s to end. What it prints is kept in ~/.spectrum/pre-stop.log, or pre-stop-<name>.log for a named
server.
"""

import asyncio
import logging
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import BinaryIO
from urllib.parse import quote

LIMIT = 20.0  # seconds
KILL_AFTER = 2.0  # seconds from being asked to end to being killed
MOST = 2**20  # bytes that are kept of what it prints
GLANCE = 0.1  # seconds after which a script that ended without closing its output is noticed

log = logging.getLogger(__name__)


def run_before_end(
    home: Path, server: str, do_last: Callable[[], Awaitable[None]] | None = None
) -> None:
    """From now on SIGTERM runs the script and `do_last`, and only then does what it did until now.

    To be called in the main thread, in the running event loop. A second SIGTERM does not wait,
    and neither does anybody if home and script hang.
    """
    loop = asyncio.get_running_loop()
    end = signal.getsignal(signal.SIGTERM)
    assert callable(end)
    state = {"begun": False, "ended": False}

    def finish() -> None:
        if not state["ended"]:
            state["ended"] = True
            end(signal.SIGTERM, None)

    async def finish_well() -> None:
        try:
            if do_last is not None:
                await do_last()
        except Exception:
            log.exception("Something was left undone")
        finally:
            finish()

    def run() -> None:
        run_script(home, server)
        with suppress(RuntimeError):  # nobody waited
            asyncio.run_coroutine_threadsafe(finish_well(), loop)

    def begin() -> None:
        threading.Thread(target=run, daemon=True).start()
        loop.call_later(LIMIT + KILL_AFTER + 1, finish)

    def on_signal(number: int, frame: FrameType | None) -> None:
        if state["begun"]:
            loop.call_soon_threadsafe(finish)
        else:
            state["begun"] = True
            loop.call_soon_threadsafe(begin)

    signal.signal(signal.SIGTERM, on_signal)


def run_script(home: Path, server: str) -> None:
    """Run the script if there is one, and see to its end; raises nothing, may hang with a home."""
    script = home / ".spectrum" / "pre-stop"
    if not script.is_file():
        return
    name = f"pre-stop-{quote(server, safe='')}.log" if server else "pre-stop.log"
    output: BinaryIO | None = None
    try:
        output = (script.parent / name).open("wb", buffering=0)
    except OSError as error:
        log.warning("What %s prints cannot be kept: %s", script, error)
    try:
        verdict = _run(script, home, output)
    except OSError as error:
        verdict = (
            f"could not be run ({error.strerror}); is it executable, with #! in its first line?"
        )
    log.info("%s %s", script, verdict)
    if output is not None:
        with output, suppress(OSError):
            at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
            output.write(f"[{at}] pre-stop {verdict}\n".encode())


def _run(script: Path, home: Path, output: BinaryIO | None) -> str:
    """Run it, and say how it ended."""
    began = time.monotonic()
    with subprocess.Popen(
        [script],
        cwd=home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # what ends the server's group does not end it
    ) as process:
        is_over = _keep_output(process, output, until=began + LIMIT)
        if not is_over:
            _signal(process, signal.SIGTERM)
            if not _keep_output(process, output, until=began + LIMIT + KILL_AFTER):
                _signal(process, signal.SIGKILL)
        code = process.wait()
    if not is_over:
        return f"was killed: it may run for {LIMIT:g} s"
    return f"ended with {code} after {time.monotonic() - began:.1f} s"


def _keep_output(process: "subprocess.Popen[bytes]", output: BinaryIO | None, until: float) -> bool:
    """Keep what is printed until the process ended, and say whether it did."""
    assert process.stdout is not None
    source = process.stdout.fileno()
    with selectors.DefaultSelector() as selector:
        selector.register(source, selectors.EVENT_READ)
        is_open = True
        while time.monotonic() < until:
            is_over = process.poll() is not None
            if is_open and selector.select(0 if is_over else GLANCE):
                data = os.read(source, 65536)
                is_open = bool(data)
                _keep(data, output)
            elif is_over:
                return True
            elif not is_open:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(GLANCE)
    return process.poll() is not None


def _keep(data: bytes, output: BinaryIO | None) -> None:
    if output is not None:
        with suppress(OSError):  # a home that is full
            output.write(data[: max(MOST - output.tell(), 0)])


def _signal(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
