"""Receivers of webhooks that fail, stall, refuse or misbehave. Other receivers and clients must not notice."""

import asyncio
import errno
import json
import os
import socket
import time

import aiohttp
import pytest
from aiohttp import web

from harness.disk_faults import WRITE, FaultyDisk
from harness.raw import RawUpstream, read_head, reset_transport
from harness.receiver import Receiver, config, new_secret, settled, state, webhook
from harness.store import storing
from harness.waiting import eventually


@pytest.mark.parametrize("status", [500, 404, 301, 307])
async def test_a_push_that_fails_is_repeated_before_the_next(hooked, start, upstream, status):
    def respond(n, delivery):
        return web.Response(status=status, headers={"Location": "/other"}) if n < 3 else 204

    receiver = await start(Receiver(respond))
    gateway = await hooked(webhook(receiver))
    await upstream.push("a", "b")
    deliveries = await receiver.has(4)
    assert receiver.payloads == ["a", "a", "a", "b"]
    assert len({delivery.id for delivery in deliveries}) == 2, "a repetition has the id of the first attempt"
    consumer = await settled(gateway, messages=0)
    failure = consumer["webhook"]["last_failure"]
    assert failure["status"] == status
    assert failure["attempt"] == 2
    assert failure["result"] == ("redirected" if status < 400 else "refused")


async def stalls(reader, writer):
    await asyncio.sleep(60)


async def stalls_in_its_head(reader, writer):
    await read_head(reader)
    writer.write(b"HTTP/1.1 204 No Con")
    await asyncio.sleep(60)


async def stalls_in_its_body(reader, writer):
    await read_head(reader)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab")
    await asyncio.sleep(60)


async def closes_without_a_response(reader, writer):
    await read_head(reader)


async def closes_in_its_head(reader, writer):
    await read_head(reader)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-")


async def closes_in_its_body(reader, writer):
    await read_head(reader)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab")


async def resets(reader, writer):
    await read_head(reader)
    reset_transport(writer.transport)


async def speaks_another_protocol(reader, writer):
    writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
    await asyncio.sleep(60)


