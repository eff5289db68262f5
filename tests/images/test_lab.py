"""What else Spectrum has in JupyterLab: an item in the status bar, commands, and their menu."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser import lab
from tests.browser.steps import choose
from tests.images.hub import SERVICE, Hub
from tests.images.pages import list_commands, open_lab
from tests.images.rootfs import RootFilesystem
from tests.images.server import PREFIX, Server, running_server

# The first test of a session builds what has changed.
pytestmark = pytest.mark.timeout(1500)

GIB = 2**30
WORKING = {"gpus": 1, "utilisation": 42.6, "ends_at": None, "hold": None, "sentence": "It works."}
LINKS = ["Open Team Servers", "Open the GPU Board", "Open This Server’s Page"]
KEEP = "Keep This Server"
OWN = ["Continue Without GPU", "Hold This Server Until…", "Release the GPU and Stop This Server"]
LOOKS = 60_000  # milliseconds in which a page looks, and has an answer that is fresh
# Without a hub: started by somebody for themselves.
ALONE = """
port=${JUPYTERHUB_SERVICE_URL#http://127.0.0.1:}
for name in $(env | sed -n 's/^\\(JUPYTERHUB_[A-Z_]*\\)=.*/\\1/p'); do
    [ $name = JUPYTERHUB_API_TOKEN ] && token=$JUPYTERHUB_API_TOKEN
    unset $name
done
exec jupyter lab --no-browser --ServerApp.base_url=/user/alice/ --IdentityProvider.token=$token \\
    --port=${port%%/*}
"""


@pytest.fixture(scope="session")
def root(unpacked: Callable[[str], RootFilesystem]) -> RootFilesystem:
    return unpacked("base-notebook")


@pytest.fixture
def server(root: RootFilesystem, home: Path, hub: Hub, tmp_path: Path) -> Iterator[Server]:
    """A server whose GPU works."""
    hub.row = dict(WORKING)
    with running_server(
        root,
        home=home,
        hub_port=hub.server_port,
        environment={"SPECTRUM_URL": f"http://127.0.0.1:{hub.server_port}{SERVICE}"},
        log=tmp_path / "server.log",
    ) as server:
        yield server


@pytest.fixture
def errors(page: Page) -> list[str]:
    """What went wrong in the page so far."""
    found: list[str] = []
    page.on("pageerror", lambda error: found.append(str(error)))
    return found


def find_status(page: Page) -> Locator:
    return page.locator("#spectrum-status")


def list_sent(hub: Hub, verb: str) -> list[Any]:
    return [body for path, body in hub.posts if path == f"{SERVICE}api/servers/alice//{verb}"]


def test_the_status_bar_has_the_gpu_and_the_end_and_leads_to_the_page_of_the_server(
    server: Server, page: Page, hub: Hub
) -> None:
    open_lab(page, server)
    status = find_status(page)
    expect(status).to_have_text("GPU 43\u00a0%", timeout=60_000)
    expect(status).to_have_attribute("title", "It works.\nOpen this server's page in Spectrum.")
    end = datetime.now(UTC) + timedelta(minutes=30)
    memory = {"used": 12 * GIB, "total": 160 * GIB}
    hub.row = {
        **WORKING,
        "gpus": 2,
        "utilisation": 0.0,
        "memory": memory,
        "ends_at": end.isoformat(),
    }
    tokyo = end + timedelta(hours=9)
    # the test may run around midnight in Tokyo
    day = tokyo.strftime("(%A,? )?")
    expect(status).to_have_text(
        re.compile(f"^2 GPUs 0.% · 12./.160.GiB · ends {day}{tokyo:%H:%M}$"), timeout=LOOKS
    )
    expect(status).to_have_attribute(
        "title", re.compile("^It works.\n12 of 160 GiB of the memory of its 2 GPUs are in use.\n")
    )
    with page.expect_popup() as opened:
        status.click()
    assert opened.value.url.endswith("/services/spectrum/gpus/alice/")
    # a server without a GPU has no row on the board
    hub.row = None
    expect(status).to_have_text("No GPU", timeout=LOOKS)


def test_a_dialog_asks_until_when_the_server_is_held(
    server: Server, page: Page, hub: Hub, errors: list[str]
) -> None:
    banner = open_lab(page, server)
    choose(page, "Spectrum", "Hold This Server Until…")
    lab.answer(page, "Cancel")
    choose(page, "Spectrum", "Hold This Server Until…")
    dialog = page.locator(".jp-Dialog")
    proposed = datetime.fromisoformat(dialog.get_by_label("Until").input_value())
    tokyo = (datetime.now(UTC) + timedelta(hours=9)).replace(tzinfo=None)
    assert timedelta(hours=1, minutes=59) < proposed - tokyo < timedelta(hours=3)
    dialog.get_by_label("Until").fill("2030-12-24T18:00")
    dialog.get_by_label("Why").fill("the fair")
    hub.refusal = "A hold lasts no longer than 24 hours."
    lab.answer(page, "Hold")
    told = banner.get_by_role("listitem")
    expect(told).to_have_text([f"The server is not held: {hub.refusal}"])
    hub.refusal = ""
    hub.row = {**WORKING, "hold": {"by": "user:alice", "until": "2030-12-24T09:00:00+00:00"}}
    choose(page, "Spectrum", "Hold This Server Until…")
    dialog.get_by_label("Until").fill("2030-12-24T18:00")
    lab.answer(page, "Hold")
    # what was done shows at once
    expect(find_status(page)).to_have_text(re.compile("held until 24 Dec,? 18:00$"), timeout=5_000)
    until = "2030-12-24T09:00:00.000Z"
    assert list_sent(hub, "hold") == [
        {"until": until, "reason": "the fair"},
        {"until": until, "reason": ""},
    ]
    assert errors == []


def test_the_palette_and_the_menu_have_what_an_owner_can_do(
    server: Server, page: Page, hub: Hub
) -> None:
    open_lab(page, server)
    expect(find_status(page)).to_be_visible()
    assert sorted(list_commands(page, count=7)) == sorted([*OWN, KEEP, *LINKS])
    for label, path in (
        ("Open Team Servers", "/hub/home#team-servers"),
        ("Open the GPU Board", "/services/spectrum/"),
    ):
        with page.expect_popup() as opened:
            choose(page, "Spectrum", label)
        assert opened.value.url.endswith(path)
        opened.value.close()
    choose(page, "Spectrum", KEEP)
    choose(page, "Spectrum", "Continue Without GPU")
    lab.answer(page, "Continue Without GPU")
    hub.wait_for_post(f"{SERVICE}api/servers/alice//continue")
    assert list_sent(hub, "keep") == [{}]


def test_a_guest_has_links_to_pages_of_their_own(server: Server, page: Page, hub: Hub) -> None:
    hub.guest = "bob"
    banner = open_lab(page, server)
    expect(banner.get_by_role("listitem")).to_contain_text(["You are a guest"], timeout=60_000)
    assert sorted(list_commands(page, count=4)) == sorted([KEEP, *LINKS])
    page.get_by_role("menuitem", name="Spectrum", exact=True).click()
    items = page.locator(".lm-Menu-item[data-type='command']:not(.lm-mod-hidden)")
    expect(items).to_contain_text([KEEP, *reversed(LINKS)])
    page.keyboard.press("Escape")
    url = f"http://127.0.0.1:{server.port}{PREFIX}spectrum/hold"
    xsrf = next(c["value"] for c in page.context.cookies() if c["name"] == "_xsrf")
    body = {"until": "2030-12-24T09:00:00Z", "reason": ""}
    assert page.request.post(url, headers={"X-XSRFToken": xsrf}, data=body).status == 403
    assert list_sent(hub, "hold") == []


def test_while_the_service_is_away_the_status_says_so_and_nothing_else_does(
    server: Server, page: Page, hub: Hub, errors: list[str]
) -> None:
    hub.away = True
    banner = open_lab(page, server)
    status = find_status(page)
    expect(status).to_have_text("GPU not known", timeout=60_000)
    expect(status).to_have_attribute("title", re.compile("Bad gateway|does not answer"))
    expect(banner).to_be_hidden()
    expect(page.locator(".jp-Dialog")).to_have_count(0)
    # who wants something of it is told
    choose(page, "Spectrum", KEEP)
    expect(banner.get_by_role("listitem")).to_contain_text(["The server is not kept: "])
    hub.away = False
    expect(status).to_have_text("GPU 43\u00a0%", timeout=LOOKS)
    assert errors == []


@pytest.mark.parametrize("command", [None, ["sh", "-c", ALONE]], ids=["no service", "no hub"])
def test_without_a_service_there_is_nothing_of_it(
    root: RootFilesystem,
    home: Path,
    hub: Hub,
    page: Page,
    errors: list[str],
    tmp_path: Path,
    command: list[str] | None,
) -> None:
    log = tmp_path / "server.log"
    with running_server(
        root, home=home, hub_port=hub.server_port, command=command, log=log
    ) as server:
        with page.expect_response(re.compile("/spectrum/banner")) as answered:
            banner = open_lab(page, server)
        assert answered.value.status == 200
        expect(page.get_by_role("menuitem", name="Help", exact=True)).to_be_visible()
        assert list_commands(page, count=0) == []
        expect(page.get_by_role("menuitem", name="Spectrum", exact=True)).to_have_count(0)
        expect(find_status(page)).to_be_hidden()
        expect(banner).to_be_hidden()
    assert errors == []


def test_pages_load_little_of_it_and_an_image_has_nothing_that_built_it(
    root: RootFilesystem,
) -> None:
    folder = root.path / "usr/local/share/jupyter/labextensions/spectrum-lab"
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {path.parent.relative_to(folder).parts[:1] for path in files} == {
        (),
        ("schemas",),
        ("static",),
    }
    assert sum(path.stat().st_size for path in files if path.suffix == ".js") < 50_000
