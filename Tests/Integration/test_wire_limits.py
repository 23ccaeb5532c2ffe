"""Limits on messages of the upstream. Each limit is exact, uses no memory, and closes the connection with 1009."""

import asyncio
import os
import zlib

import pytest

from harness.raw import frame, read_frame, upgrade
from harness.sanitizer import memory_is_judged
from harness.waiting import eventually

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
COMPRESSED = 4
MEBIBYTE = 1 << 20
TOO_BIG = 1009


def deflated(data, level=9):
    compressor = zlib.compressobj(level, zlib.DEFLATED, -15)
    return (compressor.compress(data) + compressor.flush(zlib.Z_SYNC_FLUSH))[:-4]


class Sender:
    """Upgrades, sends its frames, and records the code of the gateway's close frame."""

    def __init__(self, frames, *fields):
        self._frames = frames
        self._fields = fields
        self.codes = []

    async def __call__(self, reader, writer):
        await upgrade(reader, writer, *self._fields)
        for data in self._frames:
            writer.write(data)
            await writer.drain()
        while True:
            opcode, payload = await read_frame(reader)
            if opcode == CLOSE:
                self.codes.append(int.from_bytes(payload[:2], "big"))
                return


async def is_delivered(frames, payload, raw_upstream, gateway_for, config="", *fields):
    gateway = await gateway_for(
        await raw_upstream(Sender(frames, *fields)), config=f"upstream:\n{config}" if config else None
    )
    payloads, _ = await gateway.client().collect(1, "earliest", max_bytes=64 * MEBIBYTE)
    assert payloads == [payload]


async def is_refused(frames, expected, raw_upstream, gateway_for, config="", *fields, memory=4 * MEBIBYTE):
    sender = Sender(frames, *fields)
    gateway = await gateway_for(
        await raw_upstream(sender), config=f"upstream:\n{config}" if config else None, ready=False
    )
    before = gateway.memory()
    await eventually(lambda: len(sender.codes) >= 2, what="the gateway reports the reason and reconnects")
    assert set(sender.codes) == {TOO_BIG}
    session = await gateway.client().session()
    assert expected in session["last_failure"]
    batch = await gateway.client().poll(cursor="earliest", wait=0)
    assert batch.messages == [] or all(message["type"] not in ("text", "binary") for message in batch.messages)
    memory_is_judged()
    assert gateway.memory() < before + memory


LIMIT = "  message_bytes: 1KiB\n"
DEFLATE = "Sec-WebSocket-Extensions: permessage-deflate"
NOISE = os.urandom(1024)


@pytest.mark.parametrize(
    "frames",
    [
        [frame(BINARY, NOISE)],
        [frame(BINARY, NOISE[:1000], fin=False), frame(CONTINUATION, NOISE[1000:])],
        [frame(BINARY, NOISE[:1], fin=False), frame(PING, b"x" * 125), frame(CONTINUATION, NOISE[1:])],
    ],
    ids=["one frame", "two fragments", "a ping between"],
)
async def test_a_message_of_the_exact_limit_is_delivered(frames, raw_upstream, gateway_for):
    await is_delivered(frames, NOISE, raw_upstream, gateway_for, LIMIT)


@pytest.mark.parametrize(
    "frames",
    [
        [frame(BINARY, NOISE + b"!")],
        [frame(BINARY, NOISE, fin=False), frame(CONTINUATION, b"!")],
        # A frame header that announces too much is enough.
        [frame(BINARY, b"", length=1025)],
        [frame(BINARY, b"x", fin=False), frame(CONTINUATION, b"", length=1024)],
    ],
    ids=["one frame", "two fragments", "announced", "announced by a continuation"],
)
async def test_a_message_one_byte_above_the_limit_ends_the_connection(frames, raw_upstream, gateway_for):
    await is_refused(frames, "a message is larger than 1024 bytes", raw_upstream, gateway_for, LIMIT)


@pytest.mark.parametrize("length", [1 << 32, 1 << 62, (1 << 63) - 1])
@pytest.mark.parametrize("kind", ["a message", "a continuation", "compressed"])
async def test_a_huge_length_allocates_nothing(length, kind, raw_upstream, gateway_for):
    frames = {
        "a message": [frame(BINARY, b"", length=length)],
        "a continuation": [frame(BINARY, b"x", fin=False), frame(CONTINUATION, b"", length=length)],
        "compressed": [frame(BINARY, b"", reserved=COMPRESSED, length=length)],
    }[kind]
    await is_refused(frames, "a message is larger than 16777216 bytes", raw_upstream, gateway_for, "", DEFLATE)


async def test_an_announced_length_allocates_nothing(raw_upstream, gateway_for):
    async def behave(reader, writer):
        await upgrade(reader, writer, then=frame(BINARY, b"", length=16 * MEBIBYTE))
        announced.set()
        await reader.read()

    announced = asyncio.Event()
    gateway = await gateway_for(await raw_upstream(behave), ready=False)
    before = gateway.memory()
    await asyncio.wait_for(announced.wait(), 30)
    await gateway.ready()
    await gateway.client().poll(wait=0)
    memory_is_judged()
    assert gateway.memory() < before + 4 * MEBIBYTE


