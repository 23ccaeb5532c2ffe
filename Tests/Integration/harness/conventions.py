"""Upstreams with their own conventions: one coroutine controls each connection from its first message on."""

import asyncio

from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

from .ports import reserve_port
from .waiting import eventually


class Conversation:
    """One connection of an upstream. Records the messages in both directions."""

    def __init__(self, connection):
        self.connection = connection
        self.request = connection.request
        self.heard = []

    async def hear(self):
        """Receives the next message."""
        message = await self.connection.recv()
        self.heard.append(message)
        return message

    async def say(self, *messages):
        for message in messages:
            await self.connection.send(message)

    async def close(self, code=1000, reason=""):
        await self.connection.close(code, reason)


class ConventionUpstream:
    """A WebSocket server that runs `converse(conversation)` on each connection, and then closes it."""

    def __init__(self, converse, **options):
        self.conversations = []
        self.port = 0
        self._converse = converse
        self._options = {"ping_interval": None, **options}
        self._server = None
        self.failures = []

    @property
    def url(self):
        return f"ws://127.0.0.1:{self.port}/"

    @property
    def last(self):
        return self.conversations[-1]

    async def start(self):
        self.port = self.port or reserve_port()
        self._server = await serve(self._serve, "127.0.0.1", self.port, **self._options)
        return self

    async def _serve(self, connection):
        conversation = Conversation(connection)
        self.conversations.append(conversation)
        try:
            await self._converse(conversation)
        except ConnectionClosed:
            pass
        except Exception as failure:
            self.failures.append(failure)
            raise

    def reset_connections(self):
        """Breaks every connection without a close frame."""
        for conversation in self.conversations:
            conversation.connection.transport.abort()

    async def has_conversations(self, count, *, within=30.0):
        await eventually(
            lambda: len(self.conversations) >= count, within=within, what=f"{count} connections reach the upstream"
        )

    async def has_heard(self, count, *, within=30.0):
        """Waits until the last connection has received `count` messages, and returns them."""
        await eventually(
            lambda: self.conversations and len(self.last.heard) >= count,
            within=within,
            what=f"{count} messages reach the upstream on its last connection",
        )
        return self.last.heard

    async def stop(self):
        server, self._server = self._server, None
        if server:
            server.close()
            await server.wait_closed()
        assert not self.failures, self.failures


async def listen(conversation):
    """Receives all messages until the end."""
    while True:
        await conversation.hear()


async def forever():
    await asyncio.get_running_loop().create_future()
