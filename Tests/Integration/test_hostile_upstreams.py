"""Upstreams that break the protocol. The gateway reports the violation, tries again, and keeps working."""

import asyncio
import functools
import struct
import zlib

import pytest

from harness.raw import frame, linger, read_frame, read_head, reset, says, upgrade
from harness.upstream import Upstream
from harness.waiting import eventually

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
MEBIBYTE = 1 << 20


@pytest.fixture
def gateway_for(gateway_for):
    """Gateways that do not wait at their end for an upstream that never takes the queued messages."""
    return functools.partial(gateway_for, env={"DRAWBRIDGE_SHUTDOWN_FLUSH": "100ms"})


def upgrades(*fields, **options):
    async def behave(reader, writer):
        await upgrade(reader, writer, *fields, **options)
        await linger(reader)

    return behave


def sends(*frames):
    """Completes the handshake, and then sends these bytes."""

    async def behave(reader, writer):
        await upgrade(reader, writer)
        for data in frames:
            writer.write(data)
            await writer.drain()
        await linger(reader)

    return behave


async def silence(reader, writer):
    await linger(reader)


async def resets_at_once(reader, writer):
    await read_head(reader)
    reset(writer)


async def closes_at_once(reader, writer):
    writer.close()


async def resets_in_mid_frame(reader, writer):
    await upgrade(reader, writer)
    writer.write(frame(TEXT, b"only the beginning", length=100_000))
    await writer.drain()
    reset(writer)


async def endless_head(reader, writer):
    await read_head(reader)
    writer.write(b"HTTP/1.1 101 Switching Protocols\r\n")
    while not writer.is_closing():
        writer.write(b"X-More: " + b"y" * 1000 + b"\r\n")
        await writer.drain()


def status(line, *fields, body=b""):
    head = "\r\n".join([f"HTTP/1.1 {line}", f"Content-Length: {len(body)}", *fields])
    return says(head.encode() + b"\r\n\r\n" + body)


# test_opening_handshake.py checks the text of each failure.
HANDSHAKES = {
    "a wrong accept key": upgrades(accept="AAAAAAAAAAAAAAAAAAAAAAAAAAA="),
    "an HTML page": status("200 OK", "Content-Type: text/html", body=b"<html><body>Hello</body></html>"),
    "an internal error": status("500 Internal Server Error", body=b"<h1>oops</h1>"),
    "silence": silence,
    "a reset": resets_at_once,
    "a close": closes_at_once,
    "garbage": says(bytes(range(256)) * 8),
    "endless fields": endless_head,
}


def deflated(data):
    """One message of permessage-deflate."""
    compressor = zlib.compressobj(wbits=-15)
    return (compressor.compress(data) + compressor.flush(zlib.Z_SYNC_FLUSH))[:-4]


# These frames follow a correct handshake.
FRAMES = {
    "a masked frame": (frame(TEXT, b"hello", mask=b"abcd"),),
    "a reserved opcode": (frame(3, b"hello"),),
    "reserved bits": (frame(TEXT, b"hello", reserved=7),),
    "a compressed frame without the extension": (frame(TEXT, b"hello", reserved=4),),
    "a fragmented ping": (frame(PING, b"hello", fin=False),),
    "a long ping": (frame(PING, b"x" * 126),),
    "a continuation of nothing": (frame(0, b"hello"),),
    "a new message inside another": (frame(TEXT, b"a", fin=False), frame(TEXT, b"b")),
    "text that is not UTF-8": (frame(TEXT, b"caf\xe9"),),
    "a length with the highest bit": (frame(BINARY, b"", length=1 << 63),),
    "a length in the long form": (b"\x82\x7e\x00\x05hello",),
    "more than the limit": (frame(BINARY, b"", length=17 * MEBIBYTE),),
    "a close code that is not allowed": (frame(CLOSE, struct.pack("!H", 1005)),),
    "a close of one byte": (frame(CLOSE, b"\x03"),),
    "a close reason that is not UTF-8": (frame(CLOSE, struct.pack("!H", 1000) + b"\xff"),),
}


@pytest.mark.parametrize("name", HANDSHAKES)
async def test_a_bad_handshake_is_reported_and_repeated(name, raw_upstream, gateway_for):
    upstream = await raw_upstream(HANDSHAKES[name])
    config = f"upstream:\n  url: {upstream.url}\n  timeouts:\n    opening: 1s\n"
    gateway = await gateway_for(None, config=config, ready=False)
    # The gateway tries again, but after a refusal not at once. No bad response may stop it.
    await eventually(lambda: upstream.connections >= 1, what="the gateway connects")
    session = await eventually(lambda: reports_failure(gateway), what="the session reports what was wrong")
    assert session["state"] != "ready"
    await stays_whole(gateway)


@pytest.mark.parametrize("name", ["a wrong accept key", "an HTML page", "silence", "a reset", "endless fields"])
async def test_a_good_upstream_is_found_after_a_bad_upstream(name, raw_upstream, gateway_for, start):
    bad = await raw_upstream(HANDSHAKES[name])
    config = f"upstream:\n  url: {bad.url}\n  timeouts:\n    opening: 1s\n"
    gateway = await gateway_for(None, config=config, ready=False)
    client = gateway.client()
    await client.accepted("kept until the upstream listens")
    await eventually(lambda: bad.connections >= 2, what="the gateway reconnects")
    good = Upstream()
    good.port = bad.port
    await bad.kill()
    await start(good)
    assert await good.has_received(1, within=40) == ["kept until the upstream listens"]


