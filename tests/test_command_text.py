"""What is typed after `spectrum`, and what it prints."""

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from spectrum_spawner.command.program import main
from spectrum_spawner.command.text import make_table, name_server, read_until

ZONE = timezone(timedelta(hours=1))
NOW = datetime(2026, 1, 31, 17, 30, tzinfo=ZONE)
URL = "http://127.0.0.1:9/services/spectrum/"


@pytest.mark.parametrize(
    ("text", "until"),
    [
        ("18:00", datetime(2026, 1, 31, 18, tzinfo=ZONE)),
        ("17:30", datetime(2026, 2, 1, 17, 30, tzinfo=ZONE)),
        ("2026-02-03 08:00", datetime(2026, 2, 3, 8, tzinfo=ZONE)),
        ("2026-02-03T08:00+00:00", datetime(2026, 2, 3, 9, tzinfo=ZONE)),
    ],
)
def test_a_time_is_the_next_one_in_the_zone_of_who_types(text: str, until: datetime) -> None:
    assert read_until(text, NOW) == until


def test_an_unnamed_server_is_named_by_its_owner() -> None:
    assert (name_server("alice"), name_server("alice/"), name_server("alice/gpu")) == (
        "alice/",
        "alice/",
        "alice/gpu",
    )


def test_a_table_shows_what_there_is_and_no_control_characters() -> None:
    rows = [
        {"who": "alice/", "at": "2026-01-31T10:00:00.000000Z", "use": 0.25},
        {"who": "b\x1b[1mb/x", "at": None},
    ]
    assert make_table({"who": "SERVER", "at": "SINCE", "use": "%"}, rows).splitlines() == [
        "SERVER    SINCE             %",
        "alice/    2026-01-31 10:00  0.25",
        "b\N{REPLACEMENT CHARACTER}[1mb/x  -                 -",
    ]


@pytest.mark.parametrize(
    ("words", "token", "sentence"),
    [
        (["gpus"], "secret", "where is the service? Give --url or SPECTRUM_URL"),
        (["gpus", "--url", "gpu.example.org"], "secret", "where is the service?"),
        (["gpus", "--url", URL], "", "a token of JupyterHub is needed in SPECTRUM_TOKEN"),
        (["gpus", "--url", URL], "two\nlines", "a token of JupyterHub is needed"),
        (["gpus", "--url", URL, "--token-file", "/nowhere"], "secret", "--token-file: [Errno 2]"),
        (["cull", "--dry-run", "--url", URL, "--values", "/nowhere"], "secret", "--values: [Errno"),
        (["hold", "alice", "--until", "soon", "--url", URL], "secret", "--until soon: that is no"),
    ],
)
def test_what_cannot_be_meant_is_told(
    words: list[str],
    token: str,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("SPECTRUM_URL", raising=False)
    monkeypatch.setenv("SPECTRUM_TOKEN", token)
    assert main(words) == 2
    assert capsys.readouterr().err.startswith(f"spectrum: {sentence}")


@pytest.mark.parametrize("words", [[], ["cull"], ["hold", "alice"], ["hold"], ["nonsense"]])
def test_what_is_no_command_says_how_it_is_used(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert "usage: spectrum" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["[", "- 1", "a: b\n\tc"])
def test_values_that_are_no_table_are_told(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPECTRUM_TOKEN", "secret")
    (tmp_path / "values.yaml").write_text(text)
    words = ["cull", "--dry-run", "--url", URL, "--values", str(tmp_path / "values.yaml")]
    assert main(words) == 2
    assert "--values: " in capsys.readouterr().err


def test_a_service_that_is_away_is_told_without_the_token(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPECTRUM_TOKEN", "secret")
    assert main(["gpus", "--url", URL]) == 1
    printed = capsys.readouterr()
    assert printed.err.startswith(f"spectrum: {URL} does not answer as it should: ")
    assert "secret" not in printed.err + printed.out
