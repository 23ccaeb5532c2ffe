"""SIGTERM: every request gets a response, no accepted message is dropped, and connections are closed in order."""

import asyncio
import contextlib
import itertools
import signal

import aiohttp
import pytest

from harness.client import Batch
from harness.raw import frame, read_frame, read_head, upgrade
from harness.waiting import eventually


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_held_polls_get_their_cursor_at_the_shutdown(upstream, gateway, number):
    client = gateway.client()
    cursor = await client.here()
    polls = [asyncio.create_task(client.get(cursor=cursor, wait=55)) for _ in range(50)]
    await eventually(lambda: waiting(gateway, 50), what="the polls are held")
    gateway.signal(number)
    for poll in polls:
        response = await poll
        batch = Batch.of(response)
        assert (batch.messages, batch.cursor, batch.gap) == ([], cursor, None)
    assert await gateway.exit_status() == 0


async def test_the_upstream_is_closed_with_1001_after_all_messages(upstream, gateway):
    client = gateway.client()
    sent = [f"message {i}" for i in range(200)]
    for message in sent:
        await client.accepted(message)
    gateway.signal()
    assert await gateway.exit_status() == 0
    assert upstream.received == sent
    assert [code for code, _ in upstream.closes] == [1001]


async def test_every_message_accepted_during_the_shutdown_arrives(upstream, gateway):
    accepted, refused = [], []

    async def post(name):
        client = gateway.client()
        with contextlib.suppress(aiohttp.ClientError):
            for number in itertools.count():
                response = await client.send(f"{name} {number}")
                (accepted if response.status == 202 else refused).append((f"{name} {number}", response.status))
                if response.status != 202:
                    return

    posts = [asyncio.create_task(post(name)) for name in range(6)]
    await upstream.has_received(100)
    gateway.signal()
    assert await gateway.exit_status() == 0
    await asyncio.gather(*posts)
    assert {text for text, _ in accepted} - set(upstream.received) == set()
    assert {status for _, status in refused} <= {410, 503}


