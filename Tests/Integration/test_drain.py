"""The steps of a shutdown, as clients, probes and load balancers see them."""

import asyncio
import signal

from harness.raw import frame, upgrade
from harness.streams import RawStream
from harness.waiting import eventually

HALF_A_POST = b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nla"
POLL = b"GET /v1/messages?wait=55 HTTP/1.1\r\nHost: localhost\r\n\r\n"
STEPS = ["shutting down", "readiness fails, requests are served", "draining", "sending queued messages", "stopped"]


async def test_readiness_fails_first_and_requests_are_served_until_the_pause_ends(upstream, gateway_for):
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_SHUTDOWN_PAUSE": "10m"})
    poll = asyncio.create_task(gateway.client().get(wait=50))
    await eventually(lambda: holds(gateway, 1), what="the poll is held")
    gateway.signal()
    await eventually(lambda: is_draining(gateway), what="readiness fails")
    # During the pause, the gateway serves a new connection and an open connection.
    response = await gateway.client().send("during the pause")
    assert response.status == 202
    assert "Connection" not in response.headers
    assert await upstream.has_received(1) == ["during the pause"]
    assert not poll.done()
    assert (await gateway.manage("/livez")).status == 200
    await upstream.push("news")
    assert (await poll).json["messages"][0]["data"] == "news"
    # During a drain, SIGHUP has no effect, and a second signal ends the program at once.
    gateway.signal(signal.SIGHUP)
    await gateway.logs(lambda record: "not reloaded" in record["message"], what="that nothing is reloaded")
    gateway.signal()
    assert await gateway.exit_status() == 0


async def test_each_step_is_logged_in_its_order(upstream, gateway_for):
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_SHUTDOWN_PAUSE": "200ms"})
    gateway.signal()
    assert await gateway.exit_status() == 0
    messages = [record["message"] for record in gateway.records]
    assert [message for message in messages if message in STEPS] == STEPS


async def test_the_log_says_what_each_step_waits_for(raw_upstream, gateway_for):
    """The shutdown waits for a client that has sent half of a request, then for an upstream that does not read."""

    async def deaf(reader, writer):
        await upgrade(reader, writer)
        await asyncio.Event().wait()

    settings = {f"DRAWBRIDGE_SHUTDOWN_{step}": "10m" for step in ("DRAIN", "FLUSH")}
    settings |= {"DRAWBRIDGE_SHUTDOWN_PAUSE": "2500ms", "DRAWBRIDGE_UPSTREAM_QUEUE_BYTES": "32MiB"}
    gateway = await gateway_for(await raw_upstream(deaf), env=settings)
    # The queue has room for both messages. The kernel's buffers do not.
    size = 8 << 20
    assert (await gateway.client().send("x" * size)).status == 202
    assert (await gateway.client().send("y" * size)).status == 202
    _, writer = await asyncio.open_connection(*gateway.address())
    writer.write(HALF_A_POST)
    await eventually(lambda: has_half_a_body(gateway), what="half of the post has arrived")
    gateway.signal()
    served = await gateway.logs(lambda record: record["message"] == "requests are still served", what="the pause")
    assert served["connections"] >= 1
    clients = await gateway.logs(lambda record: record["message"] == "waiting for clients", what="the drain")
    assert clients["connections"] == 1
    assert clients["calls"] == 0
    assert 0 < clients["seconds_left"] < 600
    writer.write(b"te")
    upstreams = await gateway.logs(lambda record: record["message"] == "waiting for upstreams", what="the flush")
    assert upstreams["sessions"] == 1
    assert upstreams["messages"] >= 1
    writer.close()
    gateway.signal()
    assert await gateway.exit_status() == 0


async def test_probes_are_served_and_a_late_post_is_sent_while_it_drains(upstream, gateway_for):
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_SHUTDOWN_DRAIN": "10m"})
    reader, writer = await asyncio.open_connection(*gateway.address())
    writer.write(HALF_A_POST)
    await eventually(lambda: has_half_a_body(gateway), what="half of the post has arrived")
    gateway.signal()
    await eventually(lambda: refuses(gateway), what="clients are refused")
    await eventually(lambda: is_draining(gateway), what="readiness fails")
    # The requests to both listeners use new connections.
    management = gateway.client("management")
    assert (await management.request("GET", "/livez")).status == 200
    assert (await management.request("GET", "/metrics")).status == 200
    writer.write(b"te")
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 202 " in head
    assert b"Connection: close\r\n" in head
    assert await gateway.exit_status() == 0
    # Clients drain before the queue, so the gateway has sent the last accepted message.
    assert upstream.received == ["late"]
    writer.close()


