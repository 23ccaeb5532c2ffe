"""bridge.py PORT UPSTREAM-URL: a small bridge that a developer might write: aiohttp to clients, websockets upstream.

POST /v1/messages forwards its body. GET /v1/messages?cursor=N&wait=S&limit=L returns the pushes after N, or holds the
request until a push arrives. POST /v1/call forwards a request with an id of its own, and returns the reply. PUT
/v1/consumers/workers begins to divide the pushes among workers, which receive and settle them. The bridge keeps the
last 10,000 pushes and has a limited queue to the upstream. It does not reconnect, confirm, or report gaps.
"""

import asyncio
import collections
import itertools
import json
import sys
import time

import websockets
from aiohttp import web

RETAINED = 10_000


class Pushes:
    """The pushes, numbered from 1. `changed` is a future that the next push completes for all held polls."""

    def __init__(self):
        self.messages = []
        self.first = 0
        self.changed = asyncio.get_running_loop().create_future()

    def append(self, message):
        self.messages.append(message)
        if len(self.messages) > 2 * RETAINED:
            self.first += len(self.messages) - RETAINED
            del self.messages[:-RETAINED]
        changed, self.changed = self.changed, asyncio.get_running_loop().create_future()
        changed.set_result(None)

    def read(self, cursor, limit):
        end = self.first + len(self.messages)
        if cursor < 0 or cursor > end:
            cursor = end
        cursor = max(cursor, self.first)
        start = cursor - self.first
        messages = self.messages[start : start + limit]
        return messages, cursor + len(messages)


class Work:
    """Pushes that are divided among workers. Each push is leased to one worker at a time."""

    VISIBILITY = 30

    def __init__(self):
        self.queue = collections.deque()
        # Leases in the order in which they expire.
        self.leases = {}
        self.numbers = itertools.count(1)

    def receive(self, limit):
        now = time.monotonic()
        while self.leases and (first := next(iter(self.leases.items())))[1][1] <= now:
            self.queue.appendleft(self.leases.pop(first[0])[0])
        messages = []
        while self.queue and len(messages) < limit:
            message, lease = self.queue.popleft(), f"l-{next(self.numbers)}"
            self.leases[lease] = message, now + self.VISIBILITY
            messages.append(f'{{"lease":"{lease}","data":{message}}}')
        return messages

    def acknowledge(self, leases):
        return [{"lease": lease, "status": 200 if self.leases.pop(lease, None) else 409} for lease in leases]


async def main(port, url):
    pushes = Pushes()
    work = None
    queue = asyncio.Queue(1024)
    upstream = await websockets.connect(url, max_size=16 << 20, compression=None)

    async def write():
        while True:
            await upstream.send(await queue.get())

    async def read():
        async for message in upstream:
            if not (calls and reply(message)):
                if work:
                    work.queue.append(message)
                pushes.append(message)

    calls = {}
    numbers = itertools.count(1)

    def reply(message):
        document = json.loads(message)
        future, token = calls.get(document.get("id"), (None, None))
        if future is None or future.done():
            return False
        document["id"] = token
        future.set_result(json.dumps(document))
        return True

    async def call(request):
        document, number = await request.json(), next(numbers)
        calls[number] = asyncio.get_running_loop().create_future(), document["id"]
        document["id"] = number
        try:
            queue.put_nowait(json.dumps(document))
            text = await asyncio.wait_for(calls[number][0], 10)
        except asyncio.QueueFull:
            return web.Response(status=503, text="queue full\n")
        except TimeoutError:
            return web.Response(status=504, text="no reply\n")
        finally:
            del calls[number]
        return web.Response(content_type="application/json", text=text)

    async def post(request):
        try:
            queue.put_nowait(await request.text())
        except asyncio.QueueFull:
            return web.Response(status=503, text="queue full\n")
        return web.Response(status=202, content_type="application/json", text='{"state":"queued"}\n')

    async def poll(request):
        query = request.query
        limit = int(query.get("limit", 100))
        messages, cursor = pushes.read(int(query.get("cursor", -1)), limit)
        wait = int(query.get("wait", 25))
        if not messages and wait > 0:
            await asyncio.wait([pushes.changed], timeout=wait)
            messages, cursor = pushes.read(cursor, limit)
        text = f'{{"messages":[{",".join(messages)}]}}\n'
        return web.Response(text=text, content_type="application/json", headers={"Gateway-Cursor": str(cursor)})

    async def share(request):
        nonlocal work
        work = Work()
        return web.Response(status=201)

    async def receive(request):
        limit, wait = int(request.query.get("limit", 100)), int(request.query.get("wait", 25))
        messages = work.receive(limit)
        if not messages and wait > 0:
            await asyncio.wait([pushes.changed], timeout=wait)
            messages = work.receive(limit)
        return web.Response(text=f'{{"messages":[{",".join(messages)}]}}\n', content_type="application/json")

    async def settle(request):
        return web.json_response({"results": work.acknowledge((await request.json())["ack"])})

    application = web.Application(client_max_size=16 << 20)
    application.router.add_post("/v1/messages", post)
    application.router.add_post("/v1/call", call)
    application.router.add_get("/v1/messages", poll)
    application.router.add_put("/v1/consumers/workers", share)
    application.router.add_post("/v1/consumers/workers/receive", receive)
    application.router.add_post("/v1/consumers/workers/settle", settle)
    # A worker may leave during a receive, which is then cancelled. Otherwise the receive would take a message that
    # nobody handles until its lease expires.
    runner = web.AppRunner(application, access_log=None, keepalive_timeout=75, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, backlog=4096).start()
    await asyncio.gather(write(), read())


asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
