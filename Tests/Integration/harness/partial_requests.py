"""Requests of which the gateway has received only a part, until a test completes them."""

import asyncio

from multidict import CIMultiDict

from .client import Response


class PartialRequest:
    """One request on a connection of its own."""

    @classmethod
    async def begin(cls, address, request, end=None):
        """Sends the bytes of the request up to `end`: all of them, or all but the last with -1."""
        self = cls()
        self._line = request.partition(b"\r\n")[0]
        self._rest = b"" if end is None else request[end:]
        self._reader, self._writer = await asyncio.open_connection(*address)
        self._writer.write(request[:end])
        return self

    async def finish(self, *, within=30.0):
        """Sends the rest, and returns the response."""
        self._writer.write(self._rest)
        try:
            async with asyncio.timeout(within):
                return await self._response()
        except (TimeoutError, EOFError) as error:
            raise AssertionError(f"no response to {self._line}: {error!r}") from None
        finally:
            self._writer.close()

    async def _response(self):
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head[:-4].split("\r\n")
        headers = CIMultiDict()
        for line in lines:
            name, _, value = line.partition(":")
            headers.add(name, value.strip())
        length = 0 if self._line.startswith(b"HEAD ") else int(headers.get("Content-Length", 0))
        return Response(int(first.split()[1]), headers, await self._reader.readexactly(length))


def request(method, target, headers, body=b""):
    """The bytes of a request. Every request has content, so that its last byte can be withheld."""
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body
