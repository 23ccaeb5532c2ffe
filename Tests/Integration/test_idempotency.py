"""A repeated request with the same `Idempotency-Key` sends nothing again."""

import asyncio

from harness.waiting import eventually

TEXT = {"Content-Type": "text/plain"}
LINES = {"Content-Type": "application/x-ndjson"}


async def _keyed(client, body, key, headers=None, query=""):
    return await client.request(
        "POST", f"/v1/messages{query}", data=body, headers={"Idempotency-Key": key, **(headers or TEXT)}
    )


async def test_fifty_concurrent_requests_with_one_key_send_one_message(gateway_for, upstream):
    gateway = await gateway_for(upstream)
    clients = [gateway.client() for _ in range(50)]

    async def send(client):
        # A request that arrives while the same request is being accepted gets 409, and is repeated as the problem says.
        while True:
            response = await _keyed(client, b"once", "one")
            if response.status != 409:
                return response
            assert response.problem(409)["retryable"] is True

    responses = await asyncio.gather(*(send(client) for client in clients))
    assert {response.status for response in responses} <= {200, 202}
    assert len({response.json["id"] for response in responses}) == 1
    assert sum("Idempotency-Replayed" not in response.headers for response in responses) == 1
    await clients[0].accepted("after")
    assert await upstream.has_received(2) == ["once", "after"]


async def test_a_keyed_batch_whose_last_line_is_refused_sends_none(gateway_for, upstream):
    client = (await gateway_for(upstream, env={"DRAWBRIDGE_UPSTREAM_QUEUE_MESSAGES": "3"})).client()
    await upstream.kill()

    async def is_lost():
        return (await client.session())["state"] != "ready"

    await eventually(is_lost, what="the gateway notices")
    await client.accepted("0")
    (await _keyed(client, b"1\n2\n3\n", "batch", LINES)).problem(503)
    too_large = await _keyed(client, b"1\n2\n3\n4\n", "batch", LINES)
    assert "upstream.queue.messages" in too_large.problem(413)["detail"]
    (await _keyed(client, b"1\n\xff\n", "batch", LINES)).problem(400)
    assert (await client.session())["queue"]["messages"] == 1
    response = await _keyed(client, b"1\n2\n", "batch", LINES)
    assert response.status == 202
    await upstream.start()
    assert await upstream.has_received(3) == ["0", "1", "2"]


async def test_a_repetition_shows_that_its_message_arrived(client, upstream):
    first = await _keyed(client, b"a", "key", query="?until=confirmed")
    assert (first.status, first.json["state"]) == (200, "confirmed")
    again = await _keyed(client, b"a", "key")
    assert again.status == 200
    assert again.json == first.json
    assert again.headers["Idempotency-Replayed"] == "true"
    assert await upstream.has_received(1) == ["a"]


async def test_above_the_limit_new_keys_are_refused_and_other_requests_served(gateway_for, upstream):
    client = (await gateway_for(upstream, env={"DRAWBRIDGE_HTTP_IDEMPOTENCY_KEYS": "3"})).client()
    for number in range(3):
        assert (await _keyed(client, b"a", f"key-{number}")).status == 202
    refused = await _keyed(client, b"b", "key-3")
    assert "http.idempotency_keys" in refused.problem(503)["detail"]
    assert int(refused.headers["Retry-After"]) > 500
    await client.accepted("without")
    assert await upstream.has_received(4) == ["a", "a", "a", "without"]
