"""Event streams: messages arrive at once, in order and once, wherever a connection is cut; slow readers; the end."""

import asyncio
import contextlib
import itertools
import json
import socket

import pytest

from harness.abuse import deaf
from harness.client import Batch
from harness.streams import RawStream
from harness.waiting import eventually

KIBIBYTE = 1 << 10
TOPIC = """
upstream:
  topic: {pointer: /topic}
"""


async def open_streams(gateway, count):
    async def is_open():
        return (await gateway.metrics())["drawbridge_streams_open"] == count

    await eventually(is_open, what=f"{count} streams are open")


# -- At once ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [["text/event-stream", ""], ["application/x-ndjson", "?stream=1"]])
async def test_curl_shows_each_message_at_once(gateway, upstream, curl, arguments):
    accept, query = arguments
    process = await asyncio.create_subprocess_exec(
        curl, "-sSN", "-H", f"Accept: {accept}", f"{gateway.url()}/v1/messages{query}", stdout=asyncio.subprocess.PIPE
    )
    try:
        await open_streams(gateway, 1)
        for index in range(3):
            await upstream.push(f"message {index}")
            while f'"message {index}"'.encode() not in await asyncio.wait_for(process.stdout.readline(), 30):
                pass
    finally:
        process.kill()
        await process.wait()
    # The gateway notices at the next write that the client has disconnected.
    await upstream.push("gone", "gone")
    await open_streams(gateway, 0)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_a_stream_ends_by_itself_with_its_connection(gateway_for, upstream, version):
    """Chunks would add 200 ms per message behind HAProxy."""
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_DELIVERY_STREAM_LIFETIME": "2s"})
    stream = await RawStream.open(gateway.address(), version=version)
    assert b"chunked" not in stream.head
    assert b"\r\nConnection: close\r\n" in stream.head
    await upstream.push("a", "b")
    assert [event.json["data"] for event in await stream.has(2)] == ["a", "b"]
    # The stream is closed, not reset.
    while await stream.read():
        pass
    stream.close()
    await open_streams(gateway, 0)


async def test_heartbeats_state_a_position_past_messages_that_do_not_match(gateway_for, upstream):
    gateway = await gateway_for(upstream, config=TOPIC, env={"DRAWBRIDGE_DELIVERY_STREAM_HEARTBEAT": "1s"})
    for form in ("events", "lines"):
        stream = await RawStream.open(gateway.address(), "topic=b", format=form)
        await stream.until(lambda stream: stream.parser.blocks == 1)
        await upstream.push('{"topic":"a"}')
        _, here = await gateway.client().collect(1, stream.parser.last_id)
        await stream.until(lambda stream, here=here: stream.parser.last_id == here)
        assert stream.events == []
        stream.close()


# -- Cut anywhere -----------------------------------------------------------------------------------------------------

# Text, JSON with every kind of line break between its tokens, bytes, and a message that is too long for a copy.
MESSAGES = [
    "text",
    '{"topic":"x.1",\r\n"n":\n\r1}\n',
    b"\x00\xff",
    '{"topic":"y","n":2}',
    "x" * 1200,
    '{"topic":"x.2"}',
]


@pytest.mark.parametrize("form", ["events", "lines"])
@pytest.mark.parametrize("query", ["", "topic=x.*&topic=y"])
async def test_a_client_cut_off_after_any_byte_neither_misses_nor_repeats_messages(gateway_for, upstream, form, query):
    gateway = await gateway_for(upstream, config=TOPIC)
    client = gateway.client()
    first = await client.here()
    await upstream.push(*MESSAGES[:3])
    await client.collect(3, first)
    # The upstream's connection is lost, so there is a gap between the messages.
    upstream.reset_connections()

    async def has_gap():
        return Batch.of(await client.get(cursor=first, wait=0)).more

    await eventually(has_gap, what="the gap is known")
    await gateway.ready()
    await upstream.push(*MESSAGES[3:])

    async def end():
        batch = await client.poll(last=1, wait=0)
        return batch.payloads == [{"topic": "x.2"}] and batch.cursor

    last = await eventually(end, what="all messages have come")
    whole = await RawStream.open(gateway.address(), f"cursor={first}&{query}", format=form)
    await whole.until(lambda stream: stream.parser.last_id == last)
    expected = [(event.type, event.data) for event in whole.events]
    kinds = [kind for kind, _ in expected]
    assert kinds == (
        ["message"] * 3 + ["gap"] + ["message"] * 3 if not query else ["message", "gap", "message", "message"]
    )
    size = len(await read_all(gateway, first, query, form, last))
    whole.close()

    async def cut(count):
        stream = await RawStream.open(gateway.address(), f"cursor={first}&{query}", format=form)
        await stream.read_exactly(count)
        stream.close()
        position = stream.parser.last_id
        resumed = await RawStream.open(gateway.address(), f"cursor={first}&{query}", format=form, last_id=position)
        if position != last:
            await resumed.until(lambda stream: stream.parser.last_id == last)
        resumed.close()
        got = [(event.type, event.data) for event in stream.events + resumed.events]
        assert got == expected, f"cut off after {count} of {size} bytes, at {position}"

    for start in range(0, size + 1, 16):
        await asyncio.gather(*(cut(count) for count in range(start, min(start + 16, size + 1))))


