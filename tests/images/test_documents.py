"""Which documents of the team's folder a server says are open in it: no image."""

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from spectrum_lab import documents, patience
from spectrum_lab.documents import OpenDocuments, find_documents


def session(path: str, *, kind: str = "notebook", connections: int = 1) -> dict[str, Any]:
    return {"path": path, "type": kind, "kernel": {"connections": connections}}


def room(path: str | None, *clients: str) -> SimpleNamespace:
    document = SimpleNamespace(path=path)
    return SimpleNamespace(_document=document, _saving_document=None, clients=set(clients))


def make_server(
    home: Path, *, sessions: tuple[Any, ...] = (), rooms: tuple[Any, ...] = ()
) -> SimpleNamespace:
    """A Jupyter Server for a home; with `rooms` documents are edited together in it."""

    async def list_sessions() -> list[dict[str, Any]]:
        return list(sessions)

    named = {str(number): each for number, each in enumerate(rooms)}
    app = SimpleNamespace(ywebsocket_server=SimpleNamespace(rooms=named))
    apps = {"jupyter_server_ydoc": [app]} if rooms else {}
    return SimpleNamespace(
        session_manager=SimpleNamespace(list_sessions=list_sessions),
        extension_manager=SimpleNamespace(extension_apps=apps),
        contents_manager=SimpleNamespace(root_dir=str(home)),
    )


async def test_notebooks_that_a_page_has_open_are_told_and_those_that_were_closed_are_not(
    tmp_path: Path,
) -> None:
    sessions = (
        session("team/b/plan.ipynb"),
        session("team/a.ipynb"),
        session("team/a.ipynb"),
        session("team/closed.ipynb", connections=0),
        session("team/console-1", kind="console"),
        session("mine.ipynb"),
    )
    server = make_server(tmp_path, sessions=sessions)
    assert await OpenDocuments(server, f"{tmp_path}/team").find() == ["a.ipynb", "b/plan.ipynb"]
    assert await OpenDocuments(server, "").find() is None


async def test_documents_that_are_edited_together_are_told_while_somebody_is_there(
    tmp_path: Path,
) -> None:
    cursors = SimpleNamespace(clients={"alice"})
    rooms = (
        room("team/notes.txt", "alice"),
        room("team/plan.ipynb", "alice", "bob"),
        room("team/left.ipynb"),
        room("mine.ipynb", "alice"),
        room(None, "alice"),
        cursors,
    )
    server = make_server(tmp_path, sessions=(session("team/plan.ipynb"),), rooms=rooms)
    found = await OpenDocuments(server, f"{tmp_path}/team").find()
    assert found == ["notes.txt", "plan.ipynb"]


def test_a_document_has_one_path_whichever_way_leads_to_it(tmp_path: Path) -> None:
    home, team = tmp_path / "home", tmp_path / "home" / "team"
    (team / "plans").mkdir(parents=True)
    (team / "plans" / "may.ipynb").touch()
    (team / "latest.ipynb").symlink_to("plans/may.ipynb")
    (team / "mine.ipynb").symlink_to(home / "mine.ipynb")
    (home / "plans").symlink_to("team/plans")

    def find(path: str, root: Path) -> list[str]:
        return find_documents([path], root=str(root), folder=str(team))

    for path in ("team/plans/may.ipynb", "/team/latest.ipynb", "plans/may.ipynb"):
        assert find(path, home) == ["plans/may.ipynb"], path
    assert find("plans/may.ipynb", team) == ["plans/may.ipynb"]
    assert find(f"{team}/plans/may.ipynb", Path("/")) == ["plans/may.ipynb"]
    for path in ("team", "team/mine.ipynb", "teams/a.ipynb", "team/../a.ipynb", "team/\0.ipynb"):
        assert find(path, home) == [], path


def test_no_more_is_told_than_the_service_takes(tmp_path: Path) -> None:
    many = [f"team/{number:03}.ipynb" for number in range(300)]
    long = ["team/" + "x/" * 500 + "y", "team/" + "x/" * 499 + "yz"]
    found = find_documents(many, root=str(tmp_path), folder=f"{tmp_path}/team")
    assert found == [f"{number:03}.ipynb" for number in range(200)]
    found = find_documents(long, root=str(tmp_path), folder=f"{tmp_path}/team")
    assert [len(path) for path in found] == [1000]


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A file system that hangs until the event is set."""
    answers, follow = threading.Event(), documents._follow

    def wait_and_follow(path: str) -> str:
        answers.wait()
        return follow(path)

    monkeypatch.setattr(documents, "_follow", wait_and_follow)
    yield answers
    answers.set()


async def test_of_a_folder_that_hangs_nothing_is_told_until_it_is_back(
    hanging: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server(tmp_path, sessions=(session("team/plan.ipynb"),))
    found = OpenDocuments(server, f"{tmp_path}/team")
    with monkeypatch.context() as patch:
        patch.setattr(patience, "PATIENCE", 0.05)
        assert await found.find() is None
    hanging.set()
    assert await found.find() == ["plan.ipynb"]
