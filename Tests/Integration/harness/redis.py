"""Redis servers, each in memory alone."""

import contextlib

from redis.asyncio import Redis
from redis.exceptions import RedisError

from .program import Program
from .waiting import eventually


class RedisServer(Program):
    """A server that stores nothing. `primary`: the server whose replica it is."""

    program = "redis-server"

    def __init__(self, folder, primary=None):
        super().__init__(folder)
        self._primary = primary
        self.client = Redis(host="127.0.0.1", port=self.port)

    def arguments(self):
        arguments = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self._folder)]
        arguments += ["--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0"]
        if self._primary:
            arguments += ["--replicaof", "127.0.0.1", str(self._primary.port)]
        return arguments

    async def start(self):
        await super().start()
        if self._primary:
            await eventually(self._is_linked, what="the replica has the content of its primary")

    async def _is_linked(self):
        with contextlib.suppress(RedisError):
            return (await self.client.info("replication"))["master_link_status"] == "up"

    async def history(self):
        return (await self.client.info("replication"))["master_replid"]

    async def stop(self):
        await self.client.aclose()
        await super().stop()