async def test_held_polls_end_one_after_another_during_the_drain(upstream, gateway):
    async def poll():
        reader, writer = await asyncio.open_connection(*gateway.address())
        writer.write(POLL)
        try:
            return await reader.read()
        finally:
            writer.close()

    polls = [asyncio.create_task(poll()) for _ in range(100)]
    await eventually(lambda: holds(gateway, 100), what="the polls are held")
    gateway.signal()
    async with asyncio.timeout(60):
        _, others = await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)
        assert len(others) >= 20, "they end together"
        for response in await asyncio.gather(*polls):
            assert response.startswith(b"HTTP/1.1 200 ")
            assert b"\r\nConnection: close\r\n" in response
            assert b'"messages":[]' in response
    assert await gateway.exit_status() == 0


async def test_a_push_is_delivered_to_polls_that_are_still_held(upstream, gateway_for):
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_SHUTDOWN_DRAIN": "10m"})
    connections = [await asyncio.open_connection(*gateway.address()) for _ in range(400)]
    for _, writer in connections:
        writer.write(POLL)
    await eventually(lambda: holds(gateway, 400), what="the polls are held")
    gateway.signal()
    await gateway.logs(lambda record: record["message"] == "draining", what="the drain")
    await upstream.push("last news")
    responses = await asyncio.gather(*(reader.read() for reader, _ in connections))
    assert sum(b"last news" in response for response in responses) >= 20
    assert all(response.startswith(b"HTTP/1.1 200 ") for response in responses)
    assert await gateway.exit_status() == 0
    for _, writer in connections:
        writer.close()


async def test_a_request_on_a_kept_connection_is_served_before_it_closes(upstream, gateway):
    """A client that sends one request after another loses none. The last response says that the connection closes."""
    accepted = []

    async def post(name):
        reader, writer = await asyncio.open_connection(*gateway.address())
        while True:
            text = f"{name} {len(accepted)}"
            writer.write(
                f"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()
            )
            head = await reader.readuntil(b"\r\n\r\n")
            assert b" 202 " in head
            accepted.append(text)
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            if b"Connection: close\r\n" in head:
                assert await reader.read() == b""
                writer.close()
                return

    clients = [asyncio.create_task(post(number)) for number in range(8)]
    await upstream.has_received(50)
    gateway.signal()
    await asyncio.gather(*clients)
    assert await gateway.exit_status() == 0
    assert sorted(upstream.received) == sorted(accepted)


async def test_a_stream_ends_with_its_position(upstream, gateway):
    """The client gets the position, although no message matched its topics and no heartbeat was due."""
    streams = [await RawStream.open(gateway.address(), "topic=none", format=form) for form in ("events", "lines")]
    await upstream.push("a", "b")
    client = gateway.client()
    await client.collect(2, "earliest")
    latest = await client.here()
    gateway.signal()
    for stream in streams:
        while await stream.read():
            pass
        assert stream.parser.last_id == latest
        assert stream.events == []
    assert await gateway.exit_status() == 0


async def test_the_shutdown_ends_within_the_sum_of_its_limits(raw_upstream, gateway_for):
    """The upstream does not read, and clients neither finish their requests nor read their responses."""

    async def deaf(reader, writer):
        await upgrade(reader, writer)
        writer.write(frame(1, b"x" * 1_000_000))
        await asyncio.Event().wait()

    steps = ("SHUTDOWN_PAUSE", "SHUTDOWN_DRAIN", "SHUTDOWN_FLUSH", "UPSTREAM_TIMEOUTS_CLOSING")
    limits = {f"DRAWBRIDGE_{step}": "300ms" for step in steps}
    gateway = await gateway_for(await raw_upstream(deaf), env=limits)
    await gateway.client().collect(1, "earliest")
    connections = [await asyncio.open_connection(*gateway.address(), limit=1024) for _ in range(2)]
    connections[0][1].write(HALF_A_POST)
    await eventually(lambda: has_half_a_body(gateway), what="half of the post has arrived")
    connections[1][1].write(b"GET /v1/messages?cursor=earliest HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20)
    gateway.signal()
    # This is about three times the sum, which is 2.2 s with the additional second of the last step. If the limit of the
    # drain, the flush or the close had its default, the shutdown would take longer.
    assert await gateway.exit_status(within=6.5) == 0
    last = gateway.records[-1]
    assert (last["message"], last["orderly"]) == ("stopped", False)
    for _, writer in connections:
        writer.transport.abort()


async def is_draining(gateway):
    response = await gateway.manage("/readyz")
    return (response.status, response.body) == (503, b"draining\n")


async def has_half_a_body(gateway):
    return (await gateway.metrics())["drawbridge_http_body_bytes"] > 0


async def holds(gateway, count):
    return (await gateway.metrics())["drawbridge_polls_held"] == count


async def refuses(gateway):
    try:
        _, writer = await asyncio.open_connection(*gateway.address())
    except OSError:
        return True
    writer.close()
    return False
