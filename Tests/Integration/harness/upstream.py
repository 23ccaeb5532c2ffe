"""A correct upstream: the Python `websockets` server, which has no code in common with the gateway."""

import asyncio
import contextlib

from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

from .ports import reserve_port
from .waiting import eventually


class Upstream:
    """A WebSocket server that records received messages and sends messages of the test.

    It offers permessage-deflate by default. `stop` and `start` may alternate, and the port stays the same.
    """

    def __init__(
        self, *, certificate=None, echo=False, compression="deflate", host="127.0.0.1", listener=None, **options
    ):
        self.received = []
        self.closes = []
        self.requests = []
        self.host = host
        self.port = 0
        # Makes the listening socket on a given port, if this needs more than a bind.
        self._listener = listener
        self._certificate = certificate
        self._echo = echo
        self._options = {"compression": compression, "max_size": None, "ping_interval": None, **options}
        self._server = None
        self._open = set()

    @property
    def url(self):
        scheme = "wss" if self._certificate else "ws"
        host = f"[{self.host}]" if ":" in self.host else self.host
        # With a certificate, the URL contains a name, which the gateway checks.
        return f"{scheme}://{'localhost' if self._certificate else host}:{self.port}/"

    async def start(self):
        self.port = self.port or reserve_port()
        tls = self._certificate.server_context() if self._certificate else None
        where = {"sock": self._listener(self.port)} if self._listener else {"host": self.host, "port": self.port}
        self._server = await serve(self._converse, **where, ssl=tls, **self._options)
        return self

    async def _converse(self, connection):
        self.requests.append(connection.request)
        self._open.add(connection)
        try:
            async for message in connection:
                self.received.append(message)
                await self._react(connection, message)
        except ConnectionClosed:
            pass
        finally:
            self._open.discard(connection)
            self.closes.append((connection.close_code, connection.close_reason))

    async def _react(self, connection, message):
        if self._echo:
            await connection.send(message)

    @property
    def connected(self):
        return len(self._open)

    async def push(self, *messages):
        """Waits for a first peer, and then sends to every connected peer in order, except to peers that are closing."""
        await eventually(lambda: self._open, what="a client connects to the upstream")
        for message in messages:
            for connection in list(self._open):
                with contextlib.suppress(ConnectionClosed):
                    await connection.send(message)

    async def has_received(self, count, *, within=30.0):
        """Waits until at least `count` messages have arrived, and returns all of them."""
        await eventually(
            lambda: len(self.received) >= count, within=within, what=f"{count} messages reach the upstream"
        )
        return self.received

    def pause_reading(self):
        """Stops reading from all peers until `resume_reading`."""
        for connection in list(self._open):
            connection.transport.pause_reading()

    def resume_reading(self):
        for connection in list(self._open):
            connection.transport.resume_reading()

    async def close_connections(self, code, reason):
        """Closes every connection, but accepts new ones."""
        await asyncio.gather(*(connection.close(code, reason) for connection in list(self._open)))

    def reset_connections(self):
        """Drops every connection like a dying host: without a close frame, and with a reset if data was unread."""
        for connection in list(self._open):
            connection.transport.abort()

    async def kill(self):
        """Ends at once, without a close frame. Afterwards, the port refuses connections."""
        server, self._server = self._server, None
        if server:
            server.close(close_connections=False)
            self.reset_connections()
            await server.wait_closed()

    async def stop(self, code=1001, reason=""):
        """Closes like a server that shuts down in order."""
        server, self._server = self._server, None
        if server:
            await asyncio.gather(*(connection.close(code, reason) for connection in list(self._open)))
            server.close()
            await server.wait_closed()
