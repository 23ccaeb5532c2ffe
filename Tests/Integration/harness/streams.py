"""A client of event streams without a library. It can be cut off after any byte, and resumes like EventSource."""

import asyncio
import json
from dataclasses import dataclass, field


@dataclass
class Event:
    """An event that EventSource would dispatch."""

    type: str
    data: str
    id: str

    @property
    def json(self):
        return json.loads(self.data)


@dataclass
class EventParser:
    """A parser as in section 9.2.6 of WHATWG's HTML standard, with LF as the only line break."""

    last_id: str = ""
    retry: int | None = None
    # The number of blocks that have ended, with or without data.
    blocks: int = 0
    _rest: bytes = b""
    _id: str = ""
    _type: str = ""
    _data: list = field(default_factory=list)

    @property
    def is_between_blocks(self):
        return not (self._rest or self._data or self._type) and self._id == self.last_id

    def feed(self, data):
        """Returns the events that have become complete."""
        events = []
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            name, _, value = line.decode().partition(":")
            value = value.removeprefix(" ")
            if not line:
                self.last_id = self._id
                self.blocks += 1
                if self._data:
                    events.append(Event(self._type or "message", "\n".join(self._data), self.last_id))
                self._type, self._data = "", []
            elif name == "id":
                self._id = value
            elif name == "data":
                self._data.append(value)
            elif name == "event":
                self._type = value
            elif name == "retry":
                self.retry = int(value)
            else:
                raise AssertionError(f"a line without a meaning: {line!r}")
        return events


@dataclass
class LineParser:
    """A parser of NDJSON. The position is the id of a message, or the cursor of a heartbeat or a gap."""

    last_id: str = ""
    blocks: int = 0
    _rest: bytes = b""

    def feed(self, data):
        events = []
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            record = json.loads(line)
            kind = record.get("type")
            self.blocks += 1
            self.last_id = record.get("cursor") or record.get("id") or self.last_id
            if kind != "heartbeat":
                kind = kind if kind in ("gap", "session") else "message"
                events.append(Event(kind, line.decode(), self.last_id))
        return events


FORMATS = {"events": ("text/event-stream", EventParser), "lines": ("application/x-ndjson", LineParser)}


class RawStream:
    """One connection with a GET of a stream. `read` returns content as it arrives."""

    def __init__(self, reader, writer, parser):
        self._reader, self.writer = reader, writer
        self.parser = parser
        self.head = b""
        self.events = []

    @classmethod
    async def open(
        cls, address, query="", *, format="events", last_id=None, version="1.1", fields="", path="/v1/messages"
    ):
        media, parser = FORMATS[format]
        if format == "lines":
            query = f"stream=1&{query}"
        reader, writer = await asyncio.open_connection(*address)
        stream = cls(reader, writer, parser())
        if last_id:
            fields += f"Last-Event-ID: {last_id}\r\n"
        target = f"{path}?{query}" if query else path
        writer.write(f"GET {target} HTTP/{version}\r\nHost: localhost\r\nAccept: {media}\r\n{fields}\r\n".encode())
        stream.head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
        assert stream.head.startswith(b"HTTP/1.1 200 "), stream.head
        return stream

    async def read(self, most=65536, *, within=30.0):
        """Reads once, and adds the events that are now complete. Returns the bytes; empty at the end of the stream."""
        data = await asyncio.wait_for(self._reader.read(most), within)
        self.events += self.parser.feed(data)
        return data

    async def read_exactly(self, count):
        """Reads `count` bytes of content, or fewer if the stream ends before."""
        data = b""
        while len(data) < count and (piece := await self.read(count - len(data))):
            data += piece
        return data

    async def until(self, fact):
        """Reads until `fact(self)` is true."""
        while not fact(self):
            assert await self.read(), (self.head, self.events)
        return self

    async def has(self, count):
        """Reads until there are at least `count` events, and returns them."""
        await self.until(lambda stream: len(stream.events) >= count)
        return self.events

    def close(self):
        self.writer.transport.abort()
