"""A TCP proxy that cuts the connections of event streams at chosen bytes."""

import asyncio
import collections
import contextlib

from .raw import RawUpstream, read_head, reset

# The time that EventSource waits before it reconnects, and 10 ms in the same number of characters.
_RETRY, _SHORT_RETRY = b"retry: 2000\n", b"retry: 0010\n"

_REFUSAL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Cutter(RawUpstream):
    """Passes the requests of clients to `target`, a host and a port, and the responses back.

    Each entry of `cuts` is used for one stream. `(blocks, count)` ends the connection `count` bytes after the end of
    that many blocks of the response, or before that end if `count` is negative. A block ends with `end`; the default
    fits events. Streams without a cut run to their end. Of the connections that are cut, every second is reset, and the
    others are closed.
    """

    def __init__(self, target, cuts=(), *, end=b"\n\n", retries_soon=False):
        super().__init__(self._relay)
        self.target = target
        self.cuts = collections.deque(cuts)
        #: While false, every connection ends at once.
        self.is_open = True
        #: Number of further streams that get status 503.
        self.refusals = 0
        #: The heads of all requests for streams, and all received responses except refusals.
        self.streams = []
        self.responses = []
        self.cut_count = 0
        self._end = end
        self._retries_soon = retries_soon
        self._writers = set()

    @property
    def address(self):
        return "127.0.0.1", self.port

    def close_connections(self):
        """Ends every connection. New connections end at once until `is_open` is true again."""
        self.is_open = False
        for writer in list(self._writers):
            writer.close()

    async def _relay(self, reader, writer):
        if not self.is_open:
            return
        far_reader, far_writer = await asyncio.open_connection(*self.target)
        self._writers.add(writer)
        stream = _Stream()
        requests = asyncio.create_task(self._pass_requests(reader, writer, far_writer, stream))
        try:
            while data := await far_reader.read(65536):
                if self._retries_soon:
                    data = data.replace(_RETRY, _SHORT_RETRY)
                stream.received += data
                if (position := stream.cut_position(len(data), self._end)) is None:
                    writer.write(data)
                    await writer.drain()
                    continue
                writer.write(data[:position])
                await writer.drain()
                self.cut_count += 1
                if self.cut_count % 2:
                    reset(writer)
                return
        finally:
            self._writers.discard(writer)
            requests.cancel()
            await asyncio.gather(requests, return_exceptions=True)
            far_writer.close()

    async def _pass_requests(self, reader, writer, far_writer, stream):
        """Requests have no body."""
        try:
            while True:
                head, _ = await read_head(reader)
                if b"text/event-stream" in head or b"stream=1" in head:
                    self.streams.append(head.decode())
                    if self.refusals > 0:
                        self.refusals -= 1
                        writer.write(_REFUSAL)
                        break
                    stream.begin(self.cuts.popleft() if self.cuts else None)
                    self.responses.append(stream.received)
                far_writer.write(head)
        except (OSError, EOFError):
            pass
        finally:
            far_writer.close()


class _Stream:
    """The response of one stream, and the cut that will end it."""

    def __init__(self):
        self.begin(None)

    def begin(self, cut):
        self.cut = cut
        self.received = bytearray()

    def cut_position(self, count, end):
        """The position of the cut in the last `count` bytes, or None if it is not in them."""
        if self.cut is None:
            return None
        blocks, offset = self.cut
        at = 0
        for _ in range(blocks):
            found = self.received.find(end, at)
            if found < 0:
                return None
            at = found + len(end)
        at += offset
        # The block may arrive in pieces. All pieces before the last one have been passed on.
        return max(0, count - (len(self.received) - at)) if at <= len(self.received) else None


def cuts_everywhere(blocks=4):
    """Cuts at the ends of the first `blocks` blocks and around them: in the framing, the fields and the data."""
    offsets = (0, 1, 2, 5, 9, 20, 60, 150, -1, -2, -3, -8, -40)
    return [(block, count) for block in range(1, blocks + 1) for count in offsets]


@contextlib.contextmanager
def closed(cutter):
    """Keeps clients disconnected during this block."""
    cutter.close_connections()
    yield
    cutter.is_open = True
