"""Consumers of a gateway with a store: the state that survives its end, and requests that fail without it."""

import asyncio
import errno

import pytest

from harness.disk_faults import WRITE, FaultyDisk
from harness.store import storing
from harness.waiting import eventually

WORKERS = "/v1/consumers/workers"


async def put(client, name="workers", **settings):
    response = await client.request("PUT", f"/v1/consumers/{name}", json=settings)
    assert response.status in (200, 201), response.body
    return response


async def receive(client, name="workers", **parameters):
    query = {key: str(value) for key, value in parameters.items()}
    return await client.request("POST", f"/v1/consumers/{name}/receive", params=query)


async def leases(client, **parameters):
    return [message["lease"] for message in (await receive(client, **parameters)).json["messages"]]


async def settle(client, **leases):
    return await client.request("POST", f"{WORKERS}/settle", json=leases)


async def state(client, name="workers"):
    return (await client.request("GET", f"/v1/consumers/{name}")).json


@pytest.fixture
def stored(gateway_for, upstream, store_path):
    """`await stored()`: a gateway with the store of this test. The previous gateway must have ended."""

    async def stored(**env):
        return await gateway_for(upstream, env={**storing(store_path), **env})

    return stored


async def pushed(client, upstream, *texts):
    await upstream.push(*texts)

    async def visible():
        return set(texts) <= set((await client.poll(cursor="earliest", wait=0)).payloads)

    await eventually(visible, what="the pushes are visible")


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
async def test_workers_continue_after_a_restart(stored, upstream, killed):
    gateway = await stored()
    client = gateway.client()
    await put(client, share=True, start="earliest", visibility="1h", topics=[])
    await pushed(client, upstream, "one", "two", "three", "four", "five")
    one, two, three, four = await leases(client, wait=10, limit=4)
    assert (await settle(client, ack=[one], release=[two], reject=[three])).status == 200
    before = await state(client)
    await (gateway.kill() if killed else gateway.stop())

    client = (await stored()).client()
    after = await state(client)
    for member in ("share", "visibility", "lag", "leases", "missed", "dead"):
        assert after[member] == before[member], member
    assert (await settle(client, ack=[four])).status == 200
    # An acknowledgement may be repeated.
    assert (await settle(client, ack=[one])).status == 200
    assert (await settle(client, ack=[two])).problem(409)["type"] == "/errors/lease-lost"
    messages = (await receive(client, wait=10, limit=10)).json["messages"]
    assert [(message["data"], message["deliveries"]) for message in messages] == [("two", 2), ("five", 1)]
    assert not {message["lease"] for message in messages} & {one, two, three, four}
    dead = (await client.request("GET", f"{WORKERS}/dead")).json
    assert [(letter["data"], letter["reason"]) for letter in dead["messages"]] == [("three", "rejected")]
    assert (await client.request("POST", f"{WORKERS}/dead/retry")).json == {"retried": 1}
    messages = (await receive(client, wait=10)).json["messages"]
    assert [(message["data"], message["deliveries"]) for message in messages] == [("three", 1)]


async def test_a_lease_that_expired_while_no_gateway_ran_counts_as_a_delivery(stored, upstream):
    gateway = await stored()
    client = gateway.client()
    await put(client, share=True, start="earliest", visibility="100ms", max_deliveries=2)
    await pushed(client, upstream, "one")
    (lease,) = await leases(client, wait=10)
    await gateway.kill()
    client = (await stored()).client()

    async def received():
        # A gap ends the request at once, without a message.
        return (await receive(client, wait=1)).json["messages"]

    (message,) = await eventually(received, what="the message is delivered again")
    assert (message["data"], message["deliveries"]) == ("one", 2)
    assert (await settle(client, ack=[lease])).status == 409

    async def is_dead():
        return (await state(client))["dead"]["messages"] == 1

    await eventually(is_dead, what="the message is a dead letter")


