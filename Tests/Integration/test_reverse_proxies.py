"""What clients send and poll through reverse proxies with their default settings."""

import asyncio

import pytest_asyncio

from harness.client import Client
from harness.reverse_proxies import REVERSE_PROXIES, Envoy
from harness.waiting import eventually


@pytest_asyncio.fixture(params=REVERSE_PROXIES, ids=lambda route: route.program)
async def proxied(request, start, tmp_path, gateway):
    """A client that reaches the gateway through a reverse proxy; `is_envoy` says through which."""
    proxy = await start(request.param(tmp_path, gateway.address()))
    client = Client("http://{}:{}".format(*proxy.address))
    client.is_envoy = request.param is Envoy
    yield client
    await client.close()


async def test_messages_pass_both_ways(proxied, upstream):
    here = await proxied.here()
    texts = [f"{number} " + "x" * 10_000 for number in range(20)]
    for text in texts:
        await proxied.accepted(text)
    assert await upstream.has_received(20) == texts
    await upstream.push(*texts)
    assert (await proxied.collect(20, here))[0] == texts


async def test_a_post_that_waits_for_confirmation_is_held_through_it(proxied, gateway, upstream):
    answer = await proxied.request("POST", "/v1/messages?until=confirmed&wait=50s", data=b"now")
    assert (answer.status, answer.json["state"]) == (200, "confirmed")
    await upstream.kill()

    async def is_lost():
        return (await gateway.client().session())["state"] != "ready"

    await eventually(is_lost, what="the gateway notices")
    late = asyncio.create_task(proxied.request("POST", "/v1/messages?until=confirmed&wait=50s", data=b"late"))

    async def is_queued():
        return (await gateway.client().session())["queue"]["messages"] == 1

    await eventually(is_queued, what="the message is queued")
    if proxied.is_envoy:
        # Envoy would end it after 15 seconds with 504. The gateway responds before that.
        answer = await late
        assert (answer.status, answer.json["state"]) == (202, "queued")
        return
    await upstream.start()
    answer = await late
    assert (answer.status, answer.json["state"]) == (200, "confirmed")


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
