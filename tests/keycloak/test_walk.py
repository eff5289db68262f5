"""A person's days in two teams, in a browser: the groups of Keycloak decide at every start."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from local.java import ensure_keycloak
from local.keycloak import Keycloak
from local.lock import hold_lock
from local.network import NODE_ADDRESS
from local.paths import find_state
from local.progress import Progress
from local.release import Release, is_team_ready
from local.trial import URL, trial_release
from local.up import start_cluster
from tests.keycloak.conftest import Account
from tests.keycloak.release import CALLBACK_URL, GRACE, find_team, make_values, read_runs

SCREENS = Path(__file__).with_name("screens")
READY = 120_000  # ms for a server to be ready
NOTICED = 90  # s until a change in Keycloak has reached the hub's pages


@dataclass(frozen=True)
class Company:
    """A release, the Keycloak that its people are in, and browsers for them."""

    release: Release
    keycloak: Keycloak
    account: Account
    new_page: Callable[[], Page]

    def sign_in(self, name: str) -> Page:
        """Go from Spectrum's address to Keycloak and back, as somebody with a new browser."""
        page = self.new_page()
        page.goto(URL)
        page.locator("a", has_text="Sign in with").click()
        expect(page.get_by_role("heading", name="Sign in to your account")).to_be_visible()
        page.get_by_label("Username or email").fill(name)
        page.get_by_label("Password", exact=True).fill(self.account.passwords[name])
        show(page, f"keycloak-{name}")
        page.get_by_role("button", name="Sign In").click()
        page.wait_for_url(f"{URL}**")
        return page

    def leave(self, user: str, group: str) -> None:
        self.keycloak.realm.remove_member(user, group)

    def join(self, user: str, group: str) -> None:
        self.keycloak.realm.add_member(user, group)


@pytest.fixture(scope="module")
def company_account() -> Account:
    return Account(CALLBACK_URL)


@pytest.fixture(scope="module")
def company_keycloak(
    tmp_path_factory: pytest.TempPathFactory, company_account: Account
) -> Iterator[Keycloak]:
    """A Keycloak that browsers of this machine and pods of its cluster reach at one address."""
    progress = Progress()
    with hold_lock(find_state() / "lock", progress):
        start_cluster(progress)  # which brings the address
    directory = tmp_path_factory.mktemp("company-keycloak")
    keycloak = Keycloak(directory, ensure_keycloak(progress), address=NODE_ADDRESS)
    try:
        keycloak.start(progress)
        company_account.create(keycloak.realm)
        yield keycloak
    finally:
        keycloak.stop()


@pytest.fixture(scope="module")
def company_release(
    tmp_path_factory: pytest.TempPathFactory, company_account: Account, company_keycloak: Keycloak
) -> Iterator[Release]:
    values = tmp_path_factory.mktemp("values") / "oauth.json"
    values.write_text(json.dumps(make_values(company_keycloak.realm, company_account)))
    with trial_release(Progress(), [values]) as release:
        yield release


@pytest.fixture
def company(
    company_release: Release,
    company_keycloak: Keycloak,
    company_account: Account,
    new_page: Callable[[], Page],
) -> Company:
    return Company(company_release, company_keycloak, company_account, new_page)


def show(page: Page, name: str) -> None:
    """Keep what the person sees."""
    SCREENS.mkdir(exist_ok=True)
    page.screenshot(path=SCREENS / f"{name}.png", full_page=True)


def open_form(page: Page, server: str = "") -> None:
    page.goto(f"{URL}hub/spawn" + (f"/alice/{server}" if server else ""))
    expect(page.get_by_role("heading", name="Start a server")).to_be_visible()


def choose(page: Page, team: str) -> None:
    """Choose a team, where there is a choice, and the smallest profile."""
    label = page.locator("label", has_text=team)
    if label.count():
        label.click()
    page.locator(".spectrum-col", has=page.locator("input[value='cpu-small']")).click()


def start(page: Page, team: str, server: str = "") -> None:
    open_form(page, server)
    choose(page, team)
    page.get_by_role("button", name="Start").click()
    page.wait_for_url(f"**/user/alice/{server}{'/' if server else ''}lab**", timeout=READY)


def expect_teams(page: Page, *titles: str) -> None:
    """The form offers these teams and no others."""
    offered = page.locator("input[name='team']")
    expect(offered).to_have_count(len(titles))
    for title in titles:
        expect(page.locator("#spectrum-form").get_by_text(title).first).to_be_visible()


