"""Abusers against every limit of the HTTP server.

The gateway must end each abuser at its limit. A healthy client beside it must keep its latency, and memory and
descriptors must return to their values before the attack. The limits are low, so that an attack reaches them quickly.
docs/threat-model.md names the test for each limit.
"""

import asyncio
import contextlib
import gzip
import itertools
import socket
import threading

import pytest
import pytest_asyncio

from harness.abuse import abuse, deaf, is_closed_on, may_vanish, vanish, was_reset
from harness.beside import Beside
from harness.credentials import with_tokens
from harness.raw import exchange, reset
from harness.sanitizer import memory_is_judged
from harness.tokens import bearer
from harness.waiting import eventually

KIBIBYTE = 1 << 10
MEBIBYTE = 1 << 20
CROWD = 60
# The share of a deadline that must have passed on the client's clock. The gateway counts from the beginning of a turn
# of its loop, which may be a little before the client starts its clock.
NEARLY = 0.9
GET = b"GET /v1/messages?wait=0 HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /v1/messages HTTP/1.1\r\nHost: x\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest_asyncio.fixture
async def limited(gateway_for, upstream):
    """`await limited(head_timeout="500ms")`: a gateway with these settings below `http`, and two loops."""

    async def limited(loops=2, **settings):
        env = {f"DRAWBRIDGE_HTTP_{name.upper()}": str(value) for name, value in settings.items()}
        return await gateway_for(upstream, "--loops", loops, env=env)

    return limited


@pytest_asyncio.fixture
async def besiege(start, measured):
    """`await besiege(gateway, attack)`: runs an attack beside a healthy client, and checks memory and descriptors.

    The attack first runs once without a measurement. The memory that the process keeps forever (pools of the allocator)
    then does not count.
    """

    async def besiege(gateway, attack, *, slack=6 * MEBIBYTE):
        await attack()
        beside = await start(Beside(gateway))
        await gateway.metrics()
        await settles(gateway)
        descriptors, memory = gateway.descriptors(), gateway.memory()
        result, factor = await beside.unharmed_by(attack)
        await eventually(lambda: gateway.descriptors() <= descriptors, what="descriptors are given back")
        measured(f"a healthy client beside: {factor:.1f} x its latency alone")
        memory_is_judged()
        await eventually(lambda: gateway.memory() <= memory + slack, what="memory is given back")
        return result

    return besiege


async def settles(gateway):
    """Waits until only the test's own connections are open."""

    async def is_quiet():
        return (await gateway.metrics())["drawbridge_http_connections"] <= 2

    await eventually(is_quiet, what="the connections of the abusers are gone")


async def crowd(attack, count=CROWD):
    return await asyncio.gather(*(attack() for _ in range(count)))


def says(ending, status, setting):
    """Checks that the ending is one response that names the setting of the limit, followed by the end."""
    assert ending.statuses == [status], ending.data[:500]
    assert b"application/problem+json" in ending.data
    assert setting.encode() in ending.data, ending.data[:1000]
    assert b"Connection: close" in ending.data
    assert ending.ended
    return True


# -- Too slow ---------------------------------------------------------------------------------------------------------


async def test_slow_heads_end_at_the_deadline_of_the_head(limited, besiege):
    gateway = await limited(head_timeout="1s", idle_timeout="1m")
    trickle = b"X-Slow: " + b"y" * 2000
    # The first part is sent at once. Without it, the connection would end without a response at the deadline.
    endings = await besiege(
        gateway, lambda: crowd(lambda: abuse(gateway.address(), GET, drip=(bytes([byte]) for byte in trickle)))
    )
    for ending in endings:
        says(ending, 408, "http.head_timeout")
        assert ending.seconds >= NEARLY


async def test_a_head_after_another_request_has_the_same_deadline(limited):
    gateway = await limited(head_timeout="300ms", idle_timeout="1m")
    ending = await abuse(gateway.address(), GET + b"\r\n" + b"GET /v1/messages HTTP/1.1\r\nHo")
    assert ending.statuses == [200, 408]
    assert ending.ended


async def test_silent_connections_end_at_the_deadline_of_the_head(limited, besiege):
    gateway = await limited(head_timeout="500ms", idle_timeout="1m")
    endings = await besiege(gateway, lambda: crowd(lambda: abuse(gateway.address()), 300))
    for ending in endings:
        assert ending.ended
        assert ending.data == b""
        assert ending.seconds >= NEARLY * 0.5


