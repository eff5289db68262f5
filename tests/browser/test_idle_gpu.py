"""A GPU that nobody uses goes back, one that trains stays, and all can read who ended what."""

from contextlib import ExitStack

import pytest
from playwright.sync_api import Locator, Page, expect

from spectrum_spawner import names
from tests.browser import lab
from tests.browser.steps import READY, choose, start
from tests.cluster.gpus import find_gpus, working
from tests.cluster.waiting import wait_until

CARD = "gpu-1"
TRAINING = "(nohup sleep 3600 > ~/training.log 2>&1 &)"
# Milliseconds. The rule of these teams ends a server after four idle minutes and warns after one;
# a click puts both off by three. What runs in a server is told each minute.
WARNED = 330_000
ENDED = 300_000


def enter(page: Page, release, name: str) -> None:
    start(page, profile=CARD)
    page.wait_for_url(f"**/user/{name}/lab**", timeout=READY)
    expect(page.locator("#jp-main-dock-panel")).to_be_visible(timeout=READY)


def leave_training(page: Page, release, name: str, team: str, stack: ExitStack) -> None:
    """Start a training that has the GPU, and close JupyterLab."""
    lab.run_in_terminal(page, TRAINING)
    (gpu,) = find_gpus(f"{release.namespace}-{team}", names.server_name(name, ""))
    stack.enter_context(working(gpu, utilisation=85))
    page.goto("about:blank")


def row_of(board: Page, name: str) -> Locator:
    return board.locator("#board tbody tr", has_text=name)


def see_warning_and_keep_once(page: Page) -> None:
    banner = page.get_by_role("status", name="Spectrum")
    told, keep = banner.get_by_role("listitem"), banner.get_by_role("button", name="Keep this")
    expect(told).to_contain_text(["This server ends at"], timeout=WARNED)
    keep.click()
    expect(told).to_have_count(0)
    expect(told).to_contain_text(["This server ends at"], timeout=WARNED)
    expect(keep).to_be_hidden()


def read_home(page: Page, release) -> str:
    page.goto(f"{release.url}hub/home")
    return page.locator("#default-server").inner_text()


def read_why(page: Page, release) -> None:
    """JupyterLab's address and the home page say what ended the server, and the way back."""
    page.goto(f"{release.url}user/dave/lab")
    expect(page.locator("body")).to_contain_text("This server has done nothing")
    page.goto(f"{release.url}hub/home")
    home = page.locator("#default-server")
    expect(home).to_contain_text("This server has done nothing")
    expect(home).to_contain_text("Your files are kept")
    expect(home.get_by_role("button", name="Start again")).to_be_enabled()


def read_audit(page: Page, release, name: str) -> list[tuple[str, str]]:
    """What was done to somebody's server since its last start, and by whom, the first first."""
    page.goto(f"{release.url}services/spectrum/audit?server={name}/")
    rows = page.locator("tbody tr").all()
    cells = [row.locator("td").all_inner_texts() for row in rows]
    done = [(action, actor) for _, action, actor, *_ in reversed(cells)]
    starts = [number for number, (action, _) in enumerate(done) if action == "start"]
    return done[starts[-1] :]


@pytest.mark.timeout(1200)
def test_an_idle_gpu_goes_back_and_a_training_stays_until_an_admin_releases_it(sign_in, release):
    with ExitStack() as stack:
        erin, dave = sign_in("erin"), sign_in("dave")
        enter(erin, release, "erin")
        leave_training(erin, release, "erin", "line-vision", stack)
        enter(dave, release, "dave")
        admin = sign_in("admin", release.admin_password)
        admin.goto(f"{release.url}services/spectrum/")
        expect(row_of(admin, "erin")).to_contain_text("working", timeout=WARNED)

        see_warning_and_keep_once(dave)
        expect(row_of(admin, "dave")).to_contain_text("ending")
        expect(row_of(admin, "dave")).to_have_count(0, timeout=ENDED)
        read_why(dave, release)

        expect(row_of(admin, "erin")).to_contain_text("working")
        admin.get_by_label("Reason, which the owner can read").fill("The demo needs it.")
        admin.once("dialog", lambda dialog: dialog.accept())
        row_of(admin, "erin").get_by_role("button", name="Release the server of erin").click()
        expect(row_of(admin, "erin")).to_have_count(0, timeout=READY)
    erin.goto(f"{release.url}hub/home")
    expect(erin.locator("#default-server")).to_contain_text("by admin: The demo needs it.")
    assert read_audit(admin, release, "dave") == [
        ("start", "user:dave"),
        ("warn", "service:spectrum"),
        ("extend", "server:dave/"),
        ("warn", "service:spectrum"),
        ("cull", "service:spectrum"),
        ("stop", "service:spectrum"),
    ]
    assert read_audit(admin, release, "erin") == [
        ("start", "user:erin"),
        ("release", "user:admin"),
        ("stop", "service:spectrum"),
    ]


@pytest.mark.timeout(600)
def test_from_jupyterlab_work_goes_on_without_the_gpu_and_then_ends(sign_in, release):
    page = sign_in("alice")
    start(page, team="Flight", profile=CARD)
    page.wait_for_url("**/user/alice/lab**", timeout=READY)
    lab.run_in_terminal(page, "touch ~/kept.txt")
    team = f"{release.namespace}-flight"
    assert len(find_gpus(team, names.server_name("alice", ""))) == 1
    choose(page, "File", "Continue Without GPU")
    lab.answer(page, "Continue Without GPU")
    wait_until(lambda: find_gpus(team, names.server_name("alice", "")) == [])
    wait_until(lambda: "No GPU" in read_home(page, release))
    page.get_by_role("button", name="Open JupyterLab").click(timeout=READY)
    page.wait_for_url("**/user/alice/lab**", timeout=READY)
    expect(lab.find_file(page, "kept.txt")).to_be_visible(timeout=READY)
    lab.delete(page, "kept.txt")
    choose(page, "File", "Release the GPU and Stop This Server")
    lab.answer(page, "Release")
    wait_until(lambda: "You have no server running" in read_home(page, release))