def reload_until(page: Page, is_shown: Callable[[], bool], *, within: float) -> None:
    deadline = time.monotonic() + within
    while not is_shown():
        assert time.monotonic() < deadline, page.locator("body").inner_text()
        page.wait_for_timeout(1000)
        page.reload()


def wait_until(is_true: Callable[[], Any], *, within: float) -> None:
    deadline = time.monotonic() + within
    while not is_true():
        assert time.monotonic() < deadline, f"not within {within} s"
        time.sleep(0.5)


@pytest.mark.timeout(1500)
def test_the_companys_groups_decide_at_every_start(company: Company) -> None:
    page = company.sign_in("alice")
    expect_teams(page, "Flight", "Ops")
    show(page, "two-teams")
    start(page, "Flight")
    start(page, "Ops", "ops")
    flight = read_runs(company.release, "flight")
    assert (len(flight), len(read_runs(company.release, "ops"))) == (1, 1)

    leave_a_team_while_its_form_is_open(company, page)
    see_the_server_of_that_team_end(company, page)
    assert read_runs(company.release, "flight") == flight
    read_the_audit_of_it(company)

    see_a_group_become_a_team(company)
    start_while_keycloak_is_away(company, page)
    come_back_as_somebody_else(company)
    assert flight.items() <= read_runs(company.release, "flight").items()


def leave_a_team_while_its_form_is_open(company: Company, page: Page) -> None:
    open_form(page, "late")
    choose(page, "Ops")
    company.leave("alice", "/ops")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("alert")).to_contain_text(
        "You are not in a team called “ops”: yours are “Flight”."
    )
    expect_teams(page, "Team Flight")
    show(page, "left-a-team")


def see_the_server_of_that_team_end(company: Company, page: Page) -> None:
    page.goto(f"{URL}hub/home")
    warning = page.get_by_text("You are no longer in team Ops: this server will be stopped")
    reload_until(page, warning.is_visible, within=NOTICED)
    show(page, "warned")
    assert len(read_runs(company.release, "ops")) == 1
    wait_until(lambda: not read_runs(company.release, "ops"), within=GRACE + NOTICED)
    reload_until(page, lambda: not warning.is_visible(), within=NOTICED)
    told = page.get_by_text("by Spectrum: alice is no longer in team Ops.")
    reload_until(page, told.is_visible, within=NOTICED)
    expect(page.get_by_role("button", name="Open JupyterLab")).to_be_visible()
    show(page, "ended")


def read_the_audit_of_it(company: Company) -> None:
    page = company.sign_in("admin")
    page.goto(f"{URL}services/spectrum/audit?person=alice&team=ops")
    for action, actor, reason in (
        ("refuse", "user:alice", "You are not in a team called “ops”"),
        ("notice", "service:spectrum", "alice is no longer in team Ops"),
        ("stop-request", "service:spectrum", "alice is no longer in team Ops."),
        ("stop", "service:spectrum", ""),
    ):
        row = page.get_by_role("row").filter(has=page.get_by_role("cell", name=action, exact=True))
        row = row.filter(has_text=actor).filter(has_text=reason)
        reload_until(page, lambda row=row: row.count() > 0, within=30)
    show(page, "audit")


def see_a_group_become_a_team(company: Company) -> None:
    company.join("alice", "/company/research")
    page = company.sign_in("alice")
    release, group = company.release, "company/research"
    wait_until(lambda: find_team(release, group), within=30)
    wait_until(lambda: is_team_ready(find_team(release, group)), within=60)
    assert find_team(release, group)["spec"]["quota"] == {"gpus": {"nvidia.com/gpu": 1}}
    open_form(page, "research")
    expect_teams(page, "company/research", "Flight")
    show(page, "team-by-template")
    start(page, group, "research")


def start_while_keycloak_is_away(company: Company, page: Page) -> None:
    company.keycloak.stop()
    try:
        page.goto(f"{URL}user/alice/lab")
        expect(page.locator("#jp-main-dock-panel")).to_be_visible(timeout=READY)
        start(page, "Flight", "away")
        show(page, "keycloak-away")
    finally:
        company.keycloak.start(Progress())


def come_back_as_somebody_else(company: Company) -> None:
    realm = company.keycloak.realm
    realm.remove_user("alice")
    realm.add_user("alice", company.account.passwords["alice"], ["/flight", "/ops"])
    page = company.sign_in("alice")
    expect(page.get_by_text("The user name alice belongs to another person here.")).to_be_visible()
    show(page, "another-alice")
