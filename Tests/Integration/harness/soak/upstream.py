"""An upstream that pushes numbers, replies to calls, and can be restarted, stalled and hung while it does."""

import asyncio
import contextlib
import json

from ..mortal_upstream import take_frame
from ..raw import accept_key, frame, reset_transport

_TEXT, _BINARY, _CLOSE, _PING, _PONG = 1, 2, 8, 9, 10

#: Pushes with the same key are handled in order by the workers.
KEYS = 32


class SoakUpstream:
    """A WebSocket server made of frames. Each push goes to all open connections, as the hand-over expects it."""

    def __init__(self, posts, calls, sessions):
        self.posts = posts
        self.calls = calls
        self.sessions = sessions
        #: Of the sessions that clients create, by the name that is the path of their connections.
        self.rooms = {}
        self.port = 0
        self.connections = 0
        self.pushed = 0
        self.peers = set()
        #: Accepts connections, and responds to no opening handshake.
        self.is_mute = False
        self._server = None

    @property
    def url(self):
        return f"ws://127.0.0.1:{self.port}/"

    async def start(self):
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Peer(self), "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self):
        """Refuses connections from now on. The open ones are reset."""
        server, self._server = self._server, None
        if server:
            server.close()
            self.reset()

    def reset(self):
        for peer in list(self.peers):
            peer.reset()

    def close(self, code):
        for peer in list(self.peers):
            peer.transport.write(frame(_CLOSE, code.to_bytes(2, "big")))

    def hang(self):
        """The open connections neither read nor write any more, as behind a firewall that drops."""
        for peer in list(self.peers):
            peer.hang()

    def arrived_in(self, room, label):
        if found := self.rooms.get(room):
            found.arrived(label)
        else:
            self.sessions.fault(f"{label} arrived for a session that is closed")

    def push(self):
        self.pushed += 1
        self.send({"n": self.pushed, "key": self.pushed % KEYS, "pad": "." * (self.pushed % 97)})

    def send(self, document, *, to=""):
        """To all connections of a session; those of the configured one have no name."""
        text = json.dumps(document).encode()
        for peer in list(self.peers):
            if peer.room == to:
                peer.send(text)


class _Peer(asyncio.Protocol):
    def __init__(self, upstream):
        self._upstream = upstream
        self._input = bytearray()
        self._is_open = False
        self._is_hung = False
        self.number = 0
        self.room = ""

    def connection_made(self, transport):
        self.transport = transport
        self._upstream.peers.add(self)

    def connection_lost(self, error):
        self._upstream.peers.discard(self)

    def send(self, payload):
        """A text message, if the connection is open."""
        if self._is_open and not self._is_hung and not self.transport.is_closing():
            self.transport.write(frame(_TEXT, payload))

    def reset(self):
        with contextlib.suppress(OSError):
            reset_transport(self.transport)

    def hang(self):
        self._is_hung = True
        self.transport.pause_reading()

    def data_received(self, data):
        self._input += data
        if not self._is_open and not self._upgrade():
            return
        while not self._is_hung and (found := take_frame(self._input)):
            self._obey(*found)

    def _upgrade(self):
        end = self._input.find(b"\r\n\r\n")
        if end < 0 or self._upstream.is_mute:
            return False
        lines = bytes(self._input[:end]).decode("latin-1").split("\r\n")
        key = next(line[18:].strip() for line in lines if line.lower().startswith("sec-websocket-key:"))
        self.room = lines[0].split(" ")[1][1:]
        del self._input[: end + 4]
        self._is_open = True
        self._upstream.connections += 1
        self.number = self._upstream.connections
        self.transport.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + accept_key(key).encode() + b"\r\n\r\n"
        )
        return True

    def _obey(self, opcode, payload):
        if opcode in (_TEXT, _BINARY) and self.room:
            self._upstream.arrived_in(self.room, payload.decode())
        elif opcode == _TEXT and payload.startswith(b"{"):
            self._upstream.calls.arrived(json.loads(payload), self)
        elif opcode in (_TEXT, _BINARY):
            self._upstream.posts.arrived(payload.split(b" ", 1)[0].decode(), self.number)
        elif opcode == _PING:
            self.transport.write(frame(_PONG, payload))
        elif opcode == _CLOSE:
            self.transport.write(frame(_CLOSE, payload[:2]))
            self.transport.close()
