"""Audit records that the service writes. Pure."""

import uuid
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from spectrum_spawner import audit
from spectrum_spawner.audit import Record
from spectrum_spawner.service.culling.rules import Subject
from spectrum_spawner.service.culling.standing import Action, Standing, Step
from spectrum_spawner.service.culling.sweep import Sweep
from spectrum_spawner.service.moments import show, stamp
from spectrum_spawner.service.settings import NAME

SERVICE = f"service:{NAME}"  # how records call the service where it acts by itself

# action of the record and its sentence, by the step that it tells of
_TOLD = {
    Step.WARN: ("warn", "{text} It ends at {end}."),
    Step.WITHDRAW: ("notice", "The end is off. {text}"),
    Step.REPORT: ("notice", "{text}"),
}


def make_record(action: str, actor: str, *, at: datetime, **rest: Any) -> Record:
    """A record of that moment; the `rest` is as `audit.make_record` takes it."""
    record = audit.make_record(writer="service", action=action, actor=actor, **rest)
    return replace(record, at=stamp(at))


def name_of(actor: str) -> str:
    """What people call an actor: whoever uses a server's own token is somebody in that server."""
    kind, _, name = actor.partition(":")
    if kind != "server":
        return name or actor
    return f"somebody in the server of {name.removesuffix('/')}"


def make_record_of(
    subject: Subject,
    action: str,
    actor: str,
    reason: str,
    *,
    at: datetime,
    id: str = "",
    details: Mapping[str, Any] | None = None,
) -> Record:
    """A record about a server that runs."""
    return make_record(
        action,
        actor,
        at=at,
        id=id,
        user=subject.user,
        server=subject.server,
        team=subject.team,
        reason=reason,
        details=details,
    )


def tell(found: Sweep, at: datetime) -> list[Record]:
    """What people are told by the actions of a sweep."""
    told = []
    for subject, action in found.actions:
        if action.step in _TOLD:
            kind, sentence = _TOLD[action.step]
            end = action.ends_at and show(action.ends_at)
            text = sentence.format(text=action.verdict.text, end=end)
            details = _make_details(action)
            told.append(make_record_of(subject, kind, SERVICE, text, at=at, details=details))
    return told


def tell_cull(subject: Subject, standing: Standing, action: Action, at: datetime) -> Record:
    """One record for one end, however often it is tried."""
    event = f"cull/{subject.run.pod_uid}/{action.ends_at}"
    return make_record_of(
        subject,
        "cull",
        SERVICE,
        action.verdict.text,
        at=at,
        id=uuid.uuid5(uuid.NAMESPACE_OID, event).hex,
        details={
            **_make_details(action),
            "warned_at": standing.warned_at and stamp(standing.warned_at),
            "extensions": standing.extensions,
            "pod": f"{subject.namespace}/{subject.pod}",
        },
    )


def _make_details(action: Action) -> dict[str, Any]:
    """What a record says beside its sentence: the rule, and all that the verdict stands on."""
    details = {**action.verdict.as_dict(), "ends_at": action.ends_at and stamp(action.ends_at)}
    del details["text"]
    return details
