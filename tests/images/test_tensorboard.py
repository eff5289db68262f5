"""TensorBoard behind the hub: the tile's address, and `%tensorboard` in a notebook."""

import json
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.images.hub import TOKEN, Hub
from tests.images.inside import run_cell
from tests.images.rootfs import RootFilesystem
from tests.images.server import Server, running_server

# The first test of a session builds what has changed.
pytestmark = pytest.mark.timeout(1500)

# As JupyterHub writes them, with the names of people and servers that it lets in.
PREFIXES = (
    "/user/alice/",
    "/spectrum/user/alice/exp%201/",
    "/user/a.b@example.com/",
    "/spectrum/user/a.b@example.com/exp%201/",
)

# What a person sees of the magic's line: its frame, or what it says.
SHOW = """
import os
from IPython.utils.capture import capture_output
os.makedirs("logs/run", exist_ok=True)
get_ipython().run_line_magic("load_ext", "tensorboard")
with capture_output() as shown:
    get_ipython().run_line_magic("tensorboard", "--logdir logs")
for each in shown.outputs:
    print(each.data.get("text/html") or each.data.get("text/plain"))
"""

# A real run, in the folder that is the argument.
TRAIN = """
import sys
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer = EventFileWriter(sys.argv[1])
for step in range(5):
    value = Summary.Value(tag="epoch_loss", simple_value=1 / (step + 1))
    writer.add_event(Event(step=step, wall_time=1.7e9 + step, summary=Summary(value=[value])))
writer.close()
"""

# Process 1 lives, and is no TensorBoard: as when the number of a killed one is given out again.
KILL = """
import glob, json, os, signal
(path,) = glob.glob("/tmp/.tensorboard-info/pid-*.info")
told = json.load(open(path))
json.dump({**told, "pid": 1}, open("/tmp/.tensorboard-info/pid-1.info", "w"))
os.kill(told["pid"], signal.SIGKILL)
print(told["pid"])
"""


@pytest.fixture(scope="session")
def root(unpacked: Callable[[str], RootFilesystem]) -> RootFilesystem:
    return unpacked("tensorflow-notebook")


def find_frame(shown: str) -> str:
    """The address in the frame that the magic showed last."""
    frames = re.findall(r"new URL\((\".*?\"), window.location\)", shown)
    assert frames, shown
    return str(json.loads(frames[-1]))


def run_magic(server: Server) -> str:
    """The address that the magic shows; in a thread, since a browser has this one's event loop."""
    with ThreadPoolExecutor(1) as threads:
        return find_frame(threads.submit(run_cell, server, SHOW).result())


def answers(server: Server, address: str) -> bool:
    """Whether TensorBoard is what the server has there, with its data."""
    assert address.startswith(server.prefix), address
    path = address.removeprefix(server.prefix)
    page = server.get(path).text
    return "<title>TensorBoard</title>" in page and server.get_json(f"{path}data/runs") == []


@pytest.mark.parametrize("prefix", PREFIXES)
def test_without_the_last_slash_its_address_leads_to_the_one_with_it(
    root: RootFilesystem, home: Path, hub: Hub, prefix: str
) -> None:
    with running_server(root, home=home, hub_port=hub.server_port, prefix=prefix) as server:
        answer = server.get("tensorboard")
        assert (answer.status, answer.headers["Location"]) == (302, f"{prefix}tensorboard/")


@pytest.mark.parametrize("prefix", [PREFIXES[0], PREFIXES[-1]])
def test_the_magic_shows_the_address_behind_the_hub(
    root: RootFilesystem, home: Path, hub: Hub, prefix: str
) -> None:
    with running_server(root, home=home, hub_port=hub.server_port, prefix=prefix) as server:
        frame = find_frame(run_cell(server, SHOW))
        assert re.fullmatch(rf"{re.escape(prefix)}proxy/\d+/", frame)
        assert answers(server, frame)


