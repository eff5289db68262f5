"""What Keycloak itself says of people, before any hub: the facts that the hub's rules stand on."""

from urllib.parse import parse_qs, urlsplit

import pytest
import requests

from local.errors import Refusal
from local.realm import EVERYBODY, Realm, make_groups
from tests.keycloak.conftest import Account
from tests.keycloak.person import fetch_claims, make_request


def read_claims(realm: Realm, account: Account, name: str) -> dict[str, object]:
    """Groups in alphabetical order; Keycloak gives them in that of joining."""
    claims = fetch_claims(
        realm, account.callback_url, account.client_secret, name, account.passwords[name]
    )
    wanted = {key: claims[key] for key in ("preferred_username", "sub")}
    return wanted | {"groups": sorted(claims["groups"])} if "groups" in claims else wanted


def test_paths_become_a_tree_of_groups() -> None:
    assert make_groups(["/company/research", "/company/sales", "/ops"]) == [
        {
            "name": "company",
            "subGroups": [
                {"name": "research", "subGroups": []},
                {"name": "sales", "subGroups": []},
            ],
        },
        {"name": "ops", "subGroups": []},
    ]


def test_groups_come_by_their_full_paths(realm: Realm, account: Account) -> None:
    realm.add_member("bob", "/company/research")
    assert read_claims(realm, account, "bob") == {
        "preferred_username": "bob",
        "groups": ["/company/research", "/everybody", "/ops"],
        "sub": realm.find_subject("bob"),
    }
    realm.remove_member("bob", "/company/research")
    assert read_claims(realm, account, "bob")["groups"] == ["/everybody", "/ops"]


def test_of_somebody_in_no_group_keycloak_tells_no_groups_at_all(
    realm: Realm, account: Account
) -> None:
    assert read_claims(realm, account, "carol")["groups"] == [EVERYBODY]
    realm.remove_member("carol", EVERYBODY)
    assert "groups" not in read_claims(realm, account, "carol")
    realm.add_member("carol", EVERYBODY)


def test_a_new_account_of_an_old_name_is_another_subject(realm: Realm, account: Account) -> None:
    before = read_claims(realm, account, "carol")
    realm.remove_user("carol")
    realm.add_user("carol", account.passwords["carol"], [])
    after = read_claims(realm, account, "carol")
    assert (before["preferred_username"], after["preferred_username"]) == ("carol", "carol")
    assert before["sub"] != after["sub"]


def test_whoever_asks_without_pkce_is_sent_back(realm: Realm, account: Account) -> None:
    answer = requests.get(
        make_request(realm, account.callback_url), allow_redirects=False, timeout=60
    )
    said = parse_qs(urlsplit(answer.headers["Location"]).query)
    assert said["error_description"] == ["Missing parameter: code_challenge_method"]


def test_nobody_is_sent_to_an_address_that_is_not_the_hubs(realm: Realm) -> None:
    answer = requests.get(make_request(realm, "http://127.0.0.1:9/"), timeout=60)
    assert (answer.status_code, "Invalid parameter: redirect_uri" in answer.text) == (400, True)


def test_a_group_that_is_not_there_is_named(realm: Realm) -> None:
    with pytest.raises(Refusal, match="group-by-path/nowhere: 404"):
        realm.add_member("bob", "/nowhere")
