"""The realm of the tests in Keycloak: what it starts with, and changes to it while it runs."""

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

from local.errors import Refusal

REALM = "spectrum"
CLIENT = "spectrum"
# Everybody is in it: for somebody in no group Keycloak leaves the claim out, and that says nothing.
EVERYBODY = "/everybody"
MEMBERS: Mapping[str, Sequence[str]] = {
    "alice": ("/flight", "/ops"),
    "bob": ("/ops",),
    "carol": (),
    "admin": ("/spectrum-admins",),
}
GROUPS = (EVERYBODY, "/company/research", "/flight", "/ops", "/spectrum-admins")


def make_realm(
    *, callback_url: str, client_secret: str, passwords: Mapping[str, str]
) -> dict[str, Any]:
    """Build the realm as Keycloak's import takes it; `passwords` has one for each of MEMBERS."""
    return {
        "realm": REALM,
        "enabled": True,
        "clients": [make_client(callback_url, client_secret)],
        "groups": make_groups(GROUPS),
        "users": [make_user(name, passwords[name], groups) for name, groups in MEMBERS.items()],
    }


def make_client(callback_url: str, secret: str) -> dict[str, Any]:
    """Build the client of the hub: a secret and PKCE, and groups by their full paths."""
    groups = {
        "name": "groups",
        "protocol": "openid-connect",
        "protocolMapper": "oidc-group-membership-mapper",
        "config": {
            "claim.name": "groups",
            "full.path": "true",
            "id.token.claim": "true",
            "access.token.claim": "true",
            "userinfo.token.claim": "true",
        },
    }
    return {
        "clientId": CLIENT,
        "secret": secret,
        "redirectUris": [callback_url],
        "standardFlowEnabled": True,
        "directAccessGrantsEnabled": False,
        "attributes": {"pkce.code.challenge.method": "S256"},
        "protocolMappers": [groups],
    }


def make_groups(paths: Sequence[str]) -> list[dict[str, Any]]:
    """Build the tree of groups that has these full paths."""
    tree: dict[str, Any] = {}
    for path in paths:
        level = tree
        for name in path.strip("/").split("/"):
            level = level.setdefault(name, {})

    def make_level(level: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [{"name": name, "subGroups": make_level(below)} for name, below in level.items()]

    return make_level(tree)


def make_user(name: str, password: str, groups: Sequence[str]) -> dict[str, Any]:
    """Build a user who is asked nothing more at the first sign-in."""
    return {
        "username": name,
        "enabled": True,
        "email": f"{name}@example.org",
        "emailVerified": True,
        "firstName": name.capitalize(),
        "lastName": "Example",
        "credentials": [{"type": "password", "value": password, "temporary": False}],
        "groups": [EVERYBODY, *groups],
    }


class Realm:
    """The realm of a running Keycloak, in the hands of Keycloak's administrator."""

    def __init__(self, url: str, password: str) -> None:
        """`url` is Keycloak's own, without a slash at the end."""
        self._url = url
        self._password = password

    @property
    def issuer(self) -> str:
        return f"{self._url}/realms/{REALM}"

    @property
    def endpoints(self) -> dict[str, str]:
        """What `.well-known/openid-configuration` says, such as `token_endpoint`."""
        found: dict[str, str] = _call("GET", f"{self.issuer}/.well-known/openid-configuration")
        return found

    def create(self, representation: Mapping[str, Any]) -> None:
        self._administer("POST", "/admin/realms", representation)

    def set_callback(self, url: str) -> None:
        """Let the client send people back to this address, and to no other."""
        place = f"/admin/realms/{REALM}/clients"
        (found,) = self._administer("GET", f"{place}?clientId={CLIENT}")
        self._administer("PUT", f"{place}/{found['id']}", {**found, "redirectUris": [url]})

    def add_member(self, user: str, group: str) -> None:
        """Put a user into the group of a full path."""
        self._administer("PUT", self._find_membership(user, group))

    def remove_member(self, user: str, group: str) -> None:
        self._administer("DELETE", self._find_membership(user, group))

    def add_user(self, name: str, password: str, groups: Sequence[str]) -> None:
        body = make_user(name, password, groups)
        self._administer("POST", f"/admin/realms/{REALM}/users", body)

    def remove_user(self, name: str) -> None:
        self._administer("DELETE", self._find_user(name))

    def find_subject(self, user: str) -> str:
        """Return what tokens say as `sub`: another one for each account, whatever its name."""
        return self._find_user(user).rpartition("/")[2]

    def _find_membership(self, user: str, group: str) -> str:
        place = urllib.parse.quote(group.strip("/"))
        found = self._administer("GET", f"/admin/realms/{REALM}/group-by-path/{place}")
        return f"{self._find_user(user)}/groups/{found['id']}"

    def _find_user(self, name: str) -> str:
        place = f"/admin/realms/{REALM}/users"
        query = urllib.parse.urlencode({"username": name, "exact": "true"})
        (found,) = self._administer("GET", f"{place}?{query}")
        return f"{place}/{found['id']}"

    def _administer(self, method: str, path: str, body: Any = None) -> Any:
        """Make one request to the admin API, with a token of its own: they last a minute."""
        form = {
            "grant_type": "password",
            "client_id": "admin-cli",
            "username": "admin",
            "password": self._password,
        }
        token = _call(
            "POST",
            f"{self._url}/realms/master/protocol/openid-connect/token",
            urllib.parse.urlencode(form).encode(),
        )["access_token"]
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        return _call(method, self._url + path, data, headers)


def _call(
    method: str, url: str, data: bytes | None = None, headers: Mapping[str, str] | None = None
) -> Any:
    request = urllib.request.Request(url, data, dict(headers or {}), method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or "null")
    except urllib.error.HTTPError as error:
        with error:
            said = error.read().decode(errors="replace")
        raise Refusal(f"Keycloak: {method} {url}: {error.code} {said[:300]}") from None
