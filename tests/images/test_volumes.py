"""How full a server's volumes are, and what its person is told: no image."""

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from spectrum_lab import patience, volumes
from spectrum_lab.volumes import Figures, Probe, Volume, find_warning, list_volumes, read_figures

AT = "2026-01-31T09:14:00Z"
GIB = 2**30
HOME = Volume(kind="home", path="/home/jovyan")
TEAM = Volume(kind="share", path="/home/jovyan/team")
SCRATCH = Volume(kind="scratch", name="default", path="/home/jovyan/scratch")
DATASET = Volume(kind="dataset", name="imagenet", path="/home/jovyan/datasets/imagenet")
MEANWHILE = "Meanwhile work in another folder; what is in /tmp is lost when the server ends."


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/jovyan")


def test_the_volumes_are_those_of_the_environment() -> None:
    listed = [
        {"kind": "home", "name": "", "path": "/home/jovyan"},
        {"kind": "dataset", "name": "imagenet", "path": "/home/jovyan/datasets/imagenet"},
    ]
    assert list_volumes({"SPECTRUM_VOLUMES": json.dumps(listed)}) == [HOME, DATASET]


@pytest.mark.parametrize("listed", [None, "", "{", "7", '[{"kind": "home"}]', '["home"]'])
def test_without_a_list_of_volumes_the_home_is_the_only_one(listed: str | None) -> None:
    environment = {"HOME": "/home/jovyan"}
    if listed is not None:
        environment["SPECTRUM_VOLUMES"] = listed
    assert list_volumes(environment) == [HOME]


def test_figures_are_those_of_df(tmp_path: Path) -> None:
    found, asked = read_figures(str(tmp_path)), os.statvfs(tmp_path)
    assert found.total is not None
    assert found.used is not None
    assert found.total <= asked.f_blocks * asked.f_frsize
    assert abs(found.total - found.used - asked.f_bavail * asked.f_frsize) < GIB
    assert (found.read_only, found.error) == (False, "")


@pytest.mark.parametrize(
    ("told", "files"),
    [
        # of XFS on a block device, and of CephFS, which counts blocks of 4 MiB and tells no limit
        ((4096, 4096, 245760, 237261, 237261, 524288, 524285, 524285, 0, 255), (524288, 3)),
        ((4194304, 4194304, 256, 255, 255, 19, -1, -1, 0, 255), (None, None)),
        ((4194304, 4194304, 256, 255, 255, 0, 0, 0, 0, 255), (None, None)),
    ],
)
def test_only_a_file_system_with_a_limit_on_files_has_figures_of_them(
    told: tuple[int, ...], files: tuple[int | None, int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(told))
    found = read_figures("/")
    assert (found.files_total, found.files_used) == files
    assert found.used == (told[2] - told[3]) * told[1]
    assert found.total == told[2] * told[1]


def test_files_of_cephfs_are_counted_where_a_quota_limits_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = (4194304, 4194304, 256, 255, 255, 19, -1, -1, 0, 255)
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(told))
    quotas = {"ceph.quota.max_files": b"20"}
    monkeypatch.setattr(os, "getxattr", lambda path, name: quotas[name])
    found = read_figures("/")
    assert (found.files_total, found.files_used) == (20, 19)


def test_a_path_that_is_not_there_has_a_reason_instead_of_figures() -> None:
    found = read_figures("/nowhere")
    assert found == Figures(at=found.at, error="No such file or directory")


def of(**figures: Any) -> Figures:
    room = {"total": 10 * GIB, "used": 3 * GIB, "read_only": False}
    return Figures(at=AT, **{**room, **figures})


SENTENCES = [
    (HOME, of(), ""),
    (HOME, of(used=9 * GIB - 1), ""),
    (HOME, of(used=9 * GIB), "Your home (/home/jovyan) is 90 % full: 1 GiB of 10 GiB are free."),
    (
        SCRATCH,
        of(used=int(9.99 * GIB)),
        "Your scratch disk (~/scratch) is 99 % full: 10.2 MiB of 10 GiB are free.",
    ),
    (
        HOME,
        # that is what CephFS tells of a volume with less than a block left
        of(used=10 * GIB - 4 * 2**20),
        "Your home (/home/jovyan) is full (10 GiB): nothing can be saved there until something is "
        f"deleted. {MEANWHILE}",
    ),
    (
        TEAM,
        of(files_total=100_000, files_used=100_000),
        "The team's share (~/team) takes no further file, it has 100,000: no new one can be saved "
        f"there until some are deleted. {MEANWHILE}",
    ),
    (
        TEAM,
        of(read_only=True),
        "The team's share (~/team) cannot be written: nothing can be saved there. " + MEANWHILE,
    ),
    (DATASET, of(read_only=True, used=10 * GIB), ""),
    (
        DATASET,
        Figures(at=AT, error="does not answer"),
        "Dataset imagenet (~/datasets/imagenet) does not answer. What uses files there waits, and "
        "goes on as soon as the storage is back; everything else of the server works.",
    ),
    (
        HOME,
        Figures(at=AT, error="Transport endpoint is not connected"),
        "Your home (/home/jovyan) cannot be read: Transport endpoint is not connected.",
    ),
]


@pytest.mark.parametrize(("volume", "figures", "sentence"), SENTENCES)
def test_a_person_is_told_what_is_amiss(volume: Volume, figures: Figures, sentence: str) -> None:
    assert find_warning(volume, figures) == sentence


class Hanging:
    """A file system that hangs while it is told to, for whoever asks it."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.asked = 0

    def read(self, _: str) -> Figures:
        self.asked += 1
        self.answers.wait()
        return of()


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    hanging = Hanging()
    monkeypatch.setattr(volumes, "read_figures", hanging.read)
    monkeypatch.setattr(patience, "PATIENCE", 0.05)
    yield hanging
    hanging.answers.set()


async def test_a_volume_that_hangs_holds_one_thread_and_comes_back(hanging: Hanging) -> None:
    probe = Probe(HOME)
    for _ in range(3):
        found = await probe.read()
        assert (found.total, found.error) == (None, "does not answer")
    assert hanging.asked == 1
    hanging.answers.set()
    assert await probe.read() == of()
