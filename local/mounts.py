"""What is mounted where."""

import os
import re
from pathlib import Path

from local.commands import run


def list_mounts() -> list[tuple[Path, str]]:
    """List mount points and file system types, in the order they were mounted."""
    return parse_mounts(Path("/proc/self/mountinfo").read_bytes())


def parse_mounts(table: bytes) -> list[tuple[Path, str]]:
    """Read a mountinfo table: of bytes, since paths need not be UTF-8."""
    mounts = []
    for line in table.split(b"\n")[:-1]:
        place, _, source = line.partition(b" - ")
        mounts.append((_unescape(place.split(b" ")[4]), source.split(b" ")[0].decode()))
    return mounts


def unmount_below(*directories: Path) -> None:
    """Unmount everything at or below the directories, the innermost first."""
    for path, _ in reversed(list_mounts()):
        if any(path.is_relative_to(directory) for directory in directories):
            run(["umount", "--lazy", path])


def _unescape(text: bytes) -> Path:
    """Read a path in which blanks and backslashes are octal escapes, as \\040."""
    plain = re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8)]), text)
    return Path(os.fsdecode(plain))
