"""Requests on a real socket: whole, byte by byte and cut at random. Their meaning must not depend on the pieces.

Tests/Codecs/HTTPCodecTests checks the rules with their sections of the RFC. These tests use the whole program.
"""

import asyncio
import contextlib
import random
import re

import pytest

GET = b"GET /v1/messages?wait=0 HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
NEXT = b"GET /v1/session HTTP/1.1\r\nHost: x\r\n\r\n"

# The bytes sent, and the statuses of the responses. A further request follows, which a working connection serves with
# 200.
SOUND = {
    "a poll": (GET + b"\r\n", [200]),
    "an empty line before it": (b"\r\n" + GET + b"\r\n", [200]),
    "an absolute target": (b"GET http://x/v1/messages?wait=0 HTTP/1.1\r\nHost: x\r\n\r\n", [200]),
    "odd whitespace around values": (GET + b"X:\t y \t\r\nY:\r\n\r\n", [200]),
    "bytes above 127 in a value": (GET + b"X: \xff\xfe\r\n\r\n", [200]),
    "a HEAD": (GET.replace(b"GET", b"HEAD") + b"\r\n", [200]),
    "OPTIONS of everything": (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", [204]),
    "a method that is not served": (GET.replace(b"GET", b"BREW") + b"\r\n", [405]),
    "a TRACE": (b"TRACE /v1/session HTTP/1.1\r\nHost: x\r\n\r\n", [405]),
    "a path that is not there": (b"GET /admin HTTP/1.1\r\nHost: x\r\n\r\n", [404]),
    "a body": (POST + b"Content-Length: 5\r\n\r\nhello", [202]),
    "an empty body": (POST + b"Content-Length: 0\r\n\r\n", [202]),
    "a body that looks like a request": (POST + b"Content-Length: %d\r\n\r\n" % len(NEXT) + NEXT, [202]),
    "a body of a GET": (GET + b"Content-Length: %d\r\n\r\n" % len(NEXT) + NEXT, [200]),
    "a body nobody wants": (POST.replace(b"messages", b"nothing") + b"Content-Length: 5\r\n\r\nhello", [404]),
    "chunks": (CHUNKED + b"5\r\nhello\r\n1\r\n \r\n005\r\nworld\r\n0\r\n\r\n", [202]),
    "chunks with extensions and trailers": (CHUNKED + b'5;a;b="c;\\"d" ; e\r\nhello\r\n0;f\r\nX: y\r\n\r\n', [202]),
    "three at once": (GET + b"\r\n" + POST + b"Content-Length: 1\r\n\r\na" + GET + b"\r\n", [200, 202, 200]),
    "HTTP/1.0 that stays": (b"GET /v1/session HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", [200]),
    "a body in HTTP/1.0": (
        b"POST /v1/messages HTTP/1.0\r\nConnection: Keep-Alive\r\nContent-Length: 5\r\n\r\nhello",
        [202],
    ),
    "a later HTTP/1": (b"GET /v1/session HTTP/1.2\r\nHost: x\r\n\r\n", [200]),
    "an absolute target of https": (b"GET https://x:443/v1/session HTTP/1.1\r\nHost: x:443\r\n\r\n", [200]),
    "an absolute target in capitals": (b"GET HTTP://X/v1/session HTTP/1.1\r\nHost: x\r\n\r\n", [200]),
    "an absolute target of another host": (b"GET http://y/v1/session HTTP/1.1\r\nHost: x\r\n\r\n", [403]),
    "an absolute target without path": (b"GET http://x HTTP/1.1\r\nHost: x\r\n\r\n", [404]),
    "OPTIONS of everything, absolute": (b"OPTIONS http://x HTTP/1.1\r\nHost: x\r\n\r\n", [204]),
    "OPTIONS of everything, with a body": (b"OPTIONS * HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi", [204]),
    "an escaped path": (b"GET /v1/%73essio%6E HTTP/1.1\r\nHost: x\r\n\r\n", [200]),
    "an escaped slash": (b"GET /v1%2Fsession HTTP/1.1\r\nHost: x\r\n\r\n", [404]),
    "an escaped parameter": (b"GET /v1/messages?%77ait=%30 HTTP/1.1\r\nHost: x\r\n\r\n", [200]),
    "an empty query": (b"GET /v1/session? HTTP/1.1\r\nHost: x\r\n\r\n", [200]),
    "an empty query of a POST": (POST.replace(b" HTTP", b"? HTTP") + b"Content-Length: 1\r\n\r\na", [202]),
    "empty parameters": (GET.replace(b"wait=0", b"&&wait=0&") + b"\r\n", [200]),
    "an empty Host": (b"GET /v1/session HTTP/1.1\r\nHost:\r\n\r\n", [200]),
    "a Host with an empty port": (b"GET /v1/session HTTP/1.1\r\nHost: x:\r\n\r\n", [200]),
    "a Host of IPv6": (b"GET /v1/session HTTP/1.1\r\nHost: [2001:db8::192.0.2.1]:8080\r\n\r\n", [403]),
    "a hundred fields": (GET + b"X: y\r\n" * 99 + b"\r\n", [200]),
    "a field name of odd letters": (GET + b"!#$%&'*+-.^_`|~09aZ: v\r\n\r\n", [200]),
    "fields of other times": (
        GET + b"Pragma: no-cache\r\nProxy-Connection: keep-alive\r\nKeep-Alive: 300\r\nFrom: a@b\r\n"
        b'Warning: 199 - "x"\r\nMIME-Version: 1.0\r\nTE: trailers, deflate;q=0.5\r\nMax-Forwards: 3\r\n\r\n',
        [200],
    ),
    "conditions that do not matter here": (GET + b"Range: bytes=0-1\r\nIf-None-Match: *\r\n\r\n", [200]),
    "an upgrade that is not taken": (
        GET + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ\r\n\r\n",
        [200],
    ),
    "a list with empty elements": (GET + b"Connection: , keep-alive,,\r\n\r\n", [200]),
    "an expectation without a body": (GET + b"Expect: 100-continue\r\n\r\n", [200]),
    "an expectation of an empty body": (POST + b"Content-Length: 0\r\nExpect: 100-continue\r\n\r\n", [202]),
    "a length with zeros before it": (POST + b"Content-Length: " + b"0" * 40 + b"5\r\n\r\nhello", [202]),
    "chunk sizes in either case": (
        CHUNKED + b"a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n",
        [202],
    ),
    "Transfer-Encoding in capitals": (CHUNKED.replace(b"chunked", b"CHUNKED") + b"1\r\na\r\n0\r\n\r\n", [202]),
    "a hundred small ones": ((GET + b"\r\n" + POST + b"Content-Length: 1\r\n\r\na") * 50, [200, 202] * 50),
}

# The same, but the last response is a refusal, after which the connection ends.
UNSOUND = {
    "no Host": (b"GET /v1/session HTTP/1.1\r\n\r\n", [400]),
    "two Hosts": (GET + b"Host: x\r\n\r\n", [400]),
    "a Host that is none": (b"GET /v1/session HTTP/1.1\r\nHost: x y\r\n\r\n", [400]),
    "a Host of half an address": (b"GET /v1/session HTTP/1.1\r\nHost: [::1\r\n\r\n", [400]),
    "a Host of no address": (b"GET /v1/session HTTP/1.1\r\nHost: [::::]\r\n\r\n", [400]),
    "a Host of two": (b"GET /v1/session HTTP/1.1\r\nHost: x,y\r\n\r\n", [400]),
    "a Host with user information": (b"GET /v1/session HTTP/1.1\r\nHost: u@x\r\n\r\n", [400]),
    "a Host with a port beyond all": (b"GET /v1/session HTTP/1.1\r\nHost: x:65536\r\n\r\n", [400]),
    "two Hosts in HTTP/1.0": (b"GET /v1/session HTTP/1.0\r\nHost: x\r\nHost: x\r\n\r\n", [400]),
    "a tab in the request line": (b"GET\t/v1/session HTTP/1.1\r\nHost: x\r\n\r\n", [400]),
    "a space behind the version": (b"GET /v1/session HTTP/1.1 \r\nHost: x\r\n\r\n", [400]),
    "five empty lines": (b"\r\n" * 5 + GET + b"\r\n", [400]),
    "101 fields": (GET + b"X: y\r\n" * 100 + b"\r\n", [431]),
    "an expectation that is not known": (POST + b"Content-Length: 2\r\nExpect: 200-ok\r\n\r\nhi", [417]),
    "an authority as target": (b"GET x:80 HTTP/1.1\r\nHost: x\r\n\r\n", [400]),
    "a line that ends with LF": (b"GET /v1/session HTTP/1.1\nHost: x\n\n", [400]),
    "a CR within a line": (GET + b"X: y\rz\r\n\r\n", [400]),
    "a NUL": (GET + b"X: \x00\r\n\r\n", [400]),
    "a folded field": (GET + b"X: y\r\n z\r\n\r\n", [400]),
    "a space before the colon": (GET + b"Content-Length : 5\r\n\r\n", [400]),
    "a field without colon": (GET + b"X\r\n\r\n", [400]),
    "a second version": (b"GET /v1/session HTTP/1.1 HTTP/1.1\r\nHost: x\r\n\r\n", [400]),
    "a version that is not spoken": (b"GET /v1/session HTTP/2.0\r\nHost: x\r\n\r\n", [505]),
    "a CONNECT": (b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", [405]),
    "two lengths": (POST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", [400]),
    "a list of lengths": (POST + b"Content-Length: 5, 5\r\n\r\nhello", [400]),
    "a signed length": (POST + b"Content-Length: +5\r\n\r\nhello", [400]),
    "a length beside chunks": (POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", [400]),
    "chunks beside a length": (POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", [400]),
    "another coding": (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", [501]),
    "chunked twice": (POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", [400]),
    "a body in HTTP/1.0 without a length": (b"POST /v1/messages HTTP/1.0\r\n\r\nhello", [400]),
    "chunks in HTTP/1.0": (b"POST /v1/messages HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", [400]),
    "a chunk size with a sign": (CHUNKED + b"+5\r\nhello\r\n0\r\n\r\n", [400]),
    "a chunk size with a prefix": (CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n", [400]),
    "a chunk size that ends with LF": (CHUNKED + b"5\nhello\r\n0\r\n\r\n", [400]),
    "a LF in a chunk extension": (CHUNKED + b"5;a\nb\r\nhello\r\n0\r\n\r\n", [400]),
    "a chunk longer than its size": (CHUNKED + b"5\r\nhello!\r\n0\r\n\r\n", [400]),
    "a chunk that ends with LF": (CHUNKED + b"5\r\nhello\n0\r\n\r\n", [400]),
    "framing in a trailer": (CHUNKED + b"0\r\nContent-Length: 5\r\n\r\n", [400]),
    "a wrong one behind right ones": (GET + b"\r\n" + GET + b"\r\n" + GET + b"X\r\n\r\n", [200, 200, 400]),
}


def pieces(data, cut):
    if cut == "whole":
        return [data]
    if cut == "byte":
        return [data[index : index + 1] for index in range(len(data))]
    # The cuts are the same in every run.
    places = sorted(random.Random(len(data)).choices(range(len(data)), k=6))
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


async def converse(address, data, cut):
    """Sends `data` in pieces. Returns the statuses of the responses, and whether the gateway closed the connection."""
    reader, writer = await asyncio.open_connection(*address)
    received = bytearray()

    async def collect():
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(65536):
                received.extend(chunk)
        return True

    collecting = asyncio.create_task(collect())
    # The gateway may have closed the connection, perhaps with a reset.
    with contextlib.suppress(OSError):
        for piece in pieces(data, cut):
            writer.write(piece)
            await writer.drain()
            # This does not wait for an event. It keeps the kernel from joining the pieces.
            await asyncio.sleep(0.001 if cut != "whole" else 0)
        writer.write_eof()
    ended = await asyncio.wait_for(collecting, 30)
    writer.transport.abort()
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", bytes(received))], ended


@pytest.mark.parametrize("cut", ["whole", "byte", "random"])
async def test_a_valid_request_and_the_next_request_get_responses(cut, gateway):
    found = await asyncio.gather(*(converse(gateway.address(), data + NEXT, cut) for data, _ in SOUND.values()))
    wrong = {
        name: (statuses, [*expected, 200])
        for (name, (_, expected)), (statuses, ended) in zip(SOUND.items(), found, strict=True)
        if statuses != [*expected, 200] or not ended
    }
    assert not wrong


@pytest.mark.parametrize("cut", ["whole", "byte", "random"])
async def test_an_invalid_request_is_refused_once_and_nothing_after_it_is_read(cut, gateway, upstream):
    found = await asyncio.gather(
        *(
            converse(gateway.address(), data + POST + b"Content-Length: 8\r\n\r\nsmuggled", cut)
            for data, _ in UNSOUND.values()
        )
    )
    wrong = {
        name: (statuses, expected)
        for (name, (_, expected)), (statuses, ended) in zip(UNSOUND.items(), found, strict=True)
        if statuses != expected or not ended
    }
    assert not wrong
    await gateway.client().accepted("honest")
    assert await upstream.has_received(1) == ["honest"]