async def read_all(gateway, cursor, query, form, last):
    stream = await RawStream.open(gateway.address(), f"cursor={cursor}&{query}", format=form)
    data = b""
    while stream.parser.last_id != last:
        data += await stream.read()
    stream.close()
    return data


# -- The session ------------------------------------------------------------------------------------------------------


async def test_changes_of_the_session_are_events_without_a_position(gateway, upstream):
    stream = await RawStream.open(gateway.address(), "events=session")
    (first,) = await stream.has(1)
    assert (first.type, first.json["state"], first.json["desired"]) == ("session", "ready", "up")
    position = stream.parser.last_id
    plain = await RawStream.open(gateway.address())
    upstream.reset_connections()
    await stream.until(lambda stream: any(event.type == "gap" for event in stream.events))
    await stream.until(
        lambda stream: stream.events[-1].type == "session" and stream.events[-1].json["state"] == "ready"
    )
    states = [event.json for event in stream.events if event.type == "session"]
    numbers = [state["transition"]["sequence"] for state in states]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    assert all(state["state"] == state["transition"]["to"] for state in states)
    assert states[1]["transition"]["from"] == "ready"
    assert len(states) > 3
    assert {event.id for event in stream.events if event.type == "session"} <= {position, position + "g"}
    await plain.has(1)
    assert [event.type for event in plain.events] == ["gap"]
    stream.close()
    plain.close()


# -- Slow readers -----------------------------------------------------------------------------------------------------


@pytest.mark.load
async def next_gap(reader):
    """Reads server-sent events from a socket up to the next gap."""
    reader.setblocking(False)
    loop = asyncio.get_running_loop()
    tail = b""
    while b"event: gap\n" not in tail:
        tail = tail[-100:] + await loop.sock_recv(reader, 256 * KIBIBYTE)
    while b"\n\n" not in tail.partition(b"event: gap\n")[2]:
        tail += await loop.sock_recv(reader, 256 * KIBIBYTE)
    return json.loads(tail.partition(b"event: gap\n")[2].partition(b"data: ")[2].partition(b"\n")[0])


async def test_stalled_readers_use_one_batch_each_and_get_their_gap(gateway_for, upstream, measured):
    env = {
        "DRAWBRIDGE_DELIVERY_BYTES": "1MiB",
        "DRAWBRIDGE_HTTP_WRITE_TIMEOUT": "10m",
        "DRAWBRIDGE_HTTP_WRITE_MINIMUM_RATE": "0",
    }
    gateway = await gateway_for(upstream, "--loops", "1", env=env)
    request = b"GET /v1/messages HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n"
    readers = [deaf(gateway.address(), request) for _ in range(100)]
    await open_streams(gateway, 100)

    async def stalled():
        return (await gateway.metrics())["drawbridge_http_unsent_bytes"]

    client = gateway.client()
    cursor = await client.here()
    # The kernel first takes some bytes for each reader. The pushes come in pieces, because a burst may overtake the
    # streams.
    for number in itertools.count():
        await upstream.push(*(f"{number} ".ljust(8 * KIBIBYTE, "x") for _ in range(64)))
        cursor = (await client.collect(64, cursor))[1]
        if number >= 8 and await stalled() > 0 and number % 8 == 0:
            before = await stalled()
            await upstream.push(*("y" * 8 * KIBIBYTE for _ in range(64)))
            cursor = (await client.collect(64, cursor))[1]
            if await stalled() == before:
                break
    held = await stalled()
    measured(f"{held / 100:.0f} bytes are unsent for a stalled reader, after {number + 2} times 512 KiB")
    # The bytes are one batch, which all streams at the same position use. Each stream counts it.
    assert held <= 100 * 72 * KIBIBYTE
    # The readers read again: first the bytes on their way, then a gap, then the pushes that the gateway still keeps.
    async with asyncio.timeout(60):
        gaps = await asyncio.gather(*(next_gap(reader) for reader in readers))
    assert all(gap["reason"] == "retention" and gap["missed"] > 0 for gap in gaps)
    for reader in readers:
        reader.close()


async def test_a_client_that_reads_single_bytes_slowly_is_reset(gateway_for, upstream):
    env = {"DRAWBRIDGE_HTTP_WRITE_TIMEOUT": "1s", "DRAWBRIDGE_DELIVERY_BYTES": "1MiB"}
    gateway = await gateway_for(upstream, env=env)
    reader = deaf(gateway.address(), b"GET /v1/messages HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n")
    await open_streams(gateway, 1)
    reader.setblocking(False)
    loop = asyncio.get_running_loop()

    async def sip():
        with contextlib.suppress(ConnectionError):
            while True:
                await asyncio.sleep(0.5)
                assert await loop.sock_recv(reader, 1)

    sipping = asyncio.create_task(sip())
    async with asyncio.timeout(60):
        # The gateway ends the stream as too slow, or the kernel's timeout ends it if the kernel checks first.
        while (await gateway.metrics())["drawbridge_streams_open"] == 1:
            await upstream.push(*("x" * 16 * KIBIBYTE for _ in range(16)))
    sipping.cancel()
    # A kernel whose timeout has expired sends no reset by itself, but responds with a reset to the client's next
    # segment. Reading everything opens the client's window, which causes such a segment.

    async def read_all():
        while await loop.sock_recv(reader, 64 * KIBIBYTE):
            pass

    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(read_all(), 30)
    reader.close()


