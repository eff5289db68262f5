"""The command `spectrum` in a server's terminal: how the server stands, and what to do about it."""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from spectrum_lab.service import Service, ServiceError


class _WordError(ValueError):
    """What was typed cannot be used; the text says why."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 if it is done, 1 if the service refuses, 2 if it cannot be meant."""
    words = _make_parser().parse_args(arguments)
    service = Service.from_environment(os.environ)
    try:
        said = asyncio.run(words.run(service, words))
    except (ServiceError, _WordError) as error:
        sys.stderr.write(f"spectrum: {error}\n")
        return 1 if isinstance(error, ServiceError) else 2
    sys.stdout.write(f"{said}\n")
    return 0


def read_until(text: str, now: datetime) -> datetime:
    """A time of day, the next one, or a day and a time; in the zone of `now`. Raises ValueError."""
    try:
        hour = datetime.strptime(text, "%H:%M").time()
    except ValueError:
        until = datetime.fromisoformat(text)
        return until if until.tzinfo else until.replace(tzinfo=now.tzinfo)
    until = datetime.combine(now.date(), hour, now.tzinfo)
    return until if until > now else until + timedelta(days=1)


def describe(answer: dict[str, Any]) -> str:
    """How a server stands, a line for each thing that there is to know."""
    notices = answer.get("notices") or []
    sentence = answer.get("sentence") or "Nothing is known of this server yet."
    lines = [] if any(notice["text"] == sentence for notice in notices) else [sentence]
    if hold := answer.get("hold"):
        why = f": {hold['reason']}" if hold.get("reason") else ""
        by = hold["by"].removeprefix("user:")
        lines.append(f"Held until {_show(hold['until'])} by {by}{why}.")
    for notice in notices:
        end = f" It ends at {_show(notice['ends_at'])}." if notice.get("ends_at") else ""
        keep = " `spectrum keep` keeps it." if notice.get("keep") else ""
        lines.append(f"{notice['text']}{end}{keep}")
    return "\n".join(lines)


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="spectrum", description="This server, and its end.")
    verbs = parser.add_subparsers(required=True, metavar="status|keep|hold|release")
    status = verbs.add_parser("status", help="how this server stands and what it has coming")
    status.set_defaults(run=_status)
    keep = verbs.add_parser("keep", help="keep this server, idle as it is, for some more time")
    keep.set_defaults(run=_keep)
    hold = verbs.add_parser("hold", help="say that this server is needed until a time")
    end = hold.add_mutually_exclusive_group(required=True)
    end.add_argument("--until", metavar="TIME", help="18:00, or 2026-01-31 18:00")
    end.add_argument("--end", action="store_true", help="end the hold that there is")
    hold.add_argument("--reason", default="", help="why, for those who wait for the GPU")
    hold.set_defaults(run=_hold)
    release = verbs.add_parser("release", help="end this server now; files stay, the GPU is free")
    release.add_argument("--reason", default="", help="why, for the audit")
    release.set_defaults(run=_release)
    return parser


async def _status(service: Service, _: argparse.Namespace) -> str:
    return describe(await service.read_self())


async def _keep(service: Service, _: argparse.Namespace) -> str:
    await service.act("keep", {})
    return describe(await service.read_self())


async def _hold(service: Service, words: argparse.Namespace) -> str:
    if words.end:
        await service.act("hold", {}, method="DELETE")
        return "This server is not held any more."
    try:
        until = read_until(words.until, datetime.now().astimezone())
    except ValueError as error:
        raise _WordError(
            f"--until {words.until}: that is no time; write 18:00, or 2026-01-31 18:00."
        ) from error
    await service.act("hold", {"until": until.isoformat(), "reason": words.reason})
    return f"This server is held until {_show(until.isoformat())}."


async def _release(service: Service, words: argparse.Namespace) -> str:
    await service.act("release", {"reason": words.reason})
    return "This server ends now. Its files stay."


def _show(moment: str) -> str:
    """In this machine's zone, which is named."""
    return datetime.fromisoformat(moment).astimezone().strftime("%Y-%m-%d %H:%M %Z")
