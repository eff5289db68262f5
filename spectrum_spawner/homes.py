"""A person's home and scratch disks in a team: found or made at a start, never deleted.

Whoever has a subject is known by it: their claims are found by the subject's label, so that they
stay theirs under a new name, and another person who takes over the name does not get them.
"""

import shlex
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from spectrum_spawner import kube, names, storage
from spectrum_spawner.holdings import select_own
from spectrum_spawner.kube import Client, KubeError, NotFound, Object, Refused
from spectrum_spawner.owner import Owner
from spectrum_spawner.patience import Patience
from spectrum_spawner.refusals import Refusal, refusal_of
from spectrum_spawner.teams import Team

T = TypeVar("T")


async def ensure_claims(
    client: Client, manifests: Sequence[Object], *, namespace: str, team: Team
) -> list[Object]:
    """The person's claims that the manifests stand for, in their order; made where there is none.

    What is there is used as it is, whatever the quota has left, and whatever has become of its
    class. All manifests have one owner. Raises Refusal, also if a claim of such a name is not the
    person's; nothing is made then that was refused, nor of a class that does not exist.
    """
    path = kube.collection("v1", "persistentvolumeclaims", namespace=namespace)
    try:
        known = await _patiently(partial(_find, client, path, manifests))
    except (Refused, NotFound) as error:
        raise refusal_of(error, team=team.display_name, what="your volumes") from error
    for manifest in manifests:
        if _find_of(known, manifest) is None:
            _check_class(manifest, team)
    claims = []
    for manifest in manifests:
        claim = _find_of(known, manifest)
        if claim is None:
            claim = await _create(
                client, path, manifest, namespace=namespace, team=team.display_name
            )
        _check_kept(claim)
        claims.append(claim)
    return claims


async def _patiently(call: Callable[[], Awaitable[T]]) -> T:
    patience = Patience()
    while True:
        try:
            return await call()
        except KubeError as error:
            await patience.wait(error)


async def _find(client: Client, path: str, manifests: Sequence[Object]) -> list[Object]:
    """The claims of the manifests' owner, the oldest first, by one request."""
    owner = Owner.of(manifests[0])
    claims = (await client.list(path, {"labelSelector": select_own(owner)}))["items"]
    return sorted((c for c in claims if owner.has_claim(Owner.of(c))), key=_age)


def _find_of(known: Sequence[Object], manifest: Object) -> Object | None:
    """What stands for a manifest already, under whatever name it was made."""
    return next((claim for claim in known if _identify(claim) == _identify(manifest)), None)


def _identify(claim: Object) -> tuple[str, str]:
    """Which of its owner's claims it is: kind, and a disk's name."""
    return claim["metadata"]["labels"][names.LABEL_COMPONENT], storage.disk_of(claim)


def _check_class(manifest: Object, team: Team) -> None:
    """Refuse to make what would wait for ever: a claim keeps the class that it was made with."""
    storage_class = manifest["spec"].get("storageClassName", "")
    if storage_class not in team.missing_classes:
        return
    title, disk = storage.title_of(manifest), storage.disk_of(manifest)
    why = (
        f"storage class “{storage_class}” does not exist"
        if storage_class
        else "the cluster has no default storage class"
    )
    value = f"storage.{'scratch' if disk else 'home'}.storageClass"
    meanwhile = "Start your server without a scratch disk, and ask" if disk else "Ask"
    raise Refusal(
        f"{title[0].upper()}{title[1:]} cannot be made: {why}. {meanwhile} a cluster administrator "
        f"to set {value} right, in the release's values or in the Team.",
        reason="class-missing",
        status_code=409,
    )


async def _create(
    client: Client, path: str, manifest: Object, *, namespace: str, team: str
) -> Object:
    try:
        claim, _ = await _patiently(partial(client.create_if_absent, path, manifest))
    except (Refused, NotFound) as error:
        what = f"{storage.title_of(manifest)} ({storage.amount_of(manifest)})"
        raise refusal_of(error, team=team, what=what) from error
    owner = Owner.of(manifest)
    if not owner.has_claim(Owner.of(claim)) or storage.disk_of(claim) != storage.disk_of(manifest):
        raise _refuse_foreign(claim, manifest, namespace=namespace)
    return claim


def _check_kept(claim: Object) -> None:
    if "deletionTimestamp" in claim["metadata"]:
        title = storage.title_of(claim)
        raise Refusal(
            f"{title[0].upper()}{title[1:]} is being deleted: ask a cluster administrator.",
            reason="claim-deleted",
            status_code=409,
        )


def _age(claim: Object) -> tuple[str, str]:
    return claim["metadata"]["creationTimestamp"], claim["metadata"]["name"]


def _refuse_foreign(claim: Object, manifest: Object, *, namespace: str) -> Refusal:
    name, owner, found = claim["metadata"]["name"], Owner.of(manifest), Owner.of(claim)
    sentence = (
        f"A volume named {name} that belongs to somebody else is in the way: "
        "ask a cluster administrator."
    )
    if owner.subject and owner.has_claim(replace(found, subject=owner.subject)):
        kind = "scratch disk" if storage.disk_of(manifest) else "home"
        whose = f"another person named {owner.user}" if found.subject else "nobody in particular"
        sentence = (
            f"The {kind} {name} was made for {whose}. If it is yours, a cluster administrator "
            f"gives it to you by: {give_claim(name, owner, namespace=namespace)}"
        )
    return Refusal(
        sentence,
        reason="foreign-claim",
        status_code=409,
        log_message=f"{namespace}: owner is {found}",
    )


def give_claim(name: str, owner: Owner, *, namespace: str) -> str:
    """The command by which an administrator makes a claim that of a subject."""
    claim = f"--namespace {namespace} --overwrite persistentvolumeclaim {name}"
    subject = shlex.quote(f"{names.ANNOTATION_SUBJECT}={owner.subject}")
    label = f"{names.LABEL_SUBJECT}={names.slug(owner.subject)}"
    return f"kubectl annotate {claim} {subject} && kubectl label {claim} {label}"
