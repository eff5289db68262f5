"""What the audit hears of a server from the hub: asked for, refused, stopped, ended.

Whatever ends a start is told once and before its pod is deleted. All ends of one start have the
same record id: when a hub dies in between and the next one tells it again, or finds the pod
gone, the first word stands.
"""

import json
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from spectrum_spawner.actor import Errand
from spectrum_spawner.audit import MAX_TEXT, format_moment, make_record
from spectrum_spawner.choice import Choice
from spectrum_spawner.end import End
from spectrum_spawner.outbox import Outbox
from spectrum_spawner.owner import Owner

LEFT_OVER = "It was left over when its server was started again."


class Trail:
    """The records of one start of one server; `last` is its end, once that was told here."""

    def __init__(
        self, outbox: Outbox, owner: Owner, *, start_id: str, is_over: bool = False
    ) -> None:
        self.is_over = is_over
        self.last: End | None = None
        self._outbox = outbox
        self._owner = owner
        self._start_id = start_id

    def ask(self, choice: Choice, *, actor: str, errand: Errand | None = None) -> None:
        """Somebody may start this, maybe on an errand: told before anything is made."""
        by = {"by": errand.by} if errand else {}
        self._tell(
            "start",
            actor=actor,
            id=f"{self._start_id}-start",
            profile=choice.profile.name,
            image=choice.image.name,
            namespace=choice.team.namespace or "",
            **by,
        )

    def refuse(self, sentence: str, *, actor: str) -> None:
        """The cluster took none of it, so that there is nothing to stop."""
        self._end("refuse", actor=actor, reason=sentence, told=sentence)

    def stop(self, reason: str, *, actor: str, errand: Errand | None = None) -> None:
        """Somebody wants it stopped, maybe on an errand of somebody else."""
        by, told = errand or (actor, "")
        self._end("stop", actor=actor, reason=reason, by=by, told=told)

    def end(self, cause: str) -> None:
        """It ended without anybody asking for it; `cause` is said as `why_ended` does."""
        self._end("end", actor="hub", reason=_sentence(cause), told=_sentence(cause))

    def replace(self, start_id: str) -> None:
        """The pod of an earlier start of this server goes, to make way for this one."""
        Trail(self._outbox, self._owner, start_id=start_id).end(LEFT_OVER)

    def _end(self, action: str, *, actor: str, reason: str, told: str, by: str = "") -> None:
        if not self.is_over:
            self.is_over = True
            now = format_moment(datetime.now(UTC))
            self.last = End(action=action, at=now, by=by, reason=told)
            self._tell(action, actor=actor, id=f"{self._start_id}-over", reason=reason)

    def _tell(self, action: str, *, actor: str, id: str, reason: str = "", **details: str) -> None:
        self._outbox.append(
            make_record(
                id=id,
                writer="hub",
                action=action,
                actor=actor,
                user=self._owner.user,
                team=self._owner.team,
                server=self._owner.server or "",
                reason=reason,
                details={**details, "start": self._start_id},
            )
        )


def tell_refusal(
    outbox: Outbox,
    *,
    actor: str,
    user: str,
    server: str,
    asked: Mapping[str, Any],
    sentence: str,
    reason: str,
) -> None:
    """A start that was refused before it was one; `reason` is the refusal's short word."""
    team = asked.get("team")
    now = datetime.now(UTC)
    outbox.append(
        make_record(
            id=refusal_id(actor=actor, user=user, server=server, reason=reason, moment=now),
            writer="hub",
            action="refuse",
            actor=actor,
            user=user,
            team=team if isinstance(team, str) else "",
            server=server,
            reason=sentence,
            details={"why": reason, "asked": json.dumps(asked, default=str)[:MAX_TEXT]},
        )
    )


def end_of_refusal(sentence: str) -> End:
    """What the home page tells of a start that was refused just now."""
    return End(action="refuse", at=format_moment(datetime.now(UTC)), reason=sentence)


def refusal_id(*, actor: str, user: str, server: str, reason: str, moment: datetime) -> str:
    """The same for all such refusals of one minute, so that nobody fills the ledger in a loop.

    The sentence is no part of it, since it repeats what was asked for, which may be anything.
    """
    facts = [actor, user, server, reason, f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M}"]
    return f"{uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(facts)).hex}-refuse"


def say_stop(actor: str, *, cancelled: bool) -> str:
    """The reason of a stop that somebody asked for."""
    kind, _, name = actor.partition(":")
    who = {"user": name, "service": f"Service {name}"}.get(kind, "The hub")
    return f"{who} cancelled the start." if cancelled else f"{who} stopped it."


def _sentence(cause: str) -> str:
    return f"{cause[:1].upper()}{cause[1:]}".rstrip(".") + "."
