"""The spawn form, as texts and as HTML; nothing here needs a hub."""

import time
from html.parser import HTMLParser

import pytest

from spectrum_spawner import form
from spectrum_spawner.choice import OptionError
from spectrum_spawner.inventory import GPUs, Inventory
from spectrum_spawner.profiles import Image, Profile
from spectrum_spawner.teams import Scratch, Team, Withheld

GPU = "nvidia.com/gpu"
A100 = "NVIDIA-A100-SXM4-80GB"
GIB = 2**30
REQUESTS = "/services/spectrum/requests"
TENSORFLOW = Image(name="tensorflow", title="TensorFlow 2.21", image="tf:1", python="3.11")
TORCH = Image(name="torch", title="PyTorch 2.9", image="torch:1")
CPU_SMALL = Profile(
    name="cpu-small",
    title="Small",
    description="For editing.",
    cpu_guarantee=0.5,
    cpu_limit=2,
    memory_guarantee=GIB,
    memory_limit=2 * GIB,
    images=(TENSORFLOW,),
    default=True,
)
GPU_1 = Profile(
    name="gpu-1",
    title="One GPU",
    gpu=1,
    gpu_product=A100,
    cpu_limit=4,
    memory_limit=8 * GIB,
    images=(TENSORFLOW, TORCH),
)
PROFILES = {profile.name: profile for profile in (CPU_SMALL, GPU_1)}
SCRATCH = Scratch(size="20Gi", storage_class="rook-ceph-block")
EVIL = "<script>alert(1)</script>{{7*7}}{username}{0.__class__}"


def make_team(name="flight", **changes):
    record = {
        "name": name,
        "uid": f"uid-{name}",
        "display_name": name.capitalize(),
        "groups": frozenset({name}),
        "ready": True,
    }
    return Team(**(record | changes))


def make_inventory(*, total=4, free=3, product=A100):
    return Inventory(gpus=(GPUs(resource=GPU, product=product, total=total, free=free),))


def make_context(**changes):
    record = {
        "teams": [make_team()],
        "profiles": PROFILES,
        "inventory": make_inventory(),
        "saved": {},
        "server": "",
        "contact": "your cluster administrators",
        "requests_url": REQUESTS,
    }
    return form.form_context(**(record | changes))


def selected(context):
    """Names of the profiles that are selected at first: one, if there is any."""
    return [card.name for card in context["cards"] if card.checked]


def card_of(context, name):
    return next(card for card in context["cards"] if card.name == name)


