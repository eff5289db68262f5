"""The words of the command, and what each of them asks of the service."""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from spectrum_spawner.command.client import Client, ClientError
from spectrum_spawner.command.text import make_table, name_server, read_until

GPUS = {
    "state": "STATE",
    "product": "GPU",
    "gpus": "COUNT",
    "team": "TEAM",
    "who": "SERVER",
    "utilisation": "%",
    "idle_since": "IDLE SINCE",
    "rule": "RULE",
    "ends_at": "ENDS",
}
SERVERS = {
    "team": "TEAM",
    "who": "SERVER",
    "profile": "PROFILE",
    "gpus": "GPUS",
    "started": "SINCE",
    "lastActivity": "LAST ACTIVITY",
    "stopsAt": "ENDS",
}
TRIALS = {
    "decision": "DECISION",
    "current": "NOW",
    "team": "TEAM",
    "who": "SERVER",
    "rule": "RULE",
    "ends_at": "ENDS",
    "text": "WHY",
}
RECORDS = {
    "at": "WHEN",
    "action": "ACTION",
    "actor": "BY",
    "team": "TEAM",
    "who": "SERVER",
    "reason": "WHY",
}


class WordError(ValueError):
    """What was typed cannot be used; the text says why."""


class NotAllError(Exception):
    """Some of what was asked for was not done; the text is what was and what was not."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 if it is done, 1 if the service refuses, 2 if it cannot be meant."""
    words = make_parser().parse_args(arguments)
    try:
        client = make_client(words, os.environ)
        sys.stdout.write(f"{words.run(client, words)}\n")
    except NotAllError as error:
        sys.stdout.write(f"{error}\n")
        return 1
    except (ClientError, WordError) as error:
        sys.stderr.write(f"spectrum: {error}\n")
        return 1 if isinstance(error, ClientError) else 2
    return 0


def make_client(words: argparse.Namespace, environment: Mapping[str, str]) -> Client:
    """Whom to ask, as whom; raises WordError. A token is no argument, which others can see."""
    url = words.url or environment.get("SPECTRUM_URL", "")
    if not url.startswith(("http://", "https://")):
        raise WordError(
            "where is the service? Give --url or SPECTRUM_URL, such as "
            "https://gpu.example.org/services/spectrum/"
        )
    token = environment.get("SPECTRUM_TOKEN", "")
    try:
        if words.token_file:
            token = words.token_file.read_text()
    except (OSError, ValueError) as error:
        raise WordError(f"--token-file: {error}") from error
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable():
        raise WordError("a token of JupyterHub is needed in SPECTRUM_TOKEN or --token-file")
    return Client(url=url, token=token)


def make_parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--url", default="", help="of the service; unless set, $SPECTRUM_URL")
    common.add_argument(
        "--token-file", type=Path, help="with a token; unless set, $SPECTRUM_TOKEN is one"
    )
    common.add_argument("--json", action="store_true", help="print the API's answer")
    parser = argparse.ArgumentParser(prog="spectrum", description="Spectrum's GPUs and servers.")
    verbs = parser.add_subparsers(required=True, metavar="gpus|servers|cull|release|hold|audit")

    gpus = verbs.add_parser("gpus", parents=[common], help="who holds which GPU, and what comes")
    for name in ("team", "product", "state", "text"):
        gpus.add_argument(f"--{name}", default="", help="only of that")
    gpus.set_defaults(run=_gpus)

    servers = verbs.add_parser("servers", parents=[common], help="all servers that run")
    servers.add_argument("--team", default="", help="only of that")
    servers.set_defaults(run=_servers)

    cull = verbs.add_parser("cull", parents=[common], help="what the idle rules would end now")
    cull.add_argument(
        "--dry-run", action="store_true", required=True, help="the culler itself acts alone"
    )
    cull.add_argument(
        "--values", type=Path, help="YAML with other rules: values of the release, or culling alone"
    )
    cull.set_defaults(run=_cull)

    release = verbs.add_parser("release", parents=[common], help="end servers; their files stay")
    release.add_argument("servers", nargs="*", metavar="USER/SERVER")
    release.add_argument("--mine", action="store_true", help="all of your own")
    release.add_argument("--team", default="", help="all of a team that you lead")
    release.add_argument("--reason", default="", help="why, for the audit")
    release.set_defaults(run=_release)

    hold = verbs.add_parser("hold", parents=[common], help="say that a server is needed")
    hold.add_argument("server", metavar="USER/SERVER")
    end = hold.add_mutually_exclusive_group(required=True)
    end.add_argument("--until", metavar="TIME", help="18:00, or 2026-01-31T18:00+01:00")
    end.add_argument("--end", action="store_true", help="end the hold that there is")
    hold.add_argument("--reason", default="", help="why, for those who wait for the GPU")
    hold.set_defaults(run=_hold)

    audit = verbs.add_parser("audit", parents=[common], help="who did what, when and why")
    for name in ("person", "team", "server", "action", "since", "until"):
        audit.add_argument(f"--{name}", default="", help="only of that")
    audit.add_argument("--all", action="store_true", help="every page, not the newest records")
    audit.set_defaults(run=_audit)
    return parser


