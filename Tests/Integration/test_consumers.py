"""Consumers on a running gateway: workers that are killed, readers that are replaced."""

import asyncio
import json
import os
import random

from harness.waiting import eventually

# `make workers` sets larger numbers for the long form.
MESSAGES = int(os.environ.get("DRAWBRIDGE_CONSUMER_MESSAGES", "1500"))
WORKERS = int(os.environ.get("DRAWBRIDGE_CONSUMER_WORKERS", "20"))
KEYS = 40


async def put(client, name, **settings):
    response = await client.request("PUT", f"/v1/consumers/{name}", json=settings)
    assert response.status in (200, 201), response.body
    return response


async def receive(client, name, **parameters):
    query = {key: str(value) for key, value in parameters.items()}
    return await client.request("POST", f"/v1/consumers/{name}/receive", params=query)


async def settle(client, name, **leases):
    return await client.request("POST", f"/v1/consumers/{name}/settle", json=leases)


async def show(client, name):
    return (await client.request("GET", f"/v1/consumers/{name}")).json


async def run(*command, stdin=b""):
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    return process, asyncio.create_task(process.communicate(stdin))


async def test_curl_workers_that_are_killed_handle_every_message_in_order(gateway, upstream, client, curl):
    base = f"{gateway.url()}/v1/consumers/workers"
    await put(client, "workers", share=True, start="earliest", order_by="/key", visibility="2s", max_deliveries=1000)
    chance = random.Random(1)
    handled = []
    seen = set()
    victims = []

    async def call(path, body=b""):
        """The response to a curl that the test may kill at any moment, or None after a kill."""
        process, reading = await run(curl, "-sS", "-d", "@-", f"{base}/{path}", stdin=body)
        victims.append(process)
        out, _ = await reading
        victims.remove(process)
        return json.loads(out) if process.returncode == 0 and out else None

    async def work():
        while len(seen) < MESSAGES:
            batch = await call("receive?wait=1s&limit=5")
            if not batch or not batch["messages"]:
                continue
            assert batch["gap"] is None
            handled.extend((m["data"]["n"], m["data"]["key"]) for m in batch["messages"])
            seen.update(m["data"]["n"] for m in batch["messages"])
            await call("settle", json.dumps({"ack": [m["lease"] for m in batch["messages"]]}).encode())

    async def kill():
        while True:
            await asyncio.sleep(0.05)
            if victims:
                chance.choice(victims).kill()

    async def push():
        for start in range(0, MESSAGES, 100):
            numbers = range(start, min(start + 100, MESSAGES))
            await upstream.push(*(json.dumps({"n": n, "key": n % KEYS}) for n in numbers))

    killing = asyncio.create_task(kill())
    try:
        await asyncio.wait_for(asyncio.gather(push(), *(work() for _ in range(WORKERS))), 120 + MESSAGES / 20)
    finally:
        killing.cancel()
    assert seen == set(range(MESSAGES))
    firsts = {}
    for n, key in handled:
        newest = firsts.setdefault(key, -1)
        # A repeated message is not new, and a new message comes after all earlier messages.
        assert n <= newest or n == newest + KEYS or (newest == -1 and n == key), (n, key, newest)
        firsts[key] = max(newest, n)

    async def is_done():
        # Killed workers acknowledged nothing, so their leases expire.
        batch = (await receive(client, "workers", wait=0, limit=1000)).json
        if batch["messages"]:
            await settle(client, "workers", ack=[m["lease"] for m in batch["messages"]])
        state = await show(client, "workers")
        return state["lag"] == 0 and state["leases"] == 0 and state["missed"] == 0 and state["dead"]["messages"] == 0

    await eventually(is_done, what="every message is acknowledged")


async def holds(gateway, count):
    async def is_held():
        return (await gateway.metrics())["drawbridge_receives_held"] == count

    await eventually(is_held, what=f"{count} receives are held")


async def test_a_superseded_reader_ends_without_loss(gateway, upstream, client):
    await put(client, "reader", start="earliest")
    received = []
    cursor = {}
    for turn in range(5):
        first = asyncio.create_task(receive(client, "reader", wait=30, **cursor))
        await holds(gateway, 1)
        second = asyncio.create_task(receive(client, "reader", wait=30, **cursor))
        assert (await first).problem(409)["type"] == "/errors/superseded"
        await upstream.push(f"push {turn}")
        batch = (await second).json
        assert batch["gap"] is None
        received += [message["data"] for message in batch["messages"]]
        cursor = {"ack": batch["cursor"]}
    assert received == [f"push {turn}" for turn in range(5)]


