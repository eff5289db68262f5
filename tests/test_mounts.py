"""What a pod mounts and where, whole."""

import json
from dataclasses import replace

from spectrum_spawner.mounts import Mount, list_entries, make_mounts, make_volumes, mounts_of
from spectrum_spawner.teams import Dataset, Share, Team

BARE = Team(name="flight", uid="u-1", display_name="Flight", groups=frozenset(), gid=100000)
RICH = replace(
    BARE,
    share=Share(claim="share", prepared=True),
    datasets=(
        Dataset(name="imagenet", title="ImageNet", claim="dataset-imagenet"),
        Dataset(name="coco", title="COCO", claim="dataset-coco"),
    ),
)
HOME = Mount(kind="home", claim="home-alice", path="/home/jovyan")
SHARE = Mount(kind="share", claim="share", path="/home/jovyan/team")
DISK = Mount(kind="scratch", claim="scratch-1", path="/home/jovyan/scratch", name="exp1")
IMAGENET, COCO = (
    Mount(kind="dataset", claim=f"dataset-{n}", path=f"/home/jovyan/datasets/{n}", name=n)
    for n in ("imagenet", "coco")
)


def test_a_server_mounts_what_its_team_has_and_its_owner_wants() -> None:
    assert mounts_of(BARE, home="home-alice") == [HOME]
    assert mounts_of(BARE, home="home-alice", scratch="scratch-1", disk="exp1") == [HOME, DISK]
    assert mounts_of(RICH, home="home-alice", scratch="scratch-1", disk="exp1") == [
        *(HOME, SHARE, DISK, IMAGENET, COCO)
    ]


def test_a_dataset_that_is_left_out_for_now_is_not_mounted() -> None:
    mounts = mounts_of(RICH, home="home-alice", left_out={"dataset-imagenet": "it has moved"})
    assert mounts == [HOME, SHARE, COCO]


def test_without_a_group_there_is_nothing_to_share() -> None:
    assert mounts_of(replace(RICH, gid=None, datasets=()), home="home-alice") == [HOME]


def test_only_the_teams_directory_of_a_share_is_seen() -> None:
    assert make_mounts([HOME, SHARE], shared_memory=0) == [
        {"name": "home", "mountPath": "/home/jovyan"},
        {"name": "share", "mountPath": "/home/jovyan/team", "subPath": "team"},
        {"name": "temporary", "mountPath": "/tmp"},
    ]


def test_datasets_are_read_only_and_leave_no_trace_in_the_home() -> None:
    assert make_volumes([HOME, IMAGENET], shared_memory=0) == [
        {"name": "home", "persistentVolumeClaim": {"claimName": "home-alice"}},
        {
            "name": "dataset-imagenet",
            "persistentVolumeClaim": {"claimName": "dataset-imagenet", "readOnly": True},
        },
        {"name": "temporary", "emptyDir": {}},
        {"name": "datasets", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
    ]
    assert make_mounts([HOME, IMAGENET], shared_memory=0)[2:] == [
        {"name": "datasets", "mountPath": "/home/jovyan/datasets"},
        {
            "name": "dataset-imagenet",
            "mountPath": "/home/jovyan/datasets/imagenet",
            "readOnly": True,
        },
    ]


def test_shared_memory_is_a_bounded_volume_in_memory() -> None:
    assert make_volumes([], shared_memory=2**28)[1:] == [
        {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "268435456"}},
    ]
    assert make_mounts([], shared_memory=2**28)[1:] == [
        {"name": "shared-memory", "mountPath": "/dev/shm"},
    ]


def test_temporary_files_need_no_home_and_without_shared_memory_the_runtimes_own_stays() -> None:
    assert make_volumes([], shared_memory=0) == [{"name": "temporary", "emptyDir": {}}]
    assert make_mounts([], shared_memory=0) == [{"name": "temporary", "mountPath": "/tmp"}]


def test_where_a_share_will_be_nobody_writes_into_the_home_meanwhile() -> None:
    assert make_volumes([HOME], shared_memory=0, keep_share_free=True)[1:] == [
        {"name": "temporary", "emptyDir": {}},
        {"name": "no-share", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
    ]
    assert make_mounts([HOME], shared_memory=0, keep_share_free=True)[1:] == [
        {"name": "temporary", "mountPath": "/tmp"},
        {"name": "no-share", "mountPath": "/home/jovyan/team", "readOnly": True},
    ]


def test_outer_paths_are_mounted_before_inner_ones() -> None:
    paths = [m["mountPath"] for m in make_mounts(mounts_of(RICH, home="h"), shared_memory=0)]
    for place, path in enumerate(paths):
        assert not any(path.startswith(f"{later}/") for later in paths[place:])


def test_a_server_is_told_what_is_mounted_where() -> None:
    assert json.loads(list_entries([HOME, DISK])) == [
        {"kind": "home", "name": "", "path": "/home/jovyan"},
        {"kind": "scratch", "name": "exp1", "path": "/home/jovyan/scratch"},
    ]


def test_people_and_administrators_both_know_which_one_is_meant() -> None:
    assert [mount.title for mount in (HOME, SHARE, DISK, COCO)] == [
        "your home (claim home-alice)",
        "the team volume (claim share)",
        "your scratch disk “exp1” (claim scratch-1)",
        "dataset “coco” (claim dataset-coco)",
    ]
