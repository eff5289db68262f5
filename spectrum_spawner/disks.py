"""Who has a scratch disk now: one server at a time can use it. Pure."""

from collections.abc import Iterable

from spectrum_spawner.pods import Pod


def find_holders(pods: Iterable[Pod], claim: str, *, own: str) -> list[Pod]:
    """The pods that mount a claim, but for the one named `own`."""
    return [pod for pod in pods if claim in pod.claims and pod.name != own and pod.holds_quota]


def why_in_use(disk: str, claim: str, pods: Iterable[Pod], *, own: str) -> str:
    """A sentence if another server than the pod `own` holds a scratch disk and goes on, else ""."""
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
