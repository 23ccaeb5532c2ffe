"""EventSource of a real browser, directly and through reverse proxies with their default settings."""

import asyncio
import json
import statistics
import time

import pytest

from harness.browser import Chromium
from harness.cutter import Cutter, closed, cuts_everywhere
from harness.gateway import Gateway
from harness.reverse_proxies import REVERSE_PROXIES, Envoy
from harness.waiting import eventually

# A page that records the events of its EventSource. It does not handle errors.
PAGE = """<!doctype html>
<script>
  const now = () => performance.timeOrigin + performance.now();
  const record = { messages: [], gaps: [], opened: 0, errors: 0 };
  function listen(query) {
    const source = new EventSource("/v1/messages?" + query);
    source.onopen = () => record.opened++;
    source.onerror = () => record.errors++;
    source.onmessage = (event) => {
      const message = JSON.parse(event.data);
      record.messages.push({ data: message.data, time: now(), isPosition: event.lastEventId === message.id });
    };
    source.addEventListener("gap", (event) => {
      record.gaps.push({ before: record.messages.length, ...JSON.parse(event.data) });
    });
  }
</script>"""

CUTS = cuts_everywhere(3)

# This is shorter than the time between two keep-alives. A proxy that buffers a response thus gets no keep-alive that
# flushes it.
BEFORE_A_KEEP_ALIVE = 10

ROUTES = [None, *REVERSE_PROXIES]


def name(route):
    return route.program if route else "directly"


class Listener:
    """A page with an EventSource."""

    def __init__(self, page):
        self._page = page

    async def record(self):
        return await self._page.evaluate("record")

    async def messages(self):
        return (await self.record())["messages"]

    async def payloads(self):
        return [message["data"] for message in await self.messages()]

    async def is_open(self, count=1):
        async def has_opened():
            return (await self.record())["opened"] >= count

        await eventually(has_opened, what=f"the EventSource is open for the {count}. time")

    async def has(self, count, **options):
        async def has():
            messages = await self.messages()
            return messages if len(messages) >= count else None

        return await eventually(has, what=f"the page has {count} messages", **options)


@pytest.fixture
def listen(start):
    """`await listen(address, query)`: a page with an EventSource that is connected to that address."""

    async def listen(address, query=""):
        browser = await start(Chromium())
        page = await browser.open(address, PAGE)
        await page.evaluate(f"listen({json.dumps(query)})")
        return Listener(page)

    return listen


@pytest.fixture
def reach(start, tmp_path):
    """`await reach(route, gateway)`: the address at which clients reach the gateway by this route."""

    async def reach(route, gateway):
        if route is None:
            return gateway.address()
        return (await start(route(tmp_path, gateway.address()))).address

    return reach


@pytest.mark.parametrize("route", ROUTES, ids=name)
async def test_each_push_reaches_the_page_before_the_next(route, gateway, upstream, listen, reach, measured):
    page = await listen(await reach(route, gateway))
    await page.is_open()
    delays = []
    for number in range(20):
        pushed = time.time()
        await upstream.push(f"push {number}")
        messages = await page.has(number + 1, within=BEFORE_A_KEEP_ALIVE)
        delays.append(messages[number]["time"] / 1000 - pushed)
    assert await page.payloads() == [f"push {number}" for number in range(20)]
    assert all(message["isPosition"] for message in messages)
    record = await page.record()
    assert (record["opened"], record["errors"], record["gaps"]) == (1, 0, [])
    measured(f"a push reaches the page in {statistics.median(delays) * 1000:.1f} ms, at most {max(delays) * 1000:.0f}")


@pytest.mark.parametrize("route", ROUTES, ids=name)
async def test_an_event_source_resumes_wherever_its_connection_is_cut(route, gateway, upstream, start, listen, reach):
    cutter = await start(Cutter(await reach(route, gateway), CUTS, retries_soon=True))
    # There are enough pushes for all cuts, since each stream has up to three messages before its cut.
    pushed = [f"push {number}" for number in range(3 * len(CUTS))]
    await upstream.push(*pushed)
    page = await listen(cutter.address, "cursor=earliest")
    await page.has(len(pushed), within=90)
    assert await page.payloads() == pushed
    assert (await page.record())["gaps"] == []
    # The stream continues after the last cut.
    await upstream.push("last")
    assert (await page.has(len(pushed) + 1))[-1]["data"] == "last"
    assert cutter.cut_count == len(CUTS)
    assert "\r\nlast-event-id: p-" in cutter.streams[-1].lower()


async def position(client, number):
    """The latest cursor, once that many pushes have arrived."""
    latest = await client.here()
    return latest if latest.endswith(f".{number}") else None


TOPICS = """
upstream:
  topic: {pointer: /topic}
"""


@pytest.mark.parametrize("route", ROUTES, ids=name)
async def test_an_event_source_resumes_with_a_topic_filter(route, gateway_for, upstream, start, listen, reach):
    gateway = await gateway_for(upstream, config=TOPICS)
    cutter = await start(Cutter(await reach(route, gateway), CUTS, retries_soon=True))
    topics = ["orders.new", "noise", "alerts", "orders.old", "noise", "noise"]
    pushed = [{"topic": topics[number % 6], "number": number} for number in range(6 * len(CUTS))]
    await upstream.push(*map(json.dumps, pushed))
    page = await listen(cutter.address, "cursor=earliest&topic=orders.*&topic=alerts")
    expected = [push for push in pushed if push["topic"] != "noise"]
    await page.has(len(expected), within=90)
    assert await page.payloads() == expected
    assert (await page.record())["gaps"] == []
    assert cutter.cut_count == len(CUTS)


