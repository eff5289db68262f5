"""Starts that do not happen: one sentence for the person, the API's own words for the log."""

import re

from jupyterhub.spawner import SpawnException

from spectrum_spawner.kube import NotFound, Refused

_QUOTA = re.compile(
    r"exceeded quota: (?P<quota>[^,]+), requested: (?P<requested>.+), "
    r"used: (?P<used>.+), limited: (?P<limited>.+)"
)


class Refusal(SpawnException):
    """Ends a start with a sentence for the person who asked; never counted against the hub.

    `reason` is a short word for metrics, `log_message` what the operator needs beyond the
    sentence.
    """

    def __init__(
        self, sentence: str, *, reason: str, status_code: int = 400, log_message: str = ""
    ) -> None:
        super().__init__(
            sentence,
            reason=reason,
            status_code=status_code,
            log_message=f"{sentence} ({log_message})" if log_message else sentence,
        )
        # what JupyterHub shows on its pages
        self.jupyterhub_message = sentence


def refusal_of(error: Refused | NotFound, *, team: str, what: str) -> Refusal:
    """The sentence for a creation that the API server refused; `what` is e.g. `your server`."""
    if isinstance(error, NotFound):
        sentence = f"The namespace of team {team} does not exist: ask a cluster administrator."
        return Refusal(sentence, reason="namespace", status_code=409, log_message=str(error))
    quota = _QUOTA.search(error.message)
    if error.status == 403 and quota:
        return Refusal(
            quota_sentence(quota["requested"], quota["used"], quota["limited"], team=team),
            reason="quota",
            status_code=409,
            log_message=str(error),
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


def quota_sentence(requested: str, used: str, limited: str, *, team: str) -> str:
    """Used and allowed amounts in words, from the lists of an `exceeded quota` message."""
    has, may = _amounts(used), _amounts(limited)
    parts = [
        f"{has.get(key, '0')} of {may.get(key, '?')} {_noun(key)} in use, {amount} more needed"
        for key, amount in _amounts(requested).items()
    ]
    return (
        f"The quota of team {team} is used up: {'; '.join(parts)}. "
        "Stop a server of the team, or ask for more quota."
    )


def _amounts(text: str) -> dict[str, str]:
    pairs = (part.strip().partition("=") for part in text.split(","))
    return {key: amount for key, _, amount in pairs if key}


def _noun(key: str) -> str:
    bare = key.removeprefix("requests.").removeprefix("limits.")
    return {"cpu": "CPU cores", "memory": "memory", "nvidia.com/gpu": "GPUs"}.get(bare, bare)
