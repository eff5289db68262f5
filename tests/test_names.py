"""Names of objects: valid for Kubernetes, and never the same for two owners."""

import random
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spectrum_spawner import names, storage
from spectrum_spawner.controller.objects import TeamSpace, make_namespace
from spectrum_spawner.controller.ownership import Claim, claim_of
from spectrum_spawner.owner import Owner

LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9])?\Z")
LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?\Z")
AWKWARD = [
    *("", "-", "a--b", "ML Vision", "視覚", "\u202eevil", "a\x00b", "..", "a/b", "%2f", "0zero"),
    *("x" * 63, "x" * 64, "x" * 65, "x" * 10**6, "kube-system", "Kube-System", "a.b", "a_b", "A"),
]


@pytest.mark.parametrize("name", ["flight", "a", "kube-system", "team-7", "x" * 63])
def test_a_plain_label_stands_for_itself(name: str) -> None:
    assert names.slug(name) == name


def test_whatever_is_no_plain_label_gets_a_suffix_of_its_own() -> None:
    assert names.slug("ML Vision") == "ml-vision--ro5pw4uuw7jal23t"
    assert names.slug("視覚") == "x--cubqumcohurbtr5q"


def test_awkward_names_become_distinct_labels() -> None:
    slugs = [names.slug(name) for name in AWKWARD]
    assert len(set(slugs)) == len(AWKWARD)
    assert [slug for slug in slugs if not LABEL.match(slug)] == []


@given(st.text(), st.text())
def test_two_names_never_share_a_slug(one: str, other: str) -> None:
    assert LABEL.match(names.slug(one))
    assert (names.slug(one) == names.slug(other)) == (one == other)


@given(st.text(min_size=1), st.text())
def test_names_of_objects_are_labels(user: str, server: str) -> None:
    assert LABEL.match(names.server_name(user, server))
    assert LABEL.match(names.home_claim(user))
    assert LABEL.match(names.scratch_claim(user, server))
    assert LABEL.match(names.dataset_claim(server))
    assert LABEL.match(names.team_namespace(user, prefix="a-hub-with-a-long-name-"))


def test_a_server_of_one_person_is_never_named_like_the_server_of_another() -> None:
    owners = [("alice", ""), ("alice", "b"), ("alice-b", ""), ("alice--b", ""), ("a", "lice-b")]
    assert len({names.server_name(*owner) for owner in owners}) == len(owners)


def test_a_scratch_disk_is_never_named_like_that_of_another_or_by_another_name() -> None:
    owners = [("alice", "b"), ("alice-b", ""), ("alice", "b-c"), ("alice-b", "c"), ("a", "lice-b")]
    assert len({names.scratch_claim(*owner) for owner in owners}) == len(owners)


def test_a_team_namespace_starts_with_the_prefix_of_its_hub() -> None:
    assert names.team_namespace("flight", prefix="spectrum-") == "spectrum-flight"
    assert names.team_namespace("kube-system", prefix="spectrum-") == "spectrum-kube-system"


def test_accelerators_are_limited_by_their_requests() -> None:
    assert names.gpu_quota_key("nvidia.com/gpu") == "requests.nvidia.com/gpu"


# What spellings are made of: case, escapes of other schemes, scripts, marks that no eye sees.
ALPHABETS = [
    "abcdefghijklmnopqrstuvwxyz0123456789-",
    "abABcdCD0123--__..",
    "aａäAÀéе\u0301ß",  # letters that look or normalise alike
    "李雷視覚ひらがな한국어",
    "😀🤖👩\u200d🔬\U0001f1e9\U0001f1ea",
    "עבריתعربى\u202e\u202d\u200f",
    "\x00\n\r\t \u2028\ufeff",
    "%2f%40-2d-40:/\\~'\"<>{}$@+",
]
LENGTHS = (1, 1, 2, 3, 5, 8, 20, 40, 47, 48, 49, 62, 63, 64, 65, 253, 254, 255, 300)
COUNT = 20_000


