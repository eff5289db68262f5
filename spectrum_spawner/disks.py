"""Who has a scratch disk now: one server at a time can use it. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from spectrum_spawner.owner import Owner
from spectrum_spawner.pods import Pod


def find_holders(pods: Iterable[Pod], claim: str, *, own: Owner) -> list[Pod]:
    """The pods of other servers of a person that mount a claim; `own` is the server that asks.

    Somebody else's pod is none, though its claim may have the name that this person's would have.
    """
    return [
        pod
        for pod in pods
        if claim in pod.claims
        and pod.holds_quota
        and pod.owner != own
        and own.has_claim(replace(pod.owner, server=None))
    ]


def why_in_use(disk: str, claim: str, pods: Iterable[Pod], *, own: Owner) -> str:
    """A sentence if another server of the owner of `own` holds a scratch disk and goes on.

    Else "".
    """
    holders = [pod for pod in find_holders(pods, claim, own=own) if not pod.deleting]
    if not holders:
        return ""
    return (
        f"Your scratch disk “{disk}” is in use by your {say_server(holders[0])}, and only one "
        "server at a time can use it: stop that one, or start this one with another disk or "
        "with none."
    )


def say_server(pod: Pod) -> str:
    return f"server “{pod.owner.server}”" if pod.owner.server else "default server"