async def test_connections_that_stay_idle_after_a_request_end_at_the_idle_deadline(limited, besiege):
    gateway = await limited(idle_timeout="500ms", head_timeout="1m")
    endings = await besiege(gateway, lambda: crowd(lambda: abuse(gateway.address(), GET + b"\r\n")))
    for ending in endings:
        assert ending.ended
        assert ending.statuses == [200]
        assert ending.seconds >= NEARLY * 0.5


async def test_the_idle_time_begins_at_the_response_and_not_at_the_request(limited):
    gateway = await limited(idle_timeout="2s")
    reader, writer = await asyncio.open_connection(*gateway.address())
    for _ in range(2):
        writer.write(GET.replace(b"wait=0", b"wait=2500ms") + b"\r\n")
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
        assert head.startswith(b"HTTP/1.1 200 ")
        await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
    writer.close()


async def test_slow_bodies_end_when_they_fall_below_the_minimum_rate(limited, besiege):
    gateway = await limited(body_timeout="500ms", body_minimum_rate=10_000)
    start = POST + b"Content-Length: 100000\r\n\r\n"
    endings = await besiege(
        gateway, lambda: crowd(lambda: abuse(gateway.address(), start, drip=itertools.repeat(b"slow", 3000)))
    )
    for ending in endings:
        says(ending, 408, "http.body_minimum_rate")
        assert ending.seconds >= NEARLY * 0.5


async def test_quick_bodies_without_their_last_byte_end_after_one_pause(limited, besiege):
    # At the minimum rate of 240 bytes a second, a mebibyte may take more than an hour. The end of the pause comes
    # first.
    gateway = await limited(body_timeout="500ms")
    start = POST + b"Content-Length: 1048577\r\n\r\n" + bytes(MEBIBYTE)
    endings = await besiege(gateway, lambda: crowd(lambda: abuse(gateway.address(), start), 20), slack=24 * MEBIBYTE)
    for ending in endings:
        says(ending, 408, "http.body_timeout")


async def test_a_body_at_the_minimum_rate_may_take_long(limited, upstream):
    gateway = await limited(body_timeout="1s", body_minimum_rate=20)
    start = POST + b"Content-Type: text/plain\r\nContent-Length: 600\r\nConnection: close\r\n\r\n"
    ending = await abuse(gateway.address(), start, drip=[b"steady" * 5] * 20, every=0.1)
    assert ending.statuses == [202]
    assert ending.seconds >= 1.5
    assert await upstream.has_received(1) == ["steady" * 100]


# -- Not reading -------------------------------------------------------------------------------------------------------


async def large_pushes(gateway, upstream, count=4):
    """Makes the upstream push megabytes, and returns a request whose response contains all of them."""
    client = gateway.client()
    cursor = await client.here()
    await upstream.push(*(bytes(MEBIBYTE) for _ in range(count)))
    await client.collect(count, cursor)
    await client.close()
    path = f"/v1/messages?cursor={cursor}&wait=0&max_bytes={64 * MEBIBYTE}"
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


async def test_readers_that_read_nothing_are_reset_at_the_write_deadline(limited, besiege, upstream):
    gateway = await limited(write_timeout="500ms")
    request = await large_pushes(gateway, upstream)

    async def attack():
        readers = [deaf(gateway.address(), request) for _ in range(CROWD)]
        await eventually(lambda: all(map(was_reset, readers)), what="every deaf reader is reset")
        for reader in readers:
            reader.close()

    await besiege(gateway, attack)
    # The attack runs once without a measurement, and once or more beside the healthy client.
    reset = (await gateway.metrics())["drawbridge_http_readers_slow_total"]
    assert reset >= 2 * CROWD
    assert reset % CROWD == 0


async def test_readers_that_read_a_little_sometimes_are_reset(limited, besiege, upstream):
    # This reader takes megabytes a second. It does not stall, but it is far slower than the minimum rate.
    gateway = await limited(write_timeout="1s", write_minimum_rate=1_000_000_000)
    request = await large_pushes(gateway, upstream, 24)

    async def sip():
        reader = deaf(gateway.address(), request, buffer=256 * KIBIBYTE)
        reader.setblocking(False)
        loop = asyncio.get_running_loop()
        taken = 0
        with contextlib.suppress(ConnectionError):
            while data := await asyncio.wait_for(loop.sock_recv(reader, 64 * KIBIBYTE), 30):
                taken += len(data)
                await asyncio.sleep(0.02)
        reader.close()
        return taken

    for taken in await besiege(gateway, lambda: crowd(sip, 4)):
        assert 0 < taken < 24 * MEBIBYTE
    assert (await gateway.metrics())["drawbridge_http_readers_slow_total"] >= 8


