"""Clients that break TLS: in the handshake and after it, at any byte, slowly, endlessly, or without reading."""

import asyncio
import contextlib
import itertools
import random
import signal
import ssl
import struct

import pytest

from harness.https import BROKEN, Ciphertext, RecordWriter, blocking, counts, is_held, metric, trusting, works
from harness.raw import reset
from harness.waiting import eventually

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]

HEAD = b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\n"
# Each part is sent in its own TLS record.
REQUEST = (HEAD, b"hello")


class CutError(Exception):
    pass


async def send(address, context, *, cut=None, split=None, ending="end", piece=None):
    """Makes a handshake and sends a POST. Returns the number of bytes sent, and the gateway's response.

    - `cut`: only that many bytes are sent in all, followed by FIN or RST.
    - `split`: a pause follows after that many bytes.
    - `piece`: the bytes are sent in pieces of that size, with a pause after each.
    """
    reader, writer = await asyncio.open_connection(*address)
    client, sent = Ciphertext(context), 0

    async def flush():
        nonlocal sent
        data = client.take()
        end = len(data) if cut is None else min(len(data), cut - sent)
        marks = [0, *(at for at in range(1, end) if (piece and at % piece == 0) or sent + at == split), end]
        for start, stop in itertools.pairwise(marks):
            writer.write(data[start:stop])
            await writer.drain()
            await asyncio.sleep(0)
        sent += end
        if end < len(data) or sent == cut:
            raise CutError

    try:
        while not client.handshake():
            await flush()
            data = await asyncio.wait_for(reader.read(65536), 30)
            assert data
            client.put(data)
        await flush()
        for part in REQUEST:
            client.tls.write(part)
            await flush()
        while b"\r\n\r\n" not in client.read():
            data = await asyncio.wait_for(reader.read(65536), 30)
            assert data
            client.put(data)
    except CutError:
        if ending == "reset":
            reset(writer)
            return sent, b""
        writer.write_eof()
        # The gateway ends the connection with or without an alert.
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), 30)
    finally:
        writer.transport.abort()
    return sent, bytes(client.plaintext)


async def in_groups(size, tasks):
    """The results of coroutines. At most `size` of them run at a time."""
    results = []
    for start in range(0, len(tasks), size):
        results += await asyncio.gather(*tasks[start : start + size])
    return results


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("ending", ["end", "reset"])
async def test_an_incomplete_request_is_dropped_wherever_tls_is_cut(https_for, upstream, authority, version, ending):
    gateway = await https_for()
    address, context = gateway.address("https"), trusting(authority, version=version)
    total, response = await send(address, context)
    assert response.startswith(b"HTTP/1.1 202")
    # The cuts are in the handshake, in the head, and in the body, which is in the last record.
    cuts = sorted({*range(0, total, 11), *range(total - 40, total)})
    await in_groups(20, [send(address, context, cut=cut, ending=ending) for cut in cuts])
    await eventually(lambda: counts(gateway, "connections", 1), what="only the test's own connection is open")
    assert (await send(address, context))[1].startswith(b"HTTP/1.1 202")
    assert await upstream.has_received(2) == ["hello"] * 2
    session = await gateway.client().session()
    assert session["queue"]["messages"] == 0
    assert (await gateway.metrics())["drawbridge_messages_accepted_total"] == 2


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_request_is_served_however_its_ciphertext_is_split(https_for, upstream, authority, version):
    gateway = await https_for()
    address, context = gateway.address("https"), trusting(authority, version=version)
    total, _ = await send(address, context)
    splits = range(1, total, 7)
    results = await in_groups(20, [send(address, context, split=split) for split in splits])
    results.append(await send(address, context, piece=1))
    assert all(response.startswith(b"HTTP/1.1 202") for _, response in results)
    assert len(await upstream.has_received(len(results) + 1)) == len(results) + 1


async def test_a_slow_handshake_ends_at_the_deadline_of_the_head(https_for, authority):
    gateway = await https_for(HTTP_HEAD_TIMEOUT="1s")
    reader, writer = await asyncio.open_connection(*gateway.address("https"))
    client = Ciphertext(trusting(authority))
    client.handshake()
    end = asyncio.create_task(reader.read())
    # Sending the first message takes about five seconds.
    for byte in client.take():
        if end.done():
            break
        with contextlib.suppress(ConnectionError):
            writer.write(bytes([byte]))
            await writer.drain()
        await asyncio.sleep(0.01)
    assert end.done(), "the gateway has waited for the whole message"
    with contextlib.suppress(ConnectionError):
        assert await end == b""
    writer.close()
    await eventually(lambda: counts(gateway, "tls_handshakes_failed_total", 1), what="the failure is counted")


