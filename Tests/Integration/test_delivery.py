"""Loss is never silent: retention, restarts, and what a cursor still means after them."""

from harness.upstream import Upstream
from harness.waiting import eventually


async def newest(client, payload):
    """Waits until `payload` is the last message in the buffer."""

    async def is_last():
        return (await client.poll(cursor="-1", wait=0)).payloads == [payload]

    await eventually(is_last, what=f"{payload[:20]!r} is in the buffer")


async def test_a_cursor_older_than_retention_gets_its_gap(gateway_for, upstream):
    config = f"upstream:\n  url: {upstream.url}\ndelivery:\n  messages: 10\n"
    client = (await gateway_for(None, config=config)).client()
    cursor = await client.here()
    await upstream.push(*(f"message {i}" for i in range(25)))
    await newest(client, "message 24")
    batch = await client.poll(cursor=cursor, wait=0)
    assert batch.gap == {"missed": 15, "reason": "retention"}
    assert batch.payloads == [f"message {i}" for i in range(15, 25)]
    # The gap was told once; from here on all is whole again.
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


async def test_a_cursor_from_before_a_restart_says_so_and_reading_goes_on(gateway_for, start):
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
    assert batch.gap == {"missed": None, "reason": "restart"}
    assert batch.payloads == ["first of the new run"]
    assert (await client.poll(cursor=batch.cursor, wait=0)).gap is None


async def test_a_restart_answers_an_old_cursor_at_once_even_with_nothing_to_give(gateway_for, upstream):
    before = await gateway_for(upstream)
    cursor = await before.client().here()
    await before.stop()
    after = await gateway_for(upstream)
    batch = await after.client().poll(cursor=cursor, wait=30)
    assert batch.gap == {"missed": None, "reason": "restart"}


async def test_what_an_upstream_may_have_sent_while_it_was_away_is_told_as_a_gap_or_nothing_is_missing(
    gateway, upstream, client
):
    """The upstream is gone and back: every push that arrived is there, in order, before and after."""
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