async def test_a_held_receive_ends_for_pushes_releases_and_expired_leases(gateway, upstream, client):
    await put(client, "workers", share=True, visibility="300ms", max_deliveries=9)
    worker = asyncio.create_task(receive(client, "workers", wait=30))
    await holds(gateway, 1)
    await upstream.push("one")
    (message,) = (await worker).json["messages"]
    assert message["deliveries"] == 1
    # Nothing else happens meanwhile, so only the timer of the session can end the lease.
    (again,) = (await receive(client, "workers", wait=30)).json["messages"]
    assert again["deliveries"] == 2
    assert (await settle(client, "workers", ack=[message["lease"]])).status == 409
    worker = asyncio.create_task(receive(client, "workers", wait=30))
    # On a busy machine, the lease may already have expired.
    assert (await settle(client, "workers", release=[again["lease"]], delay="200ms")).status in (200, 409)
    (last,) = (await worker).json["messages"]
    assert last["deliveries"] == 3


async def test_a_held_receive_reports_what_retention_removes(gateway_for, upstream):
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_DELIVERY_AGE": "1s"})
    client = gateway.client()
    await put(client, "workers", share=True, order_by="/key", visibility="1h")
    await upstream.push('{"key":1}', '{"key":1}')
    (message,) = (await receive(client, "workers", wait=30)).json["messages"]
    # The released message blocks the other message for an hour. No lease or delay ends before that.
    assert (await settle(client, "workers", release=[message["lease"]], delay="1h")).status == 200
    batch = (await asyncio.wait_for(receive(client, "workers", wait=55), 30)).json
    assert (batch["messages"], batch["gap"]["missed"], batch["gap"]["reason"]) == ([], 2, "retention")


async def test_an_unused_consumer_is_removed(client):
    await put(client, "brief", idle="1s")
    await put(client, "kept", idle="1m")

    async def is_removed():
        listed = (await client.request("GET", "/v1/consumers")).json["consumers"]
        return [consumer["name"] for consumer in listed] == ["kept"]

    await eventually(is_removed, what="the consumer is removed")
    (await receive(client, "brief", wait=0)).problem(404)


async def test_a_consumer_is_removed_even_after_a_receive_held_longer_than_its_idle_time(client):
    await put(client, "brief", share=True, idle="1s")
    # The wait is longer than the time after which the timer looks for idle consumers.
    assert (await receive(client, "brief", wait="1500ms")).status == 200

    async def is_removed():
        return (await client.request("GET", "/v1/consumers")).json["consumers"] == []

    await eventually(is_removed, what="the consumer is removed")


async def test_the_limits_of_consumers_and_leases_apply(upstream, client):
    for index in range(999):
        await put(client, f"c{index}")
    await put(client, "workers", share=True)
    problem = await client.request("PUT", "/v1/consumers/other", json={})
    assert problem.problem(503)["type"] == "/errors/too-many-consumers"
    assert int(problem.headers["Retry-After"]) > 0
    await put(client, "c7")
    await upstream.push(*(str(n) for n in range(1001)))
    leases = []
    while len(leases) < 1000:
        leases += [m["lease"] for m in (await receive(client, "workers", wait=10, limit=1000)).json["messages"]]
    assert len(leases) == 1000
    blocked = (await receive(client, "workers", wait=0)).json
    assert (blocked["messages"], blocked["blocked"], blocked["more"]) == ([], "leases", False)
    assert (await settle(client, "workers", ack=leases[:1])).status == 200

    async def is_received():
        batch = (await receive(client, "workers", wait=0)).json
        return [m["data"] for m in batch["messages"]] == [1000]

    await eventually(is_received, what="the message beyond the limit is received")


async def test_readers_that_take_over_while_pushes_arrive_lose_nothing(gateway, upstream, client):
    await put(client, "reader", start="earliest")
    count = 300
    received = []

    async def push():
        for n in range(count):
            await upstream.push(str(n))

    async def read(cursor):
        parameters = {"ack": cursor} if cursor else {}
        first, second = await asyncio.gather(*(receive(client, "reader", wait=5, limit=7, **parameters) for _ in "ab"))
        batches = [response for response in (first, second) if response.status == 200]
        # A receive that ends before the other receive begins is not superseded.
        assert batches
        assert all(a.status == 200 or a.problem(409)["type"] == "/errors/superseded" for a in (first, second))
        batch = batches[-1].json
        assert batch["gap"] is None
        received.extend(message["data"] for message in batch["messages"])
        return batch["cursor"]

    pushing = asyncio.create_task(push())
    cursor = None
    while len(received) < count:
        cursor = await read(cursor)
    await pushing
    assert received == list(range(count))


async def test_a_disconnected_worker_takes_no_lease(gateway, upstream, client, curl):
    await put(client, "workers", share=True)
    process, reading = await run(curl, "-sS", "-X", "POST", f"{gateway.url()}/v1/consumers/workers/receive?wait=30")
    await holds(gateway, 1)
    process.kill()
    await reading
    await holds(gateway, 0)
    await upstream.push("one")
    (message,) = (await receive(client, "workers", wait=30)).json["messages"]
    assert message["deliveries"] == 1
