"""Asking a provider about somebody who signed in before, by the tokens of then.

An access token that is over is renewed by the refresh token; where that is over too, the person
has to sign in again. Everything else that goes wrong is the provider's or the hub's trouble, and
says nothing of the person.
"""

import json
from http import HTTPStatus
from typing import Any

from oauthenticator.oauth2 import OAuthenticator
from tornado import web
from tornado.httpclient import HTTPClientError

Model = dict[str, Any]  # what OAuthenticator makes of a provider's answer

# Answers that are about a token or code, and not about the provider's own state.
TOKEN_REFUSED = {HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}


class Expired(Exception):  # noqa: N818 - reads as the state that it is
    """The provider takes this person's tokens no more: they have to sign in again."""


async def ask_provider(authenticator: OAuthenticator, user: Any) -> Model:
    """What the provider says of a user now.

    Raises Expired; whatever else is raised, the provider told nothing. Two calls for one user
    must not meet, since a refresh token may be good for one use.
    """
    state = await user.get_auth_state() or {}
    if "token_response" not in state:
        raise Expired
    if not authenticator.tells_in_token:
        try:
            return await authenticator._token_to_auth_model(state["token_response"])
        except HTTPClientError as error:
            if error.code not in TOKEN_REFUSED:
                raise
            if error.code == HTTPStatus.FORBIDDEN and not state.get("refresh_token"):
                raise  # so says a rate limit, or a gateway; of a token that is over, 401
    token = await _renew(authenticator, user, state)
    return await authenticator._token_to_auth_model(token)


async def _renew(authenticator: OAuthenticator, user: Any, state: dict[str, Any]) -> dict[str, Any]:
    """A new token, kept at once: the refresh token that it was had for may be spent now."""
    if not state.get("refresh_token"):
        raise Expired
    params = authenticator.build_refresh_token_request_params(state["refresh_token"])
    try:
        token = await authenticator.get_token_info(None, params)
    except (HTTPClientError, web.HTTPError) as error:
        if _is_spent(error):
            raise Expired from error
        raise
    token["refresh_token"] = token.get("refresh_token") or state["refresh_token"]
    answer = state.get(authenticator.user_auth_state_key)
    await user.save_auth_state({**state, **authenticator.build_auth_state_dict(token, answer)})
    return token


def _is_spent(error: HTTPClientError | web.HTTPError) -> bool:
    """Whether a refused renewal is about the refresh token, and not about the hub as a client."""
    if isinstance(error, web.HTTPError):
        return error.status_code == HTTPStatus.FORBIDDEN  # how OAuthenticator reads GitHub's
    try:
        answer = json.loads(error.response.body if error.response else b"")
    except ValueError:
        return False
    # RFC 6749, 5.2
    return isinstance(answer, dict) and answer.get("error") == "invalid_grant"