async def sipped(reader, total, *, every):
    """Reads `total` bytes from a socket, 64 KiB after each pause. Fails if the gateway resets the connection first."""
    reader.setblocking(False)
    loop = asyncio.get_running_loop()
    taken = 0
    while taken < total:
        data = await asyncio.wait_for(loop.sock_recv(reader, 64 * KIBIBYTE), 20)
        assert data, f"the gateway ended the connection after {taken} bytes"
        taken += len(data)
        await asyncio.sleep(every)


async def test_a_slow_reader_behind_a_large_send_buffer_is_not_reset(limited, upstream):
    # The kernel reports room when a third of its send buffer is free. On the loopback interface, the buffer has 2.5
    # MiB, and reading a third of it takes two seconds here.
    gateway = await limited(write_timeout="1s")
    request = await large_pushes(gateway, upstream, 8)
    reader = deaf(gateway.address(), request, buffer=64 * KIBIBYTE)
    await sipped(reader, 3 * MEBIBYTE, every=0.15)
    assert (await gateway.metrics())["drawbridge_http_readers_slow_total"] == 0
    # When the reader stops, the gateway resets its connection.
    await eventually(lambda: was_reset(reader), within=20, what="the reader that has stopped is reset")
    reader.close()


async def test_unread_responses_of_all_clients_are_limited_and_the_slowest_is_reset_first(limited, upstream):
    gateway = await limited(write_timeout="1m", unsent_bytes="16MiB", loops=1)
    request = await large_pushes(gateway, upstream)
    readers = []
    for _ in range(12):
        readers.append(deaf(gateway.address(), request))
        held = (await gateway.metrics())["drawbridge_http_unsent_bytes"]
        assert held <= 16 * MEBIBYTE
    first, last = readers[0], readers[-1]
    await eventually(lambda: was_reset(first), what="the reader that has waited longest is reset")
    assert not was_reset(last)

    async def every_reset_is_counted():
        return (await gateway.metrics())["drawbridge_http_readers_slow_total"] == sum(map(was_reset, readers))

    await eventually(every_reset_is_counted)
    assert (await gateway.metrics())["drawbridge_http_unsent_bytes"] > 0
    # A reader that reads everything gets everything, even now.
    response = await exchange(gateway.address(), request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    assert response.statuses == [200]
    assert len(response.data) > 4 * MEBIBYTE
    for reader in readers:
        reader.close()

    async def nothing_waits():
        return (await gateway.metrics())["drawbridge_http_unsent_bytes"] == 0

    await eventually(nothing_waits)


async def test_the_principal_with_the_most_unread_bytes_is_reset_first(gateway_for, upstream, tokens):
    heavy, light = (tokens.add(name, scopes="receive") for name in ("heavy", "light"))
    env = {**with_tokens(tokens), "DRAWBRIDGE_HTTP_WRITE_TIMEOUT": "1m", "DRAWBRIDGE_HTTP_UNSENT_BYTES": "16MiB"}
    gateway = await gateway_for(upstream, "--loops", "1", env=env)
    await upstream.push(*(bytes(MEBIBYTE) for _ in range(4)))
    client = gateway.client()
    path = f"/v1/messages?cursor=earliest&wait=0&max_bytes={64 * MEBIBYTE}"

    async def has_arrived():
        response = await client.request("GET", path, headers=bearer(light))
        return len(response.json["messages"]) == 4

    await eventually(has_arrived, what="all pushes arrive")

    def read(token):
        return deaf(
            gateway.address(), f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
        )

    # This poll waits longest, and is the only poll of its principal. All clients have the same address.
    first = read(light)

    async def waits():
        return (await gateway.metrics())["drawbridge_http_unsent_bytes"] > 0

    await eventually(waits, what="the first response waits")
    others = [read(heavy) for _ in range(12)]
    await eventually(lambda: sum(map(was_reset, others)) >= 6, what="the one with the most gives way")
    assert not was_reset(first)
    for reader in [first, *others]:
        reader.close()


async def test_pipelined_requests_are_not_read_while_responses_are_unread(limited, besiege):
    gateway = await limited(write_timeout="500ms")

    async def attack():
        loop = asyncio.get_running_loop()
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setblocking(False)
        sent = 0
        await loop.sock_connect(connection, gateway.address())
        # This loop ends only because the gateway stops reading and then resets the connection.
        with contextlib.suppress(ConnectionError):
            while True:
                await asyncio.wait_for(loop.sock_sendall(connection, (GET + b"\r\n") * 200), 30)
                sent += 200 * len(GET)
                assert sent < 64 * MEBIBYTE, "the gateway reads on and on"
        connection.close()

    # A few clients suffice. The kernel takes megabytes from each, and a program with a sanitizer needs seconds for
    # each.
    await besiege(gateway, lambda: crowd(attack, 3))


async def test_pipelined_requests_after_a_held_poll_are_limited(limited, upstream):
    gateway = await limited(pipelined_bytes="16KiB")
    before = gateway.memory()
    loop = asyncio.get_running_loop()
    connections = []
    poll = GET.replace(b"wait=0", b"wait=20") + b"\r\n"
    for _ in range(10):
        connection = socket.socket()
        connection.setblocking(False)
        await loop.sock_connect(connection, gateway.address())
        await loop.sock_sendall(connection, poll)
        # The gateway does not read these bytes. They stay in the kernel's buffers until these are full.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(loop.sock_sendall(connection, poll * (64 * MEBIBYTE // len(poll))), 0.3)
        connections.append(connection)
    held = gateway.memory()
    for connection in connections:
        connection.close()
    memory_is_judged()
    assert held < before + 6 * MEBIBYTE


LONG = GET.replace(b"wait=0", b"wait=50") + b"Expect: 100-continue\r\n"
BEHIND = {
    "a poll with a length": LONG + b"Content-Length: 5\r\n\r\n",
    "a poll in chunks": LONG + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "a HEAD": LONG.replace(b"GET", b"HEAD") + b"Content-Length: 5\r\n\r\n",
    "a change of the session": POST.replace(b"POST /v1/messages", b"PATCH /v1/session")
    + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n",
    "a delivery": b"GET /v1/deliveries/x HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
    "a post to nowhere": POST.replace(b"messages", b"x") + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n",
    "half a body": GET.replace(b"wait=0", b"wait=50") + b"Content-Length: 100000000\r\n\r\nhalf",
    "half a body, awaited": LONG + b"Content-Length: 16777216\r\n\r\n",
}


@pytest.mark.parametrize("what", BEHIND)
async def test_endless_bytes_after_a_request_fill_no_memory(what, limited):
    """The gateway reads a limited number of bytes after any request. Further bytes fill only the kernel's buffers."""
    gateway = await limited(loops=1)
    before = gateway.memory()
    with socket.socket() as connection:
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(connection, gateway.address())
        await loop.sock_sendall(connection, BEHIND[what])
        block = bytes(MEBIBYTE)
        with contextlib.suppress(ConnectionError, TimeoutError):
            for _ in range(192):
                await asyncio.wait_for(loop.sock_sendall(connection, block), 0.5)
        assert (await gateway.manage("/livez")).status == 200
        assert gateway.memory() < before + 24 * MEBIBYTE


async def test_a_poll_that_expects_100_continue_is_held_after_its_body(gateway, upstream):
    reader, writer = await asyncio.open_connection(*gateway.address())
    writer.write(LONG + b"Content-Length: 5\r\n\r\n")
    assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30) == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert (await gateway.metrics())["drawbridge_polls_held"] == 0
    writer.write(b"12345")

    async def is_held():
        return (await gateway.metrics())["drawbridge_polls_held"] == 1

    await eventually(is_held, what="the poll is held")
    await upstream.push("news")
    assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)).startswith(b"HTTP/1.1 200 ")
    writer.close()


