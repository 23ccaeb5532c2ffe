"""Thousands of long polls in one process, with a minimal client."""

import asyncio


class HeldPoll(asyncio.Protocol):
    """One request on one connection. `response` completes with the bytes of the response, or with the error."""

    def __init__(self, request):
        self._request = request
        self._received = bytearray()
        self._length = None
        self.response = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        self.transport = transport
        transport.write(self._request)

    def data_received(self, data):
        self._received += data
        if self._length is None:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self._received[:end]).lower()
            if b"content-length:" not in head:
                return  # A stream has no end.
            length = head.split(b"content-length:")[1].split(b"\r\n")[0]
            self._length = end + 4 + int(length)
        if len(self._received) >= self._length and not self.response.done():
            self.response.set_result(bytes(self._received[: self._length]))

    def connection_lost(self, error):
        if not self.response.done():
            self.response.set_exception(error or ConnectionError("closed without a response"))

    async def again(self, request):
        """Sends another request on the same connection after a response."""
        await self.response
        self.response = asyncio.get_running_loop().create_future()
        self._received = bytearray()
        self._length = None
        self.transport.write(request)

    @property
    def body(self):
        return self.response.result().partition(b"\r\n\r\n")[2]


async def hold(address, count, path, *, at_once=200, fields=""):
    """Opens `count` connections and sends a GET of `path` on each. Opens at most `at_once` connections at a time.

    `path` may be a function of the connection's number, which begins with 0.
    """
    loop = asyncio.get_running_loop()
    gate = asyncio.Semaphore(at_once)

    async def open_one(index):
        target = path(index) if callable(path) else path
        request = f"GET {target} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n".encode()
        async with gate:
            _, protocol = await loop.create_connection(lambda: HeldPoll(request), *address)
            return protocol

    return await asyncio.gather(*(open_one(index) for index in range(count)))
