"""The container's processes: who they are, how much they worked, whether they compute on a GPU."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
# What computes has these open. Monitors such as nvidia-smi have only the GPU itself open.
DEVICES = frozenset({"/dev/nvidia-uvm", "/dev/kfd"})
_TICKS = os.sysconf("SC_CLK_TCK")
_SHELLS = ("bash", "sh", "dash", "zsh", "perl", "ruby", "Rscript", "julia", "node", "java")


@dataclass(frozen=True, kw_only=True, slots=True)
class Process:
    """`began` is in seconds after the machine's start, `seconds` of CPU were used since then, and
    `reaped` by what it started and saw end. `terminal` is the one it was started in, 0 for none."""

    pid: int
    parent: int
    began: float
    seconds: float
    command: tuple[str, ...]
    gpu: bool = False
    reaped: float = 0.0
    terminal: int = 0

    @property
    def key(self) -> tuple[int, float]:
        """Tells it from others that have its pid later."""
        return self.pid, self.began

    @property
    def name(self) -> str:
        """The program and its script, without other arguments: these may hold secrets."""
        return name_command(self.command)


def list_processes(proc: Path = PROC) -> list[Process]:
    """All that can be seen and still lives.

    May hang: a process that waits for storage keeps those who ask for its command.
    """
    found = []
    for entry in proc.iterdir():
        if entry.name.isdecimal():
            # it may end while it is looked at
            with suppress(OSError, ValueError, IndexError):
                found.append(_read_process(entry))
    return [process for process in found if process.command]


def name_command(command: Sequence[str]) -> str:
    program, *rest = (os.path.basename(command[0]), *command[1:]) if command else ("",)
    if not (program.startswith("python") or program in _SHELLS):
        return program
    for position, argument in enumerate(rest):
        if argument == "-m":
            return " ".join([program, *rest[position : position + 2]])
        if argument == "-c":
            return f"{program} -c"
        if not argument.startswith("-"):
            return f"{program} {os.path.basename(argument)}"
    return program


def _read_process(entry: Path) -> Process:
    # the name in brackets may hold anything; fields after it count from the third
    fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
    command = (entry / "cmdline").read_bytes().decode(errors="replace")
    return Process(
        pid=int(entry.name),
        parent=int(fields[1]),
        began=int(fields[19]) / _TICKS,
        seconds=(int(fields[11]) + int(fields[12])) / _TICKS,
        command=tuple(command.rstrip("\0").split("\0")) if command else (),
        gpu=_has_gpu(entry / "fd"),
        reaped=(int(fields[13]) + int(fields[14])) / _TICKS,
        terminal=int(fields[4]),
    )


def _has_gpu(descriptors: Path) -> bool:
    with suppress(OSError):  # of somebody else
        for descriptor in descriptors.iterdir():
            with suppress(OSError):
                if os.readlink(descriptor) in DEVICES:
                    return True
    return False