# -- Inflation ---------------------------------------------------------------------------------------------------------


async def test_the_limit_applies_after_inflation(raw_upstream, gateway_for):
    zeros = bytes(1024)
    await is_delivered(
        [frame(BINARY, deflated(zeros), reserved=COMPRESSED)], zeros, raw_upstream, gateway_for, LIMIT, DEFLATE
    )
    await is_refused(
        [frame(BINARY, deflated(zeros + b"\0"), reserved=COMPRESSED)],
        "a message inflates to more than 1024 bytes",
        raw_upstream,
        gateway_for,
        LIMIT,
        DEFLATE,
    )


async def test_the_limit_applies_before_inflation(raw_upstream, gateway_for):
    """Empty blocks inflate to nothing, and could continue without end."""
    nothing = b"\x00\x00\x00\xff\xff" * 206
    assert len(nothing) > 1024
    await is_refused(
        [frame(BINARY, nothing, reserved=COMPRESSED)],
        "a message is larger than 1024 bytes",
        raw_upstream,
        gateway_for,
        LIMIT,
        DEFLATE,
    )


async def test_the_ratio_of_inflation_is_limited_beyond_the_first_16_mebibytes(raw_upstream, gateway_for):
    config = "  message_bytes: 64MiB\n  inflation_ratio: 10\n"
    free = bytes(16 * MEBIBYTE)
    await is_delivered(
        [frame(BINARY, deflated(free), reserved=COMPRESSED)], free, raw_upstream, gateway_for, config, DEFLATE
    )
    # The message grows by a factor of nine, which the ratio allows.
    honest = os.urandom(2 * MEBIBYTE) + bytes(16 * MEBIBYTE)
    await is_delivered(
        [frame(BINARY, deflated(honest, level=1), reserved=COMPRESSED)],
        honest,
        raw_upstream,
        gateway_for,
        config,
        DEFLATE,
    )
    await is_refused(
        [frame(BINARY, deflated(free + b"\0"), reserved=COMPRESSED)],
        "a message inflates to more than 16777216 bytes",
        raw_upstream,
        gateway_for,
        config,
        DEFLATE,
        memory=48 * MEBIBYTE,
    )


# -- Fragments ---------------------------------------------------------------------------------------------------------


def in_fragments(payload, count):
    """`count` frames: `payload` in the first frame, and then empty continuations."""
    middle = [frame(CONTINUATION, fin=False)] * (count - 2)
    return [frame(BINARY, payload, fin=False), b"".join(middle), frame(CONTINUATION)]


async def test_the_fragments_of_a_message_are_limited(raw_upstream, gateway_for):
    config = "  fragments: 100\n"
    await is_delivered(in_fragments(b"whole", 100), b"whole", raw_upstream, gateway_for, config)
    await is_refused(
        in_fragments(b"whole", 101), "a message has more than 100 fragments", raw_upstream, gateway_for, config
    )


async def test_endless_fragments_end_the_connection(raw_upstream, gateway_for):
    frames = [frame(BINARY, b"", fin=False), frame(CONTINUATION, b"", fin=False) * 140_000]
    await is_refused(frames, "a message has more than 131072 fragments", raw_upstream, gateway_for)


# -- Pings -------------------------------------------------------------------------------------------------------------


async def test_unread_pongs_use_no_memory(raw_upstream, gateway_for, measured):
    """Only the newest ping needs a pong (RFC 6455 section 5.5.3)."""
    count = 200_000
    pongs = []
    flooded = asyncio.Event()

    async def behave(reader, writer):
        await upgrade(reader, writer)
        writer.transport.pause_reading()
        for start in range(0, count, 1000):
            # Each pong has 125 bytes, so the kernel and asyncio can keep only a small part of the pongs.
            writer.write(
                b"".join(frame(PING, str(number).zfill(125).encode()) for number in range(start, start + 1000))
            )
            await writer.drain()
        writer.write(frame(TEXT, b"after the flood"))
        await writer.drain()
        flooded.set()
        writer.transport.resume_reading()
        while not pongs or pongs[-1] != count - 1:
            opcode, payload = await read_frame(reader)
            if opcode == PONG:
                pongs.append(int(payload))
        await reader.read()

    gateway = await gateway_for(await raw_upstream(behave))
    before = gateway.memory()
    client = gateway.client()
    assert (await client.collect(1, "earliest"))[0] == ["after the flood"]
    await asyncio.wait_for(flooded.wait(), 30)
    growth = gateway.memory() - before
    await eventually(lambda: pongs and pongs[-1] == count - 1, what="the newest ping gets its pong")
    assert pongs == sorted(set(pongs)), "in order, each at most once"
    measured(f"{count} pings, {len(pongs)} pongs")
    assert len(pongs) < count, "pongs that could not be sent were queued"
    memory_is_judged()
    assert growth < 4 * MEBIBYTE
