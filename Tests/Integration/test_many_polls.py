"""Ten thousand long-polls at once, answered by one push, none forgotten."""

import asyncio
import gc
import json
import resource
import time

import pytest

from harness.held_polls import hold
from harness.waiting import eventually

COUNT = 10_000


@pytest.mark.load
@pytest.mark.timeout(180)
async def test_ten_thousand_held_polls_are_answered_by_one_push(upstream, gateway, measured):
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    client = gateway.client()
    cursor = await client.here()
    descriptors = gateway.descriptors()
    # Once around first, so that what the process keeps for good is not charged to the polls.
    warm = await hold(gateway.address(), 200, f"/v1/messages?cursor={cursor}&wait=0")
    await asyncio.gather(*(poll.answer for poll in warm))
    for poll in warm:
        poll.transport.abort()
    before = gateway.memory()

    polls = await hold(gateway.address(), COUNT, f"/v1/messages?cursor={cursor}&wait=55")
    try:
        await eventually(lambda: waiting(gateway, COUNT), within=40, what=f"{COUNT} polls are held")
        held = gateway.memory()
        gc.disable()
        started = time.monotonic()
        await upstream.push("to everybody")
        await asyncio.gather(*(poll.answer for poll in polls))
        took = time.monotonic() - started
        gc.enable()

        bodies = {poll.body for poll in polls}
        assert len(bodies) == 1
        answer = json.loads(bodies.pop())
        assert [message["data"] for message in answer["messages"]] == ["to everybody"]
        assert await waiting(gateway, 0)
        measured(
            f"{(held - before) / COUNT:.0f} bytes of user memory a held poll, the last answered after {took:.2f} s"
        )
    finally:
        for poll in polls:
            poll.transport.abort()
    await eventually(lambda: gateway.descriptors() <= descriptors + 2, what="every descriptor is given back")


@pytest.mark.load
async def test_polls_that_hang_up_while_held_cost_nothing(upstream, gateway):
    client = gateway.client()
    cursor = await client.here()
    descriptors = gateway.descriptors()
    for _ in range(5):
        polls = await hold(gateway.address(), 500, f"/v1/messages?cursor={cursor}&wait=55")
        await eventually(lambda: waiting(gateway, 500), what="500 polls are held")
        for poll in polls:
            poll.transport.abort()
        await eventually(lambda: waiting(gateway, 0), what="they are noticed to be gone")
        await asyncio.gather(*(poll.answer for poll in polls), return_exceptions=True)
    await eventually(lambda: gateway.descriptors() <= descriptors + 2, what="every descriptor is given back")
    await upstream.push("still here")
    assert (await client.collect(1, cursor))[0] == ["still here"]


async def waiting(gateway, count):
    return (await gateway.metrics())["drawbridge_polls_held"] == count
