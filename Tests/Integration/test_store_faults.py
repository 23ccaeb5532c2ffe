"""A gateway whose disk fails, stalls or is full: no acknowledged message is lost, and no other request waits for it."""

import asyncio
import errno
import json
import os

import pytest

from harness.disk_faults import OPEN, SYNC, TRUNCATE, WRITE, FaultyDisk
from harness.store import contains, failed_files, filled, opened, storing
from harness.waiting import eventually

KEPT = {"TTL": "3600"}


@pytest.fixture
def disk(tmp_path, store_path):
    return FaultyDisk(tmp_path, store_path.parent)


async def post(client, body, **fields):
    """The status of a POST, and the id of its delivery."""
    response = await client.send(body, headers={**KEPT, **fields})
    return response.status, response.json.get("id") if response.status == 202 else response.json


async def state(gateway):
    return "failed" if (await gateway.metrics())["drawbridge_store_failed"] else "working"


async def accepted_in_time(client, body):
    """Posts until the message is accepted, like a client that repeats after 503. Returns the id."""

    async def attempt():
        status, response = await post(client, body)
        if status == 202:
            return response
        assert status == 503, response
        assert "store-" in response["type"], response
        return None

    return await eventually(attempt, within=60, what="the store accepts a message")


@pytest.mark.load
async def test_a_full_disk_refuses_messages_shows_pushes_and_recovers(gateway_for, upstream, mounted):
    folder = mounted("size=16m")
    path = folder / "drawbridge.db"
    gateway = await gateway_for(upstream, env=storing(path))
    client = gateway.client()
    accepted = [await accepted_in_time(client, "before")]
    filler = filled(folder)
    body = "x" * 100_000
    for _ in range(100):
        status, response = await post(client, body)
        if status == 503:
            break
        assert status == 202, response
        accepted.append(response)
    assert status == 503, "the disk is full"
    assert "store-failed" in response["type"]
    assert await state(gateway) == "failed"
    assert (await gateway.metrics())["drawbridge_store_failed"] == 1
    ready = await gateway.manage("/readyz")
    assert ready.status == 200
    assert b"the store does not work" in ready.body
    await upstream.push('{"seen":"while full"}')
    batch = await client.poll(cursor="earliest", wait=10)
    assert {"seen": "while full"} in batch.payloads
    filler.unlink()
    accepted.append(await accepted_in_time(client, "after"))
    assert await state(gateway) == "working"
    assert failed_files(path) == []
    assert any(record["message"] == "the store works again" for record in gateway.records)
    await gateway.kill()
    again = await gateway_for(upstream, env=storing(path))
    for delivery in accepted:
        assert await contains(again.client(), delivery)
    batch = await again.client().poll(cursor="earliest", wait=0)
    assert {"seen": "while full"} in batch.payloads


@pytest.mark.load
@pytest.mark.parametrize("kinds", [WRITE, SYNC, WRITE | SYNC | TRUNCATE | OPEN])
async def test_a_disk_that_fails_loses_nothing_that_was_acknowledged(
    gateway_for, upstream, store_path, disk, kinds, measured
):
    env = {**storing(store_path, sync="always"), **disk.environment}
    gateway = await gateway_for(upstream, env=env)
    client = gateway.client()
    accepted, failures = [], 0
    for at in (1, 2, 3, 5, 8, 13):
        disk.fail(kinds, errno.EIO, at=at, count=2)
        for number in range(8):
            accepted.append(await accepted_in_time(client, f"{at}.{number}"))
            await upstream.push(json.dumps({"at": at, "number": number}))
        failures += disk.failed
        disk.heal()
        await accepted_in_time(client, "healed")
    assert failures > 3
    assert 0 < len(failed_files(store_path)) <= 3
    batch = await client.poll(cursor="earliest", wait=0, limit=1000)
    await eventually(lambda: _working(gateway), what="the store works")
    await gateway.kill()
    again = await gateway_for(upstream, env=storing(store_path))
    for delivery in accepted:
        assert await contains(again.client(), delivery)
    restored = await again.client().poll(cursor="earliest", wait=0, limit=1000)
    assert [m["id"] for m in restored.messages][: len(batch.messages)] == [m["id"] for m in batch.messages]
    measured(f"{failures} failures")


async def _working(gateway):
    return await state(gateway) == "working"