def test_the_magic_takes_an_instance_that_runs_and_none_that_does_not(
    root: RootFilesystem, home: Path, hub: Hub
) -> None:
    with running_server(root, home=home, hub_port=hub.server_port) as server:
        run_cell(server, SHOW)
        again = run_cell(server, SHOW)
        assert "Reusing TensorBoard" in again
        assert answers(server, find_frame(again))
        killed = run_cell(server, KILL).strip()
        fresh = run_cell(server, SHOW)
        assert "Reusing" not in fresh
        assert answers(server, find_frame(fresh))
        (info,) = (server.root / "tmp/.tensorboard-info").iterdir()
        assert json.loads(info.read_text())["pid"] not in (1, int(killed))


@pytest.mark.parametrize("prefix", [PREFIXES[0], PREFIXES[-1]])
def test_alone_it_shows_the_logs_of_the_team_to_whom_the_hub_lets_in(
    root: RootFilesystem, home: Path, hub: Hub, tmp_path: Path, prefix: str
) -> None:
    (home / "team").mkdir()
    (home / "team" / "run").mkdir()
    hub.visitors |= {"bob": ["access:servers!server=alice/"], "carol": []}
    with running_server(
        root,
        home=home,
        hub_port=hub.server_port,
        command=["spectrum-tensorboard"],
        prefix=prefix,
        ready=302,
        log=tmp_path / "log",
    ) as server:
        assert server.get("", token="carol").status == 403
        assert "oauth2/authorize" in server.get("", token=None).headers["Location"]
        assert hub.posts == []
        for token in (TOKEN, "bob"):
            assert "<title>TensorBoard</title>" in server.get("", token=token).text
        told = json.loads(server.get("data/environment", token="bob").text)
        assert told["data_location"] == "/home/jovyan/team"
        # the hub hears of whoever comes in at once, and of nobody else: one word is enough
        visits = [body for path, body in hub.posts if path.endswith("/activity")]
        at = visits[0]["last_activity"]
        assert visits == [{"servers": {"": {"last_activity": at}}, "last_activity": at}]
        # who was let in a moment ago is not for longer than the hub says so
        hub.visitors["bob"] = []
        deadline = time.monotonic() + 20
        while server.get("", token="bob").status != 403:
            assert time.monotonic() < deadline
            time.sleep(1)


@pytest.mark.parametrize("prefix", [PREFIXES[0], PREFIXES[-1]])
@pytest.mark.parametrize("where", ["tile", "magic", "alone"])
def test_its_page_asks_for_nothing_that_is_not_there(
    root: RootFilesystem,
    home: Path,
    hub: Hub,
    page: Page,
    tmp_path: Path,
    where: str,
    prefix: str,
) -> None:
    logs = home / ("team" if where == "alone" else "logs")
    logs.mkdir()
    logs.chmod(0o777)
    root.run("python3", "-c", TRAIN, f"/home/jovyan/{logs.name}/run", home=home)
    missed: list[tuple[int, str]] = []
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on(
        "response",
        lambda answer: missed.append((answer.status, answer.url)) if answer.status >= 400 else None,
    )
    alone = {"command": ["spectrum-tensorboard"], "ready": 302} if where == "alone" else {}
    with running_server(
        root,
        home=home,
        hub_port=hub.server_port,
        prefix=prefix,
        log=tmp_path / "log",
        **alone,
    ) as server:
        path = {"tile": f"{prefix}tensorboard/", "alone": prefix}.get(where) or run_magic(server)
        page.clock.install()
        # the first to come waits for TensorBoard's own start
        page.goto(f"http://127.0.0.1:{server.port}{path}", timeout=180_000)
        expect(page.get_by_text("epoch_loss").first).to_be_visible(timeout=60_000)
        page.wait_for_load_state("networkidle")
        assert page.evaluate("[...document.fonts].filter(f => f.status === 'error').length") == 0
        assert missed == []
        # and whoever leaves it open looks at it no more
        asked.clear()
        page.clock.run_for(600_000)
        page.wait_for_load_state("networkidle")
        assert asked == []
