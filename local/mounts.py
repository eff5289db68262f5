"""What is mounted where."""

from pathlib import Path

from local.commands import run


def list_mounts() -> list[tuple[Path, str]]:
    """List mount points and file system types, in the order they were mounted."""
    mounts = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        place, _, source = line.partition(" - ")
        # Blanks in a path are written as octal escapes.
        path = place.split()[4].encode().decode("unicode_escape")
        mounts.append((Path(path), source.split()[0]))
    return mounts


def unmount_below(*directories: Path) -> None:
    """Unmount everything at or below the directories, the innermost first."""
    for path, _ in reversed(list_mounts()):
        if any(path.is_relative_to(directory) for directory in directories):
            run(["umount", "--lazy", path])
