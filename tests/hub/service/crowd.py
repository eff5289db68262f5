"""Many servers at once: as the hub would list them, and as a look at them all would find them."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from spectrum_spawner.activity import (
    CPU,
    GPU,
    Evidence,
    Hold,
    Kernels,
    Process,
    Processes,
    Run,
    Series,
)
from spectrum_spawner.service.context import Context
from spectrum_spawner.service.culling.round import Round
from spectrum_spawner.service.culling.rules import Subject
from spectrum_spawner.service.culling.sweep import sweep
from spectrum_spawner.service.servers import Person, Server

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def put_crowd(
    context: Context, count: int, *, names: Sequence[str] = (), team: str = "flight"
) -> None:
    """Let the service see `count` people with a server each: of those nine, three work, three are
    idle for more and more minutes, one is held and of two nobody knows.

    `names` are those of the first.
    """
    now = context.now()
    people = [*names, *(f"person-{number:04}" for number in range(count - len(names)))]
    subjects = {(user, ""): _make_subject(user, team, now) for user in people}
    evidence = {
        key: _make_evidence(number, subjects[key], now) for number, key in enumerate(subjects)
    }
    policy = context.settings.culling.policy
    found = sweep(subjects.values(), evidence, {}, policy, now=now)
    context.culler.round = Round(
        at=now,
        enabled=True,
        policy=policy,
        subjects=subjects,
        evidence=evidence,
        verdicts=found.verdicts,
        standings=found.standings,
    )
    for minute in range(60, -1, -1):
        context.culler.history.note(
            subjects,
            {
                key: _make_evidence(number + minute // 7, subjects[key], now - minute * MINUTE)
                for number, key in enumerate(subjects)
            },
            now - minute * MINUTE,
        )
    seen = [_make_person(user, team, now) for user in people]

    async def list_active() -> list[Person]:
        return seen

    context.hub.list_active = list_active  # type: ignore[method-assign]
    context.snapshot.forget()


def _make_person(user: str, team: str, now: datetime) -> Person:
    server = Server(user=user, name="", team=team, profile="gpu-1", started=now - 9 * HOUR)
    return Person(name=user, groups=frozenset({team}), servers=(server,))


def _make_subject(user: str, team: str, now: datetime) -> Subject:
    return Subject(
        user=user,
        server="",
        team=team,
        profile="gpu-1",
        namespace=team,
        pod=user,
        run=Run(pod_uid=user, started=now - 9 * HOUR, gpus=1),
    )


def _make_evidence(number: int, subject: Subject, now: datetime) -> Evidence:
    kind, since = number % 9, now - (number % 58) * MINUTE
    works = kind < 3
    told = {"at": now, "watched_since": since}
    hold = Hold(by=subject.user, made_at=now, until=now + 4 * HOUR, reason="training")
    gpu = Series(
        source=GPU,
        device="0",
        at=now,
        value=(37.0 * (number + 1)) % 100 if works else 0.0,
        idle_since={1.0: since},
    )
    return Evidence(
        series=(
            *((gpu,) if kind < 7 else ()),
            Series(source=CPU, device="", at=now, value=0.0, idle_since={0.1: since}),
        ),
        kernels=Kernels(**told),
        processes=Processes(
            **told, found=(Process(name="python train.py", cpu=0.9, works=True),) if works else ()
        ),
        holds=(hold,) if kind == 6 else (),
    )
