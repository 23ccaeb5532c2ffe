"""Gateways while Redis is unreachable, is full or has lost everything. The table in docs/scaling.md promises this.

DRAWBRIDGE_REDIS_AWAY sets the seconds without Redis in the long form; `make soak-redis` uses 600.
"""

import asyncio
import os
import time

import pytest

from harness.client import Batch
from harness.numbered import ContinuedStream
from harness.replicas import LEASE
from harness.waiting import eventually

LONG = float(os.environ.get("DRAWBRIDGE_REDIS_AWAY", "4"))
#: Four seconds without Redis are longer than any wait with this tenure.
SHORT_LEASE = 2


def take_away(way, replicas):
    """Separates all gateways from Redis."""
    if way == "frozen":
        replicas.databases.primary.freeze()
        return
    for member in replicas:
        member.network.cut() if way == "cut" else member.network.stall()


def bring_back(replicas):
    replicas.databases.primary.thaw()
    for member in replicas:
        member.network.heal()


async def is_ready(member):
    return (await member.gateway.manage("/readyz")).status == 200


async def log_of(member):
    """The log at this gateway: numbers of pushes, and reasons of gaps."""
    log, cursor = [], "earliest"
    while True:
        batch = await member.client().poll(cursor=cursor, wait=0)
        if batch.gap:
            log.append(batch.gap["reason"])
        log += [message["data"]["n"] for message in batch.messages]
        if not batch.more:
            return log
        cursor = batch.cursor


async def have(replicas, number):
    """Waits until each gateway has the push with this number."""
    for member in replicas.running:
        await eventually(lambda member=member: has(member, number), what=f"gateway {member.number} has push {number}")


async def has(member, number):
    response = await member.client().get(last=1, wait=0)
    if response.status == 503:
        return False
    messages = Batch.of(response).messages
    return messages and messages[0]["data"]["n"] == number


async def states(replicas, ids):
    """The final states of deliveries. Each state is read from another gateway."""
    seen = []
    for id in ids:
        client = replicas.running[len(seen) % len(replicas.running)].client()

        async def state(id=id, client=client):
            response = await client.request("GET", f"/v1/deliveries/{id}")
            return (
                response.status == 200 and response.json["state"] in ("confirmed", "unknown") and response.json["state"]
            )

        seen.append(await eventually(state, what=f"{id} has a final state"))
    return seen


@pytest.mark.parametrize("way", ["cut", "stalled", "frozen"])
async def test_a_second_without_redis_delays_and_loses_nothing(replicas_for, recorder, way):
    # This is the default of `store.lease`.
    replicas = await replicas_for(lease=5)
    await recorder.push_one()
    await have(replicas, 1)
    take_away(way, replicas)
    began = time.monotonic()
    posts = [asyncio.create_task(member.client().send(f"from {member.number}")) for member in replicas]
    pushed = 1
    while time.monotonic() < began + 1:
        recorder.push()
        pushed += 1
        assert len((await replicas[pushed % 3].client().poll(cursor="earliest", wait=0)).messages) == 1
        await asyncio.sleep(0.02)
    bring_back(replicas)
    responses = [await post for post in posts]
    assert [response.status for response in responses] == [202, 202, 202]
    await have(replicas, pushed)
    assert await states(replicas, [response.json["id"] for response in responses]) == ["confirmed"] * 3
    assert [await log_of(member) for member in replicas] == [list(range(1, pushed + 1))] * 3
    assert sorted(recorder.received) == ["from 0", "from 1", "from 2"]
    assert len(recorder.connections) == 1


