"""The numbered pushes of a `RecordingUpstream`, for readers at several gateways."""

import re

from .streams import RawStream
from .waiting import eventually


async def confirmed(client, id):
    """Waits until the message is confirmed. At first the gateway may not know its state."""

    async def is_confirmed():
        response = await client.request("GET", f"{client.root}/deliveries/{id}")
        return response.status == 200 and response.json["state"] == "confirmed"

    await eventually(is_confirmed, what=f"{id} is confirmed")


async def read_to(client, cursor, last):
    """The numbers of the pushes after the cursor up to `last`, and the reasons of gaps between them."""
    seen = []
    while last not in seen:
        batch = await client.poll(cursor=cursor, wait=10)
        if batch.gap:
            seen.append(batch.gap["reason"])
        seen += [message["data"]["n"] for message in batch.messages]
        cursor = batch.cursor
    return seen


class ContinuedStream:
    """A stream that is opened again at its last position whenever it ends.

    A gateway ends its streams when its copy of the session is replaced. This happens when it has read the first copy,
    and when the holder changes.
    """

    def __init__(self, member, cursor, *, query="", format="events"):
        self._member = member
        self._query, self._format = query, format
        self._position = cursor
        self._stream = None
        #: The numbers of pushes, and the reasons of gaps.
        self.log = []

    async def open(self):
        query = f"{self._query}&cursor={self._position}".removeprefix("&")
        self._stream = await RawStream.open(self._member.address, query, format=self._format)
        fields = self._stream.head.decode()
        self._position = re.search(r"^Gateway-Cursor: (\S+)\r$", fields, re.MULTILINE)[1]
        # A gap before the first position is in the header, not among the events.
        if gap := re.search(r"^Gateway-Gap: .*reason=(\w+)", fields, re.MULTILINE):
            self.log.append(gap[1])
        return self

    async def until(self, last):
        """Reads up to the push with this number. Returns the log."""
        while last not in self.log:
            if self._stream is None:
                await self.open()
            count = len(self._stream.events)
            data = await self._stream.read()
            for event in self._stream.events[count:]:
                self.log.append(event.json["reason"] if event.type == "gap" else event.json["data"]["n"])
            self._position = self._stream.parser.last_id or self._position
            if not data:
                self.close()
        return self.log

    def close(self):
        if self._stream:
            self._stream.close()
            self._stream = None
