"""Run inside an image: types letters into a shared notebook as JupyterLab does, says what it typed.

    python typist.py PORT TOKEN NOTEBOOK CELL LETTERS PAUSE

Each letter is appended to the cell, `PAUSE` seconds apart. "." is printed for each that the server
has, in the order of typing; then the connection stays open until the server closes it.
"""

import asyncio
import sys

import aiohttp
from jupyter_ydoc import YNotebook
from pycrdt import YMessageType, create_sync_message, create_update_message, handle_sync_message

PREFIX = "/user/alice/"


async def main(port: str, token: str, path: str, cell: int, letters: str, pause: float) -> None:
    connection = aiohttp.ClientSession(
        f"http://127.0.0.1:{port}", headers={"Authorization": f"token {token}"}
    )
    async with connection as session:
        wanted = {"format": "json", "type": "notebook"}
        address = f"{PREFIX}api/collaboration/session/{path}"
        async with session.put(address, json=wanted) as answer:
            assert answer.status in (200, 201), await answer.text()
            told = await answer.json(content_type=None)
        room = f"json:notebook:{told['fileId']}"
        query = {"sessionId": told["sessionId"]}
        async with session.ws_connect(
            f"{PREFIX}api/collaboration/room/{room}", params=query
        ) as channel:
            notebook = YNotebook()
            there, waiting = asyncio.Event(), []
            notebook.observe(lambda *_: there.set())
            await channel.send_bytes(create_sync_message(notebook.ydoc))
            reading = asyncio.create_task(read(channel, notebook))
            await there.wait()
            notebook.ydoc.observe(lambda event: waiting.append(event.update))
            source = notebook.ycells[cell]["source"]
            for letter in letters:
                waiting.clear()
                source += letter
                for update in waiting:
                    await channel.send_bytes(create_update_message(update))
                sys.stdout.write(".")
                sys.stdout.flush()
                await asyncio.sleep(pause)
            await reading


async def read(channel: aiohttp.ClientWebSocketResponse, notebook: YNotebook) -> None:
    async for message in channel:
        if message.type == aiohttp.WSMsgType.BINARY and message.data[0] == YMessageType.SYNC:
            reply = handle_sync_message(message.data[1:], notebook.ydoc)
            if reply is not None:
                await channel.send_bytes(reply)


if __name__ == "__main__":
    port, token, path, cell, letters, pause = sys.argv[1:]
    asyncio.run(main(port, token, path, int(cell), letters, float(pause)))
