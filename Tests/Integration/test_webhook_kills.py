"""The gateway is killed while it delivers to a webhook, and continues from its store."""

import asyncio
import collections
import json
import random

import pytest

from harness.receiver import Receiver, config, webhook
from harness.waiting import eventually

PUSHES = 1_000
KILLS = 6


@pytest.mark.load
async def test_every_push_is_delivered_in_order_although_the_gateway_is_killed(
    gateway_for, start, upstream, store_path, measured
):
    gate = asyncio.Event()

    async def respond(n, delivery):
        await gate.wait()
        # Some responses are lost with the process.
        await asyncio.sleep(random.random() * 0.004)
        return 204

    receiver = await start(Receiver(respond))
    settings = config(
        webhook(receiver, concurrency=8, order_by="topic", retries=["20ms"] * 20),
        upstream={"topic": {"pointer": "/key"}},
        store={"engine": "sqlite", "path": str(store_path)},
    )
    gateway = await gateway_for(upstream, config=settings)
    await upstream.push(*(json.dumps({"key": f"k{number % 20}", "number": number}) for number in range(PUSHES)))

    async def lag():
        return (await gateway.client().request("GET", "/v1/consumers/hook")).json["lag"]

    async def has_all():
        return await lag() == PUSHES

    await eventually(has_all, what="all pushes are stored")
    gate.set()
    for kill in range(1, KILLS + 1):
        await receiver.has(PUSHES * kill // (KILLS + 1))
        await gateway.kill()
        gateway = await gateway_for(upstream, config=settings)

    async def is_done():
        return await lag() == 0

    await eventually(is_done, within=60, what="everything is delivered")
    ids = collections.defaultdict(set)
    first = collections.defaultdict(list)
    for delivery in receiver.deliveries:
        if delivery.id not in ids:
            first[delivery.data["key"]].append(delivery.data["number"])
        ids[delivery.id].add(delivery.body)
    assert len(ids) == PUSHES, "each push, with an id of its own"
    assert all(len(bodies) == 1 for bodies in ids.values()), "a repetition is the same push"
    for key, numbers in first.items():
        assert numbers == sorted(numbers), (key, numbers)
    repeated = len(receiver.deliveries) - PUSHES
    assert repeated < PUSHES / 2
    measured(f"{KILLS} kills, {PUSHES} pushes, {repeated} repeated")
