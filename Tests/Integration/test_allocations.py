"""The number of heap blocks that the gateway allocates, and the memory of a waiting client.

Unlike times, counts do not depend on the speed of the machine. Each limit is the measured count with a little room. A
change that adds one allocation for every message fails here: remove the allocation, or give a reason and raise the
limit.
"""

import asyncio
import gc
import resource

import pytest

from harness.gateway import BINARY
from harness.heap import HeapCounter
from harness.held_polls import hold
from harness.raw import frame, upgrade
from harness.streams import RawStream
from harness.upstream import Upstream
from harness.waiting import eventually

pytestmark = [
    pytest.mark.load,
    pytest.mark.skipif("debug" in BINARY.resolve().parts, reason="the counts are those of the release program"),
]

ROUNDS = 2_000

TOPICS = {"DRAWBRIDGE_UPSTREAM_TOPIC_POINTER": "/topic"}


@pytest.fixture
def heap(tmp_path):
    return HeapCounter(tmp_path)


@pytest.fixture
async def plain_upstream(start):
    """An upstream without permessage-deflate, since zlib would allocate its own memory."""
    return await start(Upstream(compression=None))


@pytest.fixture
async def gateway(gateway_for, plain_upstream, heap):
    return await gateway_for(plain_upstream, "--loops", "1", env=heap.environment)


class Connection:
    """One keep-alive connection that repeats the same request, each time after the response to the previous request."""

    def __init__(self, reader, writer, request):
        self._reader, self._writer, self._request = reader, writer, request

    @classmethod
    async def open(cls, gateway, head, body=b""):
        reader, writer = await asyncio.open_connection(*gateway.address())
        return cls(reader, writer, f"{head}\r\nHost: localhost\r\n".encode() + body)

    async def repeat(self, count, status):
        for _ in range(count):
            self._writer.write(self._request)
            head = await self._reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 %d " % status), head
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            await self._reader.readexactly(length)

    def close(self):
        self._writer.transport.abort()


async def per_request(heap, connection, status):
    # Warm-up: buffers grow to their size, types are looked up, and caches of the code fill.
    await connection.repeat(200, status)
    before = heap.read()
    await connection.repeat(ROUNDS, status)
    return (heap.read() - before).allocations / ROUNDS


async def test_a_post_allocates_its_message_and_little_else(gateway, heap, plain_upstream, measured):
    body = b"Content-Type: text/plain\r\nContent-Length: 100\r\n\r\n" + b"x" * 100
    connection = await Connection.open(gateway, "POST /v1/messages HTTP/1.1", body)
    count = await per_request(heap, connection, 202)
    connection.close()
    await plain_upstream.has_received(ROUNDS + 200)
    measured(f"{count:.2f} allocations a POST")
    # One block for the message, and one for the output buffer to the upstream, which is freed while its connection
    # waits.
    assert count <= 2.5


async def test_a_batch_allocates_little_for_each_message(gateway, heap, plain_upstream, measured):
    lines = (b"x" * 100 + b"\n") * 100
    head = b"Content-Type: application/x-ndjson\r\nContent-Length: %d\r\n\r\n" % len(lines)
    connection = await Connection.open(gateway, "POST /v1/messages HTTP/1.1", head + lines)
    # The queue has room for only ten batches, so the test waits until the upstream has received a batch before it posts
    # the next batch.
    for rounds in range(1, 11):
        await connection.repeat(1, 202)
        await plain_upstream.has_received(100 * rounds)
    before = heap.read()
    for rounds in range(11, 51):
        await connection.repeat(1, 202)
        await plain_upstream.has_received(100 * rounds)
    count = (heap.read() - before).allocations / 4_000
    connection.close()
    measured(f"{count:.2f} allocations a message of a batch")
    # The 100 lines of a batch need three buffers, the body, the array of lines, and the output to the upstream.
    assert count <= 0.25


async def test_a_short_poll_allocates_nothing(gateway, heap, plain_upstream, measured):
    client = gateway.client()
    cursor = await client.here()
    await plain_upstream.push("x" * 100)
    await client.collect(1, cursor)
    connection = await Connection.open(gateway, f"GET /v1/messages?cursor={cursor}&wait=0 HTTP/1.1", b"\r\n")
    count = await per_request(heap, connection, 200)
    connection.close()
    measured(f"{count:.2f} allocations a short poll")
    assert count <= 0.1


async def test_a_line_of_the_access_log_allocates_nothing(gateway_for, plain_upstream, heap, measured):
    env = {**heap.environment, "DRAWBRIDGE_LOG_ACCESS": "all"}
    gateway = await gateway_for(plain_upstream, "--loops", "1", env=env)
    fields = b"X-Request-Id: 7b1d0c52-9e5c-4f0e-8a51-1f2d3c4b5a69\r\n\r\n"
    connection = await Connection.open(gateway, "GET /v1/messages?wait=0 HTTP/1.1", fields)
    count = await per_request(heap, connection, 200)
    connection.close()
    measured(f"{count:.2f} allocations a short poll with a line")
    # A line needs no block of its own. The log's thread takes a buffer, here for each line.
    assert count <= 2.2


