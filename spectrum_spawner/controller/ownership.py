"""Whose a namespace is. A name proves nothing: only the owner marks do, and they are compared."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from spectrum_spawner import names

# Set on a Team to take over the namespace that an earlier Team of that name left behind.
ANNOTATION_ADOPT = f"{names.API_GROUP}/adopt-orphan"


class Taken(Exception):  # noqa: N818 - says what happened
    """What has the name that we need is not ours, or is withheld from us; it is left alone."""


class Claim(Enum):
    """What a Team may do with the namespace of its name."""

    FREE = "it does not exist"
    OURS = "it is this very Team's"
    TAKEN = "it belongs to somebody else, or nobody says whose it is"
    ORPHANED = "an earlier Team of the same name left it"
    TERMINATING = "it was ours and is being deleted"


def claim_of(
    namespace: Mapping[str, Any] | None, *, hub_namespace: str, team: Mapping[str, Any]
) -> Claim:
    """Compare the owner marks of a namespace (None: absent) with a Team object."""
    if namespace is None:
        return Claim.FREE
    metadata = team["metadata"]
    if not is_of_team(namespace, hub_namespace=hub_namespace, team=metadata["name"]):
        return Claim.TAKEN
    if namespace["metadata"].get("deletionTimestamp"):
        return Claim.TERMINATING
    if annotation(namespace, names.ANNOTATION_TEAM_UID) == metadata["uid"]:
        return Claim.OURS
    # taken over only by name and in so many words: the data in it may be other people's
    if annotation(team, ANNOTATION_ADOPT) == namespace["metadata"]["name"]:
        return Claim.OURS
    return Claim.ORPHANED


def is_of_team(namespace: Mapping[str, Any], *, hub_namespace: str, team: str) -> bool:
    """Whether a namespace was made by this hub for a team of that name, now or earlier."""
    return (
        annotation(namespace, names.ANNOTATION_HUB) == hub_namespace
        and annotation(namespace, names.ANNOTATION_TEAM) == team
        and bool(annotation(namespace, names.ANNOTATION_TEAM_UID))
    )


def is_orphaned(namespace: Mapping[str, Any]) -> bool:
    return bool(annotation(namespace, names.ANNOTATION_ORPHANED_AT))


def is_to_be_purged(namespace: Mapping[str, Any]) -> bool:
    """Whether somebody asked, by its full name, for an orphaned namespace to be deleted."""
    asked = annotation(namespace, names.ANNOTATION_PURGE)
    return is_orphaned(namespace) and asked == namespace["metadata"]["name"]


def explain(claim: Claim, namespace: Mapping[str, Any]) -> str:
    """One sentence or two for the admin who reads the Team's condition."""
    name = namespace["metadata"]["name"]
    if claim is Claim.ORPHANED:
        return (
            f"Namespace {name} and its data were left by an earlier team of this name. To take "
            f"them over, annotate this Team with {ANNOTATION_ADOPT}={name}; to delete them, "
            f"annotate the namespace with {names.ANNOTATION_PURGE}={name} after deleting this Team."
        )
    if claim is Claim.TERMINATING:
        return f"Namespace {name} is being deleted; it is made anew once it is gone."
    owner = annotation(namespace, names.ANNOTATION_TEAM)
    hub = annotation(namespace, names.ANNOTATION_HUB)
    whose = f"belongs to team {owner} of the hub in {hub}" if owner and hub else "is not Spectrum's"
    return (
        f"Namespace {name} exists and {whose}, so nothing in it is touched. "
        "Give the team another name, or remove the namespace."
    )


def annotation(obj: Mapping[str, Any], key: str) -> str:
    """An annotation's value, "" where there is none."""
    return (obj["metadata"].get("annotations") or {}).get(key, "")
