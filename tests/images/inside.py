"""What a person does in a running server: a cell of a notebook, a line in a terminal."""

import asyncio
import json
import uuid
from typing import Any

import aiohttp

from tests.images.hub import TOKEN
from tests.images.server import Server

WITHIN = 60.0  # seconds that a cell or a line may take
_MARKS = ("begin-of-it", "end-of-it")


def run_cell(server: Server, code: str, *, path: str = "", kernel: str = "python3") -> str:
    """What the code prints in a new kernel of a notebook at `path`; a failure shows its error."""
    return asyncio.run(_run_cell(server, code, path, kernel))


def run_line(server: Server, line: str) -> str:
    """What the line prints in a new terminal."""
    return asyncio.run(_run_line(server, line))


async def _run_cell(server: Server, code: str, path: str, kernel: str) -> str:
    async with _connect(server) as session, asyncio.timeout(WITHIN):
        wanted = {"path": path, "name": path, "type": "notebook", "kernel": {"name": kernel}}
        begun = (await _post(session, f"{server.prefix}api/sessions", wanted))["kernel"]["id"]
        async with session.ws_connect(f"{server.prefix}api/kernels/{begun}/channels") as channel:
            request = _make_request(code)
            await channel.send_json(request)
            return await _read_output(channel, request["header"]["msg_id"])


async def _read_output(channel: aiohttp.ClientWebSocketResponse, request: str) -> str:
    printed = ""
    while True:
        message = await channel.receive_json()
        if message["parent_header"].get("msg_id") != request:
            continue
        content = message["content"]
        match message["msg_type"]:
            case "stream":
                printed += content["text"]
            case "error":
                raise AssertionError("\n".join(content["traceback"]))
            case "status" if content["execution_state"] == "idle":
                return printed


def _make_request(code: str) -> dict[str, Any]:
    content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
    header = {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "version": "5.3"}
    header |= {"username": "", "session": uuid.uuid4().hex, "date": "2026-01-31T09:14:00Z"}
    parts = {"header": header, "parent_header": {}, "metadata": {}, "content": content}
    return {**parts, "channel": "shell", "buffers": []}


async def _run_line(server: Server, line: str) -> str:
    async with _connect(server) as session, asyncio.timeout(WITHIN):
        name = (await _post(session, f"{server.prefix}api/terminals", {}))["name"]
        async with session.ws_connect(f"{server.prefix}terminals/websocket/{name}") as terminal:
            # the terminal echoes what is typed, where the marks are not in one piece
            begin, end = (f"echo {mark[:4]}''{mark[4:]}" for mark in _MARKS)
            await terminal.send_json(["stdin", f"{begin}; {line}; {end}\r"])
            shown = ""
            while _MARKS[1] not in shown:
                kind, *texts = await terminal.receive_json()
                shown += "".join(texts) if kind == "stdout" else ""
    printed = shown.partition(_MARKS[0])[2].partition(_MARKS[1])[0]
    return printed.replace("\r", "").strip("\n")


def _connect(server: Server) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        f"http://127.0.0.1:{server.port}", headers={"Authorization": f"token {TOKEN}"}
    )


async def _post(session: aiohttp.ClientSession, path: str, body: object) -> Any:
    async with session.post(path, data=json.dumps(body)) as answer:
        text = await answer.text()
        assert answer.status in (200, 201), text
        return json.loads(text)
