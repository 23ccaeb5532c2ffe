"""Redis servers and Sentinels."""

import contextlib
import signal

from redis.asyncio import Redis
from redis.exceptions import RedisError

from .program import Program
from .waiting import eventually


class RedisServer(Program):
    """A server that stores nothing, unless `options` say otherwise. `primary`: the server whose replica it is.

    It may be killed and started again. A replica that has become the primary starts as a replica of the old one, as
    one with an old configuration does, until a Sentinel corrects it.
    """

    program = "redis-server"

    def __init__(self, folder, primary=None, *, options=(), environment=None):
        super().__init__(folder)
        # Of its own, since some options store files.
        self._data = folder / f"redis-{self.port}"
        self._data.mkdir()
        self._primary = primary
        self._options = options
        self._environment = environment or {}
        self.client = Redis(host="127.0.0.1", port=self.port)

    def arguments(self):
        arguments = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self._data)]
        arguments += ["--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0"]
        arguments += self._options
        if self._primary:
            arguments += ["--replicaof", "127.0.0.1", str(self._primary.port)]
        return arguments

    def environment(self):
        return self._environment

    async def launch(self):
        """Starts it, and does not wait until it is a replica."""
        await super().start()

    async def start(self):
        await self.launch()
        if self._primary:
            await eventually(self.is_linked, what="the replica has the content of its primary")
        return self

    async def is_linked(self):
        with contextlib.suppress(RedisError):
            return (await self.client.info("replication"))["master_link_status"] == "up"

    async def history(self):
        return (await self.client.info("replication"))["master_replid"]

    def freeze(self):
        self.signal(signal.SIGSTOP)

    def thaw(self):
        self.signal(signal.SIGCONT)

    async def stop(self):
        await self.client.aclose()
        await super().stop()


class Sentinel(Program):
    """One Sentinel of the primary `main`. It notices within half a second that a server does not respond."""

    program = "redis-server"

    def __init__(self, folder, primary, *, quorum=2):
        super().__init__(folder)
        self.client = Redis(host="127.0.0.1", port=self.port)
        self._file = folder / f"sentinel-{self.port}.conf"
        # It writes this file.
        self._file.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {folder}\n"
            f"sentinel monitor main 127.0.0.1 {primary.port} {quorum}\n"
            "sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 2000\n"
        )

    def arguments(self):
        return [self._file, "--sentinel"]

    async def knows(self, replicas, sentinels):
        """Whether it can carry out a failover: it knows so many replicas, and so many other Sentinels."""
        with contextlib.suppress(RedisError):
            state = (await self.client.sentinel_masters())["main"]
            return state["num-slaves"] >= replicas and state["num-other-sentinels"] >= sentinels

    async def primary_port(self):
        """Where it says that the primary is."""
        return (await self.client.sentinel_get_master_addr_by_name("main"))[1]

    async def stop(self):
        await self.client.aclose()
        await super().stop()
