"""The main job, walked in a browser against a real release on the cluster."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.steps import READY, card, choose, start

TRAINED = 240_000  # ms for the example notebook, on a busy machine
FREE = re.compile(r"(\d+) of (\d+) GPUs? free now")
RAW_EVENT = re.compile(r"Normal|Warning|Successfully assigned|FailedScheduling|default-scheduler")


def free_gpus(page: Page, release) -> int:
    """Free GPUs as the spawn page says them to whoever is signed in."""
    page.goto(f"{release.url}hub/spawn")
    found = FREE.search(card(page, "gpu-1").inner_text())
    assert found, card(page, "gpu-1").inner_text()
    return int(found[1])


def pods(release, team: str) -> str:
    return release.kubectl(
        *("get", "pods", "-o", "name", "-n", f"{release.namespace}-{team}"),
        *("-l", "app.kubernetes.io/component=singleuser-server"),
    ).strip()


def run_example(page: Page, release) -> None:
    page.goto(f"{release.url}user/alice/lab/tree/examples/digits.ipynb")
    run_all(page)
    expect(page.get_by_text(re.compile(r"TensorFlow 2\.21\.\d+ sees GPUs"))).to_be_attached(
        timeout=TRAINED
    )
    expect(page.get_by_text(re.compile(r"accuracy on digits .*: 0\.9\d+"))).to_be_attached(
        timeout=TRAINED
    )


def run_all(page: Page) -> None:
    # Before the kernel is connected, "Run All Cells" runs nothing and says nothing.
    expect(page.get_by_role("button", name="Python 3 (ipykernel) | Idle")).to_be_visible(
        timeout=READY
    )
    choose(page, "Run", "Run All Cells")


def expect_curves(page: Page) -> None:
    """The launcher's tile opens TensorBoard, which draws the training that just ran."""
    choose(page, "File", "New Launcher")
    # A new page counts as opened once it answers, which takes TensorBoard's own start.
    with page.context.expect_page(timeout=READY) as opened:
        page.locator(".jp-LauncherCard", has_text="TensorBoard").click()
    board = opened.value
    expect(board.get_by_text("epoch_accuracy").first).to_be_visible(timeout=READY)
    # Below the curves stands the last point of each: run, smoothed, value, step.
    expect(board.locator("scalar-card").first).to_contain_text(
        re.compile(r"validation\s*0\.9\d*\s*0\.9\d*\s*9"), timeout=READY
    )
    board.close()


@pytest.mark.timeout(900)
def test_a_person_trains_on_a_gpu_and_gives_it_back(sign_in, release):
    page = sign_in("alice")
    free = free_gpus(page, release)

    sentences = start(page, team="Flight", profile="gpu-1")
    page.wait_for_url("**/user/alice/lab**", timeout=READY)
    assert sentences
    assert not [sentence for sentence in sentences if RAW_EVENT.search(sentence)]
    expect(page.locator("#jp-main-dock-panel")).to_be_visible(timeout=READY)
    assert pods(release, "flight") == "pod/jupyter-alice"

    run_example(page, release)
    expect_curves(page)

    bob = sign_in("bob")
    assert free_gpus(bob, release) == free - 1

    with page.context.expect_page() as opened:
        choose(page, "File", "Hub Control Panel")
    page = opened.value
    expect(page.get_by_text(re.compile(r"in team Flight"))).to_be_visible()
    page.get_by_role("button", name="Stop — releases 1 GPU").click()
    expect(page.get_by_text("You have no server running")).to_be_visible(timeout=READY)
    assert pods(release, "flight") == ""
    expect_free(page, release, free)


def expect_free(page: Page, release, free: int) -> None:
    """The inventory is published within a second or so of the pod's end: reload until then."""
    page.goto(f"{release.url}hub/spawn")
    page.wait_for_function(
        """async (wanted) => {
          const text = await (await fetch(location.href)).text();
          return text.includes(wanted);
        }""",
        arg=f">{free} of ",
        polling=500,
    )


def test_somebody_sees_only_their_own_teams(sign_in):
    page = sign_in("bob")
    expect(page.get_by_role("heading", name="Team Ops")).to_be_visible()
    assert "Flight" not in page.inner_text("body")


def test_somebody_in_no_team_reads_whom_to_ask(sign_in):
    page = sign_in("carol")
    expect(page.get_by_role("heading", name="You are in no team yet")).to_be_visible()
    expect(page.get_by_text(re.compile("Please ask .* to add you to a team"))).to_be_visible()
    expect(page.get_by_role("button", name="Start")).to_have_count(0)


def test_the_administrator_needs_the_longer_password(sign_in, new_page, release):
    page = sign_in("admin", release.admin_password)
    page.goto(f"{release.url}hub/admin")
    expect(page.get_by_text("alice").or_(page.get_by_text("admin")).first).to_be_visible()
    other = new_page()
    other.goto(f"{release.url}hub/login")
    other.get_by_label("Username:").fill("admin")
    other.get_by_label("Password:").fill(release.user_password)
    other.get_by_role("button", name="Sign in").click()
    expect(other.get_by_text("Invalid username or password")).to_be_visible()


def test_a_start_can_be_cancelled_while_it_waits(sign_in, release):
    page = sign_in("alice")
    start(page, team="Flight", profile="cpu-small")
    page.get_by_role("button", name="Cancel").click()
    page.wait_for_url("**/hub/home", timeout=READY)
    expect(page.get_by_text("You have no server running")).to_be_visible(timeout=READY)
    assert pods(release, "flight") == ""


def test_a_refusal_is_a_sentence_on_the_form(sign_in, release):
    page = sign_in("bob")
    page.locator("input[name=team]").evaluate("field => { field.value = 'flight' }")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("alert")).to_have_text(
        "You are not in a team called “flight”: yours are “Ops”."
    )
    assert pods(release, "flight") == ""
