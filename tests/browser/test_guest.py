"""A server of one's own, shared with a teammate for a time."""

import pytest
from playwright.sync_api import expect

from tests.browser.steps import READY, start


@pytest.mark.timeout(600)
def test_a_guest_is_told_whose_rights_they_have_and_is_out_when_the_owner_says_so(sign_in, release):
    bob, alice = sign_in("bob"), sign_in("alice")
    start(alice, team="Ops", profile="cpu-small")
    alice.wait_for_url("**/user/alice/lab**", timeout=READY)
    assert bob.goto(f"{release.url}user/alice/lab").status == 403

    alice.goto(f"{release.url}hub/home")
    alice.get_by_text("Share with a teammate…").click()
    alice.get_by_label("Teammate").select_option("bob")
    alice.get_by_role("button", name="Share", exact=True).click()
    expect(alice.get_by_text("Shared with bob until")).to_be_visible()

    bob.goto(f"{release.url}hub/home")
    expect(bob.get_by_text("alice shares a server with you")).to_be_visible()
    bob.get_by_role("button", name="Open the server of alice").click()
    # nothing is opened there: JupyterLab would open it again for alice
    with bob.expect_websocket(lambda each: each.url.endswith("/subscribe")) as opened:
        bob.get_by_role("button", name="Authorize").click()
        bob.wait_for_url("**/user/alice/lab**", timeout=READY)
    told = "You are a guest in the server of alice: what you run here has alice's rights."
    expect(bob.get_by_text(told)).to_be_visible(timeout=READY)

    with opened.value.expect_event("close", timeout=30_000):  # ms in which somebody has to be out
        alice.get_by_role("button", name="Share it with bob no more").click()
    expect(alice.get_by_text("Shared with bob until")).to_have_count(0)
    assert bob.goto(f"{release.url}user/alice/lab").status == 403
