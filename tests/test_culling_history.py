"""How busy GPUs were in the last hour, as it is kept for people to see."""

from datetime import UTC, datetime, timedelta

from spectrum_spawner.activity import GPU, Evidence, Run, Series
from spectrum_spawner.service.culling.history import History
from spectrum_spawner.service.culling.rules import Subject

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
KEY = ("alice", "")


def make_subject(uid: str = "uid", gpus: int = 1) -> Subject:
    return Subject(
        user="alice",
        server="",
        team="ops",
        profile="gpu",
        namespace="hub-ops",
        pod="jupyter-alice",
        run=Run(pod_uid=uid, started=NOW - timedelta(hours=3), gpus=gpus),
    )


def note(history: History, subject: Subject, now: datetime, *values: float | None) -> None:
    series = tuple(
        Series(source=GPU, device=str(device), at=now, value=value)
        for device, value in enumerate(values)
    )
    history.note({KEY: subject}, {KEY: Evidence(series=series)}, now)


def test_each_minute_has_the_highest_of_what_was_measured_in_it() -> None:
    history, subject = History(), make_subject()
    note(history, subject, NOW, 10.0, 90.0)
    note(history, subject, NOW + MINUTE / 2, 20.0)
    note(history, subject, NOW + 2 * MINUTE, 0.0)
    assert history.of(subject, NOW + 2 * MINUTE)[-4:] == (None, 90.0, None, 0.0)


def test_an_hour_is_kept_and_no_more() -> None:
    history, subject = History(), make_subject()
    for minute in range(90):
        note(history, subject, NOW + minute * MINUTE, float(minute))
    assert history.of(subject, NOW + 89 * MINUTE) == tuple(map(float, range(30, 90)))


def test_a_new_run_begins_with_nothing_and_after_an_hour_all_is_forgotten() -> None:
    history, former, new = History(), make_subject("former"), make_subject("new")
    note(history, former, NOW, 50.0)
    note(history, new, NOW + MINUTE, None)
    assert history.of(new, NOW + MINUTE) == (None,) * 60
    note(history, new, NOW + 60 * MINUTE, None)
    assert history.of(former, NOW) == (None,) * 60
