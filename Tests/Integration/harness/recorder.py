"""An upstream that records its connections, and when each message arrives."""

import asyncio
import json
import time
from dataclasses import dataclass, field

from .frames import CLOSE, PING, FramePeer, FrameServer
from .waiting import eventually


@dataclass
class Connection:
    """One connection. All times are values of `time.monotonic()`."""

    number: int
    opened: float
    closed: float | None = None
    #: Whether the gateway has sent a close frame. It has then received every earlier push.
    was_closed_in_order: bool = False
    #: The number of pushes that were sent.
    pushed: int = 0
    #: The times at which a message, a ping or a close frame began to arrive, each with its message.
    writes: list = field(default_factory=list)

    @property
    def received(self):
        return [text for _, text in self.writes if text is not None]


class RecordingUpstream(FrameServer):
    """Pushes JSON with numbers: `c` of the connection, `k` of the push on it, and `n`, which counts all pushes.

    A reader can thus check its pushes: it must get all pushes of a connection, unless there is a gap.
    """

    def __init__(self, respond=lambda text: None):
        super().__init__(_Peer)
        #: The response to a message, or None for no response.
        self.respond = respond
        self.connections = []
        self.pushed = 0
        #: The time of each push.
        self.push_times = []
        self._pushing = None

    @property
    def open_connections(self):
        return [connection for connection in self.connections if connection.closed is None]

    @property
    def connected(self):
        return len(self.open_connections)

    @property
    def received(self):
        return [text for connection in self.connections for text in connection.received]

    def push(self, count=1):
        """Sends pushes to each open connection."""
        for peer in list(self.peers):
            for _ in range(count):
                peer.push()

    async def push_one(self):
        """Sends a push to the open connection, and waits for a connection if there is none. Returns `n`."""
        await eventually(lambda: any(peer.is_open for peer in self.peers), what="a gateway connects to the upstream")
        self.push()
        return self.pushed

    def push_often(self, interval):
        """Pushes to each open connection, until the task is cancelled."""
        self._pushing = asyncio.create_task(self._push_often(interval))

    async def _push_often(self, interval):
        while True:
            self.push()
            await asyncio.sleep(interval)

    def end_pushes(self):
        if self._pushing:
            self._pushing.cancel()
            self._pushing = None

    async def stop(self):
        self.end_pushes()
        await super().stop()

    async def has_received(self, count):
        await eventually(lambda: len(self.received) >= count, what=f"{count} messages reach the upstream")
        return self.received

    async def opens(self, after):
        """Waits for a connection with a larger number than `after`, and returns it."""
        return await eventually(
            lambda: next((each for each in self.connections if each.number > after), None),
            what=f"a connection after number {after}",
        )


class _Peer(FramePeer):
    def opened(self):
        self.record = Connection(len(self.server.connections) + 1, time.monotonic())
        self.server.connections.append(self.record)

    def push(self):
        if not self.is_open or self.record.was_closed_in_order or self.transport.is_closing():
            return
        self.server.pushed += 1
        self.server.push_times.append(time.monotonic())
        self.record.pushed += 1
        number = self.server.pushed
        self.send(
            json.dumps({"c": self.record.number, "k": self.record.pushed, "n": number, "key": number % 20}).encode()
        )

    def obey(self, opcode, payload):
        if opcode in (PING, CLOSE):
            self.record.writes.append((time.monotonic(), None))
        if opcode == CLOSE:
            self.record.was_closed_in_order = True
        super().obey(opcode, payload)

    def received(self, opcode, payload):
        text = payload.decode()
        self.record.writes.append((time.monotonic(), text))
        if (response := self.server.respond(text)) is not None:
            self.send(response.encode())

    def connection_lost(self, error):
        super().connection_lost(error)
        if self.is_open:
            self.record.closed = time.monotonic()