async def test_a_reader_continues_after_its_acknowledgement(stored, upstream):
    gateway = await stored()
    client = gateway.client()
    await put(client, "reader", start="earliest")
    await pushed(client, upstream, "one", "two", "three")
    first = (await receive(client, "reader", wait=10, limit=1)).json
    rest = (await receive(client, "reader", ack=first["cursor"])).json
    assert [message["data"] for message in rest["messages"]] == ["two", "three"]
    await gateway.kill()
    client = (await stored()).client()
    again = (await receive(client, "reader")).json
    assert [message["data"] for message in again["messages"]] == ["two", "three"]
    assert again["gap"] is None
    last = (await receive(client, "reader", ack=again["cursor"])).json
    assert last["gap"]["reason"] == "upstream"


async def test_created_and_removed_consumers_survive_a_kill(stored):
    gateway = await stored()
    client = gateway.client()
    await put(client, "kept", share=True)
    await put(client, "removed", share=True)
    assert (await client.request("DELETE", "/v1/consumers/removed")).status == 204
    await gateway.kill()
    client = (await stored()).client()
    assert [consumer["name"] for consumer in (await client.request("GET", "/v1/consumers")).json["consumers"]] == [
        "kept"
    ]


async def test_no_lease_or_acknowledgement_is_confirmed_before_it_is_stored(stored, upstream, store_path, tmp_path):
    disk = FaultyDisk(tmp_path, store_path.parent)
    gateway = await stored(**disk.environment)
    client = gateway.client()
    await put(client, share=True, start="earliest", visibility="1h")
    await put(client, "reader", start="earliest")
    await pushed(client, upstream, "one", "two")
    (lease,) = await leases(client, wait=10, limit=1)
    cursor = (await receive(client, "reader", wait=10, limit=1)).json["cursor"]
    disk.fail(WRITE, errno.ENOSPC)
    # The first request discovers that the disk has failed.
    held = (await receive(client, wait=0)).problem(503)
    assert held["type"] == "/errors/store-failed"
    for method, path, options in (
        ("PUT", "/v1/consumers/new", {"json": {}}),
        ("POST", f"{WORKERS}/settle", {"json": {"ack": [lease]}}),
        ("POST", f"{WORKERS}/receive?wait=5s", {}),
        ("POST", f"{WORKERS}/dead/retry", {}),
        ("DELETE", f"{WORKERS}/dead", {}),
        ("DELETE", WORKERS, {}),
        ("POST", f"/v1/consumers/reader/receive?ack={cursor}", {}),
    ):
        response = await client.request(method, path, **options)
        assert response.problem(503)["type"] == "/errors/store-failed", (method, path)
        assert int(response.headers["Retry-After"]) > 0
    # Requests that change nothing are still served.
    assert [message["data"] for message in (await receive(client, "reader")).json["messages"]] == ["one", "two"]
    assert (await state(client))["leases"] == 1
    disk.heal()

    async def works():
        return (await settle(client, ack=[lease])).status == 200

    await eventually(works, within=60, what="the store works again")
    (message,) = (await receive(client, wait=10)).json["messages"]
    # Receives that failed do not count as deliveries.
    assert (message["data"], message["deliveries"]) == ("two", 1)
    await gateway.kill()
    client = (await stored()).client()
    assert (await state(client))["leases"] == 1
    assert (await settle(client, ack=[message["lease"]])).status == 200


async def test_the_lease_of_a_client_that_disconnects_while_it_is_stored_is_withdrawn(
    stored, upstream, store_path, tmp_path
):
    disk = FaultyDisk(tmp_path, store_path.parent)
    gateway = await stored(DRAWBRIDGE_STORE_SYNC="always", **disk.environment)
    client = gateway.client()
    await put(client, share=True, start="earliest", visibility="1h")
    await pushed(client, upstream, "one")
    disk.stall()
    waiting = asyncio.create_task(receive(gateway.client(), wait=10))
    await eventually(lambda: disk.stalls > 0, what="the disk stalls")
    # The response waits for the disk, but all other requests already see the lease.
    assert (await state(client))["leases"] == 1
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)

    async def is_free():
        return (await state(client))["leases"] == 0

    await eventually(is_free, what="the lease is taken back")
    disk.heal()
    (message,) = (await receive(client, wait=10)).json["messages"]
    assert (message["data"], message["deliveries"]) == ("one", 1)
