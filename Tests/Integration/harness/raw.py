"""Peers that send plain bytes, for data that a correct library refuses to send."""

import asyncio
import base64
import contextlib
import hashlib
import re
import socket
import struct
from dataclasses import dataclass

from .ports import reserve_port


class RawUpstream:
    """A TCP server that handles each connection with `behave(reader, writer)`, and closes it afterwards."""

    def __init__(self, behave):
        self.connections = 0
        self.port = 0
        self._behave = behave
        self._server = None
        self._tasks = set()

    @property
    def url(self):
        return f"ws://127.0.0.1:{self.port}/"

    async def start(self, **options):
        self.port = self.port or reserve_port()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=1 << 20, **options)
        return self

    async def _serve(self, reader, writer):
        self.connections += 1
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            with contextlib.suppress(OSError, EOFError):
                await self._behave(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def kill(self):
        if self._server:
            self._server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._server = None

    stop = kill


async def read_head(reader):
    """The bytes of a request head, and its fields by lower-case name."""
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    return head, {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)}


def accept_key(key):
    """`Sec-WebSocket-Accept` for a `Sec-WebSocket-Key` (RFC 6455 section 4.2.2)."""
    return base64.b64encode(hashlib.sha1(key.encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()).decode()


async def upgrade(
    reader,
    writer,
    *fields,
    accept=None,
    version="HTTP/1.1",
    status="101 Switching Protocols",
    upgrade_field="Upgrade: websocket",
    connection_field="Connection: Upgrade",
    before=b"",
    then=b"",
    dripped=False,
):
    """Responds to the upgrade request. Each part can be replaced by a wrong value, and is omitted if it is empty.

    `before` and `then` are in the same segment as the response. With `dripped`, everything is sent byte by byte.
    """
    _, request = await read_head(reader)
    accept = accept_key(request["sec-websocket-key"]) if accept is None else accept
    accept_field = f"Sec-WebSocket-Accept: {accept}" if accept else ""
    lines = [f"{version} {status}", *filter(None, [upgrade_field, connection_field, accept_field]), *fields]
    response = before + ("\r\n".join(lines) + "\r\n\r\n").encode() + then
    for piece in [bytes([byte]) for byte in response] if dripped else [response]:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0)


async def linger(reader):
    """Reads until the gateway closes the connection, like a peer that has sent its wrong bytes."""
    while await reader.read(65536):
        pass


def says(data):
    """Responds to the request with these bytes, right or wrong."""

    async def behave(reader, writer):
        await read_head(reader)
        writer.write(data)
        await writer.drain()
        await linger(reader)

    return behave


def frame(opcode, payload=b"", *, fin=True, reserved=0, mask=None, length=None):
    """One WebSocket frame, valid or not. `length` replaces the length in its header."""
    announced = len(payload) if length is None else length
    head = bytes([(fin << 7) | (reserved << 4) | opcode])
    masked = 0x80 if mask is not None else 0
    if announced < 126:
        head += bytes([masked | announced])
    elif announced < 1 << 16:
        head += bytes([masked | 126]) + struct.pack("!H", announced)
    else:
        head += bytes([masked | 127]) + struct.pack("!Q", announced)
    if mask is not None:
        payload = mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))
    return head + payload


async def read_frame(reader):
    """One frame of a client, which must be masked (section 5.1). Returns its opcode and its unmasked payload."""
    first, second = await reader.readexactly(2)
    length = second & 0x7F
    if length >= 126:
        length = int.from_bytes(await reader.readexactly(2 if length == 126 else 8), "big")
    assert second & 0x80, "a client must mask every frame"
    mask = await reader.readexactly(4)
    payload = await reader.readexactly(length)
    return first & 0x0F, bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))


def reset(writer):
    """Closes with RST instead of FIN."""
    reset_transport(writer.transport)


def reset_transport(transport):
    linger = struct.pack("ii", 1, 0)
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    transport.abort()


@dataclass
class RawResponse:
    """The bytes of a raw connection until its end or the deadline."""

    data: bytes
    ended: bool

    @property
    def statuses(self):
        """The status codes of the responses, from their status lines. A status line may follow a body directly."""
        return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", self.data)]


async def exchange(address, data, *, within=30.0, end_of_input=False):
    """Sends raw bytes and collects all bytes until the peer closes. `ended` says whether the peer closed in time."""
    reader, writer = await asyncio.open_connection(*address)
    received = bytearray()

    async def collect():
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(65536):
                received.extend(chunk)

    try:
        with contextlib.suppress(ConnectionError):
            writer.write(data)
            if end_of_input:
                writer.write_eof()
        try:
            await asyncio.wait_for(collect(), within)
            return RawResponse(bytes(received), True)
        except TimeoutError:
            return RawResponse(bytes(received), False)
    finally:
        writer.transport.abort()
