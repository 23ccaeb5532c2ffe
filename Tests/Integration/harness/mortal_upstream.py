"""An upstream that dies at random moments, again and again, and remembers exactly what it got before."""

import asyncio
import contextlib

from .raw import accept_key, frame, reset_transport

# How a connection may die: with a reset; with a FIN, after which nothing more is answered; by not reading any more, as
# behind a firewall that drops; or by reading without a word.
WAYS = ("reset", "end", "hang", "mute")
_WEIGHTS = (9, 6, 3, 2)

_TEXT, _BINARY, _CLOSE, _PING = 1, 2, 8, 9


class MortalUpstream:
    """A WebSocket server made of frames. Each connection lives for a random number of frames or milliseconds.

    A message counts as received once its frame is read whole; a ping is answered when its turn comes. So a pong says
    what RFC 6455 lets it say: all before its ping has been received. After `deaths` deaths the next connection lives.
    """

    def __init__(self, random, deaths, *, push=None):
        self.random = random
        self.deaths = deaths
        self.died = dict.fromkeys(WAYS, 0)
        self.received = []
        self.connections = 0
        self.port = 0
        # Called with each connection that opens; it may send.
        self.push = push
        self.peers = set()
        self._server = None

    @property
    def url(self):
        return f"ws://127.0.0.1:{self.port}/"

    @property
    def killed(self):
        return sum(self.died.values())

    async def start(self):
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Peer(self), "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self):
        self._server.close()
        for peer in list(self.peers):
            peer.transport.abort()

    def opened(self, peer):
        """Plans the new connection's death. What an earlier one has left open goes now."""
        self.connections += 1
        for other in list(self.peers - {peer}):
            other.transport.abort()
        if self.killed >= self.deaths:
            return
        peer.way = self.random.choices(WAYS, _WEIGHTS)[0]
        # Where only pings come in, counting frames would take ages.
        if not self.push and self.random.random() < 0.5:
            peer.frames_left = self.random.randrange(150)
        else:
            asyncio.get_running_loop().call_later(self.random.uniform(0, 0.1), peer.die)


class _Peer(asyncio.Protocol):
    def __init__(self, upstream):
        self._upstream = upstream
        self._input = bytearray()
        self._is_open = False
        self._is_dead = False
        self.way = None
        self.frames_left = None

    def connection_made(self, transport):
        self.transport = transport
        self._upstream.peers.add(self)

    def connection_lost(self, error):
        # An end that the gateway brought about is none of the deaths that were planned.
        self._is_dead = True
        self._upstream.peers.discard(self)

    def eof_received(self):
        return False

    def send(self, payload):
        if not self._is_dead:
            self.transport.write(frame(_TEXT, payload))

    @property
    def is_alive(self):
        return not self._is_dead

    def data_received(self, data):
        if self._is_dead:
            return
        self._input += data
        if not self._is_open and not self._upgrade():
            return
        while not self._is_dead and (found := take_frame(self._input)):
            if self.frames_left is not None:
                if self.frames_left == 0:
                    self.die()
                    return
                self.frames_left -= 1
            self._obey(*found)

    def _upgrade(self):
        end = self._input.find(b"\r\n\r\n")
        if end < 0:
            return False
        lines = bytes(self._input[:end]).decode("latin-1").split("\r\n")
        key = next(line[18:].strip() for line in lines if line.lower().startswith("sec-websocket-key:"))
        del self._input[: end + 4]
        self._is_open = True
        self.transport.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + accept_key(key).encode() + b"\r\n\r\n"
        )
        self._upstream.opened(self)
        if self._upstream.push:
            self._upstream.push(self)
        return True

    def _obey(self, opcode, payload):
        if opcode in (_TEXT, _BINARY):
            self._upstream.received.append(payload)
        elif opcode == _PING:
            self.transport.write(frame(10, payload))
        elif opcode == _CLOSE:
            self.transport.write(frame(_CLOSE, payload[:2]))
            self.transport.close()

    def die(self):
        if self._is_dead or not self._is_open:
            return
        self._is_dead = True
        self._upstream.died[self.way] += 1
        with contextlib.suppress(OSError):
            match self.way:
                case "reset":
                    reset_transport(self.transport)
                case "end":
                    self.transport.write_eof()
                case "hang":
                    self.transport.pause_reading()


def take_frame(data):
    """Takes one whole masked frame off `data`: its opcode and its payload; None while it is not there yet."""
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
