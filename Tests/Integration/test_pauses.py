"""The process is stopped for a while (SIGSTOP, a frozen container). Bytes that arrived meanwhile arrived in time."""

import asyncio
import contextlib
import signal

from harness.raw import frame, linger, upgrade
from harness.waiting import eventually

HEARTBEAT = {"DRAWBRIDGE_UPSTREAM_HEARTBEAT_INTERVAL": "300ms", "DRAWBRIDGE_UPSTREAM_HEARTBEAT_TIMEOUT": "3s"}


@contextlib.asynccontextmanager
async def stopped(gateway):
    """Stops the gateway during the block."""
    gateway.signal(signal.SIGSTOP)
    try:
        await eventually(lambda: state(gateway) == "T", what="the process is stopped")
        yield
    finally:
        gateway.signal(signal.SIGCONT)


def state(gateway):
    with open(f"/proc/{gateway.process.pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


class Pusher:
    """An upstream that does not respond to pings. Only its pushes show that it is alive."""

    def __init__(self):
        self.pushes = 0
        self.is_silent = False

    async def behave(self, reader, writer):
        await upgrade(reader, writer)
        drain = asyncio.create_task(linger(reader))
        try:
            while not drain.done():
                await asyncio.sleep(0.1)
                if not self.is_silent:
                    self.pushes += 1
                    writer.write(frame(1, str(self.pushes).encode()))
        finally:
            drain.cancel()


async def test_pushes_received_during_a_pause_keep_the_connection_and_silence_ends_it(raw_upstream, gateway_for):
    pusher = Pusher()
    gateway = await gateway_for(await raw_upstream(pusher.behave), env=HEARTBEAT)
    client = gateway.client()

    async def pings():
        return (await gateway.metrics())["drawbridge_upstream_pings_total"]

    # A deadline is running, because a ping was sent that never gets a pong.
    await eventually(pings, what="a ping is sent")
    async with stopped(gateway):
        before = pusher.pushes
        await eventually(lambda: pusher.pushes >= before + 40, what="pushes for longer than the heartbeat's deadline")
    after = pusher.pushes
    await eventually(lambda: pusher.pushes >= after + 3, what="some pushes more")
    status = await client.session()
    assert (status["state"], status["generation"]) == ("ready", 1), gateway.output

    pusher.is_silent = True

    async def is_replaced():
        return (await client.session())["generation"] > 1

    await eventually(is_replaced, what="an upstream that is really silent is given up")
    # Pushes must be frequent again. Otherwise, the gateway would give up the new connection as well.
    pusher.is_silent = False


async def test_a_request_received_during_a_pause_is_not_too_late(upstream, gateway_for):
    timeouts = {"DRAWBRIDGE_HTTP_HEAD_TIMEOUT": "3s", "DRAWBRIDGE_HTTP_BODY_TIMEOUT": "3s"}
    gateway = await gateway_for(upstream, env=timeouts)
    half_head = await asyncio.open_connection(*gateway.address())
    half_body = await asyncio.open_connection(*gateway.address())
    half_head[1].write(b"GET /v1/session HTTP/1.1\r\nHo")
    half_body[1].write(b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n01234")

    async def has_read_both():
        # Both connections, and the connection that reads the metrics.
        return (await gateway.metrics())["drawbridge_http_connections"] >= 3

    await eventually(has_read_both, what="the gateway has read the halves")
    async with stopped(gateway):
        half_head[1].write(b"st: localhost\r\n\r\n")
        half_body[1].write(b"56789")
        # When the gateway continues, both deadlines have passed.
        await asyncio.sleep(3.5)
    assert (await asyncio.wait_for(half_head[0].readline(), 30)).startswith(b"HTTP/1.1 200 ")
    assert (await asyncio.wait_for(half_body[0].readline(), 30)).startswith(b"HTTP/1.1 202 ")
    for _, writer in (half_head, half_body):
        writer.close()
