"""WebSocket servers for tests that control frames: the test decides when a connection is read, responds or is cut."""

import asyncio
import contextlib

from .ports import reserve_port
from .raw import accept_key, frame, reset_transport

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


class FrameServer:
    """Listens on the same port after each start. `peers` are the open connections."""

    def __init__(self, peer):
        self._peer = peer
        self._server = None
        self.port = 0
        self.peers = set()
        #: If true, the server accepts connections but never responds to an opening handshake.
        self.is_mute = False

    @property
    def url(self):
        return f"ws://127.0.0.1:{self.port}/"

    async def start(self):
        self.port = self.port or reserve_port()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: self._peer(self), "127.0.0.1", self.port)
        return self

    async def stop(self):
        """Refuses new connections and resets open connections."""
        server, self._server = self._server, None
        if server:
            server.close()
            for peer in list(self.peers):
                peer.reset()


class FramePeer(asyncio.Protocol):
    """One connection. Subclasses implement `opened` and `received`."""

    def __init__(self, server):
        self.server = server
        self._input = bytearray()
        self.is_open = False
        #: Whether this peer reads frames from its input.
        self.is_reading = True
        #: The path of the request without the first slash.
        self.path = ""

    def opened(self):
        pass

    def received(self, opcode, payload):
        """Called for a text or binary message."""

    def connection_made(self, transport):
        self.transport = transport
        self.server.peers.add(self)

    def connection_lost(self, error):
        self.is_reading = False
        self.server.peers.discard(self)

    def reset(self):
        with contextlib.suppress(OSError):
            reset_transport(self.transport)

    def send(self, payload):
        """Sends a text message if the connection is open."""
        if self.is_open and self.is_reading and not self.transport.is_closing():
            self.transport.write(frame(TEXT, payload))

    def data_received(self, data):
        if not self.is_reading:
            return
        self._input += data
        if not self.is_open and not self._upgrade():
            return
        while self.is_reading and (found := take_frame(self._input)):
            self.obey(*found)

    def _upgrade(self):
        end = self._input.find(b"\r\n\r\n")
        if end < 0 or self.server.is_mute:
            return False
        first, *lines = bytes(self._input[:end]).decode("latin-1").split("\r\n")
        key = next(line[18:].strip() for line in lines if line.lower().startswith("sec-websocket-key:"))
        del self._input[: end + 4]
        self.path = first.split(" ")[1].removeprefix("/")
        self.is_open = True
        self.transport.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + accept_key(key).encode() + b"\r\n\r\n"
        )
        self.opened()
        return True

    def obey(self, opcode, payload):
        if opcode in (TEXT, BINARY):
            self.received(opcode, payload)
        elif opcode == PING:
            self.transport.write(frame(PONG, payload))
        elif opcode == CLOSE:
            self.transport.write(frame(CLOSE, payload[:2]))
            self.transport.close()


def take_frame(data):
    """Removes one whole masked frame from `data`. Returns its opcode and its payload; None while it is incomplete."""
    if len(data) < 6:
        return None
    length = data[1] & 0x7F
    start = 2
    if length >= 126:
        width = 2 if length == 126 else 8
        start += width
        length = int.from_bytes(data[2:start], "big")
    assert data[1] & 0x80, "a client must mask every frame"
    end = start + 4 + length
    if len(data) < end:
        return None
    mask = bytes(data[start : start + 4])
    masked = int.from_bytes(data[start + 4 : end], "big")
    key = int.from_bytes((mask * (length // 4 + 1))[:length], "big")
    opcode = data[0] & 0x0F
    del data[:end]
    return opcode, (masked ^ key).to_bytes(length, "big")