async def test_a_client_that_sends_at_full_speed_does_not_delay_others(limited, besiege):
    # All clients use one loop. The requests have bodies, so that a read brings fewer requests than a turn serves.
    gateway = await limited(loops=1)
    request = POST.replace(b"messages", b"nowhere") + b"Content-Length: 32768\r\n\r\n" + bytes(32768)
    block = request * 256

    def blast():
        with socket.create_connection(gateway.address(), timeout=30) as connection:

            def swallow():
                while connection.recv(1 << 20):
                    pass

            swallowing = threading.Thread(target=swallow)
            swallowing.start()
            for _ in range(12):
                connection.sendall(block)
            connection.shutdown(socket.SHUT_WR)
            swallowing.join()

    await besiege(gateway, lambda: crowd(lambda: asyncio.to_thread(blast), 3))


# -- Too much ---------------------------------------------------------------------------------------------------------

ENDLESS = {
    "a request line": (b"GET /", b"a" * 997, 414, "http.request_line_bytes"),
    "a field": (GET + b"X: ", b"a" * 997, 431, "http.head_bytes"),
    "fields": (GET, b"X: y\r\n", 431, "http.fields"),
    "empty lines": (b"", b"\r\n", 400, "http.empty_lines"),
    "a chunk extension": (CHUNKED + b"1;x=", b"y" * 97, 413, "http.chunk_extension_bytes"),
    "chunks of extensions": (CHUNKED, b"1;x=" + b"y" * 90 + b"\r\nz\r\n", 413, "http.chunk_overhead_bytes"),
    "a chunk size": (CHUNKED, b"0" * 7, 400, "16"),
    "chunks": (CHUNKED, b"1000\r\n" + b"z" * 4096 + b"\r\n", 413, "http.body_bytes"),
    "a trailer": (CHUNKED + b"0\r\nX: ", b"y" * 997, 431, "http.trailer_bytes"),
    "trailers": (CHUNKED + b"0\r\n", b"X: y\r\n", 431, "http.trailers"),
}