async def test_an_event_source_advances_while_nothing_matches_its_topics(gateway_for, upstream, start, listen):
    """Otherwise, its stream would report a gap, although only pushes that do not match its topics are missing."""
    env = {"DRAWBRIDGE_DELIVERY_MESSAGES": "5", "DRAWBRIDGE_DELIVERY_STREAM_HEARTBEAT": "1s"}
    gateway = await gateway_for(upstream, config=TOPICS, env=env)
    client = gateway.client()
    cutter = await start(Cutter(gateway.address(), retries_soon=True))
    page = await listen(cutter.address, "cursor=earliest&topic=orders")
    await upstream.push('{"topic": "orders", "number": 1}')
    await page.has(1)
    await upstream.push(*['{"topic": "noise"}'] * 4)
    latest = await eventually(lambda: position(client, 5), what="the gateway has received all pushes")
    await eventually(lambda: f"id: {latest}\n".encode() in cutter.responses[-1], what="a heartbeat has the position")
    with closed(cutter):
        await upstream.push(*['{"topic": "noise"}'] * 4)
        await eventually(lambda: position(client, 9), what="the gateway has received all pushes")
    await upstream.push('{"topic": "orders", "number": 2}')
    await page.has(2)
    assert [payload["number"] for payload in await page.payloads()] == [1, 2]
    assert (await page.record())["gaps"] == []


@pytest.mark.parametrize("route", ROUTES, ids=name)
async def test_an_event_source_gets_a_gap_for_pushes_dropped_while_it_was_disconnected(
    route, gateway_for, upstream, start, listen, reach
):
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_DELIVERY_MESSAGES": "10"})
    client = gateway.client()
    cutter = await start(Cutter(await reach(route, gateway)))
    page = await listen(cutter.address, "cursor=earliest")
    await upstream.push("before")
    await page.has(1)
    with closed(cutter):
        await upstream.push(*(f"push {number}" for number in range(25)))
        await eventually(lambda: position(client, 26), what="the gateway has received all pushes")
    # The page reconnects after the time that the stream has set.
    await page.has(11)
    assert await page.payloads() == ["before", *(f"push {number}" for number in range(15, 25))]
    (gap,) = (await page.record())["gaps"]
    assert (gap["before"], gap["missed"], gap["reason"]) == (1, 15, "retention")


async def test_a_lost_upstream_is_a_gap_in_an_open_stream(gateway, upstream, listen):
    page = await listen(gateway.address(), "cursor=earliest")
    await upstream.push("before")
    await page.has(1)
    upstream.reset_connections()
    await eventually(lambda: upstream.connected == 0, what="the connection is lost")
    await upstream.push("after")
    await page.has(2)
    record = await page.record()
    assert [message["data"] for message in record["messages"]] == ["before", "after"]
    (gap,) = record["gaps"]
    assert (gap["before"], gap["missed"], gap["reason"]) == (1, None, "upstream")
    assert record["opened"] == 1


async def test_an_event_source_resumes_with_a_gap_after_a_restart_of_the_gateway(gateway, upstream, start, listen):
    cutter = await start(Cutter(gateway.address()))
    page = await listen(cutter.address, "cursor=earliest")
    await upstream.push("before")
    await page.has(1)
    await gateway.kill()
    second = await start(Gateway("--upstream", upstream.url))
    await second.ready()
    cutter.target = second.address()
    await upstream.push("after")
    await page.has(2)
    record = await page.record()
    assert [message["data"] for message in record["messages"]] == ["before", "after"]
    (gap,) = record["gaps"]
    assert (gap["before"], gap["reason"]) == (1, "restart")


async def test_a_stream_ends_before_envoy_would_cut_it(gateway, upstream, listen, reach):
    """Envoy ends each request after 15 seconds."""
    address = await reach(Envoy, gateway)
    page = await listen(address, "cursor=earliest")
    await page.is_open()
    ended = asyncio.create_task(_read_to_the_end(address))
    pushed = []
    while not ended.done():
        pushed.append(f"push {len(pushed)}")
        await upstream.push(pushed[-1])
        await page.has(len(pushed), within=BEFORE_A_KEEP_ALIVE)
    # A response that Envoy cuts has no last chunk.
    assert (await ended).endswith(b"0\r\n\r\n")
    await page.is_open(2)
    await upstream.push("last")
    await page.has(len(pushed) + 1)
    assert await page.payloads() == [*pushed, "last"]
    assert (await page.record())["gaps"] == []


async def _read_to_the_end(address):
    """The bytes of one stream up to its end."""
    reader, writer = await asyncio.open_connection(*address)
    host = "{}:{}".format(*address)
    writer.write(f"GET /v1/messages HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\n\r\n".encode())
    received = b""
    try:
        while data := await asyncio.wait_for(reader.read(65536), 60):
            received += data
            if received.endswith(b"\r\n0\r\n\r\n"):
                break
    finally:
        writer.close()
    return received
