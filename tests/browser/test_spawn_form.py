"""The spawn form in a browser: what it shows, and exactly what it would submit. No hub needed."""

from dataclasses import replace
from importlib.resources import files

import pytest
from playwright.sync_api import expect

from spectrum_spawner import form
from spectrum_spawner.inventory import GPUs, Inventory
from spectrum_spawner.profiles import Image, Profile
from spectrum_spawner.teams import Scratch, Team

GPU = "nvidia.com/gpu"
HUB = "http://hub.test/hub/"
TOKEN = "token-of-the-page"
IMAGES = (
    Image(name="tensorflow", title="TensorFlow", image="tf:1"),
    Image(name="torch", title="PyTorch", image="torch:1"),
)
SCRIPT = files("spectrum_spawner").joinpath("templates", "spawn.js").read_text()


def make_profile(name, **changes):
    record = {"name": name, "title": name.upper(), "images": IMAGES[:1]}
    return Profile(**(record | changes))


SMALL = make_profile("small", default=True)
ONE = make_profile("one", gpu=1, images=IMAGES)
FOUR = make_profile("four", gpu=4)


def make_team(name, **changes):
    record = {
        "name": name,
        "uid": name,
        "display_name": name.capitalize(),
        "groups": frozenset({name}),
        "ready": True,
    }
    return Team(**(record | changes))


FLIGHT = make_team("flight", gpus_used={GPU: 2}, gpus_hard={GPU: 2})
OPS = make_team("ops", profiles=frozenset({"one"}))


@pytest.fixture
def show(new_page):
    """Show the form of some teams and profiles; errors of its script fail the test."""
    errors = []

    def on_page(teams, profiles, saved=None, volumes=(), **settings):
        context = form.form_context(
            teams=teams,
            profiles={profile.name: profile for profile in profiles},
            inventory=Inventory(gpus=(GPUs(resource=GPU, product="A100", total=4, free=3),)),
            saved=saved or {},
            server="exp1",
            contact="your cluster administrators",
            requests_url="/services/spectrum/requests",
        )
        page = new_page(**settings)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.route(f"{HUB}spectrum/volumes", lambda route: answer_volumes(route, volumes))
        page.set_content(
            f"<form id=spawn_form>{form.render(context)}</form>"
            f"<script>window.jhdata = {{ base_url: '{HUB}', xsrf_token: '{TOKEN}' }};"
            f"{SCRIPT}</script>"
        )
        return page

    yield on_page
    assert errors == []


def answer_volumes(route, volumes):
    """As the hub does, which refuses whoever does not show the page's token.

    Browsers ask beforehand whether it may be sent, since the page itself is of no origin.
    """
    headers = {"Access-Control-Allow-Origin": "*", "Access-Control-Allow-Headers": "*"}
    asked = route.request
    shown = asked.headers.get("x-xsrftoken")
    status = 200 if asked.method == "OPTIONS" or shown == TOKEN else 403
    told = {"volumes": list(volumes), "notes": []} if status == 200 else {}
    route.fulfill(json=told, headers=headers, status=status)


def submission(page):
    return dict(
        page.evaluate("[...new FormData(document.getElementById('spawn_form'))]"),
    )


def test_only_the_chosen_cards_image_is_submitted(show):
    page = show([FLIGHT], [SMALL, ONE, FOUR])
    assert submission(page) == {"team": "flight", "profile": "small"}
    page.get_by_label("ONE").check()
    page.get_by_label("Image").select_option("torch")
    assert submission(page) == {"team": "flight", "profile": "one", "image": "torch"}
    page.get_by_label("FOUR").check()
    assert submission(page) == {"team": "flight", "profile": "four"}


def test_another_team_shows_its_own_profiles(show):
    page = show([FLIGHT, OPS], [SMALL, ONE, FOUR])
    page.get_by_label("FOUR").check()
    page.get_by_text("Ops", exact=True).click()
    expect(page.get_by_label("FOUR")).to_be_hidden()
    assert submission(page) == {"team": "ops", "profile": "one", "image": "tensorflow"}
    page.get_by_text("Flight", exact=True).click()
    expect(page.get_by_label("FOUR")).to_be_visible()


