"""Real Socket.IO servers: python-socketio in its own environments, and a server with the official JavaScript parser."""

import asyncio
import contextlib
import json
import os

from .gateway import PROJECT
from .ports import reserve_port
from .waiting import eventually

FOLDER = PROJECT / "Tests/Integration/socketio"


class SocketIOServer:
    """A server with version 4 (python-socketio 5) or 3 (python-socketio 4) of Engine.IO.

    A test can kill it and start it again.
    """

    def __init__(self, version=4, **options):
        self.version = version
        self.options = options
        self.port = reserve_port()
        self.seen = []
        self.process = None
        self._reader = None

    @property
    def url(self):
        return f"ws://127.0.0.1:{self.port}"

    @property
    def _command(self):
        python = PROJECT / f".tools/socketio-{5 if self.version == 4 else 4}/bin/python"
        return python, FOLDER / "server.py", str(self.port), json.dumps(self.options)

    async def start(self):
        known = len(self.of("listening"))
        self.process = await asyncio.create_subprocess_exec(
            *self._command,
            stdout=asyncio.subprocess.PIPE,
            stdin=asyncio.subprocess.DEVNULL,
            limit=1 << 24,
            # Finds Debian's packages, even if Node.js is not Debian's.
            env={**os.environ, "NODE_PATH": "/usr/share/nodejs"},
        )
        self._reader = asyncio.create_task(self._read(self.process.stdout))
        await eventually(
            lambda: len(self.of("listening")) > known or self.process.returncode is not None,
            what="the Socket.IO server listens",
        )
        assert self.process.returncode is None, "the Socket.IO server ended at once"
        return self

    async def _read(self, stream):
        async for line in stream:
            with contextlib.suppress(ValueError):
                self.seen.append(json.loads(line))

    def of(self, kind, namespace=None):
        """The server's reports of one kind, without the kind."""
        return [item[1:] for item in self.seen if item[0] == kind and (namespace is None or item[1] == namespace)]

    async def first(self, kind, namespace=None, count=1):
        """Waits for `count` reports, and returns them like `of`. Clients may see the effects earlier."""
        what = f"the server reports '{kind}' {count} times"
        await eventually(lambda: len(self.of(kind, namespace)) >= count, what=what)
        return self.of(kind, namespace)[:count]

    async def kill(self):
        if self.process is None or self.process.returncode is not None:
            return
        self.process.kill()
        await self.process.wait()
        await self._reader

    async def stop(self):
        await self.kill()


class RecoveringServer(SocketIOServer):
    """A server with connection state recovery, in JavaScript (socketio/recovery.js)."""

    @property
    def _command(self):
        return "node", FOLDER / "recovery.js", str(self.port), json.dumps(self.options)


def configuration(server, *, path="", **socketio):
    """The configuration of a session with this server, as JSON, which is also YAML."""
    return {
        "upstream": {
            "kind": "socketio",
            "url": server.url + path,
            "socketio": {"version": server.version, **socketio},
        }
    }


OPEN = "0" + json.dumps(
    {"sid": "s", "upgrades": [], "pingInterval": 60000, "pingTimeout": 60000, "maxPayload": 1000000}
)


class Plays:
    """A server with one script per connection, of which the last serves all further connections.

    The end of a script cuts its connection.
    """

    def __init__(self, *plays, opening=OPEN):
        self.plays = plays
        self.opening = opening
        self.count = 0
        self.connects = []

    async def __call__(self, conversation):
        play = self.plays[min(self.count, len(self.plays) - 1)]
        self.count += 1
        await conversation.say(self.opening)
        await play(self, conversation)
        conversation.connection.transport.abort()

    async def connect(self, conversation):
        message = await conversation.hear()
        self.connects.append(message)
        return message

    async def join(self, conversation, *replies):
        """Responds to successive CONNECT packets, to each with the packets of one reply."""
        for packets in replies:
            await self.connect(conversation)
            await conversation.say(*packets)


async def forever(conversation):
    while True:
        await conversation.hear()


class Reader:
    """Reads all pushes. A gap between them is the word 'gap' in `seen`."""

    def __init__(self, client):
        self.client = client
        self.cursor = "earliest"
        self.seen = []

    async def has(self, *expected):
        async def read():
            response = await self.client.request(
                "GET", "/v1/messages", params={"cursor": self.cursor, "wait": "0", "limit": "1"}
            )
            batch = response.json
            self.cursor = batch["cursor"]
            if batch["gap"]:
                self.seen.append("gap")
            self.seen += [message["topic"] for message in batch["messages"]]
            return len(self.seen) >= len(expected)

        await eventually(read, what=f"the pushes {expected}")
        assert self.seen == list(expected)
