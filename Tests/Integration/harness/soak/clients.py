"""Clients that close their connections at any moment."""

import asyncio
import contextlib

from ..raw import reset
from .sessions import ABORTED, aborted_request

_REQUESTS = (
    "GET /v1/messages?wait=20 HTTP/1.1\r\nHost: x\r\n\r\n",
    "GET /v1/messages?cursor=earliest&wait=0&limit=1000 HTTP/1.1\r\nHost: x\r\n\r\n" * 4,
    "GET /v1/messages HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n",
    "GET /v1/messages?stream=1&cursor=earliest HTTP/1.1\r\nHost: x\r\nAccept: application/x-ndjson\r\n\r\n",
    "POST /v1/consumers/nobody/receive?wait=20 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
    'PUT /v1/consumers/brief HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\n\r\n{"idle":"1s"}',
    "GET /v1/session HTTP/1.1\r\nHost: x\r\n\r\n" * 20,
    aborted_request(),
    f"GET /v1/sessions/{ABORTED}/messages?wait=20 HTTP/1.1\r\nHost: x\r\n\r\n",
    f"DELETE /v1/sessions/{ABORTED} HTTP/1.1\r\nHost: x\r\n\r\n",
    "NONSENSE\r\n\r\n",
)


class Aborts:
    NAME = "aborted clients"

    def __init__(self):
        self.count = 0

    def __str__(self):
        return f"{self.count} clients cut off"

    async def run(self, context, rate):
        random = context.random("aborts")
        pace = context.pace(rate)
        while not context.is_over:
            await pace.step()
            self.count += 1
            request = random.choice(_REQUESTS).replace("Host: x\r\n", f"Host: x\r\n{context.fields}").encode()
            if random.random() < 0.3:
                request = request[: random.randrange(len(request))]
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(*context.gateway.address())
                writer.write(request)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(100), random.choice((0.001, 0.05)))
                reset(writer) if random.random() < 0.7 else writer.transport.abort()
