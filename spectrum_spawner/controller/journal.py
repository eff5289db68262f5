"""What becomes of Teams, as audit records: made, changed, deleted, mended, made not ready.

And of their claims: other sizes, and the end of one; of their buckets: other keys, and the end.

A Team's `status.observedGeneration` says what has been reported, since it is written after the
record. So a restart reports nothing twice, and what changed meanwhile is not lost, except the
values of before. Records of the same event have the same id, should a crash come in between.

Who wrote is what the writer called itself: a field manager is free text, and no sign-in. Hub and
controller are believed to have done only what they do: make a Team, and fill it.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from spectrum_spawner import names, team_templates
from spectrum_spawner.audit import MAX_DETAILS, Record, make_record
from spectrum_spawner.conditions import find_condition
from spectrum_spawner.controller import status
from spectrum_spawner.controller.changes import (
    Change,
    find_changed_grants,
    find_changes,
    find_writer,
    find_writers,
)
from spectrum_spawner.controller.filling import ANNOTATION_FILLED
from spectrum_spawner.controller.growth import Step
from spectrum_spawner.controller.ownership import annotation
from spectrum_spawner.controller.volumes import VolumeClaim
from spectrum_spawner.kube import FIELD_MANAGER, Object
from spectrum_spawner.outbox import Outbox

SERVICE_MANAGER = "spectrum-service"
_NOBODY_KNOWN = "Kubernetes does not say by whom."


@dataclass(frozen=True)
class _Seen:
    """A Team as it was reported last."""

    uid: str
    generation: int
    spec: Mapping[str, Any]
    writers: Mapping[str, str]
    is_filled: bool


class Journal:
    """Compares each Team with how it was seen last, and writes down what is new."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._seen: dict[str, _Seen] = {}

    def on_team(self, team: Object) -> None:
        """Report that a Team was made or changed, if that has not been reported."""
        metadata = team["metadata"]
        before = self._seen.get(metadata["name"])
        if before is not None and before.uid != metadata["uid"]:
            self.on_deletion(metadata["name"], before.uid)
            before = None
        spec, writers = team.get("spec") or {}, find_writers(team)
        is_filled = bool(annotation(team, ANNOTATION_FILLED))
        now = _Seen(metadata["uid"], metadata["generation"], spec, writers, is_filled)
        self._seen[metadata["name"]] = now
        observed = (team.get("status") or {}).get("observedGeneration", 0)
        if now.generation > max(observed, before.generation if before else 0):
            self._outbox.append(_make_change_record(team, before, now, is_new=not observed))

    def on_absence(self, team: str) -> None:
        """Report that a Team is gone that was there."""
        before = self._seen.pop(team, None)
        if before is not None:
            self.on_deletion(team, before.uid)

    def on_deletion(self, team: str, uid: str) -> None:
        """Report that the Team with that uid is gone; a second report is the same record."""
        sentence = f"Team {team} was deleted; its data are kept. {_NOBODY_KNOWN}"
        self._append(team, f"{uid}-deleted", sentence, actor="manager:unknown")

    def on_mended(self, team: str, mended: Iterable[str], *, first: bool) -> None:
        """Report objects, such as `ResourceQuota spectrum`, that were put back.

        At the `first` look nobody knows whether others altered them or an upgrade wants another.
        """
        objects = list(mended)
        when = "it was found otherwise at the start" if first else "it was altered or deleted"
        sentence = f"Put back in team {team} after {when}: {', '.join(objects)}."
        self._append(team, "", sentence, details={"mended": objects})

    def on_not_ready(self, team: Object, error: status.NotReady) -> None:
        """Report that a Team is not ready, or no longer, unless it was for the same reason."""
        ready = find_condition(team.get("status") or {}, status.READY)
        if ready.get("status") == "False" and ready.get("reason") == error.reason:
            return
        metadata = team["metadata"]
        since = ready.get("lastTransitionTime", "")
        self._append(
            metadata["name"],
            f"{metadata['uid']}-{metadata['generation']}-{error.reason}-{since}",
            f"Team {metadata['name']} is not ready: {error}",
            details={"reason": error.reason},
        )

    def on_grown(self, team: str, steps: Iterable[Step]) -> None:
        """Report claims that ask for another size from now on."""
        changes = {
            step.claim.name: {"from": step.claim.size, "to": step.size, "uid": step.claim.uid}
            for step in steps
        }
        listed = ", ".join(
            f"{claim} from {change['from']} to {change['to']}" for claim, change in changes.items()
        )
        # a view that does not have the change yet may have it made, and reported, once more
        digest = hashlib.sha256(json.dumps(changes, sort_keys=True).encode()).hexdigest()
        sentence = f"Other sizes for claims of team {team}: {listed}."
        self._append(team, f"sizes-{digest}", sentence, details=_cut({"claims": changes}))

    def on_space_purge(self, namespace: Object, *, manager: str | None) -> None:
        """Report that a whole namespace is about to be deleted because its annotation asks."""
        name, team = namespace["metadata"]["name"], annotation(namespace, names.ANNOTATION_TEAM)
        self._append(
            team,
            f"{namespace['metadata']['uid']}-purged",
            f"Namespace {name} of team {team} is deleted for good with all the data in it, as its "
            f"annotation {names.ANNOTATION_PURGE} asks.",
            actor=f"manager:{manager or 'unknown'}",
        )

    def on_refused_space_purge(self, namespace: Object, why: str, *, manager: str | None) -> None:
        """Report that a namespace stays although its annotation asks for its end."""
        name, team = namespace["metadata"]["name"], annotation(namespace, names.ANNOTATION_TEAM)
        digest = hashlib.sha256(why.encode()).hexdigest()[:20]
        self._append(
            team,
            f"{namespace['metadata']['uid']}-unpurged-{digest}",
            f"Namespace {name} of team {team} stays, and what is in it: its bucket cannot be "
            f"deleted. {why}",
            actor=f"manager:{manager or 'unknown'}",
        )

    def on_purge(self, claim: VolumeClaim, *, manager: str | None) -> None:
        """Report that a claim is about to be deleted because it says so, by whoever made it."""
        what = " ".join(part for part in (claim.component, claim.volume) if part)
        whose = f" of {claim.user}" if claim.user else ""
        sentence = (
            f"Claim {claim.name} of team {claim.team}, the {what}{whose}, is deleted for good, as "
            f"its annotation {names.ANNOTATION_PURGE} asks."
        )
        self._append_purge(claim, "purged", sentence, manager)

    def on_refused_purge(self, claim: VolumeClaim, why: str, *, manager: str | None) -> None:
        """Report that a claim is not deleted although its annotation was meant to ask for it."""
        asked = hashlib.sha256(claim.purge.encode()).hexdigest()[:20]
        sentence = f"Claim {claim.name} of team {claim.team} stays: {why}"
        self._append_purge(claim, f"unpurged-{asked}", sentence, manager)

    def on_bucket(self, team: str, sentence: str, *, id: str, manager: str | None) -> None:
        """Report what is about to be done about a team's bucket because somebody asked for it."""
        self._append(team, id, sentence, actor=f"manager:{manager or 'unknown'}")

    def _append_purge(
        self, claim: VolumeClaim, what: str, sentence: str, manager: str | None
    ) -> None:
        self._append(
            claim.team,
            f"{claim.uid}-{what}",
            sentence,
            actor=f"manager:{manager or 'unknown'}",
            user=claim.user,
            details={"namespace": claim.namespace, "claim": claim.name, "size": claim.size},
        )

    def _append(
        self,
        team: str,
        id: str,
        sentence: str,
        *,
        actor: str = "controller",
        user: str = "",
        details: Mapping[str, Any] | None = None,
    ) -> None:
        record = make_record(
            writer="controller",
            action="team",
            actor=actor,
            id=id,
            team=team,
            user=user,
            reason=sentence,
            details=details or {},
        )
        self._outbox.append(record)


