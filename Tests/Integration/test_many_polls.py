"""Ten thousand long polls at once: one push ends all of them."""

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
async def test_one_push_ends_ten_thousand_held_polls(upstream, gateway, measured):
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    client = gateway.client()
    cursor = await client.here()
    descriptors = gateway.descriptors()
    # The first round makes the process allocate the memory that it keeps forever, so that this memory does not count
    # for the polls.
    warm = await hold(gateway.address(), 200, f"/v1/messages?cursor={cursor}&wait=0")
    await asyncio.gather(*(poll.response for poll in warm))
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
        await asyncio.gather(*(poll.response for poll in polls))
        took = time.monotonic() - started
        gc.enable()

        bodies = {poll.body for poll in polls}
        assert len(bodies) == 1
        response = json.loads(bodies.pop())
        assert [message["data"] for message in response["messages"]] == ["to everybody"]
        assert await waiting(gateway, 0)
        measured(
            f"{(held - before) / COUNT:.0f} bytes of user memory a held poll, the last response after {took:.2f} s"
        )
    finally:
        for poll in polls:
            poll.transport.abort()
    await eventually(lambda: gateway.descriptors() <= descriptors + 2, what="every descriptor is given back")


@pytest.mark.load
async def test_new_polls_are_held_while_earlier_polls_still_get_responses(upstream, gateway):
    """There are more polls than one slice of a fan-out. The first clients poll again before the last get a response."""
    client = gateway.client()
    cursor = await client.here()
    polls = await hold(gateway.address(), 2000, f"/v1/messages?cursor={cursor}&wait=55")
    try:
        await eventually(lambda: waiting(gateway, 2000), what="2000 polls are held")
        answered = (await gateway.metrics())["drawbridge_polls_answered_total"]
        epoch, _, number = cursor.partition(".")
        next_cursor = f"{epoch}.{int(number) + 1}"
        request = f"GET /v1/messages?cursor={next_cursor}&wait=55 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        again = [asyncio.create_task(poll.again(request)) for poll in polls]
        await upstream.push("to everybody")
        await asyncio.gather(*again)
        await eventually(lambda: waiting(gateway, 2000), what="2000 polls are held again")
        assert (await gateway.metrics())["drawbridge_polls_answered_total"] == answered + 2000
        assert not any(poll.response.done() for poll in polls)
    finally:
        for poll in polls:
            poll.transport.abort()
        await asyncio.gather(*(poll.response for poll in polls), return_exceptions=True)


@pytest.mark.load
async def test_a_push_ends_only_the_poll_whose_filter_matches(upstream, gateway_for):
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_UPSTREAM_TOPIC_POINTER": "/topic"})
    client = gateway.client()
    cursor = await client.here()
    polls = await hold(
        gateway.address(), 2000, lambda index: f"/v1/messages?cursor={cursor}&wait=55&topic=topic-{index}"
    )
    try:
        await eventually(lambda: waiting(gateway, 2000), what="2000 polls are held")
        chosen = range(0, 2000, 199)
        for count, index in enumerate(chosen, 1):
            # The first three pushes match no poll.
            await upstream.push('{"topic":"other"}', "no topic", b"binary", f'{{"topic":"topic-{index}"}}')
            body = (await polls[index].response).partition(b"\r\n\r\n")[2]
            assert [message["topic"] for message in json.loads(body)["messages"]] == [f"topic-{index}"]
            # Other clients are served between the slices of a fan-out.
            assert (await client.poll(last=1, wait=0)).messages[0]["topic"] == f"topic-{index}"
            await eventually(lambda count=count: waiting(gateway, 2000 - count), what="the others are held")
        assert [index for index, poll in enumerate(polls) if poll.response.done()] == list(chosen)
        # A burst wakes each poll that matches one of its messages.
        others = [index for index in range(2000) if index not in chosen]
        await upstream.push(*(f'{{"topic":"topic-{index}"}}' for index in others[:300]))
        await asyncio.gather(*(polls[index].response for index in others[:300]))
        await eventually(lambda: waiting(gateway, len(others) - 300), what="all others are still held")
    finally:
        for poll in polls:
            poll.transport.abort()
        await asyncio.gather(*(poll.response for poll in polls), return_exceptions=True)


@pytest.mark.load
async def test_polls_that_are_aborted_while_held_leave_no_state(upstream, gateway):
    client = gateway.client()
    cursor = await client.here()
    descriptors = gateway.descriptors()
    for _ in range(5):
        polls = await hold(gateway.address(), 500, f"/v1/messages?cursor={cursor}&wait=55")
        await eventually(lambda: waiting(gateway, 500), what="500 polls are held")
        for poll in polls:
            poll.transport.abort()
        await eventually(lambda: waiting(gateway, 0), what="they are noticed to be gone")
        await asyncio.gather(*(poll.response for poll in polls), return_exceptions=True)
    await eventually(lambda: gateway.descriptors() <= descriptors + 2, what="every descriptor is given back")
    await upstream.push("still here")
    assert (await client.collect(1, cursor))[0] == ["still here"]


async def waiting(gateway, count):
    return (await gateway.metrics())["drawbridge_polls_held"] == count
