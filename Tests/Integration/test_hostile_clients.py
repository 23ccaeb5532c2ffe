"""Clients that send garbage, too much or too slowly, or hang up. They get a clear response or are closed."""

import asyncio
import socket

import pytest
import pytest_asyncio

from harness.raw import exchange, reset
from harness.sanitizer import memory_is_judged
from harness.waiting import eventually

KIBIBYTE = 1 << 10
MEBIBYTE = 1 << 20
GET = b"GET /v1/messages?wait=0 HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /v1/messages HTTP/1.1\r\nHost: x\r\n"

REFUSED = {
    "garbage": (bytes(range(128, 256)) * 4 + b"\r\n\r\n", 400),
    "a TLS hello": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(508), 400),
    "the preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "HTTP/0.9": (b"GET /v1/messages\r\n\r\n", 400),
    "a version of the future": (b"GET / HTTP/3.0\r\nHost: x\r\n\r\n", 505),
    "no Host": (b"GET /v1/messages?wait=0 HTTP/1.1\r\n\r\n", 400),
    "two Hosts": (GET + b"Host: y\r\n\r\n", 400),
    "a space before the colon": (GET + b"Name : value\r\n\r\n", 400),
    "a folded line": (GET + b"Name: value\r\n more\r\n\r\n", 400),
    "a NUL in a value": (GET + b"Name: va\x00lue\r\n\r\n", 400),
    "a bare CR": (GET + b"Name: va\rlue\r\n\r\n", 400),
    "length beside chunks": (POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "two lengths": (POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400),
    "a negative length": (POST + b"Content-Length: -1\r\n\r\n", 400),
    "a length beyond all bounds": (POST + b"Content-Length: 99999999999999999999999\r\n\r\n", 413),
    "an unknown coding": (POST + b"Transfer-Encoding: gzip\r\n\r\n", 501),
    "a bad chunk size": (POST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", 400),
    "a chunk size beyond all bounds": (POST + b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n", 400),
    "a chunk longer than it says": (POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n0\r\n\r\n", 400),
    "a long request line": (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
    "a request line without end": (b"GET /" + b"a" * 100_000, 414),
    "too many fields": (GET + b"".join(b"X-%d: y\r\n" % i for i in range(200)) + b"\r\n", 431),
    "a field that is too long": (GET + b"X: " + b"y" * 40_000 + b"\r\n\r\n", 431),
    "a body that is too long": (POST + b"Content-Length: 1000000000\r\n\r\n", 413),
    "CONNECT": (b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n", 405),
}


@pytest_asyncio.fixture
async def impatient(gateway_for, upstream):
    """A gateway with deadlines that a test can wait for."""
    return await gateway_for(
        upstream,
        env={
            "DRAWBRIDGE_HTTP_HEAD_TIMEOUT": "1s",
            "DRAWBRIDGE_HTTP_BODY_TIMEOUT": "1s",
            "DRAWBRIDGE_HTTP_IDLE_TIMEOUT": "1s",
        },
    )


@pytest.mark.parametrize("name", REFUSED)
async def test_a_bad_request_gets_one_error_response(name, gateway):
    request, expected = REFUSED[name]
    # A second request follows. After a framing error, its bytes must not be read as a request.
    response = await exchange(gateway.address(), request, end_of_input=True)
    assert len(response.statuses) == 1, response.data[:2000]
    assert response.statuses[0] == expected, response.data[:2000]
    assert b"application/problem+json" in response.data
    assert response.ended
    await serves(gateway)


async def test_another_protocol_is_named_in_the_response_and_once_a_minute_in_the_log(gateway):
    tls = REFUSED["a TLS hello"][0]
    header = b"PROXY TCP4 192.0.2.1 192.0.2.2 4711 80\r\n"
    binary = b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + bytes(12)

    def logged(name):
        lines = [record for record in gateway.records if record["message"] == "a connection does not speak HTTP"]
        return [record for record in lines if name in record["reason"]]

    for name, inputs in (("a TLS handshake", [tls, tls, tls]), ("the PROXY protocol", [header, binary, header + GET])):
        for data in inputs:
            response = await exchange(gateway.address(), data, end_of_input=True)
            assert response.statuses == [400]
            assert name.encode() in response.data
        await eventually(lambda name=name: logged(name), what="the line")
    (record,) = logged("a TLS handshake")
    assert record["level"] == "info"
    assert record["client"].startswith("127.0.0.1:")
    assert len(logged("the PROXY protocol")) == 1


async def test_bytes_after_a_framing_error_are_not_a_request(gateway, upstream):
    smuggled = POST + b"Content-Type: text/plain\r\nContent-Length: 8\r\n\r\nsmuggled"
    bad = POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    response = await exchange(gateway.address(), bad + smuggled)
    assert response.statuses == [400]
    assert response.ended
    await gateway.client().accepted("honest")
    assert await upstream.has_received(1) == ["honest"]


async def test_pipelined_requests_get_their_responses_in_order(gateway, upstream):
    posts = b"".join(
        POST + b"Content-Type: text/plain\r\nContent-Length: 1\r\n\r\n" + letter.encode() for letter in "abcdefghij"
    )
    last = b"GET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    response = await exchange(gateway.address(), posts + last)
    assert response.statuses == [202] * 10 + [404]
    assert response.ended
    assert await upstream.has_received(10) == list("abcdefghij")


async def test_a_body_in_chunks_is_one_message(gateway, upstream):
    chunks = b"5;ext=1\r\nhello\r\n1\r\n \r\n5\r\nworld\r\n0\r\nChecksum: x\r\n\r\n"
    request = POST + b"Content-Type: text/plain\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n" + chunks
    response = await exchange(gateway.address(), request)
    assert response.statuses == [202]
    assert await upstream.has_received(1) == ["hello world"]


async def test_a_client_that_expects_100_continue_gets_it(gateway, upstream):
    reader, writer = await asyncio.open_connection(*gateway.address())
    writer.write(POST + b"Content-Type: text/plain\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
    writer.write(b"hello")
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 202 ")
    assert await upstream.has_received(1) == ["hello"]
    writer.close()


@pytest.mark.parametrize(("length", "status"), [(8192, 200), (8193, 414)])
async def test_the_limit_of_a_request_line_is_exact(length, status, gateway):
    line = b"GET /v1/messages?wait=0&".ljust(length - len(b" HTTP/1.1"), b"&") + b" HTTP/1.1"
    assert len(line) == length
    response = await exchange(gateway.address(), line + b"\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert response.statuses == [status]


async def test_a_refused_body_gets_no_100_continue(gateway):
    """The gateway sends the final response instead of 100, and closes, with or without the body (RFC 9110, 10.1.1)."""
    for request, status in [
        (POST.replace(b"messages", b"nowhere") + b"Content-Length: 5", 404),
        (POST.replace(b"POST", b"PUT") + b"Content-Length: 5", 405),
        (POST + b"Content-Encoding: br\r\nContent-Length: 5", 415),
        (POST + b"Content-Length: 99999999", 413),
        (b"PATCH /v1/session HTTP/1.1\r\nHost: x\r\nContent-Length: 4097", 413),
        (GET + b"Content-Length: 5", 200),
    ]:
        response = await exchange(gateway.address(), request + b"\r\nExpect: 100-continue\r\n\r\n")
        assert response.statuses == [status]
        assert response.ended


async def test_an_endless_head_ends_at_its_deadline(impatient):
    response = await exchange(impatient.address(), b"GET /v1/messages HTTP/1.1\r\nHost: x\r\n")
    assert response.ended
    assert response.statuses == [408]
    await serves(impatient)


async def test_a_slow_head_ends_at_the_same_deadline(impatient):
    reader, writer = await asyncio.open_connection(*impatient.address())

    async def trickle():
        for byte in GET + b"X-Slow: " + b"y" * 1000:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.05)

    trickling = asyncio.create_task(trickle())
    response = await asyncio.wait_for(reader.read(), 30)
    trickling.cancel()
    assert response.startswith(b"HTTP/1.1 408 ")
    writer.transport.abort()
    await serves(impatient)


async def test_a_body_that_never_arrives_ends_at_its_deadline(impatient):
    response = await exchange(impatient.address(), POST + b"Content-Length: 1000\r\n\r\nnot all")
    assert response.ended
    assert response.statuses == [408]
    await serves(impatient)


async def test_an_idle_connection_is_closed_at_its_deadline_without_a_response(impatient):
    response = await exchange(impatient.address(), b"")
    assert response.ended
    assert response.data == b""
    response = await exchange(impatient.address(), GET + b"\r\n")
    assert response.ended
    assert response.statuses == [200]


async def test_a_held_poll_is_not_an_idle_connection(impatient, upstream):
    client = impatient.client()
    poll = asyncio.create_task(client.poll(wait=3))
    done, _ = await asyncio.wait([poll], timeout=2)
    assert not done
    await upstream.push("awake")
    assert (await poll).payloads == ["awake"]


async def test_a_client_that_does_not_read_its_responses_is_limited_and_delays_nobody(gateway, upstream):
    client = gateway.client()
    cursor = await client.here()
    await upstream.push(*(bytes(MEBIBYTE) for _ in range(8)))
    await client.collect(8, cursor)
    before = gateway.memory()
    deaf = []
    for _ in range(20):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(gateway.address())
        request = f"GET /v1/messages?cursor={cursor}&wait=0 HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        connection.sendall(request * 50)
        deaf.append(connection)
    for _ in range(50):
        await serves(gateway)
    # Twenty readers use the same bytes in memory. Each reader adds only a reference and a position.
    assert gateway.memory() < before + 24 * MEBIBYTE
    for connection in deaf:
        connection.close()


@pytest.mark.load
async def test_connections_leave_no_state_when_they_end(gateway):
    await serves(gateway)
    descriptors, memory = gateway.descriptors(), gateway.memory()
    endings = [b"", b"GET ", GET + b"\r\n", POST + b"Content-Length: 10\r\n\r\nhalf", b"\x00\xff\r\n\r\n"]

    async def come_and_go(index):
        _, writer = await asyncio.open_connection(*gateway.address())
        writer.write(endings[index % len(endings)])
        if index % 2:
            reset(writer)
        else:
            writer.close()

    for batch in range(20):
        await asyncio.gather(*(come_and_go(batch * 100 + i) for i in range(100)))
    await eventually(lambda: gateway.descriptors() <= descriptors + 1, what="descriptors are given back")
    await serves(gateway)
    memory_is_judged()
    assert gateway.memory() < memory + 8 * MEBIBYTE


async def test_idle_connections_do_not_delay_others(gateway):
    idle = [await asyncio.open_connection(*gateway.address()) for _ in range(500)]
    await serves(gateway)
    for _, writer in idle:
        reset(writer)


async def serves(gateway):
    client = gateway.client()
    try:
        await client.poll(wait=0)
    finally:
        await client.close()