def test_a_quota_that_is_used_up_is_said_before_the_start(show):
    page = show([FLIGHT, OPS], [SMALL, ONE, FOUR])
    note = page.locator("#spectrum-note")
    expect(note).to_be_hidden()
    page.get_by_label("ONE").check()
    expect(note).to_have_text(
        "The team's quota leaves 0 GPUs; this profile needs 1. "
        "It can start once a server of the team is stopped."
    )
    page.get_by_label("FOUR").check()
    expect(note).to_have_text("The team may hold 2 GPUs of this kind; this profile needs 4.")
    page.get_by_text("Ops", exact=True).click()
    expect(note).to_be_hidden()


def test_the_keyboard_is_enough(show):
    page = show([FLIGHT, OPS], [SMALL, ONE, FOUR])
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")  # team Ops
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Request more GPUs")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")  # its profile's second image
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Start")).to_be_focused()
    assert submission(page) == {"team": "ops", "profile": "one", "image": "torch"}


def test_a_thousand_profiles_are_filtered_and_the_chosen_one_stays_in_sight(show):
    page = show([FLIGHT], [SMALL, *(make_profile(f"p{i}") for i in range(999))])
    page.get_by_label("Filter profiles").fill("p99")
    expect(page.get_by_text("10 of 1000 profiles")).to_be_visible()
    expect(page.get_by_label("P998", exact=True)).to_be_visible()
    expect(page.get_by_label("P1", exact=True)).to_be_hidden()
    assert page.get_by_label("SMALL").is_visible()
    assert submission(page) == {"team": "flight", "profile": "small"}


def test_a_few_profiles_have_no_filter(show):
    page = show([FLIGHT], [SMALL, ONE])
    expect(page.get_by_label("Filter profiles")).to_be_hidden()


def test_without_scripts_one_team_can_start(show):
    page = show([FLIGHT], [SMALL, ONE], java_script_enabled=False)
    expect(page.get_by_role("button", name="Start")).to_be_enabled()
    expect(page.get_by_label("ONE")).to_be_visible()
    expect(page.get_by_label("Image")).to_be_disabled()


def test_a_scratch_disk_is_submitted_only_where_it_is_wanted_and_offered(show):
    page = show([FLIGHT, replace(OPS, scratch=Scratch(size="20Gi"))], [SMALL, ONE])
    disk = page.get_by_label("Scratch disk")
    expect(disk).to_be_hidden()
    page.get_by_text("Ops", exact=True).click()
    expect(page.locator("#spectrum-scratch-facts")).to_contain_text("your own (20 GiB)")
    assert "scratch" not in submission(page)
    disk.check()
    assert submission(page)["scratch"] == "exp1"
    name = page.get_by_label("Name of the disk")
    name.fill("data")
    assert submission(page)["scratch"] == "data"
    for text, is_valid in (("a b", False), ("-a", False), ("", False), ("Exp_1.b-2", True)):
        name.fill(text)
        assert name.evaluate("field => field.checkValidity()") is is_valid, text
    page.get_by_text("Flight", exact=True).click()
    assert "scratch" not in submission(page)


def test_disks_that_are_there_are_offered_by_name(show):
    team = replace(FLIGHT, scratch=Scratch(size="20Gi"))
    volumes = [
        {"kind": "scratch", "team": "flight", "name": "data"},
        {"kind": "scratch", "team": "ops", "name": "other"},
        {"kind": "home", "team": "flight", "name": ""},
    ]
    page = show([team], [SMALL], volumes=volumes)
    expect(page.locator("#spectrum-scratch-names option")).to_have_count(1)
    expect(page.locator("#spectrum-scratch-names option")).to_have_attribute("value", "data")