class Page(HTMLParser):
    """The fields and the text of a page, as a browser would find them."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.text, self.fields, self.links = [], "", [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        attributes = dict(attrs)
        if tag in ("input", "select", "button"):
            self.fields.append((tag, attributes))
        if tag == "a":
            self.links.append(attributes["href"])

    def handle_data(self, data):
        self.text += data

    def checked(self, name):
        return [a["value"] for _, a in self.fields if a.get("name") == name and "checked" in a]


def page_of(**changes):
    return Page(form.render(make_context(**changes)))


def test_the_context_says_everything_the_page_shows():
    team = make_team(gpus_used={GPU: 1}, gpus_hard={GPU: 2}, scratch=SCRATCH)
    assert make_context(teams=[team]) == {
        "teams": [
            {
                "index": 0,
                "name": "flight",
                "title": "Flight",
                "quota": "1 of 2 GPUs in use",
                "quotas": {GPU: {"hard": 2, "left": 1}},
                "notice": "",
                "default": "cpu-small",
                "scratch": "20Gi",
                "checked": True,
            }
        ],
        "scratch": {"name": "default", "checked": False, "hidden": False, "longest": 63},
        "cards": [
            form.Card(
                place=0,
                name="cpu-small",
                title="Small",
                description="For editing.",
                gpu="No GPU",
                gpus=0,
                resource=GPU,
                cpu="0.5–2 CPUs",
                memory="1–2 GiB memory",
                availability="",
                scarce=False,
                images=(("tensorflow", "TensorFlow 2.21 (Python 3.11)"),),
                image="",
                teams="0",
                hidden=False,
                checked=True,
            ),
            form.Card(
                place=1,
                name="gpu-1",
                title="One GPU",
                description="",
                gpu="1 GPU · NVIDIA A100 SXM4 80GB",
                gpus=1,
                resource=GPU,
                cpu="up to 4 CPUs",
                memory="up to 8 GiB memory",
                availability="3 of 4 GPUs free now",
                scarce=False,
                images=(
                    ("tensorflow", "TensorFlow 2.21 (Python 3.11)"),
                    ("torch", "PyTorch 2.9"),
                ),
                image="",
                teams="0",
                hidden=False,
                checked=False,
            ),
        ],
        "message": "",
        "contact": "your cluster administrators",
        "requests_url": REQUESTS,
        "filter_above": 12,
    }


def test_a_team_says_without_what_its_servers_start():
    share = Withheld(kind="share", why="share has no volume yet.")
    coco = Withheld(kind="dataset", name="coco", why="Dataset coco is not bound.")
    notices = [
        make_context(teams=[make_team(withheld=withheld)])["teams"][0]["notice"]
        for withheld in ((share,), (share, coco))
    ]
    assert notices == [
        "The team volume is not ready: servers start without it.",
        "The team volume and dataset “coco” are not ready: servers start without them.",
    ]


@pytest.mark.parametrize(
    ("inventory", "sentence", "scarce"),
    [
        (Inventory.UNKNOWN, "Free GPUs: not known yet", False),
        (make_inventory(free=4), "4 of 4 GPUs free now", False),
        (make_inventory(free=0), "0 of 4 GPUs free now: your server will wait for one", True),
        (make_inventory(total=1, free=1), "1 of 1 GPU free now", False),
        (make_inventory(product="Tesla-T4"), "The cluster has no such GPU now", True),
    ],
)
def test_free_gpus_are_said_as_far_as_they_are_known(inventory, sentence, scarce):
    card = card_of(make_context(inventory=inventory), "gpu-1")
    assert (card.availability, card.scarce) == (sentence, scarce)


def test_a_profile_larger_than_the_cluster_says_so():
    big = Profile(name="big", title="Big", gpu=8, images=(TENSORFLOW,))
    card = card_of(make_context(profiles={"big": big}), "big")
    assert card.availability == "Needs 8 GPUs, the cluster has only 4"


def test_a_profile_for_any_model_names_the_model_if_the_cluster_has_only_one():
    any_model = Profile(name="any", title="Any", gpu=2, images=(TENSORFLOW,))
    two_models = Inventory(
        gpus=tuple(GPUs(resource=GPU, product=p, total=4, free=4) for p in (A100, "Tesla-T4"))
    )
    assert [
        card_of(make_context(profiles={"any": any_model}, inventory=inventory), "any").gpu
        for inventory in (make_inventory(), two_models, Inventory.UNKNOWN)
    ] == ["2 GPUs · NVIDIA A100 SXM4 80GB", "2 GPUs · any model", "2 GPUs · any model"]


@pytest.mark.parametrize(
    ("guarantee", "limit", "text"),
    [
        (None, None, "memory: no limit"),
        (None, GIB // 2, "up to 512 MiB memory"),
        (GIB, None, "1 GiB memory or more"),
        (GIB, GIB, "1 GiB memory"),
        (GIB // 2, 2 * GIB, "512 MiB–2 GiB memory"),
    ],
)
def test_memory_is_said_in_one_phrase(guarantee, limit, text):
    profile = Profile(
        name="p",
        title="P",
        memory_guarantee=guarantee,
        memory_limit=limit,
        images=(TENSORFLOW,),
    )
    assert card_of(make_context(profiles={"p": profile}), "p").memory == text


def test_the_last_choice_is_selected_again_while_it_is_allowed():
    teams = [make_team("flight"), make_team("ops")]
    context = make_context(teams=teams, saved={"team": "ops", "profile": "gpu-1", "image": "torch"})
    assert [team["name"] for team in context["teams"] if team["checked"]] == ["ops"]
    assert [(c.name, c.image) for c in context["cards"] if c.checked] == [("gpu-1", "torch")]
    assert context["message"] == ""


@pytest.mark.parametrize(
    ("saved", "message"),
    [
        (
            {"team": "flight", "profile": "gpu-v100"},
            "Profile “gpu-v100”, which you used last, is not offered to team “Flight” any more. "
            "Please check the choice below.",
        ),
        (
            {"team": "ops", "profile": "gpu-v100"},
            "You are no longer in team “ops”, where your last server ran.",
        ),
    ],
)
def test_what_is_no_longer_allowed_is_said_and_the_default_selected(saved, message):
    context = make_context(saved=saved)
    assert selected(context) == ["cpu-small"]
    assert context["message"] == message


def test_the_teams_default_profile_is_selected_where_nothing_was_used_before():
    lead = make_team(default_profile="gpu-1")
    context = make_context(teams=[lead])
    assert selected(context) == ["gpu-1"]
    assert context["teams"][0]["default"] == "gpu-1"
    used = make_context(teams=[lead], saved={"team": "flight", "profile": "cpu-small"})
    assert selected(used) == ["cpu-small"]


def test_a_default_profile_that_the_team_may_not_use_is_none():
    team = make_team(profiles=frozenset({"cpu-small"}), default_profile="gpu-1")
    assert selected(make_context(teams=[team])) == ["cpu-small"]


def test_a_profile_that_was_granted_is_offered():
    team = make_team(
        profiles=frozenset({"cpu-small"}), granted_profiles=frozenset({"gpu-1"}), gpus_hard={GPU: 1}
    )
    assert [card.name for card in make_context(teams=[team])["cards"]] == ["cpu-small", "gpu-1"]


@pytest.mark.parametrize("junk", [None, 3, [], {"a": 1}, ["cpu-small"]])
def test_saved_options_of_a_wrong_type_are_ignored(junk):
    saved = {"team": junk, "profile": junk, "image": junk}
    assert make_context(saved=saved) == make_context()


def test_cards_of_another_team_are_there_but_out_of_the_way():
    teams = [make_team("flight", profiles=frozenset({"gpu-1"})), make_team("ops")]
    context = make_context(teams=teams)
    assert {card.name: (card.teams, card.hidden) for card in context["cards"]} == {
        "cpu-small": ("1", True),
        "gpu-1": ("0 1", False),
    }


def test_a_profile_that_none_of_ones_teams_may_use_is_not_sent_to_the_browser():
    other = Profile(name="x", title="Secret", images=(TENSORFLOW,), teams=frozenset({"ops"}))
    assert "Secret" not in page_of(profiles=PROFILES | {"x": other}).text


def test_somebody_in_no_team_reads_whom_to_ask_and_cannot_start():
    page = page_of(teams=[])
    assert "You are in no team yet" in page.text
    assert "your cluster administrators" in page.text
    assert page.fields == []
    assert page.links == [f"{REQUESTS}?kind=team"]


def test_each_team_has_a_link_to_ask_for_more():
    odd = make_team("a&b", profiles=frozenset({"gone"}))
    assert page_of(teams=[make_team(), odd]).links == [
        f"{REQUESTS}?kind=quota&team=flight",
        f"{REQUESTS}?kind=quota&team=a%26b",
        f"{REQUESTS}?kind=profile&team=a%26b",
    ]


def test_a_team_without_profiles_has_no_start_button():
    page = page_of(teams=[make_team(profiles=frozenset({"gone"}))])
    assert "This team may use no profile yet" in page.text
    assert [tag for tag, _ in page.fields] == ["input"]


def test_a_team_that_is_not_ready_says_why():
    page = page_of(teams=[make_team(ready=False, message="The namespace is taken.")])
    assert "The namespace is taken." in page.text


def test_without_scripts_the_form_of_one_team_submits_team_and_profile_alone():
    page = page_of()
    sent = [
        (attributes["name"], attributes.get("value"))
        for _, attributes in page.fields
        if "name" in attributes
        and "disabled" not in attributes
        and (attributes.get("type") != "radio" or "checked" in attributes)
    ]
    assert sent == [("team", "flight"), ("profile", "cpu-small")]


def scratch_of(**changes):
    """The name field of the scratch disk and whether it is wanted; None if it is not offered."""
    page = page_of(**changes)
    fields = {attributes.get("id"): attributes for _, attributes in page.fields}
    name = fields.get("spectrum-scratch-name")
    if name is None:
        return None
    return name["value"], "checked" in fields["spectrum-scratch-on"], "disabled" not in name


@pytest.mark.parametrize(
    ("server", "saved", "field"),
    [
        ("", {}, ("default", False, False)),
        ("exp1", {}, ("exp1", False, False)),
        ("exp 1", {}, ("exp-1--etoeyxnf3wj3p5hr", False, False)),
        ("exp1", {"scratch": ""}, ("exp1", False, False)),
        ("exp1", {"scratch": "data"}, ("data", True, True)),
        ("exp1", {"scratch": ["data"]}, ("exp1", False, False)),
    ],
)
def test_a_scratch_disk_is_called_like_the_server_unless_it_was_called_otherwise(
    server, saved, field
):
    assert scratch_of(teams=[make_team(scratch=SCRATCH)], server=server, saved=saved) == field


def test_a_scratch_disk_is_only_offered_where_the_team_is():
    with_one, without = make_team("ops", scratch=SCRATCH), make_team()
    saved = {"team": "flight", "scratch": "data"}
    assert scratch_of(teams=[without]) is None
    # of somebody in both the field is there, and of use once the other team is chosen
    assert scratch_of(teams=[without, with_one], saved=saved) == ("data", True, False)
    saved = {"team": "ops", "scratch": "data"}
    assert scratch_of(teams=[without, with_one], saved=saved) == ("data", True, True)


def test_many_teams_are_chosen_in_a_list():
    page = page_of(teams=[make_team(f"team-{i}") for i in range(7)])
    assert [a["name"] for tag, a in page.fields if tag == "select" and a["name"] == "team"]
    assert not [a for tag, a in page.fields if tag == "input" and a.get("name") == "team"]


def test_names_from_elsewhere_are_text_and_never_markup_or_templates():
    evil = Profile(
        name=EVIL,
        title=EVIL,
        description=EVIL,
        gpu=1,
        gpu_product=EVIL,
        images=(Image(name=EVIL, title=EVIL, image="x", python=EVIL), TORCH),
    )
    page = page_of(
        teams=[make_team(EVIL, display_name=EVIL, ready=False, message=EVIL), make_team()],
        profiles={EVIL: evil},
        inventory=make_inventory(product=EVIL),
        saved={"team": EVIL, "profile": EVIL + "x", "image": EVIL},
        contact=EVIL,
    )
    assert "script" not in page.tags
    assert "49" not in page.text
    assert page.text.count(EVIL.replace("-", " ")) >= 6
    assert page.checked("profile") == [EVIL]


def test_the_form_is_small_and_a_thousand_profiles_are_quick():
    five = {f"p{i}": make_profile(i) for i in range(5)}
    thousand = {f"p{i}": make_profile(i) for i in range(1000)}
    assert len(form.render(make_context(profiles=five)).encode()) <= 30 * 1024
    form.render(make_context(profiles=thousand))  # the first one fills the cache
    times = []
    for _ in range(20):
        begin = time.process_time()  # what else the machine does is no concern of this test
        form.render(make_context(profiles=thousand))
        times.append(time.process_time() - begin)
    assert min(times) <= 0.010


def make_profile(number):
    return Profile(
        name=f"p{number}",
        title=f"Profile {number}",
        description="Trains most models.",
        gpu=number % 5,
        gpu_product=A100,
        cpu_limit=number + 1.0,
        memory_limit=GIB * (number + 1),
        images=(TENSORFLOW, TORCH),
    )


def test_a_submitted_form_becomes_options():
    formdata = {"team": ["flight"], "profile": ["gpu-1"], "image": ["torch"], "scratch": ["two"]}
    assert form.options_from_form(formdata) == {
        "team": "flight",
        "profile": "gpu-1",
        "image": "torch",
        "scratch": "two",
    }
    assert form.options_from_form({"profile": ["gpu-1"]}) == {"profile": "gpu-1"}


@pytest.mark.parametrize(
    ("formdata", "sentence"),
    [
        ({"team": ["a", "b"]}, "Choose one team, not 2."),
        ({"image": []}, "Choose one image, not 0."),
        (
            {"team": ["a"], "node": ["n"]},
            "The form may hold a team, a profile, an image and a scratch disk, and nothing else.",
        ),
        (
            {"team_file": [{"body": b"x"}]},
            "The form may hold a team, a profile, an image and a scratch disk, and nothing else.",
        ),
    ],
)
def test_a_malformed_form_is_refused_in_one_sentence(formdata, sentence):
    with pytest.raises(OptionError) as refused:
        form.options_from_form(formdata)
    assert (str(refused.value), refused.value.status) == (sentence, 400)


def test_a_server_is_described_for_the_home_page():
    options = {"team": "flight", "profile": "gpu-1", "image": "torch"}
    assert form.server_facts(options, teams=[make_team()], profiles=PROFILES) == {
        "team": "Flight",
        "profile": "One GPU",
        "image": "PyTorch 2.9",
        "gpu": "1 GPU · NVIDIA A100 SXM4 80GB",
        "gpus": 1,
        "opens": "JupyterLab",
    }


def test_a_server_of_a_vanished_profile_is_described_by_names():
    options = {"team": "gone", "profile": "old", "image": "older"}
    assert form.server_facts(options, teams=[make_team()], profiles=PROFILES) == {
        "team": "gone",
        "profile": "old",
        "image": "older",
        "gpu": "",
        "gpus": 0,
        "opens": "JupyterLab",
    }
