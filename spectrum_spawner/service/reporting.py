"""Servers at the API, each by its own token: for what they tell of themselves again and again."""

import math

from spectrum_spawner.service.context import Context
from spectrum_spawner.service.handler import SignedIn
from spectrum_spawner.service.problem import Problem
from spectrum_spawner.service.reporters import Key, Known
from spectrum_spawner.service.rights import find_server_of_token
from spectrum_spawner.service.servers import Server

LISTED = 60.0  # seconds for which the hub's list is good enough for a run that is known


class FromServer(SignedIn):
    """Answers servers that run, each a few times a minute; `server` is the one that asks."""

    server: Server

    async def prepare(self) -> None:
        self.check_size()
        self.server = await self._find_server()
        if wait := self.context.reporters.take_turn(self.server, now=self.context.now()):
            seconds = math.ceil(wait.total_seconds())
            raise Problem(
                f"A server reports a few times a minute at most: wait for {seconds} seconds.",
                status=429,
                retry_after=seconds,
            )

    async def _find_server(self) -> Server:
        """The server whose token it is; raises Problem."""
        token = self.hub_auth.get_token(self, in_cookie=False)
        if not token:
            raise self._refuse(is_server=False)
        reporters, now = self.context.reporters, self.context.now()
        known = reporters.find(token)
        if known and now < known.until:
            server = await self._find_run(known.key, known)
            if server is None or server.started != known.started:
                raise self._refuse(is_server=True)  # each run has a token of its own
            return server
        key = find_server_of_token(await self._identify())
        server = key and await self._find_run(key, known)
        if not server:
            raise self._refuse(is_server=key is not None)
        reporters.remember(token, server, now=now)
        return server

    async def _find_run(self, key: Key, known: Known | None) -> Server | None:
        """The server as the hub lists it; for a run that is known an older list will do."""
        snapshot = self.context.snapshot
        if known is not None:
            await snapshot.refresh(max_age=LISTED)
            server = snapshot.find(*key)
            if server is not None and server.started == known.started:
                return server
        await snapshot.refresh()
        return snapshot.find(*key)

    def _refuse(self, *, is_server: bool) -> Problem:
        if is_server and self.context.snapshot.error:
            return Problem(
                "JupyterHub does not tell now which servers run: tell it again in a minute.",
                status=503,
            )
        return Problem("Only a server that runs reports how it is, by its own token.", status=403)


async def forget_ended(context: Context) -> None:
    """Drop what is known of servers that run no more, as far as the hub tells that."""
    snapshot = context.snapshot
    if not snapshot.error and snapshot.as_of is not None:
        running = {(server.user, server.name) for server in snapshot}
        context.reporters.forget_all_but(running)
        context.documents.forget_all_but(running)
        for key in context.told.keys() - running:
            del context.told[key]
