"""The person's script before the end of their server: no image."""

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from spectrum_lab import pre_stop
from spectrum_lab.pre_stop import run_script

# what the server does at SIGTERM, and how a test sees it
SERVER = """
import asyncio, signal, sys
from pathlib import Path
from spectrum_lab import pre_stop

async def main():
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    signal.signal(signal.SIGTERM, lambda *_: loop.call_soon_threadsafe(over.set))
    pre_stop.LIMIT, pre_stop.KILL_AFTER = 2, 0.5

    async def save():
        print("saves", flush=True)
        raise OSError("no space left")

    pre_stop.run_before_end(Path(sys.argv[1]), "", save)
    print("runs", flush=True)
    await over.wait()
    print("ends", flush=True)

asyncio.run(main())
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".spectrum").mkdir()
    return tmp_path


def write(home: Path, *lines: str, mode: int = 0o755) -> None:
    script = home / ".spectrum" / "pre-stop"
    script.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    script.chmod(mode)


def read_log(home: Path, name: str = "pre-stop.log") -> list[str]:
    return (home / ".spectrum" / name).read_text().splitlines()


def test_without_a_script_nothing_is_done(home: Path) -> None:
    run_script(home, "")
    assert list((home / ".spectrum").iterdir()) == []
    run_script(home / "nowhere", "")


def test_what_it_prints_is_kept_with_how_it_ended(home: Path) -> None:
    write(home, "echo saved in $PWD", "echo trouble >&2", "exit 3")
    run_script(home, "")
    *printed, verdict = read_log(home)
    assert printed == [f"saved in {home}", "trouble"]
    assert "] pre-stop ended with 3 after 0." in verdict


def test_a_named_server_keeps_a_log_of_its_own(home: Path) -> None:
    write(home, "echo saved")
    run_script(home, "a/b")
    assert read_log(home, "pre-stop-a%2Fb.log")[0] == "saved"


@pytest.mark.parametrize("trap", ["", "trap 'echo last words; exit' TERM", "trap '' TERM"])
def test_it_is_killed_with_all_it_started_after_its_limit(
    trap: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pre_stop, "LIMIT", 0.3)
    monkeypatch.setattr(pre_stop, "KILL_AFTER", 0.3)
    write(home, trap, "echo begins", "sleep 60 & echo $! > child", "wait", "sleep 60")
    began = time.monotonic()
    run_script(home, "")
    assert time.monotonic() - began < 5
    *printed, verdict = read_log(home)
    assert printed == ["begins", *(["last words"] if "last" in trap else [])]
    assert verdict.endswith("pre-stop was killed: it may run for 0.3 s")
    assert is_ended(int((home / "child").read_text()))


def is_ended(pid: int) -> bool:
    """Whether a process has ended, or does within seconds."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], 10)[0])
    finally:
        os.close(descriptor)


def test_what_it_leaves_behind_is_not_waited_for(home: Path) -> None:
    write(home, "sleep 60 & echo $! > child", "echo done")
    began = time.monotonic()
    run_script(home, "")
    assert time.monotonic() - began < 5
    assert read_log(home)[0] == "done"
    os.kill(int((home / "child").read_text()), signal.SIGKILL)


def test_output_without_end_does_not_fill_the_home(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pre_stop, "LIMIT", 0.5)
    monkeypatch.setattr(pre_stop, "MOST", 1000)
    write(home, "exec yes")
    run_script(home, "")
    assert (home / ".spectrum" / "pre-stop.log").stat().st_size < 1200


def test_a_script_that_cannot_be_run_is_said(home: Path) -> None:
    write(home, "echo saved", mode=0o644)
    run_script(home, "")
    (verdict,) = read_log(home)
    assert "could not be run (Permission denied); is it executable" in verdict


def test_a_log_that_cannot_be_written_keeps_no_script_from_running(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(home, "touch saved")
    (home / ".spectrum" / "pre-stop.log").mkdir()
    run_script(home, "")
    assert (home / "saved").exists()
    assert "cannot be kept" in caplog.text


def start(home: Path) -> "subprocess.Popen[str]":
    source = str(Path(pre_stop.__file__).parents[1])
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(home)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "runs\n"
    return process


def end(process: "subprocess.Popen[str]", *, times: int = 1, saves: bool = True) -> float:
    """Send SIGTERM, and return the seconds until the server ended by itself.

    What it saves before fails, which keeps it from nothing.
    """
    began = time.monotonic()
    for number in range(times):
        if number:
            time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
    printed, _ = process.communicate(timeout=30)
    assert (printed, process.returncode) == ("saves\nends\n" if saves else "ends\n", 0)
    return time.monotonic() - began


def test_a_server_ends_once_the_script_is_done(home: Path) -> None:
    write(home, "sleep 0.5", "echo saved")
    assert end(start(home)) >= 0.5
    assert read_log(home)[0] == "saved"


def test_without_a_script_a_server_ends_at_once(home: Path) -> None:
    assert end(start(home)) < 1.5


def test_a_second_signal_does_not_wait_for_the_script(home: Path) -> None:
    write(home, "sleep 60")
    assert end(start(home), times=2, saves=False) < 1.9


def test_a_home_that_hangs_keeps_no_server_from_ending(home: Path) -> None:
    # whoever asks for what lies behind a pipe waits for ever, as at a file system that hangs
    write(home)
    log = home / ".spectrum" / "pre-stop.log"
    os.mkfifo(log)
    assert 2 <= end(start(home), saves=False) < 10
