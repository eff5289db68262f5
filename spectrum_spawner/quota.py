"""A team's GPU quota in words: how much of it is in use, by whom and since when. Pure."""

from collections.abc import Iterable
from datetime import UTC, datetime

from spectrum_spawner.choice import Choice
from spectrum_spawner.pods import Pod

MOST_NAMED = 6  # servers that a sentence names
LONGEST_NAME = 40  # characters of a name in a sentence


def why_over_quota(choice: Choice, pods: Iterable[Pod], *, user: str, now: datetime) -> str:
    """A sentence for `user` if the team's quota admits no such server beside `pods`, else "".

    `pods` are the team's, without what a start of this server replaces. While the quota is not
    known nothing is over it.
    """
    profile = choice.profile
    hard = (choice.team.gpus_hard or {}).get(profile.gpu_resource)
    if not profile.gpu or hard is None:
        return ""
    holders = find_holders(pods, profile.gpu_resource)
    used = sum(pod.gpus[profile.gpu_resource] for pod in holders)
    if used + profile.gpu <= hard:
        return ""
    return quota_sentence(choice, holders, used=used, hard=hard, user=user, now=now)


def find_holders(pods: Iterable[Pod], resource: str) -> list[Pod]:
    """The pods that count against a quota of `resource`, the longest-held first."""
    holders = [pod for pod in pods if pod.gpus.get(resource) and pod.holds_quota]
    return sorted(holders, key=lambda pod: (pod.created, pod.name))


def quota_sentence(
    choice: Choice, holders: list[Pod], *, used: int, hard: int, user: str, now: datetime
) -> str:
    """`used` of `hard` in words; what no pod of `holders` accounts for is counted alone."""
    team, profile = choice.team.display_name, choice.profile
    kind = gpus_noun(profile.gpu_resource, hard)
    needs = f"profile {profile.title} needs {profile.gpu}"
    if not hard:
        return f"Team {team} has no quota for {kind}, and {needs}. Choose another, or request more."
    if profile.gpu > hard:
        return f"Team {team} may use {hard} {kind}, and {needs}. Choose another, or request more."
    named = [_say_holder(pod, user, now) for pod in holders[:MOST_NAMED]]
    unnamed = used - sum(pod.gpus[profile.gpu_resource] for pod in holders[:MOST_NAMED])
    if unnamed > 0:
        named.append(f"{unnamed} more" if named else f"{unnamed} by other work")
    by = f" ({', '.join(named)})" if named else ""
    short = f", and {needs}" if used < hard else ""
    return f"Team {team} has {used} of {hard} {kind} in use{by}{short}. Stop one, or request more."


def gpus_noun(resource: str, count: int = 0) -> str:
    """What a sentence calls so many accelerators, whatever their resource is called."""
    vendor, _, kind = resource.partition("/")
    noun = "GPU" if count == 1 else "GPUs"
    if kind != "gpu":
        return f"{kind} {noun}"
    return noun if vendor == "nvidia.com" else f"{vendor} {noun}"


def _say_holder(pod: Pod, user: str, now: datetime) -> str:
    name = "you" if pod.owner.user == user else _cut(pod.owner.user)
    stopping = ", stopping" if pod.deleting else ""
    return f"{name}: {_cut(pod.profile)} since {_say_moment(pod.created, now)}{stopping}"


def _say_moment(moment: str, now: datetime) -> str:
    """An API server's time, e.g. `2026-01-31T09:14:00Z`, as short as it is clear."""
    then = datetime.fromisoformat(moment)
    day = "" if then.date() == now.astimezone(UTC).date() else f"{then.day} {then:%b} "
    return f"{day}{then:%H:%M} UTC"


def _cut(name: str) -> str:
    clean = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)
    return clean if len(clean) <= LONGEST_NAME else f"{clean[: LONGEST_NAME - 1]}…"