@pytest.mark.parametrize("what", ENDLESS)
async def test_endless_input_gets_one_response_with_the_limit_and_its_setting(what, limited):
    start, piece, status, setting = ENDLESS[what]
    gateway = await limited(body_bytes="256KiB", linger_timeout="300ms")
    ending = await abuse(gateway.address(), start, drip=itertools.repeat(piece * 5), every=0.001)
    says(ending, status, setting)


async def test_input_after_an_error_is_read_for_a_limited_time(limited, besiege):
    gateway = await limited(linger_timeout="300ms")
    endings = await besiege(
        gateway, lambda: crowd(lambda: is_closed_on(gateway.address(), b"bad\r\n\r\n", b"more", every=0.03))
    )
    # The client has this much time to read its response. An earlier reset could overtake the response.
    assert all(seconds >= NEARLY * 0.3 for _, seconds in endings)


async def test_input_after_an_error_is_read_up_to_a_number_of_bytes(limited):
    gateway = await limited(linger_timeout="1m", linger_bytes="256KiB")
    sent, _ = await is_closed_on(gateway.address(), b"bad\r\n\r\n", bytes(64 * KIBIBYTE))
    assert sent >= 256 * KIBIBYTE


async def test_a_connection_with_connection_close_is_closed_without_waiting(limited):
    gateway = await limited(linger_timeout="1m")
    reader, writer = await asyncio.open_connection(*gateway.address())
    writer.write(POST + b"Content-Type: text/plain\r\nContent-Length: 1\r\nConnection: close\r\n\r\na")
    assert (await reader.read()).startswith(b"HTTP/1.1 202 ")

    async def none_open():
        metrics = (await gateway.manage("/metrics")).body.decode()
        # The request for the metrics has a connection of its own.
        return "\ndrawbridge_http_connections 1\n" in metrics

    await eventually(none_open, what="the client's connection is closed")
    writer.close()


async def test_a_large_last_response_survives_bytes_that_follow_the_last_request(limited):
    gateway = await limited()
    loop = asyncio.get_running_loop()
    batch = b"x\n" * 1_000
    with socket.socket() as connection:
        # Most of the response stays in the kernel on the gateway's side until the client reads.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setblocking(False)
        await loop.sock_connect(connection, gateway.address())
        head = POST + b"Content-Type: application/x-ndjson\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
        await loop.sock_sendall(connection, head % len(batch) + batch)
        received = await loop.sock_recv(connection, 1)
        await loop.sock_sendall(connection, b"\r\n")
        # The end may be a reset, since the client has sent more than its head declared. The response must be complete
        # before the end.
        while not received.endswith(b"}\n"):
            chunk = await loop.sock_recv(connection, 65536)
            assert chunk, "the response is incomplete"
            received += chunk
    assert received.startswith(b"HTTP/1.1 202 ")


