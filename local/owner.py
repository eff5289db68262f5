"""Which state directory the machine's one cluster belongs to.

Sockets, control groups, links and firewall rules of a cluster are there once on a machine,
wherever its state lies. The note is made before the first of them and removed after the last, and
lies on /run, so that a reboot takes it away with them.
"""

from pathlib import Path

from local.errors import Refusal
from local.files import write_if_changed
from local.paths import RUNTIME

NOTE = RUNTIME / "owner"


def find_owner(note: Path = NOTE) -> Path | None:
    """Return the state directory of the cluster that runs or left something, if there is one."""
    text = note.read_text().strip() if note.exists() else ""
    return Path(text) if text else None


def check_owner(state: Path, note: Path = NOTE) -> None:
    """Refuse when the machine's cluster is that of another state directory."""
    owner = find_owner(note)
    if owner is not None and owner != state.resolve():
        raise Refusal(
            f"this machine has one cluster, and its state is in {owner}: set "
            f"SPECTRUM_STATE={owner}, or stop it with SPECTRUM_STATE={owner} local/down"
        )


def become_owner(state: Path, note: Path = NOTE) -> None:
    write_if_changed(note, f"{state.resolve()}\n")


def forget_owner(note: Path = NOTE) -> None:
    note.unlink(missing_ok=True)