async def test_a_disk_that_stalls_delays_acknowledgements_only(gateway_for, upstream, store_path, disk):
    gateway = await gateway_for(upstream, env={**storing(store_path, sync="always"), **disk.environment})
    client = gateway.client()
    await upstream.push('"seen"')
    assert (await client.poll(cursor="earliest", wait=10)).payloads == ["seen"]
    disk.stall()
    waiting = asyncio.create_task(post(gateway.client(), "stored later"))
    await eventually(lambda: disk.stalls > 0, what="the disk stalls")
    await upstream.push('"not yet"')
    for _ in range(50):
        # Every loop serves the pushes that are visible.
        assert (await client.poll(cursor="earliest", wait=0)).payloads == ["seen"]
        assert (await gateway.manage("/livez")).status == 200
        assert (await gateway.metrics())["drawbridge_store_failed"] == 0
    assert not waiting.done()
    disk.heal()
    status, delivery = await waiting
    assert status == 202, delivery
    assert (await client.poll(cursor="earliest", wait=10, limit=2)).payloads[:1] == ["seen"]

    async def both():
        return (await client.poll(cursor="earliest", wait=0)).payloads == ["seen", "not yet"]

    await eventually(both, what="the push that was stored later is visible")


async def test_a_message_waits_for_a_disk_no_longer_than_the_proxy_in_front(gateway_for, upstream, store_path, disk):
    gateway = await gateway_for(upstream, env={**storing(store_path, sync="always"), **disk.environment})
    disk.stall()
    loop = asyncio.get_running_loop()
    began = loop.time()
    client, fields = gateway.client(), {"x-envoy-expected-rq-timeout-ms": "3000"}
    (status, problem), consumer = await asyncio.gather(
        post(client, "too late", **fields),
        client.request("PUT", "/v1/consumers/jobs", json={}, headers=fields),
    )
    assert loop.time() - began < 3
    assert (status, problem["type"]) == (503, "/errors/store-failed")
    assert consumer.problem(503)["type"] == "/errors/store-failed"

    async def samples():
        return (await gateway.metrics()).samples

    # The store has not failed: the disk does not respond.
    seen = await samples()
    assert seen["drawbridge_store_failed", ""] == 0
    assert seen["drawbridge_store_write_age_seconds", ""] > 2
    assert seen["drawbridge_messages_refused_total", 'reason="store-failed"'] == 1
    assert seen["drawbridge_messages_accepted_total", ""] == 0

    async def is_measured():
        return (await samples())["drawbridge_http_request_seconds_count", 'request="send"'] == 1

    await eventually(is_measured, what="the time of the request is measured")
    assert 2 < (await samples())["drawbridge_http_request_seconds_sum", 'request="send"'] < 3
    disk.heal()
    await accepted_in_time(gateway.client(), "in time")
    assert await upstream.has_received(1) == ["in time"]

    async def has_ended():
        return (await samples())["drawbridge_store_write_age_seconds", ""] == 0

    await eventually(has_ended, what="no write is in progress")
    assert (await samples())["drawbridge_messages_accepted_total", ""] == 1


async def test_a_shutdown_with_a_failed_store_is_not_orderly(gateway_for, upstream, store_path, disk):
    gateway = await gateway_for(upstream, env={**storing(store_path), **disk.environment})
    disk.fail(WRITE | SYNC, errno.ENOSPC)
    status, problem = await post(gateway.client(), "refused")
    assert (status, problem["type"]) == (503, "/errors/store-failed")
    gateway.signal()
    assert await gateway.exit_status(within=60) == 0
    last = gateway.records[-1]
    assert (last["message"], last["orderly"]) == ("stopped", False)


async def test_a_shutdown_does_not_wait_for_a_disk_forever(gateway_for, upstream, store_path, disk):
    gateway = await gateway_for(upstream, env={**storing(store_path, sync="always"), **disk.environment})
    disk.stall()
    waiting = asyncio.create_task(post(gateway.client(), "never stored"))
    await eventually(lambda: disk.stalls > 0, what="the disk stalls")
    gateway.signal()
    gateway.signal()
    assert await gateway.exit_status(within=60) == 0
    assert any(record["message"] == "the store was not closed in time" for record in gateway.records)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


