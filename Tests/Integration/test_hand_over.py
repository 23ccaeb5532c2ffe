"""A new connection takes over from the old one: nothing is lost, doubled, or changed by a failure."""

import asyncio
import collections
import contextlib
import itertools
import signal

import pytest
from websockets.exceptions import ConnectionClosed

from harness.upstream import Upstream
from harness.waiting import eventually

HAND_OVERS = 100


class Broadcaster(Upstream):
    """Sends one numbered stream to every connection, each from the moment it has been greeted."""

    def __init__(self, *, greets=False, **options):
        super().__init__(**options)
        self._greets = greets
        self.greeted = 0
        self.pushed = 0
        self._subscribers = []

    async def _converse(self, connection):
        if self._greets:
            # As a server that looks something up first: the connection is open, and gets nothing yet.
            await asyncio.sleep(0)
            self.greeted += 1
            await connection.send(f"hello {self.greeted}")
        self._subscribers.append(connection)
        try:
            await super()._converse(connection)
        finally:
            self._subscribers.remove(connection)

    async def broadcast_until(self, stopped):
        while not stopped.is_set():
            self.pushed += 1
            for connection in list(self._subscribers):
                # Where it has gone, the others go on.
                with contextlib.suppress(ConnectionClosed):
                    await connection.send(f"push {self.pushed}")
            await asyncio.sleep(0)


async def generation(client):
    session = await client.session()
    return session["generation"] if session["state"] in ("ready", "suspect") else None


async def hand_over(gateway, client, upstream):
    before = await generation(client)
    gateway.signal(signal.SIGHUP)

    async def is_over():
        now = await generation(client)
        return now is not None and now > before and upstream.connected == 1

    await eventually(is_over, what="the successor is ready and the old connection closed")


@pytest.mark.load
@pytest.mark.timeout(240)
@pytest.mark.parametrize("greets", [False, True])
async def test_a_hundred_hand_overs_under_load(start, gateway_for, measured, greets):
    upstream = await start(Broadcaster(greets=greets))
    env = {
        "DRAWBRIDGE_UPSTREAM_OVERLAP": "100ms",
        "DRAWBRIDGE_DELIVERY_MESSAGES": "1000000",
        "DRAWBRIDGE_DELIVERY_BYTES": "1GiB",
    }
    gateway = await gateway_for(upstream, env=env)
    client = gateway.client()
    cursor = await client.here()
    stopped = asyncio.Event()
    pushing = asyncio.create_task(upstream.broadcast_until(stopped))
    got = []
    posted = []

    async def read():
        nonlocal cursor
        while not stopped.is_set():
            batch = await client.poll(cursor=cursor, wait=1)
            assert batch.gap is None
            got.extend(batch.payloads)
            cursor = batch.cursor

    async def post():
        for number in itertools.count():
            if stopped.is_set():
                return
            answer = await client.send(f"post {number}")
            if answer.status == 202:
                posted.append(f"post {number}")

    working = [asyncio.create_task(read()), asyncio.create_task(post())]
    for _ in range(HAND_OVERS):
        await hand_over(gateway, client, upstream)
    stopped.set()
    await asyncio.gather(pushing, *working)

    def pushes():
        return [payload for payload in got if payload.startswith("push")]

    async def all_read():
        nonlocal cursor
        batch = await client.poll(cursor=cursor, wait=0)
        got.extend(batch.payloads)
        cursor = batch.cursor
        return got and got[-1] == f"push {upstream.pushed}"

    await eventually(all_read, what="the last push is read")
    counts = collections.Counter(pushes())
    first = int(pushes()[0].split()[1])
    assert [name for name, count in counts.items() if count > 1] == [], "passed on twice"
    assert sorted(int(name.split()[1]) for name in counts) == list(range(first, upstream.pushed + 1)), "lost"
    if greets:
        assert {f"hello {number}" for number in range(2, upstream.greeted + 1)} <= set(got)

    await eventually(lambda: len(upstream.received) >= len(posted), what="every accepted post arrives")
    assert sorted(upstream.received) == sorted(posted)
    session = await client.session()
    assert session["messages"]["unknown"] == 0
    assert len(upstream.requests) == HAND_OVERS + 1
    measured(f"{HAND_OVERS} hand-overs, {len(counts)} pushes and {len(posted)} posts, none lost or doubled")


async def test_a_connection_is_replaced_at_its_maximum_age(start, gateway_for):
    upstream = await start(Broadcaster())
    await gateway_for(upstream, env={"DRAWBRIDGE_UPSTREAM_MAXIMUM_AGE": "200ms", "DRAWBRIDGE_UPSTREAM_OVERLAP": "10ms"})
    await eventually(lambda: len(upstream.requests) >= 4, what="three connections were replaced")
    await eventually(lambda: [code for code, _ in upstream.closes[:3]] == [1000] * 3, what="and closed in order")


async def test_a_failed_successor_leaves_the_old_connection_serving(upstream, gateway_for, tmp_path):
    config = "upstream:\n  url: {}\n"
    gateway = await gateway_for(None, ready=True, config=config.format(upstream.url))
    client = gateway.client()
    nobody = "ws://127.0.0.1:1/"
    gateway.rewrite(config.format(nobody))
    gateway.signal(signal.SIGHUP)

    async def has_failed():
        history = (await client.session())["history"]
        return any(entry["from"] == "replacing" and "failed" in entry["cause"] for entry in history)

    await eventually(has_failed, what="the successor failed")
    assert (await client.session())["state"] == "ready"
    await client.accepted("still here")
    assert await upstream.has_received(1) == ["still here"]
    assert upstream.closes == []


async def test_a_wrong_new_configuration_changes_nothing(upstream, gateway_for):
    config = f"upstream:\n  url: {upstream.url}\n"
    gateway = await gateway_for(None, config=config)
    gateway.rewrite(config + "  ulr: x\n")
    gateway.signal(signal.SIGHUP)
    await eventually(lambda: "did you mean 'url'" in gateway.output, what="the log says what is wrong")
    assert len(upstream.requests) == 1


async def test_settings_that_need_a_restart_are_named(upstream, gateway_for):
    config = f"upstream:\n  url: {upstream.url}\n"
    gateway = await gateway_for(None, config=config)
    gateway.rewrite(config + "delivery:\n  messages: 5\n")
    gateway.signal(signal.SIGHUP)
    await eventually(lambda: "delivery.messages" in gateway.output, what="the log names the setting")


async def test_a_reload_takes_up_new_certificates(start, gateway_for, authority, certificate):
    upstream = await start(Upstream(certificate=certificate))
    config = "upstream:\n  url: {}\n  tls:\n    ca_file: {}\n    system_ca: false\n"
    gateway = await gateway_for(None, config=config.format(upstream.url, authority.path))
    gateway.signal(signal.SIGHUP)
    await eventually(lambda: len(upstream.requests) == 2, what="it is connected anew")
