"""A person's home in a team: made at the first start, compared at every one, never deleted.

Whoever has a subject is known by it: their home is found by the subject's label, so that it
stays theirs under a new name, and another person who takes over the name does not get it.
"""

import shlex
from dataclasses import replace

from spectrum_spawner import kube, names
from spectrum_spawner.kube import Client, KubeError, NotFound, Object, Refused
from spectrum_spawner.owner import Owner
from spectrum_spawner.patience import Patience
from spectrum_spawner.refusals import Refusal, refusal_of


async def ensure_home(client: Client, manifest: Object, *, namespace: str) -> str:
    """Name of the claim that is the person's home; made from the manifest if there is none.

    Raises Refusal, also if a claim of that name is not the person's.
    """
    path = kube.collection("v1", "persistentvolumeclaims", namespace=namespace)
    owner = Owner.of(manifest)
    try:
        claim = await _find_or_create(client, path, manifest)
    except (Refused, NotFound) as error:
        raise refusal_of(error, team=owner.team, what="your home volume") from error
    if not owner.has_home(Owner.of(claim)):
        raise _refuse_foreign(claim, owner, namespace=namespace)
    if "deletionTimestamp" in claim["metadata"]:
        raise Refusal(
            "Your home volume is being deleted: ask a cluster administrator.",
            reason="claim-deleted",
            status_code=409,
        )
    return claim["metadata"]["name"]


async def _find_or_create(client: Client, path: str, manifest: Object) -> Object:
    patience = Patience()
    while True:
        try:
            found = await _find_by_subject(client, path, Owner.of(manifest))
            return found or (await client.create_if_absent(path, manifest))[0]
        except KubeError as error:
            await patience.wait(error)


async def _find_by_subject(client: Client, path: str, owner: Owner) -> Object | None:
    """The oldest home of somebody with a subject, under whatever name it was made."""
    if not owner.subject:
        return None
    chosen = {
        names.LABEL_COMPONENT: names.COMPONENT_HOME,
        names.LABEL_SUBJECT: owner.labels[names.LABEL_SUBJECT],
    }
    selector = ",".join(f"{key}={value}" for key, value in chosen.items())
    claims = (await client.list(path, {"labelSelector": selector}))["items"]
    return min((c for c in claims if owner.has_home(Owner.of(c))), key=_age, default=None)


def _age(claim: Object) -> tuple[str, str]:
    return claim["metadata"]["creationTimestamp"], claim["metadata"]["name"]


def _refuse_foreign(claim: Object, owner: Owner, *, namespace: str) -> Refusal:
    name, found = claim["metadata"]["name"], Owner.of(claim)
    sentence = (
        f"A volume named {name} that belongs to somebody else is in the way: "
        "ask a cluster administrator."
    )
    if owner.subject and owner.has_home(replace(found, subject=owner.subject)):
        whose = f"another person named {owner.user}" if found.subject else "nobody in particular"
        sentence = (
            f"The home {name} was made for {whose}. If it is yours, a cluster administrator "
            f"gives it to you by: {give_home(name, owner, namespace=namespace)}"
        )
    return Refusal(
        sentence,
        reason="foreign-claim",
        status_code=409,
        log_message=f"{namespace}: owner is {found}",
    )


def give_home(name: str, owner: Owner, *, namespace: str) -> str:
    """The command by which an administrator makes a claim the home of a subject."""
    claim = f"--namespace {namespace} --overwrite persistentvolumeclaim {name}"
    subject = shlex.quote(f"{names.ANNOTATION_SUBJECT}={owner.subject}")
    label = f"{names.LABEL_SUBJECT}={names.slug(owner.subject)}"
    return f"kubectl annotate {claim} {subject} && kubectl label {claim} {label}"