async def test_a_client_that_does_not_read_a_quiet_stream_is_reset(gateway_for, upstream):
    env = {"DRAWBRIDGE_HTTP_WRITE_TIMEOUT": "1s", "DRAWBRIDGE_DELIVERY_STREAM_HEARTBEAT": "1s"}
    gateway = await gateway_for(upstream, env=env)
    reader = deaf(gateway.address(), b"GET /v1/messages HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n")
    await open_streams(gateway, 1)
    # The message exceeds the client's buffer but not the gateway's, so the gateway's kernel takes all further bytes.
    await upstream.push("x" * 64 * KIBIBYTE)
    await open_streams(gateway, 0)
    metrics = await gateway.metrics()
    assert metrics["drawbridge_http_readers_slow_total"] == 0, "the kernel has noticed it"
    reader.close()


# -- Many, and the end ------------------------------------------------------------------------------------------------


@pytest.mark.load
async def test_a_thousand_streams_get_each_push(gateway, upstream):
    streams = []
    for _ in range(10):
        streams += await asyncio.gather(*(RawStream.open(gateway.address()) for _ in range(100)))
    await open_streams(gateway, 1_000)
    for number in range(3):
        await upstream.push(f"push {number}")
    for events in await asyncio.gather(*(stream.has(3) for stream in streams)):
        assert [event.json["data"] for event in events] == ["push 0", "push 1", "push 2"]
    assert (await gateway.metrics())["drawbridge_messages_delivered_total"] >= 3_000
    for stream in streams:
        stream.close()
    await open_streams(gateway, 0)


async def test_a_shutdown_closes_the_connection_of_every_stream(gateway_for, upstream):
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_SHUTDOWN_DRAIN": "2s"})
    streams = [await RawStream.open(gateway.address()) for _ in range(20)]
    poll = asyncio.create_task(gateway.client().get(wait=50))
    await upstream.push("a")
    for stream in streams:
        await stream.has(1)
    gateway.signal()
    assert (await poll).status == 200

    async def has_ended(stream):
        while await stream.read():
            pass
        # The stream ended between two events, and not by a reset.
        return stream.parser.is_between_blocks

    assert all(await asyncio.gather(*map(has_ended, streams)))
    assert await gateway.exit_status() == 0


# -- Through HTTP -----------------------------------------------------------------------------------------------------


async def test_a_stream_of_a_named_session_has_its_own_messages(gateway_for, upstream):
    config = f"sessions: {{market: {{upstream: {{url: '{upstream.url}'}}}}}}\n"
    gateway = await gateway_for(None, config=config)
    stream = await RawStream.open(gateway.address(), path="/v1/sessions/market/messages")
    await upstream.push("a")
    assert (await stream.has(1))[0].json["data"] == "a"
    stream.close()


async def test_the_fields_keep_proxies_from_collecting_a_stream(gateway, upstream):
    stream = await RawStream.open(gateway.address(), fields="Accept-Encoding: gzip\r\n")
    fields = stream.head.lower()
    for field in (
        b"x-accel-buffering: no",
        b"cache-control: no-store, no-transform",
        b"x-content-type-options: nosniff",
    ):
        assert b"\r\n" + field + b"\r\n" in fields
    assert b"content-encoding" not in fields
    assert b"content-type: text/event-stream; charset=utf-8\r\n" in fields
    stream.close()


async def test_the_stream_of_a_disconnected_client_ends_at_the_next_write(gateway_for, upstream):
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_DELIVERY_STREAM_HEARTBEAT": "1s"})
    stream = await RawStream.open(gateway.address())
    await open_streams(gateway, 1)
    stream.writer.get_extra_info("socket").shutdown(socket.SHUT_WR)
    await upstream.push("still here")
    assert (await stream.has(1))[0].json["data"] == "still here"
    stream.writer.close()
    await open_streams(gateway, 0)


async def test_streams_end_one_after_another_while_the_gateway_drains(gateway_for, upstream):
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_SHUTDOWN_DRAIN": "10s"})
    request = b"GET /v1/messages HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"

    async def stream():
        reader, writer = await asyncio.open_connection(*gateway.address())
        writer.write(request)
        try:
            return await reader.read()
        finally:
            writer.close()

    streams = [asyncio.create_task(stream()) for _ in range(50)]
    await open_streams(gateway, 50)
    gateway.signal()
    async with asyncio.timeout(60):
        _, others = await asyncio.wait(streams, return_when=asyncio.FIRST_COMPLETED)
        # The clients return at different times, so that they do not all reach another gateway at once.
        assert len(others) >= 10
        responses = await asyncio.gather(*streams)
    assert all(b"\nretry: 2000\n" in response for response in responses)
    assert await gateway.exit_status() == 0
