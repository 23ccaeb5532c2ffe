"""Rate limits of each client: exact, with a correct Retry-After, with limited memory, and forgotten when idle."""

import asyncio
import collections
import hashlib
import re
import time

import pytest

from harness.held_polls import hold
from harness.raw import exchange, reset_transport
from harness.waiting import eventually

PRINCIPALS = 10_000
ADDRESSES = 1_000
POLL = b"GET /v1/messages?wait=0 HTTP/1.1\r\nHost: x\r\n\r\n"
LAST_POLL = b"GET /v1/messages?wait=0 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def limits(**values):
    """The environment of a gateway with these limits per address."""
    return {f"DRAWBRIDGE_LIMITS_ADDRESS_{name.upper()}": str(value) for name, value in values.items()}


def address(number):
    """An address of this machine, by its number."""
    return f"127.{1 + number // 60_000}.{number // 250 % 240}.{1 + number % 250}"


async def statuses(gateway, source, data):
    """The status codes of pipelined requests from that address."""
    reader, writer = await asyncio.open_connection(*gateway.address(), local_addr=(source, 0))
    try:
        writer.write(data)
        received = await asyncio.wait_for(reader.read(-1), 60)
    finally:
        writer.close()
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+) ", received)]


@pytest.mark.load
async def test_ten_thousand_principals_have_exact_limits_in_limited_memory(gateway_for, upstream, tmp_path, measured):
    tokens = [f"the-token-of-principal-{number:05}" for number in range(PRINCIPALS)]
    file = tmp_path / "tokens"
    file.write_text(
        "".join(
            f"principal-{number} sha256:{hashlib.sha256(token.encode()).hexdigest()} scopes=receive\n"
            for number, token in enumerate(tokens)
        )
    )
    env = {
        "DRAWBRIDGE_AUTHENTICATION_TOKENS": str(file),
        "DRAWBRIDGE_LIMITS_PRINCIPAL_REQUESTS": "1/h",
        "DRAWBRIDGE_LOOPS": "2",
    }
    gateway = await gateway_for(upstream, env=env)
    before = gateway.memory()
    # Each principal sends two requests on different connections, so that many principals use both loops.
    connections = 20
    requests = [(number, (number + turn) % connections) for turn in range(2) for number in range(PRINCIPALS)]

    async def use(connection):
        numbers = [number for number, own in requests if own == connection]
        polls = [
            POLL.replace(b"\r\n\r\n", b"\r\nAuthorization: Bearer %s\r\n\r\n" % tokens[n].encode()) for n in numbers
        ]
        polls[-1] = polls[-1].replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        return zip(numbers, await statuses(gateway, "127.0.0.1", b"".join(polls)), strict=True)

    admitted = collections.Counter()
    for responses in await asyncio.gather(*(use(connection) for connection in range(connections))):
        admitted.update(number for number, status in responses if status == 200)
    assert set(admitted.values()) == {1}
    assert len(admitted) == PRINCIPALS
    metrics = await gateway.metrics()
    assert metrics["drawbridge_rate_limit_keys"] == PRINCIPALS
    assert metrics["drawbridge_requests_limited_total"] == PRINCIPALS
    grown = gateway.memory() - before
    assert grown < 16 << 20
    measured(f"{grown / PRINCIPALS:.0f} bytes of memory for each of {PRINCIPALS} principals with a limit")


