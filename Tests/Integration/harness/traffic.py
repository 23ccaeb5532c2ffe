"""Clients of all kinds that must not notice restarts of gateways."""

import asyncio
import collections
import json

import aiohttp

from .streams import FORMATS

_CLIENTS = 8


class Sequence:
    """The pushes that one client sees. They have consecutive numbers, unless there is a gap."""

    def __init__(self):
        self._last = None
        # The number of pushes that directly followed their predecessor.
        self.followed = 0

    def gap(self):
        self._last = None

    def received(self, number):
        assert self._last in (None, number - 1), (number, "follows", self._last)
        self.followed += self._last is not None
        self._last = number


class Traffic:
    """Clients that post, poll, and keep their connections as long as responses allow, for `count` requests or more.

    Other clients wait for pushes of the upstream, with held requests and with a stream of each format.
    """

    def __init__(self, address, count, upstream):
        self.address = address
        self.count = count
        self.upstream = upstream
        self.pushed = 0
        self._pushing = asyncio.Lock()
        self.sequences = {"held": Sequence(), **{format: Sequence() for format in FORMATS}}
        self.accepted = []
        self.statuses = collections.Counter()
        self.gaps = collections.Counter()
        # Whether all restarts are over. Before that, the requests continue.
        self.is_undisturbed = False

    @property
    def made(self):
        return sum(self.statuses.values())

    async def run(self):
        async with asyncio.TaskGroup() as group:
            streams = [group.create_task(self._stream(format)) for format in FORMATS]
            await asyncio.gather(self._wait(), *(self._client(client) for client in range(_CLIENTS)))
            for stream in streams:
                stream.cancel()

    async def _push(self):
        async with self._pushing:
            if self.upstream.connected:
                self.pushed += 1
                await self.upstream.push(str(self.pushed))

    @staticmethod
    def number(message):
        """The number of a push."""
        return int(message["data"])

    async def _wait(self):
        """Sends requests that are held, and that a drain ends."""
        connection = cursor = None
        sequence = self.sequences["held"]
        while self.made < self.count or not self.is_undisturbed:
            if connection is None:
                connection = await asyncio.open_connection(*self.address)
            query = f"&cursor={cursor}" if cursor else ""
            status, fields, body = await self._request(connection, f"GET /v1/messages?wait=2{query}")
            self.statuses[status] += 1
            cursor = body["cursor"]
            if body["gap"]:
                self._note(body["gap"], sequence)
            for message in body["messages"]:
                sequence.received(self.number(message))
            if fields.get("connection") == "close":
                connection[1].close()
                connection = None
        if connection:
            connection[1].close()

    async def _stream(self, format):
        """Reads streams. Each ends in order, and the next stream continues at its position."""
        media, parser = FORMATS[format]
        sequence, position = self.sequences[format], None
        async with aiohttp.ClientSession("http://{}:{}".format(*self.address)) as http:
            while True:
                headers, query = {"Accept": media}, {}
                if format == "lines":
                    query = {"stream": "1"} | ({"cursor": position} if position else {})
                elif position:
                    headers["Last-Event-ID"] = position
                if not position:
                    sequence.gap()
                async with http.get("/v1/messages", headers=headers, params=query) as response:
                    assert response.status == 200, (response.status, await response.read())
                    self.statuses[200] += 1
                    reading = parser()
                    async for data in response.content.iter_any():
                        for event in reading.feed(data):
                            if event.type == "gap":
                                self._note(event.json, sequence)
                            elif event.type == "message":
                                sequence.received(self.number(event.json))
                    position = reading.last_id or position

    def _note(self, gap, sequence=None):
        if sequence:
            sequence.gap()
        self.gaps[tuple(gap.get("reasons") or [gap["reason"]])] += 1

    async def _client(self, client):
        connection = cursor = None
        while self.made < self.count or not self.is_undisturbed:
            if connection is None:
                connection = await asyncio.open_connection(*self.address)
            number = self.made
            if number % 2:
                text = f"client {client} message {len(self.accepted)}"
                status, fields, _ = await self._request(connection, "POST /v1/messages", text)
                if status == 202:
                    self.accepted.append(text)
            else:
                # Sends short polls from the client's position. An instance that does not know the position reports a
                # gap.
                query = f"&cursor={cursor}" if cursor else ""
                status, fields, body = await self._request(connection, f"GET /v1/messages?wait=0{query}")
                cursor = body["cursor"]
                if body["gap"]:
                    self._note(body["gap"])
            self.statuses[status] += 1
            if number % 10 == 5:
                await self._push()
            if fields.get("connection") == "close" or number % 10 == 9:
                connection[1].close()
                connection = None
        if connection:
            connection[1].close()

    async def _request(self, connection, line, body=""):
        reader, writer = connection
        # Envoy chooses the gateway by this field.
        application = f"Authorization: Bearer application-{self.made}"
        fields = f"Host: localhost\r\n{application}\r\nContent-Length: {len(body)}"
        writer.write(f"{line} HTTP/1.1\r\n{fields}\r\n\r\n{body}".encode())
        head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)).decode()
        first, *lines = head.strip().split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        content = await asyncio.wait_for(reader.readexactly(int(fields["content-length"])), 60)
        status = int(first.split()[1])
        assert status in (200, 202), (line, first, content)
        return status, fields, json.loads(content)