def _gpus(client: Client, words: argparse.Namespace) -> str:
    chosen = {key: getattr(words, key) for key in ("team", "product", "state", "text")}
    answer = client.get("gpus", chosen)
    if words.json:
        return _print(answer)
    return _tell(make_table(GPUS, map(_name, answer["gpus"])), answer["problems"])


def _servers(client: Client, words: argparse.Namespace) -> str:
    answer = client.get("servers", {"team": words.team})
    return _print(answer) if words.json else make_table(SERVERS, map(_name, answer["servers"]))


def _cull(client: Client, words: argparse.Namespace) -> str:
    body = {} if words.values is None else {"culling": read_culling(words.values)}
    answer = client.ask("POST", "cull/dry-run", body)
    if words.json:
        return _print(answer)
    counts = ", ".join(f"{decision} {count}" for decision, count in answer["counts"].items())
    table = make_table(TRIALS, map(_name, answer["servers"]))
    return _tell(f"By the {answer['policy']} policy: {counts}\n{table}", answer["problems"])


def _release(client: Client, words: argparse.Namespace) -> str:
    body: dict[str, Any] = {"reason": words.reason}
    if words.servers:
        body["servers"] = [name_server(each) for each in words.servers]
    if words.mine:
        body["mine"] = True
    if words.team:
        body["team"] = words.team
    answer = client.ask("POST", "gpus/release", body)
    ended = [f"{each['user']}/{each['server']} ends." for each in answer["released"]]
    failed = [f"{each['user']}/{each['server']}: {each['message']}" for each in answer["failed"]]
    said = _print(answer) if words.json else "\n".join(ended + failed) or "There is nothing to end."
    if failed:
        raise NotAllError(said)
    return said


def _hold(client: Client, words: argparse.Namespace) -> str:
    server = name_server(words.server)
    user, _, name = server.partition("/")
    path = f"servers/{quote(user, safe='')}/{quote(name, safe='')}/hold"
    if words.end:
        client.ask("DELETE", path)
        return _print({}) if words.json else f"{server} is not held any more."
    try:
        until = read_until(words.until, datetime.now().astimezone())
    except ValueError as error:
        raise WordError(f"--until {words.until}: that is no time") from error
    body = {"until": until.isoformat(), "reason": words.reason}
    client.ask("POST", path, body)
    return _print(body) if words.json else f"{server} is held until {until:%Y-%m-%d %H:%M %Z}."


def _audit(client: Client, words: argparse.Namespace) -> str:
    keys = ("person", "team", "server", "action", "since", "until")
    chosen = {key: getattr(words, key) for key in keys}
    answer = client.get("audit", chosen)
    records, before = list(answer["records"]), answer["before"]
    while words.all and before:
        answer = client.get("audit", {**chosen, "before": before})
        records, before = [*records, *answer["records"]], answer["before"]
    if words.json:
        return _print({"records": records, "before": before})
    return make_table(RECORDS, map(_name, records))


def read_culling(path: Path) -> Any:
    """The table `culling` of a file of values, or the whole of one that has no such; raises
    WordError."""
    try:
        values = yaml.safe_load(path.read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise WordError(f"--values: {error}") from error
    if not isinstance(values, dict):
        raise WordError(f"--values: {path} is no table")
    return values.get("culling", values)


def _name(row: Mapping[str, Any]) -> dict[str, Any]:
    """The server of a row in one word; the API says its name differently here and there."""
    server = row.get("server", row.get("name"))
    return {**row, "who": f"{row['user']}/{server or ''}" if row.get("user") else ""}


def _tell(text: str, problems: Sequence[str]) -> str:
    return "\n".join([text, *(f"! {sentence}" for sentence in problems)])


def _print(answer: Any) -> str:
    return json.dumps(answer, indent=2, ensure_ascii=False)
