"""Bodies that are too large for an event loop arrive unchanged, and the gateway serves other clients meanwhile."""

import asyncio
import gzip
import json
import os

import pytest

JSONRPC = {"DRAWBRIDGE_UPSTREAM_CORRELATION": "jsonrpc", "DRAWBRIDGE_UPSTREAM_QUEUE_BYTES": "64MiB"}

JSON = {"Content-Type": "application/json"}

TEXT = "caf\u00e9 \U0001f600" * 100_000


@pytest.fixture
async def gateway(gateway_for, upstream):
    return await gateway_for(upstream, "--loops", "1", env=JSONRPC)


@pytest.fixture
async def client(gateway):
    return gateway.client()


@pytest.mark.parametrize("is_packed", [False, True])
async def test_a_large_text_arrives_once_under_its_key(is_packed, client, upstream):
    headers = {"Idempotency-Key": "key", **({"Content-Encoding": "gzip"} if is_packed else {})}
    body = TEXT.encode()
    if is_packed:
        # These bytes compress less well than `TEXT`.
        text = "".join(os.urandom(96).hex() for _ in range(4_000))
        body = gzip.compress(text.encode())
    responses = [await client.send(body, type="text/plain", headers=headers) for _ in range(2)]
    assert responses[0].status == 202
    assert responses[1].headers["Idempotency-Replayed"] == "true"
    assert responses[0].json["id"] == responses[1].json["id"]
    await client.accepted("marker")
    assert await upstream.has_received(2) == [text if is_packed else TEXT, "marker"]


async def test_a_large_batch_arrives_in_order(client, upstream):
    lines = [f"{number} " + "x" * 2_000 for number in range(1_000)]
    response = await client.send("\n".join(lines), type="application/x-ndjson")
    assert response.status == 202, response
    assert await upstream.has_received(1_000) == lines


async def test_a_large_call_is_sent_with_an_id_of_the_gateway(client, upstream):
    members = {f"member {number}": "\n" * 50 for number in range(20_000)}
    call = {"jsonrpc": "2.0", "method": "m", "params": members, "id": "mine"}
    task = asyncio.create_task(client.request("POST", "/v1/call?wait=20", json=call))
    request = json.loads((await upstream.has_received(1))[-1])
    assert request["params"] == members
    assert request["id"] != "mine"
    await upstream.push(json.dumps({"jsonrpc": "2.0", "result": 1, "id": request["id"]}))
    assert (await task).json == {"jsonrpc": "2.0", "result": 1, "id": "mine"}


async def test_an_invalid_large_body_is_refused_like_a_small_body(client):
    for size in (1_000, 1_000_000):
        headers = {**JSON, "X-Request-Id": f"id-{size}"}
        response = await client.request("POST", "/v1/call", data=b'{"id":1,"p":[' + b"0," * size, headers=headers)
        assert response.problem(422)["type"] == "/errors/invalid-document"
        assert response.problem(422)["request_id"] == f"id-{size}"
        assert f"at byte {2 * size + 13}" in response.problem(422)["detail"]
        response = await client.send(b"a\n" * size + b"\xff\n", type="application/x-ndjson")
        assert f"line {size + 1} of the batch" in response.problem(400)["detail"]


async def test_many_large_bodies_at_once_are_all_served(client, upstream):
    body = '{"jsonrpc":"2.0","id":1,"p":[' + "0," * 500_000 + "0]}"
    calls = [asyncio.create_task(client.request("POST", "/v1/messages", data=body, headers=JSON)) for _ in range(20)]
    for _ in range(50):
        assert (await client.request("GET", "/v1/session")).status == 200
    assert {(await call).status for call in calls} == {202}
    assert await upstream.has_received(20) == [body] * 20
