"""Requests that are repeated with their Idempotency-Key while the store is slow or fails, and afterwards."""

import asyncio
import errno

import pytest

from harness.disk_faults import SYNC, WRITE, FaultyDisk
from harness.store import storing
from harness.waiting import eventually


@pytest.fixture
def disk(tmp_path, store_path):
    return FaultyDisk(tmp_path, store_path.parent)


async def send(client, body, key):
    return await client.send(body, headers={"TTL": "3600", "Idempotency-Key": key})


async def is_working(gateway):
    return (await gateway.metrics())["drawbridge_store_failed"] == 0


async def test_a_repetition_of_a_stored_message_does_not_wait_for_later_entries(
    gateway_for, upstream, store_path, disk
):
    gateway = await gateway_for(upstream, env={**storing(store_path, sync="always"), **disk.environment})
    client = gateway.client()
    first = await send(client, "first", "a")
    assert first.status == 202
    disk.stall()
    later = asyncio.create_task(send(gateway.client(), "later", "b"))
    await eventually(lambda: disk.stalls > 0, what="the disk stalls")
    async with asyncio.timeout(10):
        again = await send(client, "first", "a")
    assert (again.status, again.json["id"]) == (202, first.json["id"]) or again.status == 200
    assert again.headers["Idempotency-Replayed"] == "true"
    assert not later.done()
    disk.heal()
    assert (await later).status == 202


async def test_a_request_with_503_is_sent_when_it_is_repeated_after_a_restart(gateway_for, upstream, store_path, disk):
    gateway = await gateway_for(upstream, env={**storing(store_path, sync="always"), **disk.environment})
    client = gateway.client()
    stored = await send(client, "stored", "a")
    assert stored.status == 202
    assert await upstream.has_received(1) == ["stored"]
    disk.fail(WRITE | SYNC, errno.EIO, at=1, count=1_000_000)
    refused = await send(client, "refused", "b")
    assert refused.status == 503
    assert "store-failed" in refused.json["type"]
    # Messages that were already stored are not affected.
    again = await send(client, "stored", "a")
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.json["id"] == stored.json["id"]
    # No message that must be stored is queued before this message.
    assert (await client.send("now", headers={"TTL": "0"})).status == 202
    disk.heal()
    await eventually(lambda: is_working(gateway), within=60, what="the store works again")
    await gateway.kill()

    gateway = await gateway_for(upstream, env=storing(store_path))
    repeated = await send(gateway.client(), "refused", "b")
    assert repeated.status == 202
    assert "Idempotency-Replayed" not in repeated.headers
    assert await upstream.has_received(3) == ["stored", "now", "refused"]
    replayed = await send(gateway.client(), "stored", "a")
    assert replayed.headers["Idempotency-Replayed"] == "true"


async def test_a_message_that_the_store_refused_is_not_stored_later(gateway_for, upstream, store_path, disk):
    for number in range(3):
        gateway = await gateway_for(upstream, env={**storing(store_path, sync="always"), **disk.environment})
        # The disk fails once. The store is written again when the client gets its error, or earlier.
        disk.fail(SYNC, errno.EIO, at=1, count=1)
        first = await send(gateway.client(), f"{number}", f"b{number}")
        assert first.status in (202, 503)
        await eventually(lambda gateway=gateway: is_working(gateway), what="the store works again")
        await gateway.kill()

        gateway = await gateway_for(upstream, env=storing(store_path))
        repeated = await send(gateway.client(), f"{number}", f"b{number}")
        assert ("Idempotency-Replayed" in repeated.headers) == (first.status == 202)
        await gateway.stop()


SESSIONS = """
sessions:
  quiet: {{upstream: {{url: "{url}"}}}}
"""


async def test_a_repetition_in_a_quiet_session_does_not_wait_for_a_busy_one(gateway_for, upstream, store_path):
    gateway = await gateway_for(upstream, config=SESSIONS.format(url=upstream.url), env=storing(store_path))
    client = gateway.client()
    path, headers = "/v1/sessions/quiet/messages", {"TTL": "3600", "Idempotency-Key": "a"}
    first = await client.request("POST", path, data="first", headers=headers)
    assert first.status == 202

    async def post():
        for number in range(300):
            assert (await gateway.client().send(f"busy {number}", headers={"TTL": "3600"})).status == 202

    busy = asyncio.create_task(post())
    while not busy.done():
        async with asyncio.timeout(10):
            again = await client.request("POST", path, data="first", headers=headers)
        assert again.headers["Idempotency-Replayed"] == "true"
        assert again.json["id"] == first.json["id"]
    await busy
