"""Sign-in through the company's identity provider: a thin layer on OAuthenticator.

The provider's answer of now decides. What it does not say is doubt, and doubt is kept apart from
"no": while the provider is away, or leaves the groups out, the last known groups hold for
`groups_max_age` seconds; after that nobody starts a server, and nobody's server is touched.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from jupyterhub.apihandlers import APIHandler
from oauthenticator.oauth2 import OAuthenticator
from tornado import web
from tornado.httpclient import HTTPClientError
from traitlets import Integer, Unicode, default, validate

from spectrum_spawner import accounts, actor, claims, membership, names, tokens
from spectrum_spawner.access import list_visitors
from spectrum_spawner.claims import Doubt
from spectrum_spawner.identity import Identity, ask_for_sign_in
from spectrum_spawner.tokens import TOKEN_REFUSED, Expired, Model

TOLD_AT = "spectrum_groups_told_at"  # in auth_state: when the provider last told the groups
SUBJECT = "spectrum_subject"  # in user_info, which outlives a change of the encryption key
TIMEOUT = 5.0  # seconds that one request to the provider may take


class ProviderIdentity(Identity, OAuthenticator):
    """What Spectrum adds to an OAuthenticator: doubt about groups, and subjects.

    A mixin, to stand before the OAuthenticator class of a provider.
    """

    groups_claim = Unicode(
        "groups",
        config=True,
        help="""
        Where the provider's answer has the groups: a dotted path such as `realm_access.roles`.
        A text is one group, a list that is empty is none.
        """,
    )
    subject_claim = Unicode(
        "sub",
        config=True,
        help="Where the provider's answer has the id that it never gives to another person.",
    )
    subject_issuer = Unicode(
        config=True,
        help="""
        First part of a person's subject, before `|` and the id. Homes are given to the subject
        that they were made for: set it to the former host when the provider moves to another.
        Default: the host (and port) of the page where people sign in.
        """,
    )
    groups_max_age = Integer(
        3600,
        config=True,
        help="""
        Seconds that somebody's last known groups hold while the provider does not tell them.
        After that they cannot start a server, and are no administrator by a group.
        """,
    )

    visitors_refresh_age = Integer(
        15,
        config=True,
        help="""
        Seconds after which groups are asked for again of people who are in a server of another's
        or of a team's: whoever leaves the team is out of it within half a minute by the default.
        """,
    )

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # Why somebody must not start a server until the provider says otherwise.
        self._barred: dict[str, str] = {}
        # Whose a name is, from the moment a sign-in is accepted until the account says so.
        self._claimed: dict[str, str] = {}
        # A refresh token may be good for one use, so that two refreshes must not meet.
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._asked_at: dict[str, float] = {}
        self._refreshers: list[asyncio.Task[None]] = []

    @default("enable_auth_state")
    def _default_enable_auth_state(self) -> bool:
        return True

    @default("http_request_kwargs")
    def _default_http_request_kwargs(self) -> dict[str, Any]:
        return {"connect_timeout": TIMEOUT, "request_timeout": TIMEOUT}

    @default("subject_issuer")
    def _default_subject_issuer(self) -> str:
        return urlsplit(self.authorize_url).netloc

    @validate("allowed_groups", "admin_groups")
    def _write_groups_plainly(self, proposal: Any) -> set[str]:
        return {names.plain_group(group) for group in proposal.value}

    def get_handlers(self, app: Any) -> list[tuple[Any, ...]]:
        """As JupyterHub starts: from now on ask about people whose browser is closed, too."""
        rounds = (
            (self.auth_refresh_age, lambda: membership.list_running(list(app.users.values()))),
            (self.visitors_refresh_age, lambda: [app.users[id] for id in list_visitors(app.db)]),
        )
        self._refreshers = [
            asyncio.get_running_loop().create_task(
                membership.refresh_for_ever(users, self, age=age)
            )
            for age, users in rounds
        ]
        return super().get_handlers(app)

    def delete_user(self, user: Any) -> None:
        for known in (self._barred, self._claimed, self._turns, self._asked_at):
            known.pop(user.name, None)
        super().delete_user(user)

    def subject_of(self, user: Any) -> str:
        return "" if user is None else (user.user_info or {}).get(SUBJECT, "")

    # Sign-in

    async def authenticate(self, handler: Any, data: Any = None, **kwargs: Any) -> Model:
        """Who signs in. Raises an HTTPError with a sentence for whoever may not."""
        model = await self._sign_in(handler, data, **kwargs)
        name = model["name"]
        if why := claims.why_no_name(name):
            raise self._refuse(name, f"The user name {name!a} cannot be used here: {why}.")
        user = handler.find_user(name)
        try:
            subject = self._read_subject(model)
        except Doubt as doubt:
            why = f"The identity provider did not say who you are: {doubt}."
            raise self._refuse(name, why) from doubt
        self._check_subject(name, user, subject)
        model["user_info"] = {SUBJECT: subject}
        return await self._settle(model, user)

    async def _sign_in(self, handler: Any, data: Any, **kwargs: Any) -> Model:
        try:
            return await super().authenticate(handler, data, **kwargs)
        except Exception as error:
            if isinstance(error, web.HTTPError) and error.status_code < 500:
                raise
            self.log.warning("a sign-in failed at the identity provider: %r", error)
            if isinstance(error, HTTPClientError) and error.code in TOKEN_REFUSED:
                why = "The identity provider did not accept this sign-in: try again."
                raise web.HTTPError(403, "%s", why) from error
            why = "The identity provider does not answer right now: try again in a minute."
            raise web.HTTPError(503, "%s", why) from error

    def user_info_to_username(self, user_info: Any) -> str:
        try:
            return super().user_info_to_username(user_info)
        except ValueError as error:
            why = f"The identity provider did not tell a user name (claim {self.username_claim})."
            raise web.HTTPError(403, "%s", why) from error

    def _read_subject(self, model: Model) -> str:
        answer = model["auth_state"][self.user_auth_state_key]
        value = claims.find_claim(answer, self.subject_claim)
        return claims.read_subject(value, issuer=self.subject_issuer)

    def _check_subject(self, name: str, user: Any, subject: str) -> None:
        whose = self.subject_of(user) or self._claimed.get(name, subject)
        if whose != subject:
            why = (
                f"The user name {name} belongs to another person here. "
                "Ask a cluster administrator, or sign in under another name."
            )
            raise self._refuse(name, why, subject=subject)

    async def run_post_auth_hook(self, handler: Any, auth_model: Model) -> Model:
        """The last step of a sign-in that is allowed: nobody else gets this name from here on."""
        model = await super().run_post_auth_hook(handler, auth_model)
        await self.offer_teams(model["groups"] or [])
        name, subject = model["name"], model["user_info"][SUBJECT]
        self._check_subject(name, handler.find_user(name), subject)
        self._claimed[name] = subject
        self._note_barred(name, "")
        return model

    def check_blocked_users(self, username: str, authentication: Any = None) -> bool:
        if super().check_blocked_users(username, authentication):
            return True
        raise self._refuse(username, self.custom_403_message)

    async def check_allowed(self, username: str, auth_model: Any) -> bool:
        if await super().check_allowed(username, auth_model):
            return True
        raise self._refuse(username, self.custom_403_message)

    def _refuse(self, name: str, why: str, **details: str) -> web.HTTPError:
        self.audit(action="sign-in", user=name, reason=why, details=details)
        return web.HTTPError(403, "%s", why)

    # Groups

    @property
    def tells_in_token(self) -> bool:
        """Whether the provider's answer comes with a token, so that news take a new token."""
        return self.userdata_from_id_token

    def find_groups(self, auth_state: Mapping[str, Any]) -> frozenset[str]:
        """The groups that an answer names; raises Doubt."""
        answer = auth_state[self.user_auth_state_key]
        return claims.read_groups(claims.find_claim(answer, self.groups_claim))

    async def get_user_groups(self, auth_state: dict[str, Any]) -> set[str]:
        """OAuthenticator's seam. In doubt none, and no TOLD_AT: `_settle` then says which."""
        try:
            groups = self.find_groups(auth_state)
        except Doubt as doubt:
            self.log.warning("the identity provider did not tell the groups: %s", doubt)
            return set()
        auth_state[TOLD_AT] = time.time()
        return set(groups)

    async def _settle(self, model: Model, user: Any) -> Model:
        """The model, with the last known groups of a user if the provider told none.

        Groups of None stay as they are. Nobody is an administrator but by name or by groups that
        hold, whatever the database says.
        """
        if TOLD_AT not in model["auth_state"]:
            told_at = model["auth_state"][TOLD_AT] = await self._find_told_at(user)
            known = sorted(group.name for group in user.groups) if self._holds(told_at) else None
            model |= {"groups": known, "admin": None}
            if known is None:
                self._end_admin(user)
        if model["groups"] is not None and model["admin"] is None:
            by_group = bool(self.admin_groups.intersection(model["groups"]))
            model["admin"] = by_group or model["name"] in self.admin_users
        return model

    async def _find_told_at(self, user: Any) -> float:
        state = None if user is None else await user.get_auth_state()
        return (state or {}).get(TOLD_AT, 0.0)

    def _holds(self, told_at: float) -> bool:
        return time.time() - told_at <= self.groups_max_age

    def is_barred(self, name: str) -> bool:
        return name in self._barred

    async def why_no_start(self, user: Any) -> str:
        if why := self._barred.get(user.name):
            return why
        if self._holds(await self._find_told_at(user)):
            return ""
        return (
            f"The identity provider has not told the groups of {user.name} for more than "
            f"{self.groups_max_age // 60} minutes: a server can start once it does. "
            "Servers that run are not touched."
        )

    # Refresh

    async def refresh_user(self, user: Any, handler: Any = None, **kwargs: Any) -> Model | bool:
        """What the provider says of a user now.

        True if nobody knows: things stay as they are, and `why_no_start` sees to the starts.
        False, which has JupyterHub ask for a fresh sign-in, only where there is somebody to sign
        in: so a page may ask for it, and nothing else that a person does is held up by it.
        """
        actor.note(handler)
        if accounts.is_account(user.name):
            return True
        arrived = time.monotonic()
        async with self._turns[user.name]:
            if self._asked_at.get(user.name, 0.0) > arrived:
                # the one before was asked after this one came
                why = self._barred.get(user.name)
                return self._bar(user, handler, why) if why else True
            self._asked_at[user.name] = time.monotonic()
            try:
                return await self._accept(user, handler, await tokens.ask_provider(self, user))
            except Expired:
                self._end_admin(user)
                return self._bar(user, handler, _say_expired(user.name))
            except Exception as error:
                # of whatever kind: nobody knows
                self.log.warning("the identity provider told nothing of %s: %r", user.name, error)
                if not self._holds(await self._find_told_at(user)):
                    self._end_admin(user)
                return True

    async def _accept(self, user: Any, handler: Any, model: Model) -> Model | bool:
        """The model to write, unless it says that the user may not be here."""
        subject = self._read_subject(model)
        if self.subject_of(user) not in ("", subject):
            raise Expired
        model["user_info"] = {SUBJECT: subject}
        if model["name"] != user.name:
            # renamed at the provider; the name of an administrator makes nobody one
            model |= {"name": user.name, "admin": None}
        await self._settle(model, user)
        if model["groups"] is not None and not await self._is_allowed(user.name, model):
            await membership.apply(user, model)
            return self._bar(user, handler, self.custom_403_message)
        self._note_barred(user.name, "")
        await self.offer_teams(model["groups"] or [])
        return model

    async def _is_allowed(self, name: str, model: Model) -> bool:
        try:
            return self.allow_all or await super().check_allowed(name, model)
        except web.HTTPError:
            return False

    def _note_barred(self, name: str, why: str) -> None:
        """From now on somebody may not be here, "" for may."""
        before = self._barred.pop(name, "")
        if why:
            self._barred[name] = why
        if bool(why) != bool(before):
            self.admit_anew()

    def _end_admin(self, user: Any) -> None:
        """Let nobody stay an administrator for whom the provider speaks no more.

        Whoever was sent away could go on by an API token, which asks for no sign-in.
        """
        if user is not None and user.admin and user.name not in self.admin_users:
            membership.end_admin(user)
            why = f"{user.name} is no administrator until the identity provider says so again."
            self.audit(action="membership", user=user.name, reason=why)

    def _bar(self, user: Any, handler: Any, why: str) -> bool:
        self._note_barred(user.name, why)
        return ask_for_sign_in(handler) if _can_sign_in(user, handler) else True


def _say_expired(name: str) -> str:
    return (
        f"The sign-in of {name} at the identity provider has expired: "
        f"{name} has to sign in to the hub again before a server can start."
    )


def _can_sign_in(user: Any, handler: Any) -> bool:
    """Whether a request is for a page, by the user in a browser: it can be led to the sign-in."""
    return (
        handler is not None
        and handler.request.method == "GET"
        and not isinstance(handler, APIHandler)
        and handler.current_user is user
        and not getattr(handler, "_token_authenticated", False)
    )
