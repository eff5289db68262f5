"""The demo's dataset: a path of CephFS that teams may read."""

from pathlib import Path

from local.ceph import Ceph
from local.ceph_config import FILE_SYSTEM
from local.commands import run
from local.mounts import unmount_below

# local/values.yaml names it.
PATH = "volumes/datasets/samples"
README = """\
# Sample data

This is a dataset: a path of CephFS that every server of a team finds below `~/datasets`. Nobody can
change it from there. Administrators name datasets, and the teams that see each, in the chart's
values under `storage.datasets`.
"""


def ensure_dataset(ceph: Ceph, mount_point: Path) -> None:
    """Make the dataset, unless it was made; `mount_point` is a directory that nothing else uses."""
    made = ceph.directory / "dataset-made"
    if made.exists():
        return
    unmount_below(mount_point)  # of a start that was killed
    mount_point.mkdir(parents=True, exist_ok=True)
    run(["ceph-fuse", "-c", ceph.conf, f"--client_fs={FILE_SYSTEM}", mount_point])
    try:
        directory = mount_point / PATH
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        (directory / "README.md").write_text(README)
    finally:
        run(["umount", mount_point])
    made.touch()
