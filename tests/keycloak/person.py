"""People at Keycloak's sign-in page, as a browser's session would be."""

import base64
import hashlib
import html
import re
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import requests

from local.realm import CLIENT, Realm

FORM = re.compile(r'<form[^>]*id="kc-form-login"[^>]*action="([^"]+)"')


def sign_in(session: requests.Session, url: str, name: str, password: str) -> str:
    """Fill in the sign-in page that the URL leads to; return where it sends the person then."""
    page = session.get(url, timeout=60)
    for cookie in session.cookies:
        cookie.secure = False  # to a browser, 127.0.0.1 is as good as HTTPS
    form = FORM.search(page.text)
    assert form, page.text
    answer = session.post(
        html.unescape(form[1]),
        data={"username": name, "password": password},
        allow_redirects=False,
        timeout=60,
    )
    assert answer.status_code == 302, answer.text
    return answer.headers["Location"]


def make_request(realm: Realm, callback_url: str, **more: str) -> str:
    """Build the address to which an application sends people who are to sign in."""
    query = {
        "client_id": CLIENT,
        "response_type": "code",
        "scope": "openid profile email",
        "redirect_uri": callback_url,
        **more,
    }
    return f"{realm.endpoints['authorization_endpoint']}?{urlencode(query)}"


def fetch_claims(
    realm: Realm, callback_url: str, client_secret: str, name: str, password: str
) -> Mapping[str, Any]:
    """Sign somebody in as an application does; return what Keycloak then says of them."""
    verifier = secrets.token_urlsafe(48)
    digest = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest())
    challenge = digest.decode().rstrip("=")
    url = make_request(realm, callback_url, code_challenge=challenge, code_challenge_method="S256")
    with requests.Session() as session:
        landed = sign_in(session, url, name, password)
        form = {
            "grant_type": "authorization_code",
            "code": parse_qs(urlsplit(landed).query)["code"][0],
            "redirect_uri": callback_url,
            "client_id": CLIENT,
            "client_secret": client_secret,
            "code_verifier": verifier,
        }
        tokens = session.post(realm.endpoints["token_endpoint"], data=form, timeout=60).json()
        headers = {"Authorization": f"Bearer {tokens['access_token']}"}
        answer = session.get(realm.endpoints["userinfo_endpoint"], headers=headers, timeout=60)
        claims: Mapping[str, Any] = answer.json()
        return claims
