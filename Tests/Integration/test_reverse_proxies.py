"""Messages and polls through reverse proxies with their default settings."""

import asyncio
import contextlib
import os

import pytest
import pytest_asyncio

from harness.client import Client
from harness.reverse_proxies import REVERSE_PROXIES, Envoy, HAProxy, Nginx
from harness.waiting import eventually

MEBIBYTE = 1 << 20


@pytest_asyncio.fixture
async def through(start, tmp_path, gateway):
    """`await through(Nginx, "setting")`: a client of the gateway behind that reverse proxy, at `address`."""
    async with contextlib.AsyncExitStack() as stack:

        async def through(kind, *settings):
            proxy = await start(kind(tmp_path, gateway.address(), *settings))
            client = Client("http://{}:{}".format(*proxy.address))
            stack.push_async_callback(client.close)
            client.address = proxy.address
            client.is_envoy = kind is Envoy
            return client

        yield through


@pytest_asyncio.fixture(params=REVERSE_PROXIES, ids=lambda route: route.program)
async def proxied(request, through):
    """For each proxy, a client behind it. `is_envoy` says whether the proxy is Envoy."""
    return await through(request.param)


async def held(gateway):
    return (await gateway.metrics())["drawbridge_polls_held"]


async def test_messages_pass_both_ways(proxied, upstream):
    here = await proxied.here()
    texts = [f"{number} " + "x" * 10_000 for number in range(20)]
    for text in texts:
        await proxied.accepted(text)
    assert await upstream.has_received(20) == texts
    await upstream.push(*texts)
    assert (await proxied.collect(20, here))[0] == texts


async def test_a_post_that_waits_for_confirmation_is_held_through_the_proxy(proxied, gateway, upstream):
    response = await proxied.request("POST", "/v1/messages?until=confirmed&wait=50s", data=b"now")
    assert (response.status, response.json["state"]) == (200, "confirmed")
    await upstream.kill()

    async def is_lost():
        return (await gateway.client().session())["state"] != "ready"

    await eventually(is_lost, what="the gateway notices")
    late = asyncio.create_task(proxied.request("POST", "/v1/messages?until=confirmed&wait=50s", data=b"late"))

    async def is_queued():
        return (await gateway.client().session())["queue"]["messages"] == 1

    await eventually(is_queued, what="the message is queued")
    if proxied.is_envoy:
        # Envoy would end the poll with 504 after 15 seconds. The gateway responds before that.
        response = await late
        assert (response.status, response.json["state"]) == (202, "queued")
        return
    await upstream.start()
    response = await late
    assert (response.status, response.json["state"]) == (200, "confirmed")