async def test_a_post_that_is_complete_only_after_the_upstream_was_closed_is_refused(raw_upstream, gateway_for):
    is_closing, is_asked = asyncio.Event(), asyncio.Event()

    async def behave(reader, writer):
        await upgrade(reader, writer)
        while (await read_frame(reader))[0] != 8:
            pass
        is_closing.set()
        await is_asked.wait()

    gateway = await gateway_for(await raw_upstream(behave), env={"DRAWBRIDGE_SHUTDOWN_DRAIN": "100ms"})
    reader, writer = await asyncio.open_connection(*gateway.address())
    writer.write(b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhalf ")
    await eventually(lambda: has_begun(gateway), what="half of the post has arrived")
    gateway.signal()
    await is_closing.wait()
    writer.write(b"a body")
    assert b" 410 " in await reader.readline()
    is_asked.set()
    assert await gateway.exit_status() == 0
    writer.close()


async def test_the_shutdown_does_not_wait_for_a_session_that_was_closed(upstream, gateway_for):
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_SHUTDOWN_FLUSH": "10m", "DRAWBRIDGE_SHUTDOWN_DRAIN": "10m"})
    client = gateway.client()
    await client.request(
        "PATCH", "/v1/session", data='{"desired":"down"}', headers={"Content-Type": "application/json"}
    )
    await eventually(lambda: is_down(client), what="the session is closed")
    await client.accepted("never sent")
    gateway.signal()
    assert await gateway.exit_status() == 0


async def test_new_connections_are_refused_during_the_drain(upstream, gateway):
    address = gateway.address()
    gateway.signal()
    assert await gateway.exit_status() == 0
    with pytest.raises(OSError):
        await asyncio.open_connection(*address)


async def test_idle_connections_do_not_delay_the_shutdown(upstream, gateway_for):
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_SHUTDOWN_DRAIN": "10m"})
    connections = [await asyncio.open_connection(*gateway.address()) for _ in range(20)]
    gateway.signal()
    assert await gateway.exit_status() == 0
    for _, writer in connections:
        writer.transport.abort()


async def test_an_incomplete_request_delays_the_shutdown_until_the_drain_ends(upstream, gateway_for):
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_SHUTDOWN_FLUSH": "10m", "DRAWBRIDGE_SHUTDOWN_DRAIN": "1s"})
    connections = [await asyncio.open_connection(*gateway.address()) for _ in range(2)]
    half = b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf a body"
    connections[0][1].write(half)
    connections[1][1].write(b"GET /v1/mess")
    await eventually(lambda: has_begun(gateway), what="the gateway has read the half body")
    gateway.signal()
    assert await gateway.exit_status() == 0
    for _, writer in connections:
        writer.transport.abort()


async def test_the_gateway_ends_although_the_upstream_is_down_and_the_queue_full(upstream, gateway):
    client = gateway.client()
    await upstream.kill()
    await eventually(lambda: is_down(client), what="the gateway notices")
    for number in range(3):
        await client.accepted(f"never sent {number}")
    gateway.signal()
    assert await gateway.exit_status(within=40) == 0
    assert lost(gateway) == 3


async def test_a_second_signal_ends_the_gateway_at_once_and_reports_unsent_messages(upstream, gateway_for):
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_SHUTDOWN_FLUSH": "10m", "DRAWBRIDGE_SHUTDOWN_DRAIN": "10m"})
    client = gateway.client()
    await upstream.kill()
    await eventually(lambda: is_down(client), what="the gateway notices")
    await client.accepted("never sent", headers={"TTL": "3600"})
    gateway.signal()
    await gateway.logs(lambda record: record["message"] == "shutting down", what="the first signal")
    gateway.signal()
    assert await gateway.exit_status() == 0
    assert lost(gateway) == 1


async def test_the_gateway_ends_although_the_upstream_ignores_the_close_frame(raw_upstream, gateway_for):
    async def deaf(reader, writer):
        await upgrade(reader, writer)
        await asyncio.Event().wait()

    gateway = await gateway_for(await raw_upstream(deaf))
    gateway.signal()
    assert await gateway.exit_status() == 0


async def test_a_hand_over_does_not_keep_the_queue_from_being_flushed(raw_upstream, gateway_for):
    """The queue waits for a pong of the old connection that never arrives, for longer than the flush may take."""
    received = []
    asked = asyncio.Event()

    async def behave(reader, writer):
        is_old = not behave.connections
        behave.connections += 1
        await upgrade(reader, writer)
        while True:
            opcode, payload = await read_frame(reader)
            if opcode == 1:
                received.append(payload.decode())
            elif opcode == 9 and is_old:
                asked.set()
            elif opcode in (8, 9):
                writer.write(frame(opcode + 1 if opcode == 9 else 8, payload))

    behave.connections = 0
    upstream = await raw_upstream(behave)
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_SHUTDOWN_FLUSH": "500ms"})
    client = gateway.client()
    gateway.signal(signal.SIGHUP)
    await asked.wait()
    await client.accepted("held")
    gateway.signal()
    assert await gateway.exit_status() == 0
    assert received == ["held"]


async def test_the_gateway_ends_during_a_connection_attempt(raw_upstream, gateway_for):
    async def silent(reader, writer):
        await read_head(reader)
        await asyncio.Event().wait()

    gateway = await gateway_for(await raw_upstream(silent), ready=False)
    gateway.signal()
    assert await gateway.exit_status() == 0


def lost(gateway):
    """The messages that the log reports as lost."""
    lines = [record for record in gateway.records if record["message"].startswith("messages were lost")]
    return sum(line["expired"] + line["rejected"] + line["unknown"] for line in lines)


async def has_begun(gateway):
    return (await gateway.metrics())["drawbridge_http_body_bytes"] > 0


async def waiting(gateway, count):
    return (await gateway.metrics())["drawbridge_polls_held"] == count


async def is_down(client):
    return (await client.session())["state"] != "ready"
