"""Starts that do not happen: one sentence for the person, the API's own words for the log."""

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlencode

from jupyterhub.spawner import SpawnException
from markupsafe import Markup

from spectrum_spawner.kube import KubeError, NotFound, Refused
from spectrum_spawner.quota import gpus_noun

_QUOTA = re.compile(
    r"exceeded quota: (?P<quota>[^,]+), requested: (?P<requested>.+), "
    r"used: (?P<used>.+), limited: (?P<limited>.+)"
)

_REQUESTS = {
    "quota": "Request more",
    "profile": "Request this profile",
    "team": "Ask for a team",
}


class Refusal(SpawnException):
    """Ends a start with a sentence for the person who asked; never counted against the hub.

    `reason` is a short word for metrics, `log_message` what the operator needs beyond the
    sentence. `request` is the kind of request that would change the answer, if one would:
    `quota`, `profile` or `team`.
    """

    def __init__(
        self,
        sentence: str,
        *,
        reason: str,
        status_code: int = 400,
        log_message: str = "",
        request: str = "",
    ) -> None:
        super().__init__(
            sentence,
            reason=reason,
            status_code=status_code,
            log_message=f"{sentence} ({log_message})" if log_message else sentence,
        )
        # what JupyterHub shows on its pages
        self.jupyterhub_message = sentence
        self.request = request

    def link(self, requests: str, asked: Mapping[str, object]) -> None:
        """On pages, follow the sentence with a link to where one may make the request.

        `requests` is the URL of the page, `asked` are the options of the start.
        """
        if self.request:
            known = [(key, asked.get(key)) for key in ("team", "profile")]
            texts = [(key, value) for key, value in known if isinstance(value, str)]
            query = urlencode([("kind", self.request), *texts], errors="replace")
            words = _REQUESTS[self.request]
            link = Markup('<a href="{}?{}">{}</a>').format(requests, query, words)
            self.jupyterhub_html_message = Markup("{} {}").format(self.jupyterhub_message, link)
            self.message_html = self.jupyterhub_html_message


class Exceeded(NamedTuple):
    """What an API server says of an exceeded quota: amounts, as quantities, by quota key."""

    requested: Mapping[str, str]
    used: Mapping[str, str]
    limited: Mapping[str, str]

    def counts(self, key: str) -> bool:
        """Whether it is about a key, and in whole numbers."""
        amounts = (part.get(key, "") for part in self)
        return all(amount.isdecimal() for amount in amounts)

    @property
    def is_storage(self) -> bool:
        """Whether it is about claims."""
        return any(_split_storage(key)[1] for key in self.requested)


def find_exceeded(error: KubeError) -> Exceeded | None:
    """What quota stands against a creation, if that is why the API server refused it."""
    found = _QUOTA.search(error.message) if error.status == 403 else None
    return found and Exceeded(*(_amounts(found[key]) for key in Exceeded._fields))


def refusal_of(error: Refused | NotFound, *, team: str, what: str) -> Refusal:
    """The sentence for a creation that the API server refused; `what` is e.g. `your server`."""
    if isinstance(error, NotFound):
        sentence = f"The namespace of team {team} does not exist: ask a cluster administrator."
        return Refusal(sentence, reason="namespace", status_code=409, log_message=str(error))
    if exceeded := find_exceeded(error):
        return Refusal(
            exceeded_sentence(exceeded, team=team, what=what),
            reason="quota",
            status_code=409,
            log_message=str(error),
            # requests are about servers
            request="" if exceeded.is_storage else "quota",
        )
    if error.status == 403 and "being terminated" in error.message:
        sentence = f"The namespace of team {team} is being deleted: ask a cluster administrator."
        return Refusal(sentence, reason="namespace", status_code=409, log_message=str(error))
    return Refusal(
        f"The cluster refused to create {what}: {error.message}. Ask a cluster administrator.",
        reason="refused",
        status_code=409,
        log_message=str(error),
    )


def exceeded_sentence(exceeded: Exceeded, *, team: str, what: str) -> str:
    """Used and allowed amounts in words, and what they leave no room for."""
    parts = "; ".join(
        f"{exceeded.used.get(key, '0')} of {exceeded.limited.get(key, '?')} {_noun(key)} in use, "
        f"{amount} more needed"
        for key, amount in exceeded.requested.items()
    )
    if exceeded.is_storage:
        return (
            f"There is no room for {what}: the storage quota of team {team} is used up, {parts}. "
            "Ask a cluster administrator for more."
        )
    return (
        f"The quota of team {team} is used up: {parts}. Stop a server of the team, or request more."
    )


def _amounts(text: str) -> dict[str, str]:
    pairs = (part.strip().partition("=") for part in text.split(","))
    return {key: amount for key, _, amount in pairs if key}


def _noun(key: str) -> str:
    storage_class, noun = _split_storage(key)
    if noun:
        return f"{storage_class} {noun}".lstrip()
    bare = key.removeprefix("requests.").removeprefix("limits.")
    known = {"cpu": "CPU cores", "memory": "memory"}
    is_gpu = key.startswith("requests.") and "/" in bare
    return known.get(bare) or (gpus_noun(bare) if is_gpu else bare)


def _split_storage(key: str) -> tuple[str, str]:
    """Class ("" for all) and noun of a quota key about claims, else two empty texts."""
    storage_class, _, bare = key.rpartition(".storageclass.storage.k8s.io/")
    nouns = {"requests.storage": "storage", "persistentvolumeclaims": "volumes"}
    noun = nouns.get(bare, "")
    return (storage_class, noun) if noun else ("", "")