@pytest.mark.parametrize("setting", ["Topic", "drop-oldest"])
async def test_a_refused_message_ends_no_acknowledged_message(gateway_for, upstream, store_path, disk, setting):
    env = {**storing(store_path, sync="always"), **disk.environment}
    fields = {"Topic": "t"} if setting == "Topic" else {}
    if setting == "drop-oldest":
        env |= {"DRAWBRIDGE_UPSTREAM_QUEUE_OVERFLOW": setting, "DRAWBRIDGE_UPSTREAM_QUEUE_MESSAGES": "1"}
    await upstream.kill()
    gateway = await gateway_for(upstream, env=env, ready=False)
    client = gateway.client()
    status, first = await post(client, "first", **fields)
    assert status == 202
    disk.fail(WRITE | SYNC, errno.ENOSPC)
    key = {"Idempotency-Key": "k"}
    status, problem = await post(client, "second", **fields, **key)
    assert (status, problem["type"]) == (503, "/errors/store-failed")
    assert "may be sent" in problem["detail"]
    disk.heal()
    await eventually(lambda: _working(gateway), within=30, what="the store works")
    assert (await client.request("GET", f"/v1/deliveries/{first}")).json["state"] in ("replaced", "rejected")
    status, second = await post(client, "second", **fields, **key)
    assert status == 202
    await upstream.start()
    assert await upstream.has_received(1) == ["second"]
    delivery = await client.request("GET", f"/v1/deliveries/{second}", params={"wait": "10"})
    assert delivery.json["state"] == "confirmed"
    assert upstream.received == ["second"]


async def test_a_slow_disk_shortens_no_lease_and_counts_no_delivery(gateway_for, upstream, store_path, disk):
    gateway = await gateway_for(upstream, env={**storing(store_path, sync="always"), **disk.environment})
    client = gateway.client()
    settings = {"share": True, "start": "earliest", "visibility": "100ms", "max_deliveries": 1}
    assert (await client.request("PUT", "/v1/consumers/workers", json=settings)).status == 201
    await upstream.push("job")
    assert (await client.poll(cursor="earliest", wait=10)).payloads == ["job"]
    disk.stall()
    receive = asyncio.create_task(client.request("POST", "/v1/consumers/workers/receive", params={"wait": "10"}))
    await eventually(lambda: disk.stalls > 0, what="the disk stalls")
    other = gateway.client()
    # Several times the length of a lease.
    deadline = asyncio.get_running_loop().time() + 0.5
    while asyncio.get_running_loop().time() < deadline:
        assert (await other.request("GET", "/v1/consumers/workers")).json["dead"]["messages"] == 0
    disk.heal()
    (message,) = (await receive).json["messages"]
    assert message["deliveries"] == 1
    settled = await client.request("POST", "/v1/consumers/workers/settle", json={"ack": [message["lease"]]})
    assert settled.status == 200, settled.body


@pytest.mark.load
async def test_the_file_and_the_time_of_a_start_are_limited(gateway_for, upstream, store_path, measured):
    """A hundred million bytes of pushes with a retention of 64 MiB, as after days of traffic."""
    env = {
        **storing(store_path),
        "DRAWBRIDGE_DELIVERY_BYTES": "64MiB",
        "DRAWBRIDGE_DELIVERY_MESSAGES": "1000000",
        "DRAWBRIDGE_DELIVERY_AGE": "1h",
    }
    gateway = await gateway_for(upstream, env=env)
    client, size, count = gateway.client(), 10_000, 10_000
    largest = 0
    for start in range(0, count, 100):
        await upstream.push(*(f"{start + number} {'x' * size}" for number in range(100)))

        async def received(expected=start + 100):
            return (await client.session())["pushes"]["received"] == expected

        await eventually(received, within=60, what="the pushes are received")
        largest = max(largest, sum(file.stat().st_size for file in store_path.parent.iterdir()))
    summary = (await client.session())["pushes"]
    assert summary["retained"] < 7_000
    assert largest < 2 * (64 << 20), "the rest of the log and of a transaction is less than the retention"
    await gateway.stop()
    again = await gateway_for(upstream, env=env)
    line = opened(again)
    measured(f"at most {largest >> 20} MiB; opened {line['bytes'] >> 20} MiB in {line['seconds']} s")
    assert (await again.client().session())["pushes"]["retained"] == summary["retained"]
    assert os.path.getsize(store_path) < 2 * (64 << 20)