def client_hello(context, padding):
    """A ClientHello without record headers, with an unknown extension of `padding` bytes."""
    client = Ciphertext(context)
    client.handshake()
    message = bytearray(client.take()[5:])
    # Skips the header. Version, random, session, cipher suites and compression methods follow.
    at = 4 + 2 + 32
    at += 1 + message[at]
    at += 2 + int.from_bytes(message[at : at + 2], "big")
    at += 1 + message[at]
    extensions = message[at + 2 :] + struct.pack("!HH", 0xFAFA, padding) + bytes(padding)
    message[at:] = struct.pack("!H", len(extensions)) + extensions
    return message[:1] + (len(message) - 4).to_bytes(3, "big") + message[4:]


def in_records(message, size):
    return b"".join(
        struct.pack("!BHH", 22, 0x0301, len(message[at : at + size])) + message[at : at + size]
        for at in range(0, len(message), size)
    )


async def test_a_handshake_of_more_than_256_kibibytes_is_not_read_to_its_end(https_for, authority):
    gateway = await https_for(LOG_LEVEL="debug")
    hello = client_hello(trusting(authority), 60_000)

    async def first_byte(data):
        reader, writer = await asyncio.open_connection(*gateway.address("https"))
        with contextlib.suppress(ConnectionError):
            writer.write(data)
            return await asyncio.wait_for(reader.read(1), 30)
        return b""

    # In large records, the message is valid and gets a ServerHello. With a record for each byte, it is six times as
    # long.
    assert await first_byte(in_records(hello, 16_000)) == b"\x16"
    assert await first_byte(in_records(hello, 1)) == b""
    line = await gateway.logs(lambda line: "262144 bytes" in line.get("reason", ""), what="the limit")
    assert line["message"] == "TLS handshake failed"
    assert await works(gateway, trusting(authority))


async def ends(client):
    """Reads until the gateway has closed or reset the connection."""
    return await asyncio.wait_for(asyncio.to_thread(client.read_to_the_end), 30)


@pytest.mark.parametrize("first", [b"\x15\x03\x01\x00\x02\x01\x5a", b"\x15\x03\x01\x00\x02\x02\x28"])
async def test_alerts_in_place_of_a_handshake_end_the_connection(https_for, authority, first):
    gateway = await https_for()
    reader, writer = await asyncio.open_connection(*gateway.address("https"))
    with contextlib.suppress(ConnectionError):
        writer.write(first * 10_000)
        await asyncio.wait_for(reader.read(), 30)
    writer.close()
    await eventually(lambda: counts(gateway, "connections", 1), what="the connection has ended")
    assert await works(gateway, trusting(authority))


def repeatedly(kind, data):
    return lambda client: b"".join(client.record(kind, data) for _ in range(10_000))


# The bytes that a client sends after its handshake.
GARBAGE = {
    "random bytes": lambda _: random.Random(1).randbytes(5000),
    "a record with a wrong tag": lambda client: client.record(23, b"hello")[:-1] + b"\0",
    "a record twice": lambda client: client.record(23, b"x") * 2,
    "plain HTTP": lambda _: HEAD + b"hello",
    "a record in the clear": lambda _: b"\x17\x03\x03\x00\x05hello",
    "a record of 65,535 bytes": lambda _: b"\x17\x03\x03\xff\xff" + bytes(70_000),
    "a record of an unknown type": lambda client: client.record(99, b"hello"),
    "a record of more than 16 KiB": lambda client: client.record(23, b"x" * 16_385),
    "an SSL 2 message": lambda _: b"\x80\x2e\x01\x00\x02" + bytes(60),
    "a fatal alert": lambda client: client.record(21, b"\x02\x28"),
    "a malformed alert": lambda client: client.record(21, b"\x01"),
    "warnings without end": repeatedly(21, b"\x01\x5a"),
    "empty records without end": repeatedly(23, b""),
    "an unknown handshake message": lambda client: client.record(22, b"\x63\0\0\0"),
    "a second Finished": lambda client: client.record(22, b"\x14\0\0\x20" + bytes(32)),
    "a handshake message of 16 MiB": lambda client: client.record(22, b"\x18\xff\xff\xff" + bytes(1000)),
}