async def test_unfinished_bodies_of_all_clients_are_limited(limited, upstream):
    gateway = await limited(pending_body_bytes="1MiB")
    part = b"a" * 100_000
    head = POST + b"Content-Type: text/plain\r\nContent-Length: 100001\r\nConnection: close\r\n\r\n"
    halves = [await asyncio.open_connection(*gateway.address()) for _ in range(30)]
    for _, writer in halves:
        writer.write(head + part)
        held = (await gateway.metrics())["drawbridge_http_body_bytes"]
        assert held <= MEBIBYTE
    # A body that arrives as a whole needs no room in the total of partial bodies.
    await gateway.client().accepted("small")

    async def is_full():
        return (await gateway.metrics())["drawbridge_http_body_bytes"] >= MEBIBYTE - len(part)

    await eventually(is_full)
    responses = []
    for reader, writer in halves:
        writer.write(b"z")
        responses.append(await asyncio.wait_for(reader.read(), 30))
        writer.close()
    taken = sum(response.startswith(b"HTTP/1.1 202 ") for response in responses)
    refused = [response for response in responses if response.startswith(b"HTTP/1.1 503 ")]
    assert taken + len(refused) == 30
    assert 1 <= taken <= 10
    assert all(b"Retry-After: 1" in response and b"http.pending_body_bytes" in response for response in refused)
    assert sorted(await upstream.has_received(taken + 1)) == sorted(["small", *["a" * 100_000 + "z"] * taken])
    assert (await gateway.metrics())["drawbridge_http_body_bytes"] == 0


async def test_chunked_bodies_count_with_the_memory_that_they_use(limited):
    gateway = await limited(body_bytes="1MiB", pending_body_bytes="2MiB")
    writers = []
    for _ in range(2):
        _, writer = await asyncio.open_connection(*gateway.address())
        # A buffer that grows doubles its size: five pieces of 64 KiB need a buffer of 512 KiB.
        writer.write(CHUNKED + (b"10000\r\n" + bytes(64 * KIBIBYTE) + b"\r\n") * 5)
        writers.append(writer)

    async def both_are_held():
        return (await gateway.metrics())["drawbridge_http_body_bytes"] > 1000 * KIBIBYTE

    await eventually(both_are_held)
    for writer in writers:
        reset(writer)


async def test_a_body_as_large_as_the_total_of_all_bodies_is_accepted(limited):
    gateway = await limited(body_bytes="1MiB", pending_body_bytes="1MiB")
    reader, writer = await asyncio.open_connection(*gateway.address())
    writer.write(CHUNKED + (b"10000\r\n" + bytes(64 * KIBIBYTE) + b"\r\n") * 16)

    async def it_is_held():
        return (await gateway.metrics())["drawbridge_http_body_bytes"] == MEBIBYTE

    await eventually(it_is_held)
    writer.write(b"0\r\n\r\n")
    assert (await asyncio.wait_for(reader.readline(), 20)).startswith(b"HTTP/1.1 202 ")
    writer.close()


async def test_aborted_bodies_release_their_memory(limited):
    gateway = await limited(pending_body_bytes="1MiB")
    for _ in range(5):
        writers = []
        for _ in range(8):
            _, writer = await asyncio.open_connection(*gateway.address())
            writer.write(POST + b"Content-Length: 100001\r\n\r\n" + bytes(100_000))
            writers.append(writer)

        async def is_held():
            # The rest of each body has already reserved its room.
            return 800_000 <= (await gateway.metrics())["drawbridge_http_body_bytes"] <= 800_008

        await eventually(is_held)
        for writer in writers:
            reset(writer)

        async def is_given_back():
            return (await gateway.metrics())["drawbridge_http_body_bytes"] == 0

        await eventually(is_given_back)


