"""The clients in docs/streams.md as they are printed there. Each resumes by itself."""

import asyncio
import json
import re
import statistics
import threading
import time
import types

import pytest

from harness.browser import Chromium
from harness.cutter import Cutter, closed, cuts_everywhere
from harness.gateway import PROJECT
from harness.reverse_proxies import REVERSE_PROXIES
from harness.waiting import eventually


def example(language):
    """The program of the page in that language."""
    (code,) = re.findall(rf"```{language}\n(.*?)```", (PROJECT / "docs/streams.md").read_text(), re.DOTALL)
    return code


class PythonClient:
    """The page's `pushes` in a thread, until it has yielded `count` messages."""

    def __init__(self, address, count, **parameters):
        names = {}
        exec(example("python"), names)
        self.received = []
        self.times = []
        self.gaps = []
        names["print"] = lambda _, gap: self.gaps.append({"before": len(self.received), **gap})
        # The pauses are shortened, since they would take most of the test.
        names["time"] = types.SimpleNamespace(sleep=lambda _: time.sleep(0.01))
        self._pushes = names["pushes"]("http://{}:{}".format(*address), **parameters)
        self._count = count
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for message, cursor in self._pushes:
            assert cursor == message["id"]
            self.times.append(time.time())
            self.received.append(message["data"])
            if len(self.received) == self._count:
                self._pushes.close()

    async def has(self, count, **options):
        await eventually(lambda: len(self.received) >= count, what=f"{count} pushes are received", **options)
        return self.received


@pytest.fixture(params=[None, *REVERSE_PROXIES], ids=lambda route: route.program if route else "directly")
def reach(request, start, tmp_path):
    """`await reach(gateway)`: the address at which clients reach the gateway, for each reverse proxy."""

    async def reach(gateway):
        if request.param is None:
            return gateway.address()
        return (await start(request.param(tmp_path, gateway.address()))).address

    return reach


async def test_each_push_reaches_the_python_client_before_the_next(gateway, upstream, reach, measured):
    client = PythonClient(await reach(gateway), 20)
    delays = []
    for number in range(20):
        pushed = time.time()
        await upstream.push(f"push {number}")
        # This is shorter than the time between two heartbeats. A proxy that buffers a response thus gets no heartbeat
        # that flushes it.
        await client.has(number + 1, within=10)
        delays.append(client.times[number] - pushed)
    assert client.received == [f"push {number}" for number in range(20)]
    measured(f"a push is received in {statistics.median(delays) * 1000:.1f} ms, at most {max(delays) * 1000:.0f}")


CUTS = cuts_everywhere(3)


async def test_the_python_client_resumes_wherever_its_connection_is_cut(gateway, upstream, start, reach):
    cutter = await start(Cutter(await reach(gateway), CUTS, end=b"}\n"))
    pushed = [f"push {number}" for number in range(3 * len(CUTS))]
    await upstream.push(*pushed)
    client = PythonClient(cutter.address, len(pushed) + 1)
    await client.has(len(pushed), within=90)
    # The stream continues after the last cut.
    await upstream.push("last")
    assert await client.has(len(pushed) + 1) == [*pushed, "last"]
    assert client.gaps == []
    assert cutter.cut_count == len(CUTS)


async def test_the_python_client_resumes_with_a_topic_filter(gateway_for, upstream, start, reach):
    gateway = await gateway_for(upstream, config="upstream:\n  topic: {pointer: /topic}\n")
    cutter = await start(Cutter(await reach(gateway), CUTS, end=b"}\n"))
    topics = ["orders.new", "noise", "alerts", "orders.old", "noise", "noise"]
    pushed = [{"topic": topics[number % 6], "number": number} for number in range(6 * len(CUTS))]
    await upstream.push(*map(json.dumps, pushed))
    expected = [push for push in pushed if push["topic"] != "noise"]
    client = PythonClient(cutter.address, len(expected), topic=["orders.*", "alerts"])
    assert await client.has(len(expected), within=90) == expected
    assert client.gaps == []
    assert cutter.cut_count == len(CUTS)


async def _receives(gateway, payload):
    """Waits until the gateway has received this push."""
    client = gateway.client()

    async def is_in():
        return (await client.poll(last=1, wait=0)).payloads == [payload]

    await eventually(is_in, what=f"the gateway has received {payload}")


async def test_the_python_client_reports_what_it_missed(gateway_for, upstream, start):
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_DELIVERY_MESSAGES": "10"})
    cutter = await start(Cutter(gateway.address()))
    client = PythonClient(cutter.address, 11)
    await upstream.push("before")
    await client.has(1)
    with closed(cutter):
        await upstream.push(*(f"push {number}" for number in range(25)))
        await _receives(gateway, "push 24")
    assert await client.has(11) == ["before", *(f"push {number}" for number in range(15, 25))]
    (gap,) = client.gaps
    assert (gap["before"], gap["missed"], gap["reason"]) == (1, 15, "retention")


async def test_the_python_client_restarts_after_503(gateway, upstream, start):
    cutter = await start(Cutter(gateway.address()))
    cutter.refusals = 2
    client = PythonClient(cutter.address, 1)
    await upstream.push("first")
    assert await client.has(1) == ["first"]
    assert len(cutter.streams) == 3


class Page:
    """A page with the browser example."""

    def __init__(self, page):
        self._page = page

    async def items(self):
        return await self._page.locator("li").all_text_contents()

    async def shows(self, *items):
        async def shows():
            return await self.items() == list(items)

        await eventually(shows, what=f"the page shows {items}")

    async def reload(self):
        await self._page.reload()


@pytest.fixture
def show(start):
    async def show(address):
        browser = await start(Chromium())
        return Page(await browser.open(address, example("html")))

    return show


async def test_the_browser_example_resumes_and_shows_gaps(gateway_for, upstream, start, show, reach):
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_DELIVERY_MESSAGES": "3"})
    cutter = await start(Cutter(await reach(gateway)))
    page = await show(cutter.address)
    await upstream.push("one", '{"n": 2}')
    await page.shows('"one"', '{"n":2}')
    # EventSource reconnects by itself.
    with closed(cutter):
        await upstream.push(*(f"{number}" for number in range(5)))
        await _receives(gateway, 4)
    await page.shows('"one"', '{"n":2}', "2 messages are missing (retention)", "2", "3", "4")
    # After a status other than 200, the page opens a new EventSource.
    cutter.refusals = 1
    with closed(cutter):
        await upstream.push("after")
        await _receives(gateway, "after")
    await page.shows('"one"', '{"n":2}', "2 messages are missing (retention)", "2", "3", "4", '"after"')
    assert cutter.refusals == 0
    # After a reload, the page continues at its position.
    await page.reload()
    await upstream.push("reloaded")
    await page.shows('"reloaded"')


async def test_the_first_line_of_the_page_shows_pushes_at_once(gateway, upstream, curl):
    command = re.search(r"```\ncurl -N (.*?)\n```", (PROJECT / "docs/streams.md").read_text())[1]
    command = command.replace("localhost:8080", "{}:{}".format(*gateway.address()))
    process = await asyncio.create_subprocess_shell(f"exec {curl} -sSN {command}", stdout=asyncio.subprocess.PIPE)
    try:
        for text in ("one", "two"):
            await upstream.push(text)
            while b'"data":"%s"' % text.encode() not in await asyncio.wait_for(process.stdout.readline(), 10):
                pass
    finally:
        process.kill()
        await process.wait()