def _make_change_record(team: Object, before: _Seen | None, now: _Seen, *, is_new: bool) -> Record:
    name = team["metadata"]["name"]
    changes = find_changes(before.spec, now.spec) if before else []
    writer = find_writer(before.writers if before else {}, now.writers, changes)
    if is_new and before is None:
        sentence, details = f"Team {name} was made.", {"spec": now.spec}
    elif before is None:
        sentence = f"Team {name} was changed while the controller was away."
        details = {"spec": now.spec}
    else:
        sentence = f"Team {name} was changed: {'; '.join(map(str, changes))}."
        details = {"changes": {c.key: {"from": c.before, "to": c.after} for c in changes}}
    return make_record(
        writer="controller",
        action="team",
        actor=_find_actor(writer, before, now, is_new=is_new),
        id=f"{now.uid}-{now.generation}",
        team=name,
        reason=_explain(team, writer, changes) + sentence,
        details=_cut(details),
    )


def _find_actor(writer: str | None, before: _Seen | None, now: _Seen, *, is_new: bool) -> str:
    if writer == team_templates.FIELD_MANAGER and is_new and before is None:
        return "hub"
    was_filled = before is not None and before.is_filled
    if writer == FIELD_MANAGER and now.is_filled and not was_filled:
        return "controller"
    return f"manager:{writer or 'unknown'}"


def _explain(team: Object, writer: str | None, changes: list[Change]) -> str:
    """What led to a change, where the Team tells: a request, or its template."""
    if writer is None:
        return f"{_NOBODY_KNOWN} "
    if writer == FIELD_MANAGER and (template := annotation(team, ANNOTATION_FILLED)):
        return f"Filled from template {template}. "
    if writer == SERVICE_MANAGER:
        grants = find_changed_grants(changes) if changes else (team["spec"].get("grants") or {})
        return f"Request {', '.join(sorted(grants))}. " if grants else ""
    return ""


def _cut(details: Mapping[str, Any]) -> Mapping[str, Any]:
    """Details that a record holds: of a spec that is too long, only the keys."""
    if len(json.dumps(details)) <= MAX_DETAILS:
        return details
    return {what: sorted(value)[:100] for what, value in details.items()}
