"""What a start puts into a person's home, without an image."""

import errno
import os
import stat
from pathlib import Path

import pytest
from spectrum_lab.home import (
    add_examples,
    add_profile,
    make_refuge,
    protect_keys,
    takes_files,
)
from spectrum_lab.server import extend_library_path


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    folder = tmp_path / "image" / "examples"
    (folder / "data").mkdir(parents=True)
    (folder / "digits.ipynb").write_text("{}")
    (folder / "data" / "readme.txt").write_text("data")
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def list_files(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in files}


def test_a_new_home_gets_the_examples(examples: Path, home: Path) -> None:
    assert add_examples(examples, home) is True
    expected = {"examples/digits.ipynb": "{}", "examples/data/readme.txt": "data"}
    assert list_files(home) == expected


def test_the_group_may_write_the_examples(examples: Path, home: Path) -> None:
    (examples / "digits.ipynb").chmod(0o444)
    before = os.umask(0o002)
    try:
        add_examples(examples, home)
    finally:
        os.umask(before)
    assert (home / "examples/digits.ipynb").stat().st_mode & 0o777 == 0o664


@pytest.mark.parametrize("kind", ["file", "folder", "broken link"])
def test_what_a_person_has_by_that_name_stays(examples: Path, home: Path, kind: str) -> None:
    mine = home / "examples"
    if kind == "file":
        mine.write_text("mine")
    elif kind == "folder":
        mine.mkdir()
        (mine / "digits.ipynb").write_text("mine")
    else:
        mine.symlink_to("nowhere")
    before = list_files(home)
    assert add_examples(examples, home) is False
    assert (list_files(home), mine.is_symlink()) == (before, kind == "broken link")


def test_an_image_without_examples_adds_nothing(tmp_path: Path, home: Path) -> None:
    (tmp_path / "none").mkdir()
    assert add_examples(tmp_path / "none", home) is False
    assert add_examples(tmp_path / "missing", home) is False
    assert list(home.iterdir()) == []


def test_a_home_that_is_gone_is_reported_and_no_error(
    examples: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert add_examples(examples, tmp_path / "gone") is False
    assert "could not be copied" in caplog.text


def test_a_home_takes_files_and_keeps_none_of_the_trial(home: Path) -> None:
    assert takes_files(home) is True
    assert list(home.iterdir()) == []


def test_a_home_that_takes_none_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert takes_files(tmp_path / "gone") is False
    assert "gone takes no files: " in caplog.text


PRIVATE = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n"
MODES = {
    # a private key must be its owner's alone, settings may be read by others
    "id_ed25519": (PRIVATE, 0o660, 0o600),
    "work.pem": ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n", 0o664, 0o600),
    "deploy": ("-----BEGIN PRIVATE KEY-----\nMIIE\n", 0o440, 0o400),
    "config": ("Host *\n", 0o664, 0o644),
    "id_ed25519.pub": ("ssh-ed25519 AAAA\n", 0o664, 0o664),
    "known_hosts": ("example.org ssh-ed25519 AAAA\n", 0o664, 0o664),
    "notes.txt": (f"My key is\n{PRIVATE}", 0o664, 0o664),
    "kept": (PRIVATE, 0o600, 0o600),
}


def test_keys_that_ssh_would_refuse_are_their_owners_alone_again(home: Path) -> None:
    folder = home / ".ssh"
    folder.mkdir()
    for name, (text, before, _) in MODES.items():
        (folder / name).write_text(text)
        (folder / name).chmod(before)
    (folder / "archive").mkdir()
    os.mkfifo(folder / "agent", 0o660)  # nobody is there who would write
    protect_keys(home)
    found = {name: stat.S_IMODE((folder / name).stat().st_mode) for name in MODES}
    assert found == {name: after for name, (_, _, after) in MODES.items()}


@pytest.mark.parametrize("kind", ["nothing", "file", "broken link"])
def test_a_home_without_keys_is_no_matter(
    home: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    if kind == "file":
        (home / ".ssh").write_text("mine")
    elif kind == "broken link":
        (home / ".ssh").symlink_to("nowhere")
    protect_keys(home)
    assert caplog.text == ""


def test_keys_that_cannot_be_changed_are_left_as_they_are(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (home / ".ssh").mkdir()
    key = home / ".ssh" / "id_rsa"
    key.write_text(PRIVATE)
    key.chmod(0o660)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "chmod", refuse)
    monkeypatch.setattr(Path, "chmod", refuse)
    protect_keys(home)
    assert (stat.S_IMODE(key.stat().st_mode), caplog.text) == (0o660, "")


def test_a_home_gets_the_profile_that_kernels_need(home: Path) -> None:
    for _ in range(2):
        add_profile(home)
    made = sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_dir())
    profile = ".ipython/profile_default"
    kinds = ("log", "pid", "security", "startup")
    assert made == [".ipython", profile, *(f"{profile}/{kind}" for kind in kinds)]


def test_a_file_in_place_of_the_profile_stays_and_is_reported(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (home / ".ipython").write_text("mine")
    add_profile(home)
    assert "profile_default could not be made: " in caplog.text
    assert list_files(home) == {".ipython": "mine"}


def test_what_jupyter_writes_goes_to_the_refuge_and_settings_are_read_from_the_home(
    home: Path, tmp_path: Path
) -> None:
    refuge = tmp_path / "refuge"
    assert make_refuge(home, refuge) == {
        "IPYTHONDIR": f"{refuge}/ipython",
        "JUPYTER_CONFIG_DIR": f"{refuge}/jupyter",
        "JUPYTER_CONFIG_PATH": f"{home}/.jupyter",
        "JUPYTERLAB_SETTINGS_DIR": f"{home}/.jupyter/lab/user-settings",
    }
    assert refuge.is_dir()


def test_cuda_libraries_come_after_those_of_the_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = tmp_path / "library-path"
    listing.write_text("/opt/nvidia/cudnn/lib\n/usr/local/nvidia/lib\n")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/usr/local/nvidia/lib")
    extend_library_path(listing)
    assert os.environ["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib:/opt/nvidia/cudnn/lib"


@pytest.mark.parametrize("content", ["", None])
def test_without_cuda_the_library_path_stays_unset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    listing = tmp_path / "library-path"
    if content is not None:
        listing.write_text(content)
    extend_library_path(listing)
    assert "LD_LIBRARY_PATH" not in os.environ