async def test_a_thousand_addresses_have_exact_limits(gateway_for, upstream):
    gateway = await gateway_for(upstream, env={**limits(requests="1/h"), "DRAWBRIDGE_LOOPS": "2"})
    room = asyncio.Semaphore(64)

    async def use(number):
        async with room:
            return await statuses(gateway, address(number), POLL + LAST_POLL)

    for responses in await asyncio.gather(*(use(number) for number in range(ADDRESSES))):
        assert responses == [200, 429]
    # The gateway has forgotten no address.
    for number in (0, 1, ADDRESSES // 2, ADDRESSES - 1):
        assert await statuses(gateway, address(number), LAST_POLL) == [429]
    assert (await gateway.metrics())["drawbridge_rate_limit_keys"] == ADDRESSES


async def test_a_limit_is_exact_over_time_and_over_all_loops(gateway_for, upstream):
    gateway = await gateway_for(upstream, env={**limits(requests="50/s burst 20"), "DRAWBRIDGE_LOOPS": "4"})
    start = time.monotonic()

    async def hammer():
        """Sends requests on one connection. Returns the number of admitted requests."""
        reader, writer = await asyncio.open_connection(*gateway.address())
        admitted = 0
        try:
            while time.monotonic() < start + 3:
                writer.write(POLL)
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
                length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
                admitted += head.startswith(b"HTTP/1.1 200 ")
        finally:
            writer.close()
        return admitted

    admitted = sum(await asyncio.gather(*(hammer() for _ in range(8))))
    took = time.monotonic() - start
    assert 20 < admitted <= 20 + 50 * took


async def test_a_client_that_waits_for_retry_after_is_admitted(gateway_for, upstream):
    gateway = await gateway_for(upstream, env=limits(requests="60/m burst 2"))
    client = gateway.client()
    for _ in range(2):
        assert (await client.get(wait=0)).status == 200
    refused = await client.get(wait=0)
    assert refused.problem(429)["type"] == "/errors/too-many-requests"
    assert refused.headers["RateLimit-Policy"] == '"address-requests";q=2;w=2'
    assert refused.headers["RateLimit"] == f'"address-requests";r=0;t={refused.headers["Retry-After"]}'
    await asyncio.sleep(int(refused.headers["Retry-After"]))
    assert (await client.get(wait=0)).status == 200


async def test_a_client_that_waits_for_retry_after_may_send_its_batch(gateway_for, upstream):
    gateway = await gateway_for(upstream, env=limits(messages="60/m burst 3"))
    client = gateway.client()
    assert (await client.send("1\n2\n3\n", type="application/x-ndjson")).status == 202
    refused = await client.send("4\n5\n", type="application/x-ndjson")
    refused.problem(429)
    await asyncio.sleep(int(refused.headers["Retry-After"]))
    assert (await client.send("4\n5\n", type="application/x-ndjson")).status == 202
    assert await upstream.has_received(5) == ["1", "2", "3", "4", "5"]


async def test_held_requests_stop_counting_however_they_end(gateway_for, upstream):
    most = 100
    gateway = await gateway_for(upstream, env=limits(held=most))
    stream = "Accept: text/event-stream\r\n"

    async def held(polls, streams):
        metrics = await gateway.metrics()
        return metrics["drawbridge_polls_held"] == polls and metrics["drawbridge_streams_open"] == streams

    async def refused():
        data = LAST_POLL.replace(b"wait=0", b"wait=20")
        return (await exchange(gateway.address(), data)).statuses == [429]

    for round in range(10):
        polls = await hold(gateway.address(), most // 2, "/v1/messages?wait=55")
        streams = await hold(gateway.address(), most // 2, "/v1/messages", fields=stream)
        await eventually(lambda: held(most // 2, most // 2), what=f"{most} requests are held in round {round}")
        assert await refused()
        for request in polls + streams:
            request.response.cancel()
            reset_transport(request.transport)
        await eventually(lambda: held(0, 0), what="the requests have ended")
    polls = await hold(gateway.address(), most, "/v1/messages?wait=55")
    await eventually(lambda: held(most, 0), what="all are held again")
    await upstream.push("to everybody")
    await asyncio.gather(*(poll.response for poll in polls))
    # Some held polls end with a response, and the last polls end with the shutdown.
    last = await hold(gateway.address(), most, "/v1/messages?wait=55")
    await eventually(lambda: held(most, 0), what="all are held again after their responses")
    gateway.signal()
    await asyncio.gather(*(poll.response for poll in last))
    assert await gateway.exit_status() == 0
    for poll in polls:
        poll.transport.abort()


async def test_refusals_are_logged_and_counted_without_filling_the_log(gateway_for, upstream):
    gateway = await gateway_for(upstream, env=limits(requests="1/h"))
    client = gateway.client()
    for _ in range(50):
        await client.get(wait=0)
    metrics = await gateway.metrics()
    assert metrics["drawbridge_requests_limited_total"] == 49
    refused = [record for record in gateway.records if record["message"] == "request refused"]
    assert 1 <= len(refused) < 49
    assert refused[0]["type"] == "too-many-requests"
    # Requests of probes are not limited.
    for _ in range(5):
        assert (await gateway.manage("/livez")).status == 200


@pytest.mark.parametrize("value", ["10", "0/s", "10/d", "10/s burst", "10/s burst 0", "fast"])
async def test_an_invalid_limit_prevents_the_start(gateway_for, upstream, value):
    with pytest.raises(AssertionError, match=r"exit 78\)(?s:.*)limits\.address\.requests(?s:.*)100/s burst 200"):
        await gateway_for(upstream, env=limits(requests=value))
