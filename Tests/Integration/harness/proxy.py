"""Proxies between the gateway and the upstream. They are small and real, and can misbehave."""

import asyncio
import base64
import contextlib
import socket
import struct

from .raw import RawUpstream, read_head


class Proxy(RawUpstream):
    """A proxy on loopback that records its requests. Subclasses implement the protocol.

    `resolves` replaces the name server of the proxy. The proxy reports any other name as unknown.
    """

    scheme = ""

    def __init__(self, *, username=None, password=None, resolves=None):
        super().__init__(self._converse)
        self.username = username
        self.password = password
        self.resolves = resolves or {}
        self.asked = []
        self.tunnels = 0

    def url(self, username=None, password=None):
        who = f"{username}:{password}@" if username is not None else ""
        return f"{self.scheme}://{who}127.0.0.1:{self.port}"

    async def _connect(self, host, port):
        self.asked.append((host, port))
        return await asyncio.open_connection(self.resolves.get(host, host), port)

    async def _relay(self, near, far):
        """Copies in both directions until both sides have finished."""
        self.tunnels += 1
        try:
            await asyncio.gather(_copy(near[0], far[1]), _copy(far[0], near[1]))
        finally:
            far[1].close()


class HTTPProxy(Proxy):
    """A CONNECT proxy, with Basic credentials if they are given."""

    scheme = "http"

    def __init__(self, **options):
        super().__init__(**options)
        self.heads = []

    async def _converse(self, reader, writer):
        head, fields = await read_head(reader)
        self.heads.append(head.decode())
        method, authority, _ = head.decode().split("\r\n")[0].split(" ")
        assert method == "CONNECT"
        assert fields["host"] == authority
        if self.username is not None:
            wanted = "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()
            if fields.get("proxy-authorization") != wanted:
                writer.write(
                    b'HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm="test"\r\n'
                    b"Content-Length: 12\r\n\r\nwho are you?"
                )
                await writer.drain()
                return
        host, _, port = authority.rpartition(":")
        try:
            far = await self._connect(host.strip("[]"), int(port))
        except OSError as error:
            body = str(error).encode()
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
            return
        # Many proxies respond with HTTP/1.0 and a header field.
        writer.write(b"HTTP/1.0 200 Connection established\r\nProxy-agent: test\r\n\r\n")
        await self._relay((reader, writer), far)


class SOCKSProxy(Proxy):
    """A SOCKS5 proxy (RFC 1928), with a user name and a password (RFC 1929) if they are given."""

    scheme = "socks5h"

    async def _converse(self, reader, writer):
        version, count = await reader.readexactly(2)
        assert version == 5
        methods = await reader.readexactly(count)
        method = 0 if self.username is None else 2
        if method not in methods:
            writer.write(b"\x05\xff")
            await writer.drain()
            return
        writer.write(bytes([5, method]))
        if method == 2 and not await self._identify(reader, writer):
            return
        version, command, _, kind = await reader.readexactly(4)
        assert (version, command) == (5, 1)
        if kind == 3:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        else:
            family, length = (socket.AF_INET, 4) if kind == 1 else (socket.AF_INET6, 16)
            host = socket.inet_ntop(family, await reader.readexactly(length))
        (port,) = struct.unpack("!H", await reader.readexactly(2))
        try:
            far = await self._connect(host, port)
        except OSError:
            # Sends only the beginning, since some proxies send no more after a failure.
            writer.write(b"\x05\x05")
            await writer.drain()
            return
        # Sends the response byte by byte, since the result must not depend on its pieces.
        for byte in b"\x05\x00\x00\x03\x04test\x12\x34":
            writer.write(bytes([byte]))
            await writer.drain()
        await self._relay((reader, writer), far)

    async def _identify(self, reader, writer):
        assert await reader.readexactly(1) == b"\x01"
        username = await reader.readexactly((await reader.readexactly(1))[0])
        password = await reader.readexactly((await reader.readexactly(1))[0])
        is_right = (username.decode(), password.decode()) == (self.username, self.password)
        writer.write(b"\x01\x00" if is_right else b"\x01\x01")
        await writer.drain()
        return is_right


async def _copy(reader, writer):
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