async def test_a_long_response_arrives_compressed(proxied, upstream):
    texts = [f"number {number} of some" for number in range(100)]
    await upstream.push(*texts)
    await proxied.collect(100, "earliest")
    packed = await proxied.get(cursor="earliest", wait=0, headers={"Accept-Encoding": "gzip"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert [message["data"] for message in packed.json["messages"]] == texts
    plain = await proxied.get(cursor="earliest", wait=0, headers={"Accept-Encoding": "identity"})
    assert "Content-Encoding" not in plain.headers
    assert plain.json == packed.json


async def test_keys_links_and_validators_pass_through_the_proxy(proxied, upstream):
    head = await proxied.request("HEAD", "/v1/messages")
    sent = await proxied.send("down", headers={"Idempotency-Key": "one"})
    assert sent.headers["Location"] == f"/v1/deliveries/{sent.json['id']}"
    again = await proxied.send("down", headers={"Idempotency-Key": "one"})
    assert again.headers["Idempotency-Replayed"] == "true"
    assert await upstream.has_received(1) == ["down"]
    poll = asyncio.create_task(proxied.get(cursor=sent.json["cursor"], wait=10))
    await upstream.push("up")
    target = (await poll).headers["Link"].split(">")[0][1:]
    assert target.startswith("/v1/messages?cursor=p-")
    # The proxy passes on weak validators, and only the gateway compares them.
    first = await proxied.get(wait=0, headers={"If-None-Match": head.headers["ETag"]})
    assert [message["data"] for message in first.json["messages"]] == ["up"]
    assert (await proxied.get(wait=0, headers={"If-None-Match": first.headers["ETag"]})).status == 304
    (await proxied.get(wait="x")).problem(400)


@pytest.mark.timeout(180)
async def test_a_poll_is_held_as_long_as_the_proxy_allows(through, gateway, upstream):
    """All proxies are used at once, since each poll takes up to a minute."""
    routes = [
        (await through(Nginx), 55, 55),
        (await through(HAProxy), 45, 45),
        (await through(HAProxy, "timeout client 60s", "timeout server 60s"), 55, 55),
        (await through(Envoy), 55, 14.5),
    ]

    async def hold(client, wait, granted):
        loop = asyncio.get_running_loop()
        began = loop.time()
        response = await client.get(wait=wait)
        # The gateway ended the poll, not a timeout of the proxy.
        assert response.status == 200, response.body
        assert response.json["messages"] == []
        assert loop.time() - began >= granted - 1
        return response.json["cursor"]

    cursors = await asyncio.gather(*(hold(*route) for route in routes))
    polls = [
        asyncio.create_task(client.get(cursor=cursor, wait=wait))
        for (client, wait, _), cursor in zip(routes, cursors, strict=True)
    ]

    async def are_held():
        return await held(gateway) == len(polls)

    await eventually(are_held, what="the next polls are held")
    await upstream.push("news")
    for poll in polls:
        assert [message["data"] for message in (await poll).json["messages"]] == ["news"]


@pytest.mark.parametrize(
    ("kind", "settings", "largest"),
    [
        (Nginx, [], MEBIBYTE),
        (Nginx, ["client_max_body_size 16m"], 16 * MEBIBYTE),
        (HAProxy, [], 16 * MEBIBYTE),
        (Envoy, [], 16 * MEBIBYTE),
    ],
    ids=["nginx", "nginx with a higher limit", "haproxy", "envoy"],
)
async def test_the_largest_body_passes_through_the_proxy(kind, settings, largest, through, upstream):
    client = await through(kind, *settings)
    message = os.urandom(largest)
    await client.accepted(message)
    assert await upstream.has_received(1) == [message]
    if kind is Nginx:
        # nginx itself responds, and the body does not reach the gateway.
        refused = await client.send(message + b"x")
        assert refused.status == 413
        assert b"nginx" in refused.body


async def test_a_client_that_expects_100_continue_sends_its_body(proxied, upstream, curl, tmp_path):
    body = tmp_path / "body"
    body.write_bytes(os.urandom(900_000))
    # The timeout is longer than the test, so curl sends the body only after a 100 Continue.
    process = await asyncio.create_subprocess_exec(
        *(curl, "--silent", "--show-error", "--expect100-timeout", "600", "-H", "Expect: 100-continue"),
        *("-H", "Content-Type: application/octet-stream", "--data-binary", f"@{body}", f"{proxied.base}/v1/messages"),
        *("--output", "-", "--write-out", "%{http_code}"),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    assert out.endswith(b"202"), out
    assert await upstream.has_received(1) == [body.read_bytes()]


async def hold_and_abort(client, gateway):
    _, writer = await asyncio.open_connection(*client.address)
    writer.write(b"GET /v1/messages?wait=55 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await eventually(lambda: held(gateway), what="the poll is held")
    writer.transport.abort()


async def none_is_held(gateway):
    return await held(gateway) == 0


@pytest.mark.parametrize(
    ("kind", "settings"),
    [(Nginx, []), (HAProxy, ["option abortonclose"]), (Envoy, [])],
    ids=["nginx", "haproxy", "envoy"],
)
async def test_the_poll_of_a_disconnected_client_ends(kind, settings, through, gateway, upstream):
    client = await through(kind, *settings)
    for _ in range(3):
        await hold_and_abort(client, gateway)
        await eventually(lambda: none_is_held(gateway), what="the aborted poll is forgotten")
    cursor = await client.here()
    await upstream.push("news")
    assert (await client.collect(1, cursor))[0] == ["news"]


async def test_without_abortonclose_of_haproxy_the_poll_ends_with_the_next_push(through, gateway, upstream):
    client = await through(HAProxy)
    cursor = await client.here()
    for number in range(1, 4):
        await hold_and_abort(client, gateway)
        await upstream.push(f"news {number}")
        await eventually(lambda: none_is_held(gateway), what="the aborted poll has ended")
    # A poll removes nothing, so the aborted polls have cost no client a message.
    assert (await client.collect(3, cursor))[0] == ["news 1", "news 2", "news 3"]


async def test_an_incomplete_message_of_a_disconnected_client_is_not_sent(proxied, gateway, upstream):
    for _ in range(3):
        _, writer = await asyncio.open_connection(*proxied.address)
        writer.write(
            b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 300000\r\n\r\n" + bytes(299_999)
        )
        await writer.drain()
        writer.transport.abort()

    async def nothing_is_pending():
        return (await gateway.metrics())["drawbridge_http_body_bytes"] == 0

    await proxied.accepted("whole")
    await eventually(nothing_is_pending, what="the parts of the aborted bodies are freed")
    assert await upstream.has_received(1) == ["whole"]