@pytest.mark.parametrize("version", VERSIONS)
async def test_garbage_after_the_handshake_ends_the_connection(https_for, upstream, authority, tmp_path, version):
    gateway = await https_for(LOOPS="1")

    async def opened():
        context = trusting(authority, version=version)
        return await asyncio.to_thread(RecordWriter, gateway.address("https"), context, tmp_path / "keys")

    # A request in hand-made records is valid.
    good = await opened()
    good.send(HEAD + b"hello")
    assert await upstream.has_received(1) == ["hello"]
    good.socket.close()
    for name, garbage in GARBAGE.items():
        # The garbage replaces a request, or follows in the middle of its body.
        for start in (b"", HEAD + b"hel"):
            client = await opened()
            if start:
                client.send(start)
            with contextlib.suppress(OSError):
                await asyncio.to_thread(client.socket.sendall, garbage(client))
            assert b"HTTP/1.1" not in await ends(client), name
            client.socket.close()
    await eventually(lambda: counts(gateway, "connections", 1), what="all have ended")
    assert await works(gateway, trusting(authority))
    assert upstream.received == ["hello"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_unread_tls_messages_of_a_client_with_a_held_poll_delay_nobody_else(
    https_for, authority, tmp_path, version
):
    """In TLS 1.2, each ClientHello causes an alert. In TLS 1.3, each KeyUpdate causes another KeyUpdate."""
    gateway = await https_for(HTTP_WRITE_TIMEOUT="1s", HTTP_WRITE_MINIMUM_RATE="0", LOOPS="1")
    context = trusting(authority, version=version)
    attacker = await asyncio.to_thread(RecordWriter, gateway.address("https"), context, tmp_path / "keys")
    attacker.send(b"GET /v1/messages?wait=50 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await eventually(lambda: is_held(gateway, 1), what="the poll is held")

    def more():
        if version == ssl.TLSVersion.TLSv1_2:
            return attacker.record(22, b"\1\0\0\0" * 4096)
        return b"".join(attacker.key_update() for _ in range(500))

    with contextlib.suppress(OSError):
        for _ in range(1000):
            # The gateway has a single loop. It has read everything before the attacker sends more.
            await asyncio.to_thread(attacker.socket.sendall, more())
            await asyncio.wait_for(gateway.metrics(), 20)
    assert await asyncio.wait_for(works(gateway, trusting(authority)), 20)
    await eventually(lambda: is_held(gateway, 0), what="the attacker is reset")
    assert await metric(gateway, "readers_slow_total") == 1
    attacker.socket.close()


async def is_cut(connection):
    """Reads a response to its end, and checks that the connection ends without close_notify."""

    def read():
        received = 0
        while piece := connection.recv(65536):
            received += len(piece)
        return received

    with pytest.raises(BROKEN):
        await asyncio.to_thread(read)
    connection.close()


@pytest.mark.parametrize("cause", ["write timeout", "shutdown", "death"])
async def test_a_response_that_is_cut_has_no_close_notify(https_for, upstream, authority, cause):
    """A stream for HTTP/1.0 ends with its connection, so only close_notify shows that it is complete."""
    settings = {"HTTP_WRITE_TIMEOUT": "1s"} if cause == "write timeout" else {"SHUTDOWN_DRAIN": "200ms"}
    gateway = await https_for(HTTP_WRITE_MINIMUM_RATE="0", **settings)
    # The data exceeds the kernel's buffers for a client that does not read. A smaller response could end in order.
    await upstream.push("x" * 12_000_000)
    client = gateway.client()

    async def has_all():
        return (await client.get(cursor="earliest", wait=0, max_bytes=67108864)).json["messages"]

    await eventually(has_all, what="the push is there")

    def open_stream():
        connection = blocking(gateway, trusting(authority), receive_buffer=4096)
        path = "/v1/messages?cursor=earliest"
        connection.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode())
        return connection, connection.recv(1024)

    connection, start = await asyncio.to_thread(open_stream)
    assert start.startswith(b"HTTP/1.1 200")
    assert b"Transfer-Encoding" not in start
    if cause == "write timeout":
        await eventually(lambda: counts(gateway, "readers_slow_total", 1), what="the client is reset")
    elif cause == "shutdown":
        gateway.signal(signal.SIGTERM)
        assert await gateway.exit_status() == 0
    else:
        await gateway.kill()
    await is_cut(connection)