@pytest.mark.timeout(120 + 2 * LONG)
@pytest.mark.parametrize("way", ["cut", "stalled", "frozen"])
async def test_a_long_time_without_redis_ends_sockets_and_resumes_by_itself(replicas_for, recorder, measured, way):
    replicas = await replicas_for(lease=SHORT_LEASE, settings={"upstream": {"correlation": "jsonrpc"}})
    settings = {"share": True, "visibility": "1h"}
    assert (await replicas[0].client().request("PUT", "/v1/consumers/w", json=settings)).status == 201
    first = await replicas[0].client().accepted("before")
    assert await states(replicas, [first["id"]]) == ["confirmed"]
    for _ in range(5):
        recorder.push()
    await have(replicas, 5)
    streams = [await ContinuedStream(member, "earliest").open() for member in replicas]
    for stream in streams:
        assert await stream.until(5) == [1, 2, 3, 4, 5]
    taken = await replicas[1].client().request("POST", "/v1/consumers/w/receive?limit=1&wait=30s")
    (lease,) = (message["lease"] for message in taken.json["messages"])
    take_away(way, replicas)
    began = time.monotonic()
    # The holder closes its connection at its deadline, a second before the tenure ends.
    connection = recorder.connections[0]
    await eventually(lambda: connection.closed is not None, what="the holder closes its connection")
    closed = connection.closed - began
    for member in replicas:
        await eventually(lambda member=member: not_ready(member), what="the gateway is not ready")
    failed = time.monotonic() - began
    for member in replicas:
        await eventually(lambda member=member: sees_redis(member, is_there=False), what="it shows that Redis is away")
    problems = [asyncio.create_task(problems_of(member, lease)) for member in replicas]
    refused = 0
    while not refused or time.monotonic() < began + LONG:
        # All requests are sent at once, since a follower waits some time for a holder.
        for response in await asyncio.gather(*(member.client().send("meanwhile") for member in replicas)):
            assert response.problem(503)["retryable"], response.body
            assert "Retry-After" in response.headers
            refused += 1
        for member in replicas:
            # Readers still get the pushes.
            assert await log_of(member) == [1, 2, 3, 4, 5]
        await asyncio.sleep(min(0.2, LONG / 100))
    for problem in problems:
        assert await problem == dict.fromkeys(("receive", "settle", "call", "close"), PROBLEM)
    assert len(recorder.connections) == 1
    bring_back(replicas)
    back = time.monotonic()
    for member in replicas:
        await eventually(lambda member=member: is_ready(member), what="the gateway is ready again")
    number = await recorder.push_one()
    works = time.monotonic() - back
    await have(replicas, number)
    log = await log_of(replicas[0])
    assert log == [1, 2, 3, 4, 5, "upstream", *range(6, number + 1)]
    assert [await log_of(member) for member in replicas] == [log] * 3
    for stream in streams:
        # The stream may have ended because its session was replaced. It continues at its last position.
        assert await stream.until(number) == log
        stream.close()
    for member in replicas:
        await eventually(lambda member=member: sees_redis(member, is_there=True), what="it shows that Redis is back")
    # The lease is still valid, and no refused request had an effect.
    settled = await replicas[2].client().request("POST", "/v1/consumers/w/settle", json={"ack": [lease]})
    assert settled.status == 200, settled.body
    consumer = (await replicas[0].client().request("GET", "/v1/consumers/w")).json
    assert (consumer["leases"], consumer["dead"]["messages"]) == (0, 0)
    # A gateway learns the holder's address with its next heartbeat, which may be later than the push.
    for member in replicas:
        await eventually(lambda member=member: is_open(member), what="it shows the state of the holder")
    ids = [(await member.client().accepted(f"after {member.number}"))["id"] for member in replicas]
    assert await states(replicas, ids) == ["confirmed"] * 3
    assert sorted(recorder.received) == ["after 0", "after 1", "after 2", "before"]
    assert len(recorder.connections) == 2
    measured(
        f"{way}, {LONG:g} s: closed after {closed:.2f} s (lease {SHORT_LEASE} s), not ready after "
        f"{failed:.2f} s, {refused} refused, "
        f"connected {works:.2f} s after Redis was back"
    )
    assert closed < SHORT_LEASE


#: Status and type of the problem of requests that need the holder. While Redis is away, no gateway knows the holder.
PROBLEM = (503, "/errors/store-failed")