async def test_a_batch_of_millions_of_lines_is_refused_at_its_limit(limited):
    gateway = await limited(body_bytes="4MiB")
    # A longer body would exceed the compression ratio.
    packed = gzip.compress(b"a\n" * (MEBIBYTE // 2))
    assert len(packed) < 8 * KIBIBYTE
    fields = b"Content-Type: application/x-ndjson\r\nContent-Encoding: gzip\r\nConnection: close\r\n"
    request = POST + fields + b"Content-Length: %d\r\n\r\n" % len(packed) + packed
    before = gateway.peak_memory()
    response = await exchange(gateway.address(), request)
    assert response.statuses == [413]
    assert b"http.batch_messages" in response.data
    # The gateway stores the unpacked body, without a record for each line.
    assert gateway.peak_memory() < before + 24 * MEBIBYTE


async def test_the_size_of_a_response_to_a_poll_is_limited(gateway_for, upstream):
    env = {"DRAWBRIDGE_DELIVERY_MAXIMUM_LIMIT": "3", "DRAWBRIDGE_DELIVERY_MAXIMUM_ANSWER_BYTES": "4096"}
    gateway = await gateway_for(upstream, env=env)
    client = gateway.client()
    cursor = await client.here()
    await upstream.push(*["small"] * 5, *["x" * 3000] * 3)
    payloads, _ = await client.collect(8, cursor)
    assert len(payloads) == 8
    batch = await client.poll(cursor=cursor, wait=0, limit=1000)
    assert batch.payloads == ["small"] * 3
    assert batch.more
    batch = await client.poll(cursor=batch.cursor, wait=0, max_bytes=1 << 30)
    assert batch.payloads == ["small"] * 2 + ["x" * 3000]
    assert batch.more


async def test_a_connection_ends_after_its_last_request(limited):
    gateway = await limited(requests_per_connection=3)
    response = await exchange(gateway.address(), (GET + b"\r\n") * 5)
    assert response.statuses == [200] * 3
    assert response.data.count(b"Connection: close") == 1
    assert response.ended


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "DELETE", "BREW"])
async def test_methods_that_are_not_served_are_refused(method, gateway):
    response = await exchange(
        gateway.address(), f"{method} /v1/messages HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
    )
    assert response.statuses == [405]
    # CONNECT names no path, so Allow contains the methods of the whole server.
    methods = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS" if method == "CONNECT" else b"GET, HEAD, POST, OPTIONS"
    assert b"\r\nAllow: " + methods + b"\r\n" in response.data


# -- Too many ---------------------------------------------------------------------------------------------------------


async def open_from(gateway, source, count, *, listener="api"):
    """Opens `count` connections from a loopback address, with a request on each. Returns all that got a response."""
    request = (GET if listener == "api" else b"GET /livez HTTP/1.1\r\nHost: x\r\n") + b"\r\n"
    alive = []
    for _ in range(count):
        with contextlib.suppress(ConnectionError):
            reader, writer = await asyncio.open_connection(*gateway.address(listener), local_addr=(source, 0))
            writer.write(request)
            if (await asyncio.wait_for(reader.read(1), 30)) == b"H":
                alive.append(writer)
    return alive


async def test_the_connections_of_one_address_are_limited_over_all_loops(limited):
    gateway = await limited(loops=4, connections_per_address=10)
    crowd = await open_from(gateway, "127.0.0.2", 40)
    assert len(crowd) == 10
    others = await open_from(gateway, "127.0.0.3", 3)
    assert len(others) == 3
    reset(crowd.pop())

    async def finds_a_place():
        return await open_from(gateway, "127.0.0.2", 1)

    crowd += await eventually(finds_a_place, what="a place that was left is taken again")
    assert not await open_from(gateway, "127.0.0.2", 1)
    metrics = await gateway.metrics()
    assert metrics["drawbridge_http_connections_refused_total"] >= 31
    warnings = [record for record in gateway.records if record.get("limit") == "http.connections_per_address"]
    assert 1 <= len(warnings) <= 4, "each loop tells it once"
    for writer in crowd + others:
        writer.close()


async def test_a_connection_stops_counting_however_it_ends(limited):
    gateway = await limited(loops=4, connections_per_address=5, head_timeout="300ms", linger_timeout="100ms")
    endings = [b"", b"bad\r\n\r\n", GET, GET + b"Connection: close\r\n\r\n", POST + b"Content-Length: 9\r\n\r\nhalf"]
    for index in range(60):
        ending = endings[index % len(endings)]

        async def is_served(ending=ending, index=index):
            with contextlib.suppress(ConnectionError):
                _, writer = await asyncio.open_connection(*gateway.address(), local_addr=("127.0.0.2", 0))
                writer.write(ending)
                if index % 2:
                    reset(writer)
                else:
                    writer.close()
            return await open_from(gateway, "127.0.0.2", 1)

        for writer in await eventually(is_served):
            writer.close()

    async def all_are_back():
        found = await open_from(gateway, "127.0.0.2", 6)
        for writer in found:
            reset(writer)
        return len(found) == 5

    await eventually(all_are_back, what="exactly the five places of the address are free")


