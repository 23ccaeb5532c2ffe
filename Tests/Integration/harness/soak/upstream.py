"""An upstream that pushes numbers and replies to calls. A test can restart, stall and hang it."""

import json

from ..frames import CLOSE, TEXT, FramePeer, FrameServer
from ..raw import frame

#: Pushes with the same key are handled in order by the workers.
KEYS = 32


class SoakUpstream(FrameServer):
    """Sends each push to all open connections of its session, as the hand-over expects."""

    def __init__(self, posts, calls, sessions):
        super().__init__(_Peer)
        self.posts = posts
        self.calls = calls
        self.sessions = sessions
        #: The rooms of sessions that clients create, by the path of their connections.
        self.rooms = {}
        self.connections = 0
        self.pushed = 0

    def reset(self):
        for peer in list(self.peers):
            peer.reset()

    def close(self, code):
        for peer in list(self.peers):
            peer.transport.write(frame(CLOSE, code.to_bytes(2, "big")))

    def hang(self):
        """The open connections no longer read or write, as behind a firewall that drops packets."""
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
        """Sends to all connections of a session. An empty name means the configured session."""
        text = json.dumps(document).encode()
        for peer in list(self.peers):
            if peer.room == to:
                peer.send(text)


class _Peer(FramePeer):
    def __init__(self, server):
        super().__init__(server)
        self.number = 0

    @property
    def room(self):
        return self.path

    def opened(self):
        self.server.connections += 1
        self.number = self.server.connections

    def hang(self):
        self.is_reading = False
        self.transport.pause_reading()

    def received(self, opcode, payload):
        if self.room:
            self.server.arrived_in(self.room, payload.decode())
        elif opcode == TEXT and payload.startswith(b"{"):
            self.server.calls.arrived(json.loads(payload), self)
        else:
            self.server.posts.arrived(payload.split(b" ", 1)[0].decode(), self.number)