def make_names() -> list[str]:
    """Distinct names, always the same ones; many are alike up to their ends or their case."""
    chance = random.Random(4)
    found = dict.fromkeys(name for name in AWKWARD if 0 < len(name) <= 300)
    while len(found) < COUNT:
        letters = "".join(chance.sample(ALPHABETS, chance.choice((1, 1, 1, 2, 8))))
        name = "".join(chance.choices(letters, k=chance.choice(LENGTHS)))
        end = chance.choice(letters)
        # the longer one first: a shortened name must not become the shorter one
        found.update(dict.fromkeys((name + end, name, name[:60] + end, name.upper(), name.lower())))
    return list(found)


NAMES = make_names()


def make_objects(name: str) -> Iterator[tuple[str, dict, dict[str, str]]]:
    """Of one name in each role: what is made, its metadata, and the full names it must carry."""
    for role, owner in (
        ("server of the user", Owner(hub="spectrum", team="flight", user=name, server="")),
        ("server so called", Owner(hub="spectrum", team="flight", user="alice", server=name)),
    ):
        pod = names.server_name(owner.user, owner.server or "")
        meta = {"name": pod, "labels": owner.labels, "annotations": owner.annotations}
        yield role, meta, {names.ANNOTATION_USER: owner.user, names.ANNOTATION_SERVER: owner.server}
    owner = Owner(hub="spectrum", team="flight", user=name, subject=f"id.example.org|{name}")
    home = storage.make_home_claim(owner, team_uid="1", size="1Gi", storage_class=None)
    full = {names.ANNOTATION_USER: name, names.ANNOTATION_SUBJECT: owner.subject}
    yield "home", home["metadata"], full
    space = make_namespace(make_space(name))
    yield "team", space["metadata"], {names.ANNOTATION_TEAM: name}


def make_space(team: str) -> TeamSpace:
    namespace = names.team_namespace(team, prefix="spectrum-")
    return TeamSpace(hub_namespace="spectrum", team=team, uid="1", namespace=namespace, gid=100_000)


def test_twenty_thousand_spellings_get_valid_distinct_objects_that_carry_the_full_name() -> None:
    assert len(NAMES) >= COUNT
    taken: dict[str, dict[str, str]] = {}
    subjects = set()
    for name in NAMES:
        for role, metadata, full in make_objects(name):
            assert LABEL.match(metadata["name"]), (role, name)
            assert all(map(LABEL_VALUE.match, metadata["labels"].values())), (role, name)
            assert full.items() <= metadata["annotations"].items(), (role, name)
            other = taken.setdefault(role, {}).setdefault(metadata["name"], name)
            assert other == name, role
            subjects.add(metadata["labels"].get(names.LABEL_SUBJECT))
    assert len(subjects - {None}) == len(NAMES)
    # Pods of one namespace: those of "" and those of named servers must not meet either.
    default, named = taken["server of the user"], taken["server so called"]
    assert not default.keys() & named.keys()


def test_an_object_is_its_owners_and_nobody_elses() -> None:
    for name, other in pairwise(NAMES):
        owner = Owner(hub="spectrum", team=name, user=name, server=name, subject=name)
        found = Owner.of({"metadata": {"annotations": owner.annotations}})
        assert found == owner
        for part in ("hub", "team", "user", "server", "subject"):
            assert found != replace(owner, **{part: other})
        home, same_name = replace(owner, server=None), replace(owner, server=None, subject=other)
        assert owner.has_claim(home)
        assert not owner.has_claim(same_name)
        namespace = make_namespace(make_space(name))
        for team, claim in ((name, Claim.OURS), (other, Claim.TAKEN)):
            record = {"metadata": {"name": team, "uid": "1"}}
            assert claim_of(namespace, hub_namespace="spectrum", team=record) is claim


def test_no_two_servers_are_one_client_of_the_hub() -> None:
    pairs = [("ops", "eval"), ("ops-eval", ""), ("ops", ""), ("ops/eval", ""), ("ops", "a/b")]
    clients = [names.oauth_client(user, server) for user, server in pairs]
    assert clients == [
        "jupyterhub-user-ops%2Feval",
        "jupyterhub-user-ops-eval",
        "jupyterhub-user-ops",
        "jupyterhub-user-ops/eval",
        "jupyterhub-user-ops%2Fa%2Fb",
    ]
