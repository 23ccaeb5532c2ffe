"""An upstream that dies at random moments, again and again, and remembers exactly which messages it received before."""

import asyncio
import contextlib

from .frames import FramePeer, FrameServer

# The ways in which a connection may die: with a reset; with a FIN and no further response; by no longer reading, as
# behind a firewall that drops packets; or by reading without ever responding.
WAYS = ("reset", "end", "hang", "mute")
_WEIGHTS = (9, 6, 3, 2)


class MortalUpstream(FrameServer):
    """Each connection lives for a random number of frames or milliseconds.

    A message counts as received when its whole frame was read, and the upstream responds to pings in order. A pong thus
    says, as RFC 6455 allows, that the upstream has received everything before the ping. After `deaths` deaths, the next
    connection stays open.
    """

    def __init__(self, random, deaths, *, push=None):
        super().__init__(_Peer)
        self.random = random
        self.deaths = deaths
        self.died = dict.fromkeys(WAYS, 0)
        self.received = []
        self.connections = 0
        # Called with each new connection, on which it may send.
        self.push = push

    @property
    def killed(self):
        return sum(self.died.values())

    def opened(self, peer):
        """Plans the death of the new connection, and ends earlier connections that are still open."""
        self.connections += 1
        for other in list(self.peers - {peer}):
            other.transport.abort()
        if self.killed >= self.deaths:
            return
        peer.way = self.random.choices(WAYS, _WEIGHTS)[0]
        # With `push`, the gateway sends only pings. Frames are then too rare for a death after a number of frames.
        if not self.push and self.random.random() < 0.5:
            peer.frames_left = self.random.randrange(150)
        else:
            asyncio.get_running_loop().call_later(self.random.uniform(0, 0.1), peer.die)


class _Peer(FramePeer):
    def __init__(self, server):
        super().__init__(server)
        self.way = None
        self.frames_left = None

    @property
    def is_alive(self):
        # If the gateway ended the connection, this is not a planned death.
        return self.is_reading

    def opened(self):
        self.server.opened(self)
        if self.server.push:
            self.server.push(self)

    def obey(self, opcode, payload):
        if self.frames_left is not None:
            if self.frames_left == 0:
                self.die()
                return
            self.frames_left -= 1
        super().obey(opcode, payload)

    def received(self, opcode, payload):
        self.server.received.append(payload)

    def die(self):
        if not self.is_alive or not self.is_open:
            return
        self.is_reading = False
        self.server.died[self.way] += 1
        match self.way:
            case "reset":
                self.reset()
            case "end":
                with contextlib.suppress(OSError):
                    self.transport.write_eof()
            case "hang":
                self.transport.pause_reading()