async def test_a_push_is_allocated_once(gateway_for, raw_upstream, heap, measured):
    bursts = asyncio.Queue()

    async def behave(reader, writer):
        await upgrade(reader, writer)
        while True:
            # All frames are in one write. If pushes came one by one, the gateway would read them separately, with a
            # buffer for each.
            writer.write(frame(1, b"x" * 100) * await bursts.get())
            await writer.drain()

    gateway = await gateway_for(await raw_upstream(behave), "--loops", "1", env=heap.environment)
    client = gateway.client()
    cursor = await client.here()
    bursts.put_nowait(ROUNDS)
    cursor = (await client.collect(ROUNDS, cursor, limit=1000))[1]
    before = heap.read()
    bursts.put_nowait(ROUNDS)
    await client.collect(ROUNDS, cursor, limit=1000)
    count = (heap.read() - before).allocations / ROUNDS
    measured(f"{count:.2f} allocations a push that is received, kept and read")
    # The rendered push, and a few blocks for reading the socket and for the polls.
    assert count <= 1.2


async def test_delivering_one_push_to_many_polls_allocates_for_few_of_them(gateway, heap, plain_upstream, measured):
    cursor = await gateway.client().here()
    polls = await hold(gateway.address(), 1_000, f"/v1/messages?cursor={cursor}&wait=50")
    try:
        await eventually(lambda: held(gateway, 1_000), what="1,000 polls are held")
        before = heap.read()
        await plain_upstream.push("to everybody")
        await asyncio.gather(*(poll.response for poll in polls))
        count = (heap.read() - before).allocations / 1_000
        measured(f"{count:.3f} allocations a delivery to held polls")
        assert count <= 0.1
    finally:
        for poll in polls:
            poll.transport.abort()


async def test_a_push_that_one_of_many_filters_matches_allocates_for_few_of_them(
    gateway_for, plain_upstream, heap, measured
):
    gateway = await gateway_for(plain_upstream, "--loops", "1", env={**heap.environment, **TOPICS})
    cursor = await gateway.client().here()
    polls = await hold(
        gateway.address(), 1_000, lambda index: f"/v1/messages?cursor={cursor}&wait=50&topic=topic-{index}"
    )
    try:
        await eventually(lambda: held(gateway, 1_000), what="1,000 polls are held")
        before = heap.read()
        for index in range(0, 1_000, 50):
            await plain_upstream.push(f'{{"topic":"topic-{index}"}}')
            await polls[index].response
        count = (heap.read() - before).allocations / 20
        measured(f"{count:.1f} allocations a push that matches one of 1,000 filters")
        # Blocks for the push and its response, and no blocks for polls with other topics.
        assert count <= 20
    finally:
        for poll in polls:
            poll.transport.abort()


@pytest.mark.timeout(240)
async def test_a_held_poll_has_no_task(gateway, heap, measured):
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    cursor = await gateway.client().here()
    path = f"/v1/messages?cursor={cursor}&wait=50"
    count = 4_000
    gc.disable()
    warm = await hold(gateway.address(), 100, path)
    polls = []
    try:
        await eventually(lambda: held(gateway, 100), what="100 polls are held")
        before = heap.read()
        polls = await hold(gateway.address(), count, path)
        await eventually(lambda: held(gateway, 100 + count), within=40, what=f"{count} polls more are held")
        used = heap.read() - before
        measured(f"{used.bytes / count:.0f} bytes in {used.blocks / count:.2f} blocks a held poll")
        # The connection and its channel. A task would add four blocks and 1.2 KiB.
        assert used.blocks / count <= 2.2
        assert used.bytes / count <= 1200
    finally:
        gc.enable()
        for poll in warm + polls:
            poll.transport.abort()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("query", ["", "?topic=orders.*"])
async def test_an_idle_stream_needs_little_more_memory_than_a_held_poll(gateway, heap, measured, query):
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    path, fields, count = f"/v1/messages{query}", "Accept: text/event-stream\r\n", 4_000
    gc.disable()
    warm = await hold(gateway.address(), 100, path, fields=fields)
    streams = []
    try:
        await eventually(lambda: streaming(gateway, 100), what="100 streams are open")
        before = heap.read()
        streams = await hold(gateway.address(), count, path, fields=fields)
        await eventually(lambda: streaming(gateway, 100 + count), within=40, what=f"{count} streams more are open")
        used = heap.read() - before
        measured(f"{used.bytes / count:.0f} bytes in {used.blocks / count:.2f} blocks a stream")
        # About 140 bytes are the connection's entry in the total of connections, which finds the client with the most
        # connections. With a topic, the filter takes 60 more bytes.
        assert used.bytes / count <= 1500
    finally:
        gc.enable()
        for stream in warm + streams:
            stream.transport.abort()


async def test_delivering_one_push_to_many_streams_allocates_for_few_of_them(gateway, heap, plain_upstream, measured):
    streams = await asyncio.gather(*(RawStream.open(gateway.address()) for _ in range(500)))
    try:
        await eventually(lambda: streaming(gateway, 500), what="500 streams are open")
        # Warm-up: buffers grow to their size.
        await plain_upstream.push("to everybody")
        await asyncio.gather(*(stream.has(1) for stream in streams))
        before = heap.read()
        for number in range(2, 6):
            await plain_upstream.push("to everybody again")
            await asyncio.gather(*(stream.has(number) for stream in streams))
        count = (heap.read() - before).allocations / 2_000
        measured(f"{count:.3f} allocations a delivery to streams")
        assert count <= 0.1
    finally:
        for stream in streams:
            stream.close()


async def streaming(gateway, count):
    return (await gateway.metrics())["drawbridge_streams_open"] == count


async def held(gateway, count):
    return (await gateway.metrics())["drawbridge_polls_held"] == count