async def problems_of(member, lease):
    """The problems of requests that only a holder serves, sent at once. A follower waits some time for a holder."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "m"}
    requests = {
        "receive": ("POST", "/v1/consumers/w/receive?wait=0s", None),
        "settle": ("POST", "/v1/consumers/w/settle", {"reject": [lease]}),
        "call": ("POST", "/v1/call?wait=20s", call),
        "close": ("PATCH", "/v1/session", {"desired": "down"}),
    }
    responses = await asyncio.gather(
        *(member.client().request(method, path, json=body) for method, path, body in requests.values())
    )
    return {
        name: (response.status, response.json.get("type")) for name, response in zip(requests, responses, strict=True)
    }


async def sees_redis(member, *, is_there):
    """Whether the session's document and the metrics say that Redis is reachable (`is_there`) or not."""
    document = await member.client().session()
    assert isinstance(document["state"], str)
    replica, metrics = document["replica"], await member.gateway.metrics()
    figures = (metrics["drawbridge_store_failed"], metrics["drawbridge_store_up"])
    if is_there:
        return (replica["store"]["state"], replica["current"], *figures) == ("working", True, 0, 1)
    return replica["store"]["state"] != "working" and (replica["current"], *figures) == (False, 1, 0)


async def is_open(member):
    return (await member.client().session())["desired"] == "up"


async def not_ready(member):
    return not await is_ready(member)


@pytest.mark.parametrize("how", ["flushed", "restarted empty"])
async def test_an_empty_redis_gets_every_session_from_its_holder(replicas_for, recorder, how):
    replicas = await replicas_for(lease=5)
    before = await replicas[1].client().accepted("before", headers={"Idempotency-Key": "k"})
    for _ in range(20):
        await recorder.push_one()
    await have(replicas, 20)
    assert await states(replicas, [before["id"]]) == ["confirmed"]
    primary = replicas.databases.primary
    if how == "flushed":
        await primary.client.flushall()
    else:
        await primary.kill()
        await primary.start()
    for _ in range(20):
        await recorder.push_one()
    await have(replicas, 40)
    assert [await log_of(member) for member in replicas] == [list(range(1, 41))] * 3
    assert await states(replicas, [before["id"]] * 3) == ["confirmed"] * 3
    again = await replicas[2].client().send("before", headers={"Idempotency-Key": "k"})
    assert (again.status, again.json["id"]) == (200, before["id"])
    # A gateway that starts now finds the same state.
    follower = (await replicas.followers())[0]
    await follower.drain()
    await follower.run()
    await follower.ready()
    await have(replicas, 40)
    assert await log_of(follower) == list(range(1, 41))
    assert recorder.received == ["before"]
    assert len(recorder.connections) == 1


async def test_a_full_redis_loses_nothing_and_recovers(replicas_for, recorder):
    replicas = await replicas_for(lease=LEASE)
    ids = [(await replicas[0].client().accepted("first"))["id"]]
    redis = replicas.databases.primary.client
    await redis.config_set("maxmemory", 1)
    holder = await replicas.holder()
    posts = [asyncio.create_task(member.client().send(f"full {member.number}")) for member in replicas]
    recorder.push()
    # Redis still accepts commands that need no memory, such as heartbeats. Gateways do not use it for messages.
    refused = "Redis refuses writes\n"

    async def says_so():
        response = await holder.gateway.manage("/readyz")
        return response.status == 503 and response.body.decode() == refused

    await eventually(says_so, what="the holder is not ready, and says why")
    # This is longer than the tenure. The holder keeps the session, since its heartbeat needs no memory.
    age = time.monotonic()
    await eventually(lambda: time.monotonic() > age + LEASE + 1)
    assert await holder.held()
    assert await log_of(replicas[2]) == []
    await redis.config_set("maxmemory", 0)
    for post in posts:
        response = await post
        assert response.status in (202, 503), response.body
        if response.status == 202:
            ids.append(response.json["id"])

    async def accepted():
        response = await replicas[1].client().send("after")
        return response.status == 202 and (ids.append(response.json["id"]) or True)

    await eventually(accepted, what="a message is accepted again")
    await have(replicas, 1)
    assert [await log_of(member) for member in replicas] == [[1]] * 3
    assert await states(replicas, ids) == ["confirmed"] * len(ids)
    assert len(recorder.connections) == 1