@pytest.mark.parametrize("name", FRAMES)
async def test_a_bad_frame_causes_a_reconnect_with_a_reason(name, raw_upstream, gateway_for):
    upstream = await raw_upstream(sends(*FRAMES[name]))
    gateway = await gateway_for(upstream, ready=False)
    before = gateway.memory()
    await eventually(lambda: upstream.connections >= 2, what="the gateway reconnects")
    assert (await reports_failure(gateway))["last_failure"]
    await stays_whole(gateway)
    assert gateway.memory() < before + 24 * MEBIBYTE


# The close codes that the upstream gets (RFC 6455 section 7.4.1): 1007 for bad UTF-8, 1009 for too large, otherwise
# 1002.
CODES = {"text that is not UTF-8": 1007, "a close reason that is not UTF-8": 1007, "more than the limit": 1009}


@pytest.mark.parametrize("name", FRAMES)
async def test_the_close_frame_says_what_the_upstream_did_wrong(name, raw_upstream, gateway_for):
    code = asyncio.get_running_loop().create_future()

    async def behave(reader, writer):
        await upgrade(reader, writer)
        writer.writelines(FRAMES[name])
        opcode, payload = await read_frame(reader)
        while opcode != CLOSE:
            opcode, payload = await read_frame(reader)
        if not code.done():
            code.set_result(int.from_bytes(payload[:2], "big"))

    await gateway_for(await raw_upstream(behave), ready=False)
    assert await asyncio.wait_for(code, 30) == CODES.get(name, 1002)


# Only the first bytes of the message arrive. The last of them is not possible in UTF-8 text.
UNFINISHED = {
    "in a frame": (frame(TEXT, b"caf\xe9!", length=1000),),
    "in a fragment": (
        frame(TEXT, b"caf\xc3", fin=False),
        frame(0, b"\xa9, th\xc3", fin=False),
        frame(0, b"\x28", length=9),
    ),
    "compressed": (frame(TEXT, deflated(b"caf\xe9!"), fin=False, reserved=4), frame(0, length=1000)),
}


@pytest.mark.parametrize("name", UNFINISHED)
async def test_text_fails_at_its_first_bad_byte(name, raw_upstream, gateway_for):
    code = asyncio.get_running_loop().create_future()

    async def behave(reader, writer):
        await upgrade(reader, writer, "Sec-WebSocket-Extensions: permessage-deflate")
        writer.writelines(UNFINISHED[name])
        opcode, payload = await read_frame(reader)
        if opcode == CLOSE and not code.done():
            code.set_result(int.from_bytes(payload[:2], "big"))

    gateway = await gateway_for(await raw_upstream(behave), ready=False)
    assert await asyncio.wait_for(code, 30) == 1007
    session = await eventually(lambda: reports_failure(gateway), what="the session reports what was wrong")
    assert "UTF-8" in session["last_failure"]


async def test_a_reset_within_a_frame_causes_a_reconnect(raw_upstream, gateway_for):
    upstream = await raw_upstream(resets_in_mid_frame)
    gateway = await gateway_for(upstream, ready=False)
    await eventually(lambda: upstream.connections >= 2, what="the gateway reconnects")
    await stays_whole(gateway)


async def test_a_message_that_inflates_beyond_the_limit_ends_the_connection(raw_upstream, gateway_for):
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = compressor.compress(bytes(256 * MEBIBYTE)) + compressor.flush(zlib.Z_SYNC_FLUSH)

    async def behave(reader, writer):
        await upgrade(reader, writer, "Sec-WebSocket-Extensions: permessage-deflate")
        writer.write(frame(BINARY, bomb[:-4], reserved=4))
        await writer.drain()
        await linger(reader)

    upstream = await raw_upstream(behave)
    gateway = await gateway_for(upstream, ready=False)
    before = gateway.memory()
    await eventually(lambda: upstream.connections >= 2, what="the gateway reconnects")
    assert gateway.memory() < before + 64 * MEBIBYTE
    await stays_whole(gateway)


async def test_a_stream_byte_by_byte_is_read(raw_upstream, gateway_for):
    async def behave(reader, writer):
        await upgrade(reader, writer, then=frame(TEXT, "gemächlich ☃".encode()), dripped=True)
        await linger(reader)

    gateway = await gateway_for(await raw_upstream(behave))
    payloads, _ = await gateway.client().collect(1, "earliest")
    assert payloads == ["gemächlich ☃"]


async def test_an_upstream_that_stops_reading_fills_only_the_queue(raw_upstream, gateway_for):
    async def deaf(reader, writer):
        await upgrade(reader, writer)
        writer.transport.pause_reading()
        await asyncio.Event().wait()

    gateway = await gateway_for(await raw_upstream(deaf))
    client = gateway.client()
    before = gateway.memory()
    refused = None
    for _ in range(400):
        response = await client.send(bytes(256 * 1024))
        if response.status == 503:
            refused = response
            break
    assert refused, "a hundred megabytes were accepted for an upstream that reads nothing"
    assert refused.problem(503)["type"].endswith("queue-full")
    assert gateway.memory() < before + 48 * MEBIBYTE
    await client.poll(wait=0)


async def reports_failure(gateway):
    """The session's document, once it reports a failed attempt."""
    session = await gateway.client().session()
    return session if session.get("last_failure") else None


async def stays_whole(gateway):
    """Checks that the gateway still responds to polls and accepts messages."""
    client = gateway.client()
    await client.poll(wait=0)
    await client.accepted("queued")
    assert (await gateway.manage("/livez")).status == 200
