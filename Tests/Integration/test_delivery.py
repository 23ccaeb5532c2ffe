"""Messages are never lost silently: retention, restarts, and the meaning of a cursor after a restart."""

from harness.client import Batch
from harness.clock import ShiftedClock
from harness.upstream import Upstream
from harness.waiting import eventually


async def newest(client, payload):
    """Waits until `payload` is the last message in the buffer."""

    async def is_last():
        return (await client.poll(last=1, wait=0)).payloads == [payload]

    await eventually(is_last, what=f"{payload[:20]!r} is in the buffer")


async def test_a_cursor_older_than_retention_gets_its_gap(gateway_for, upstream):
    config = f"upstream:\n  url: {upstream.url}\ndelivery:\n  messages: 10\n"
    client = (await gateway_for(None, config=config)).client()
    cursor = await client.here()
    await upstream.push(*(f"message {i}" for i in range(25)))
    await newest(client, "message 24")
    batch = await client.poll(cursor=cursor, wait=0)
    assert batch.gap == {"missed": 15, "reason": "retention", "reasons": ["retention"]}
    assert batch.payloads == [f"message {i}" for i in range(15, 25)]
    # The gap is reported once. After it, no push is missing.
    await upstream.push("one more")
    payloads, _ = await client.collect(1, batch.cursor)
    assert payloads == ["one more"]


async def test_retention_by_bytes_drops_the_oldest(gateway_for, upstream):
    config = f"upstream:\n  url: {upstream.url}\ndelivery:\n  bytes: 64KiB\n"
    client = (await gateway_for(None, config=config)).client()
    cursor = await client.here()
    await upstream.push(*(f"{i:03} " + "x" * 4096 for i in range(40)))
    await newest(client, "039 " + "x" * 4096)
    batch = await client.poll(cursor=cursor, wait=0)
    assert batch.gap["reason"] == "retention"
    assert batch.gap["missed"] + len(batch.messages) == 40
    assert batch.payloads[-1].startswith("039")


async def test_retention_continues_after_an_outage_of_the_upstream(gateway_for, upstream):
    """Each loss of the upstream adds a gap to the buffer. A gap is not a message, and keeps no older message."""
    config = f"upstream:\n  url: {upstream.url}\ndelivery:\n  bytes: 64KiB\n"
    gateway = await gateway_for(None, config=config)
    client = gateway.client()
    cursor = await client.here()
    for round in range(3):
        for i in range(40):
            await upstream.push(f"{round}/{i:03} " + "x" * 4096)
        await newest(client, f"{round}/039 " + "x" * 4096)
        metrics = await gateway.metrics()
        assert metrics["drawbridge_buffer_bytes"] <= 64 * 1024
        assert metrics["drawbridge_buffer_messages"] <= 15
        assert metrics["drawbridge_pushes_total"] == 40 * (round + 1)
        await upstream.kill()
        await upstream.start()
        await gateway.ready()
    batch = await client.poll(cursor=cursor, wait=0)
    assert batch.gap["reason"] == "retention"
    assert batch.gap["reasons"] == ["retention", "upstream"]
    assert batch.gap["missed"] + len(batch.messages) == 120
    assert (await client.poll(last=2, wait=0)).payloads == [f"2/{i:03} " + "x" * 4096 for i in (38, 39)]


async def test_a_start_before_the_oldest_kept_push_has_a_gap(gateway_for, upstream):
    config = f"upstream:\n  url: {upstream.url}\ndelivery:\n  messages: 10\n"
    client = (await gateway_for(None, config=config)).client()
    await upstream.push(*(f"message {i}" for i in range(10)))
    await newest(client, "message 9")
    for start in ({"cursor": "earliest"}, {"last": 99}, {"since": "1h"}):
        assert (await client.poll(**start, wait=0)).gap is None
    await upstream.push(*(f"message {i}" for i in range(10, 25)))
    await newest(client, "message 24")
    for start, missed in (({"cursor": "earliest"}, 15), ({"last": 12}, 2), ({"last": 99}, 15), ({"since": "1h"}, 15)):
        batch = await client.poll(**start, wait=0)
        assert batch.gap == {"missed": missed, "reason": "retention", "reasons": ["retention"]}, start
        assert batch.payloads == [f"message {i}" for i in range(15, 25)]
        assert (await client.poll(cursor=batch.cursor, wait=0)).gap is None


async def test_a_step_of_the_clock_drops_no_push_and_ends_no_poll(gateway_for, upstream, tmp_path):
    clock = ShiftedClock(tmp_path)
    config = f"upstream:\n  url: {upstream.url}\n"
    client = (await gateway_for(None, config=config, env=clock.environment)).client()
    cursor = await client.here()
    await upstream.push("unread")
    await newest(client, "unread")
    # Two hours ahead and back, into the year 10000 and beyond, before 1970 and before the common era.
    for years, seconds in ((0, 7200), (0, -7200), (8000, 0), (200_000, 0), (-100, 0), (-4000, 0)):
        clock.shift(years * 31_557_600 + seconds)
        await upstream.push(f"{years} {seconds}")
        await newest(client, f"{years} {seconds}")
        response = await client.get(cursor=cursor, wait=0)
        assert Batch.of(response).payloads[0] == "unread"
        assert len(response.headers["Date"]) == len("Sun, 06 Nov 1994 08:49:37 GMT"), response.headers["Date"]
        assert (await client.poll(since="1h", wait=0)).payloads[0] == "unread"
        for message in Batch.of(response).messages:
            assert len(message["time"]) == len("2026-11-21T09:30:00.125Z"), message["time"]


async def test_a_cursor_from_before_a_restart_has_a_gap_and_reading_continues(gateway_for, start):
    upstream = await start(Upstream())
    before = await gateway_for(upstream)
    client = before.client()
    await upstream.push("lost with the process")
    _, cursor = await client.collect(1, "earliest")
    await before.stop()

    after = await gateway_for(upstream)
    await upstream.push("first of the new run")
    client = after.client()
    await client.collect(1, "earliest")
    batch = await client.poll(cursor=cursor, wait=10)
    assert batch.gap == {"missed": None, "reason": "restart", "reasons": ["restart"]}
    assert batch.payloads == ["first of the new run"]
    assert (await client.poll(cursor=batch.cursor, wait=0)).gap is None


async def test_an_old_cursor_after_a_restart_gets_its_gap_at_once(gateway_for, upstream):
    before = await gateway_for(upstream)
    cursor = await before.client().here()
    await before.stop()
    after = await gateway_for(upstream)
    batch = await after.client().poll(cursor=cursor, wait=30)
    assert batch.gap == {"missed": None, "reason": "restart", "reasons": ["restart"]}


async def test_pushes_before_and_after_an_outage_are_kept_in_order(gateway, upstream, client):
    """The upstream fails and returns. Every push that arrived is kept in order, before and after the gap."""
    cursor = await client.here()
    await upstream.push("before")
    await client.collect(1, cursor)
    await upstream.kill()
    await upstream.start()
    await upstream.push("after")
    payloads = []
    at = cursor
    while "after" not in payloads:
        batch = await client.poll(cursor=at, wait=10)
        assert batch.gap is None or batch.gap["reason"] == "upstream"
        payloads += batch.payloads
        at = batch.cursor
    assert payloads == ["before", "after"]