async def test_the_connections_of_all_clients_are_limited_separately_from_probes(limited):
    gateway = await limited(connections=20, management_connections=4)
    crowd = await open_from(gateway, "127.0.0.2", 25)
    assert len(crowd) == 20
    assert (await gateway.manage("/livez")).status == 200
    # One of the four connections belongs to the harness.
    assert len(await open_from(gateway, "127.0.0.9", 10, listener="management")) == 3
    for writer in crowd:
        reset(writer)

    async def finds_a_place():
        return await open_from(gateway, "127.0.0.2", 1)

    assert await eventually(finds_a_place)


async def test_a_connection_of_the_address_with_the_most_is_reset_for_others(limited):
    gateway = await limited(loops=4, connections=20)
    crowd = await open_from(gateway, "127.0.0.2", 25)
    assert len(crowd) == 20
    # Each new connection displaces a connection of the crowd, until all addresses have the same number of connections.
    others = await open_from(gateway, "127.0.0.3", 5) + await open_from(gateway, "127.0.0.4", 5)
    assert len(others) == 10
    assert not await open_from(gateway, "127.0.0.2", 1)

    async def all_places_are_used():
        # The harness has one more connection, for metrics.
        return (await gateway.metrics())["drawbridge_http_connections"] == 21

    await eventually(all_places_are_used)
    for writer in crowd + others:
        writer.close()


async def test_the_client_with_the_most_unfinished_bodies_is_refused_first(limited, upstream):
    gateway = await limited(loops=2, pending_body_bytes="4MiB", body_bytes="1MiB", body_minimum_rate=0)
    head = POST + b"Content-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    attackers = []
    for _ in range(5):
        attackers.append(await asyncio.open_connection(*gateway.address(), local_addr=("127.0.0.2", 0)))
        attackers[-1][1].write(head % MEBIBYTE + bytes(MEBIBYTE - 1))

    async def is_full():
        return (await gateway.metrics())["drawbridge_http_body_bytes"] > 3 * MEBIBYTE

    await eventually(is_full, what="one address uses the total")
    for _ in range(3):
        reader, writer = await asyncio.open_connection(*gateway.address(), local_addr=("127.0.0.3", 0))
        writer.write(head % 600_000 + b"a" * 300_000)

        async def is_counted():
            return (await gateway.metrics())["drawbridge_http_body_bytes"] <= 4 * MEBIBYTE

        await eventually(is_counted)
        writer.write(b"a" * 300_000)
        assert (await asyncio.wait_for(reader.read(), 30)).startswith(b"HTTP/1.1 202 ")
        writer.close()
    for _, writer in attackers:
        writer.close()


@pytest.mark.load
async def test_connecting_and_resetting_repeatedly_delays_nobody_else(limited, besiege):
    gateway = await limited()
    endings = [
        b"",
        b"GET ",
        GET + b"\r\n",
        POST + b"Content-Length: 10\r\n\r\nhalf",
        b"\x00\xff\r\n\r\n",
        CHUNKED + b"5",
    ]

    async def churn(index):
        _, writer = await asyncio.open_connection(*gateway.address())
        writer.write(endings[index % len(endings)])
        reset(writer)

    async def attack():
        for batch in range(20):
            await asyncio.gather(*(churn(batch * 50 + index) for index in range(50)))

    await besiege(gateway, attack)


@pytest.mark.skipif(not may_vanish(), reason="taking a socket away in silence needs CAP_NET_ADMIN")
async def test_peers_that_disappear_without_fin_end_at_the_deadline_of_every_state(limited, besiege, upstream):
    gateway = await limited(
        head_timeout="500ms", body_timeout="500ms", idle_timeout="500ms", write_timeout="500ms", linger_timeout="200ms"
    )
    large = await large_pushes(gateway, upstream)
    # The states of connections: before a request, within its head, within its body, behind its response, held, and with
    # an unread response.
    states = [
        b"",
        b"GET /v1/mess",
        POST + b"Content-Length: 9\r\n\r\nhalf",
        GET + b"\r\n",
        GET.replace(b"wait=0", b"wait=1") + b"\r\n",
        large,
    ]

    async def attack():
        for state in states * 10:
            connection = deaf(gateway.address(), state)
            if state in (GET + b"\r\n", large):
                assert connection.recv(1) == b"H"
            vanish(connection)
        await settles(gateway)

    await besiege(gateway, attack)