@pytest.mark.parametrize(
    ("behave", "result", "detail"),
    [
        (stalls, "timeout", "no complete response within 500ms"),
        (stalls_in_its_head, "timeout", "no complete response within 500ms"),
        (stalls_in_its_body, "timeout", "no complete response within 500ms"),
        (closes_without_a_response, "failed", "the server closed the connection before the end of the response"),
        (closes_in_its_head, "failed", "the server closed the connection before the end of the response"),
        (closes_in_its_body, "failed", "the server closed the connection before the end of the response"),
        (resets, "failed", "the connection failed: "),
        (speaks_another_protocol, "failed", "the response is not valid: the status line is malformed"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
async def test_a_push_without_a_complete_response_is_repeated_and_then_dead(
    hooked, start, upstream, behave, result, detail
):
    receiver = await start(RawUpstream(behave))
    receiver.secret = new_secret()
    url = f"http://127.0.0.1:{receiver.port}/"
    gateway = await hooked(webhook(receiver, url=url, timeout="500ms", retries=["50ms"]))
    await upstream.push("a")
    consumer = await eventually(lambda: dead(gateway, 1), what="the push is a dead letter")
    failure = consumer["webhook"]["last_failure"]
    assert failure["result"] == result, failure
    assert failure["detail"].startswith(detail), failure
    assert failure["attempt"] == 2
    assert receiver.connections == 2


async def test_a_push_that_takes_longer_than_the_timeout_to_transmit_is_delivered_once(hooked, start, upstream):
    size = 2 << 20

    async def takes_its_time(reader, writer):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        _, fields = await read_head(reader)
        left = int(fields["content-length"])
        while left:
            # This is the slowness of the receiver, not a wait of the test.
            left -= len(await reader.read(min(left, size // 8)))
            await asyncio.sleep(0.5)
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        await writer.drain()

    receiver = await start(RawUpstream(takes_its_time))
    receiver.secret = new_secret()
    url = f"http://127.0.0.1:{receiver.port}/"
    gateway = await hooked(webhook(receiver, url=url, timeout="1s", retries=["50ms"]))
    await upstream.push(os.urandom(size // 4 * 3))
    await eventually(lambda: receiver.connections, what="the push is attempted")
    consumer = await settled(gateway, messages=0)
    assert receiver.connections == 1
    assert consumer["webhook"]["last_failure"] is None


async def dead(gateway, count):
    consumer = await state(gateway)
    return consumer if consumer["dead"]["messages"] == count and consumer["leases"] == 0 else None


async def test_a_receiver_gets_every_push_after_an_outage(hooked, start, upstream):
    receiver = await start(Receiver())
    await receiver.stop()
    gateway = await hooked(webhook(receiver, retries=["100ms"] * 20))
    await upstream.push("a", "b")

    async def failure():
        return (await state(gateway))["webhook"]["last_failure"]

    assert (await eventually(failure))["result"] == "failed"
    assert (await state(gateway))["webhook"]["next_attempt"]
    await receiver.start()
    await receiver.has(2)
    assert receiver.payloads == ["a", "b"]
    await settled(gateway, messages=0)


async def test_410_disables_a_webhook_until_a_reload(hooked, start, upstream):
    receiver = await start(Receiver(lambda n, delivery: 410 if n == 1 else 204))
    gateway = await hooked(webhook(receiver))
    await upstream.push("a", "b")

    async def is_disabled():
        return (await state(gateway))["webhook"]["state"] == "disabled"

    await eventually(is_disabled, what="it is disabled")
    metrics = await gateway.metrics()
    assert metrics["drawbridge_webhook_disabled"] == 1
    assert metrics.samples["drawbridge_webhook_attempts_total", 'webhook="hook",result="gone"'] == 1
    assert (await state(gateway))["lag"] == 2
    assert receiver.payloads == ["a"]
    gateway.signal(1)
    await receiver.has(3)
    assert receiver.payloads == ["a", "a", "b"]
    assert (await settled(gateway, messages=0))["webhook"]["state"] == "active"


@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_is_honoured(hooked, start, upstream, status):
    times = []

    def respond(n, delivery):
        times.append(time.monotonic())
        return web.Response(status=status, headers={"Retry-After": "1"}) if n == 1 else 204

    receiver = await start(Receiver(respond))
    gateway = await hooked(webhook(receiver, retries=["10ms"]))
    await upstream.push("a")
    await receiver.has(2)
    assert times[1] - times[0] >= 1.0
    await settled(gateway, messages=0)


async def test_a_receiver_that_posts_back_before_it_responds_is_not_blocked(hooked, start, upstream):
    async def respond(n, delivery):
        async with aiohttp.ClientSession() as http:
            url = f"{gateway.url()}/v1/messages?until=written&wait=20s"
            async with http.post(
                url, data=f"reply to {delivery.data}", headers={"Content-Type": "text/plain"}
            ) as posted:
                assert posted.status == 200, await posted.text()
        return 204

    receiver = await start(Receiver(respond))
    gateway = await hooked(webhook(receiver))
    pushes = [f"push {n}" for n in range(20)]
    await upstream.push(*pushes)
    assert await upstream.has_received(20) == [f"reply to {push}" for push in pushes]
    assert receiver.payloads == pushes


async def test_certificates_are_verified(hooked, start, upstream, authority, certificate):
    good = await start(Receiver(certificate=certificate))
    expired = await start(Receiver(certificate=authority.issue("DNS:localhost", days=0)))
    unknown = await start(Receiver(certificate=authority.issue("DNS:localhost", self_signed=True)))
    other = await start(Receiver(certificate=authority.issue("DNS:other.example")))
    bad = {"expired": expired, "unknown": unknown, "other": other}
    trust = {"ca_file": str(authority.path), "retries": []}
    allowed = {"addresses": {"allow": ["127.0.0.0/8", "::1"]}}
    gateway = await hooked(
        webhook(good, name="good", **trust, **allowed),
        *(webhook(receiver, name=name, **trust, **allowed) for name, receiver in bad.items()),
        webhook(good, name="untrusted", retries=[], **allowed),
    )
    await upstream.push("a")
    assert (await good.has(1))[0].data == "a"
    for name in [*bad, "untrusted"]:

        async def failure(name=name):
            return (await state(gateway, name))["webhook"]["last_failure"]

        assert (await eventually(failure))["detail"].startswith("TLS: "), name
    assert [len(receiver.deliveries) for receiver in [good, *bad.values()]] == [1, 0, 0, 0]


async def test_private_addresses_are_refused_after_resolution(hooked, start, upstream):
    receiver = await start(Receiver())
    # The name of this machine resolves to one of its addresses.
    url = f"http://{socket.gethostname()}:{receiver.port}/"
    gateway = await hooked(webhook(receiver, name="own", url=url, allow=False, retries=[]))
    await upstream.push("a")

    async def failure():
        return (await state(gateway, "own"))["webhook"]["last_failure"]

    assert "refused unless 'addresses.allow' of the webhook has it" in (await eventually(failure))["detail"]
    assert receiver.deliveries == []


async def test_a_receiver_that_stalls_does_not_delay_the_shutdown(hooked, start, upstream):
    receiver = await start(RawUpstream(stalls))
    receiver.secret = new_secret()
    url = f"http://127.0.0.1:{receiver.port}/"
    gateway = await hooked(webhook(receiver, url=url), more={"shutdown": {"drain": "200ms", "flush": "200ms"}})
    await upstream.push("a")
    await eventually(lambda: receiver.connections == 1, what="the request is sent")
    gateway.signal()
    assert await gateway.exit_status(within=10) == 0


async def test_a_connection_that_the_receiver_has_closed_is_replaced_at_once(hooked, start, upstream):
    """The receiver closes a connection after a response that permits another request, or in the middle of a request."""
    heads = []

    async def behave(reader, writer):
        while True:
            head, fields = await read_head(reader)
            await reader.readexactly(int(fields["content-length"]))
            heads.append(head)
            if len(heads) == 3:
                return
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            if len(heads) == 1:
                return

    receiver = await start(RawUpstream(behave))
    receiver.secret = new_secret()
    gateway = await hooked(webhook(receiver, url=f"http://127.0.0.1:{receiver.port}/"))
    for count, push in enumerate(["a", "b", "c"], 1):
        await upstream.push(push)
        await settled_at(gateway, count)
    assert (await state(gateway))["webhook"]["last_failure"] is None
    assert len(heads) == 4
    assert receiver.connections == 3


async def settled_at(gateway, count):
    async def is_settled():
        consumer = await state(gateway)
        return consumer["position"].endswith(f".{count}")

    await eventually(is_settled, what=f"push {count} is delivered")


async def reads_nothing(reader, writer):
    writer.transport.pause_reading()
    await asyncio.sleep(60)


@pytest.mark.parametrize(
    ("phase", "result", "detail"),
    [
        ("connecting", "timeout", "no connection within 500ms"),
        ("securing", "timeout", "no connection within 500ms"),
        # Bytes that the kernels have taken extend the deadline. The gateway's kernel notices first that nothing is
        # read.
        ("sending", "failed", "Connection timed out"),
    ],
)
async def test_a_receiver_may_stall_before_the_request_has_arrived(hooked, start, upstream, phase, result, detail):
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        if phase == "connecting":
            # The kernel ignores connections for which its queue has no room.
            waiting = [socket.socket() for _ in range(4)]
            for client in waiting:
                client.setblocking(False)
                client.connect_ex(full.getsockname())
            port, scheme = full.getsockname()[1], "http"
        else:
            receiver = await start(RawUpstream(reads_nothing))
            port, scheme = receiver.port, "https" if phase == "securing" else "http"
        settings = webhook(
            None, url=f"{scheme}://127.0.0.1:{port}/", secrets=[new_secret()], timeout="500ms", retries=[]
        )
        gateway = await hooked(settings)
        await upstream.push("x" * (12 << 20) if phase == "sending" else "x")
        consumer = await eventually(lambda: dead(gateway, 1), what="the push is a dead letter")
        failure = consumer["webhook"]["last_failure"]
        assert failure["result"] == result
        assert failure["detail"].endswith(detail)


async def test_a_receiver_that_stalls_delays_no_other_receiver_and_has_limited_connections(hooked, start, upstream):
    stalling = await start(RawUpstream(stalls))
    works = await start(Receiver())
    url = f"http://127.0.0.1:{stalling.port}/"
    gateway = await hooked(
        webhook(None, name="stalls", url=url, secrets=[new_secret()], concurrency=4, timeout="5m"),
        webhook(works),
        more={"shutdown": {"drain": "200ms"}},
    )
    for number in range(400):
        await upstream.push(str(number))
    await works.has(400)
    await settled(gateway, messages=0)
    assert stalling.connections == 4
    consumer = await state(gateway, "stalls")
    assert (consumer["leases"], consumer["lag"], consumer["webhook"]["requests"]) == (4, 400, 4)


async def test_each_of_a_hundred_webhooks_gets_every_push(hooked, start, upstream):
    receiver = await start(Receiver())
    url = receiver.url.partition("?")[0]
    gateway = await hooked(*(webhook(receiver, name=f"hook-{n}", url=f"{url}/{n}") for n in range(100)))
    pushes = [str(number) for number in range(5)]
    await upstream.push(*pushes)
    await receiver.has(500)
    got = {}
    for delivery in receiver.deliveries:
        got.setdefault(delivery.path, []).append(delivery.data)
    assert len(got) == 100
    assert all(data == [json.loads(push) for push in pushes] for data in got.values())
    assert len(receiver.connections) == 100
    too_many = [webhook(receiver, name=f"hook-{n}") for n in range(101)]
    gateway.rewrite(config(*too_many))
    gateway.signal(1)
    await gateway.logs(lambda record: "at most 100 webhooks" in json.dumps(record), what="the refusal")


async def test_pushes_delivered_while_the_store_failed_are_not_repeated(
    gateway_for, start, upstream, tmp_path, store_path
):
    disk = FaultyDisk(tmp_path, store_path.parent)

    async def respond(n, delivery):
        if n == 1:
            disk.fail(WRITE, errno.EIO)
            # This message makes the store notice its failure.
            await gateway.client().send("x")
            await eventually(has_failed, what="the store has failed")
        return 204

    async def has_failed():
        return (await gateway.metrics())["drawbridge_store_failed"]

    receiver = await start(Receiver(respond))
    gateway = await gateway_for(
        upstream, config=config(webhook(receiver)), env={**storing(store_path), **disk.environment}
    )
    await upstream.push("a", "b")
    await receiver.has(1)
    await eventually(has_failed, what="the store has failed")
    disk.heal()
    await receiver.has(2)
    await settled(gateway, messages=0)
    assert receiver.payloads == ["a", "b"]


async def test_no_push_is_sent_while_the_store_fails(gateway_for, start, upstream, tmp_path, store_path):
    receiver = await start(Receiver())
    disk = FaultyDisk(tmp_path, store_path.parent)
    gateway = await gateway_for(
        upstream, config=config(webhook(receiver)), env={**storing(store_path), **disk.environment}
    )
    await upstream.push("before")
    await receiver.has(1)
    await settled(gateway)
    disk.fail(WRITE, errno.EIO)
    await upstream.push("meanwhile")

    async def has_failed():
        return (await gateway.metrics())["drawbridge_store_failed"]

    await eventually(has_failed, what="the store has failed")
    # Clients get the push, and learn that it is not stored.
    assert (await gateway.client().poll(cursor="earliest", wait=10)).payloads == ["before", "meanwhile"]
    assert receiver.payloads == ["before"]
    disk.heal()
    await receiver.has(2)
    await settled(gateway, messages=0)
    await gateway.kill()
    gateway = await gateway_for(upstream, config=config(webhook(receiver)), env=storing(store_path))
    assert (await settled(gateway))["lag"] == 0
    assert receiver.payloads == ["before", "meanwhile"]
