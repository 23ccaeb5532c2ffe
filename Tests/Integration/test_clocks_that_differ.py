"""Idempotency keys and consumers while the clocks of gateways differ, and after a clock was set."""

import asyncio

import pytest

from harness.clock import ShiftedClock
from harness.replicas import LEASE
from harness.waiting import eventually


@pytest.mark.parametrize("minutes", [-1, 1, 24 * 60])
async def test_gateways_whose_clocks_differ_send_a_repeated_post_once(replicas_for, recorder, tmp_path, minutes):
    clock = ShiftedClock(tmp_path)
    replicas = await replicas_for(lease=LEASE)
    holder = await replicas.holder()
    # The other gateways run on machines with different clocks.
    others = await replicas.followers()
    clock.shift(60 * minutes)
    for member in others:
        await member.drain()
        await member.run(clock.environment)
        await member.ready()
    assert await holder.held()
    key = {"Idempotency-Key": "k"}
    sent = await holder.client().accepted("keyed", headers=key)
    holder.entrance.mute()
    posts = [asyncio.create_task(others[0].client().send(f"plain-{number}")) for number in range(8)]
    texts = {"keyed", *(f"plain-{number}" for number in range(8))}
    await eventually(lambda: texts <= set(recorder.received), what="the holder sends the messages")
    await holder.kill()
    assert [response.status for response in await asyncio.gather(*posts)] == [202] * 8
    again = await others[1].client().send("keyed", headers=key)
    assert (again.headers["Idempotency-Replayed"], again.json["id"]) == ("true", sent["id"])
    await others[1].client().accepted("last")
    await eventually(lambda: "last" in recorder.received, what="the next holder sends")
    assert sorted(recorder.received) == sorted([*texts, "last"])


async def test_neither_a_set_clock_nor_a_restart_ends_a_key(gateway_for, upstream, tmp_path):
    clock = ShiftedClock(tmp_path)
    config = f"store: {{engine: sqlite, path: '{tmp_path}/store.db'}}\n"
    key = {"Idempotency-Key": "k"}
    gateway = await gateway_for(upstream, config=config, env=clock.environment)
    sent = await gateway.client().accepted("keyed", headers=key)
    for days in (1, -30):
        clock.shift(86_400 * days)
        await gateway.stop()
        gateway = await gateway_for(upstream, config=config, env=clock.environment)
        again = await gateway.client().send("keyed", headers=key)
        assert (again.headers.get("Idempotency-Replayed"), again.json["id"]) == ("true", sent["id"])
    assert upstream.received == ["keyed"]


async def test_a_clock_that_is_set_and_a_restart_remove_no_consumer(gateway_for, upstream, tmp_path):
    clock = ShiftedClock(tmp_path)
    config = f"store: {{engine: sqlite, path: '{tmp_path}/store.db'}}\n"
    gateway = await gateway_for(upstream, config=config, env=clock.environment)
    for name, idle in (("worker", "12h"), ("short", "1m")):
        created = await gateway.client().request("PUT", f"/v1/consumers/{name}", json={"idle": idle})
        assert created.status == 201
    clock.shift(86_400)
    await gateway.stop()
    gateway = await gateway_for(upstream, config=config, env=clock.environment)
    client = gateway.client()

    async def is_removed():
        return (await client.request("GET", "/v1/consumers/short")).status == 404

    # A client has a minute to come back to a consumer, so nothing is removed earlier.
    await eventually(is_removed, within=90, what="the consumer with a short `idle` is removed")
    assert (await client.request("GET", "/v1/consumers/worker")).status == 200
