"""Clients that do not use cursors: one follows Link, and the other repeats ETag. Both are aborted again and again."""

import asyncio
import contextlib
import random
import re

import pytest

from harness.waiting import eventually

PUSHES = 1000
ABORTED = 20


class Follower:
    """A client that polls as the header fields of the responses say. `received` contains the payloads in order."""

    def __init__(self, client, accept):
        self._client = client
        self._headers = {"Accept": accept} if accept else {}
        self.received = []
        self.aborted = 0

    async def poll(self):
        """Polls once. The position changes only when the whole response has been read."""
        response = await self.request()
        assert response.status in (200, 304), (response.status, response.body[:200])
        assert "Gateway-Gap" not in response.headers
        if response.status == 200:
            lines = [message["data"] for message in response.json["messages"]]
            self.received += lines
        self.advance(response)

    async def run(self, heard):
        """Polls until `heard()` is true. Aborts some polls while they are held."""
        chance = random.Random(1)
        while not heard():
            polling = asyncio.create_task(self.poll())
            if self.aborted < ABORTED and chance.random() < 0.5:
                done, _ = await asyncio.wait({polling}, timeout=chance.uniform(0.01, 0.05))
                if not done:
                    self.aborted += 1
                    polling.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await polling
                    continue
            await polling


class LinkFollower(Follower):
    """Starts with one address, and then follows Link."""

    target = "/v1/messages?cursor=earliest&wait=10s&limit=7"

    async def request(self):
        return await self._client.request("GET", self.target, headers=self._headers)

    def advance(self, response):
        self.target = re.fullmatch(r'<(\S+)>; rel="next"', response.headers["Link"])[1]
        assert "&wait=10000ms&limit=7" in self.target


class ETagEcho(Follower):
    """Repeats one request with the last ETag."""

    tag = None

    async def request(self):
        headers = self._headers | ({"If-None-Match": self.tag} if self.tag else {})
        return await self._client.request("GET", "/v1/messages?wait=10s&limit=7", headers=headers)

    def advance(self, response):
        self.tag = response.headers["ETag"]


@pytest.mark.parametrize("kind", [LinkFollower, ETagEcho])
async def test_a_client_that_aborts_a_held_poll_misses_no_push(gateway, upstream, kind):
    follower = kind(gateway.client(), None)
    if kind is ETagEcho:
        # The first ETag comes from a HEAD request, so the follower starts at the current position.
        response = await gateway.client().request("HEAD", "/v1/messages")
        follower.tag = response.headers["ETag"]
    pushed = [f"push {number}" for number in range(PUSHES)]
    running = asyncio.create_task(follower.run(lambda: len(follower.received) >= PUSHES))
    sent = 0
    chance = random.Random(2)
    while sent < PUSHES:
        # Sends bursts of pushes, with pauses in which polls are held. The bursts continue until enough polls were
        # aborted.
        if follower.aborted < ABORTED:
            await asyncio.sleep(chance.uniform(0.02, 0.06))
        count = min(chance.randint(1, 20), PUSHES - sent)
        if follower.aborted < ABORTED and sent + count == PUSHES:
            count -= 1
        await upstream.push(*pushed[sent : sent + count])
        sent += count
        if running.done():
            break
    await asyncio.wait_for(running, 60)
    assert follower.received == pushed
    assert follower.aborted == ABORTED

    async def none_is_held():
        return (await gateway.metrics())["drawbridge_polls_held"] == 0

    await eventually(none_is_held, what="the aborted polls are forgotten")


async def test_a_single_payload_is_returned_unchanged(gateway, upstream):
    client = gateway.client()
    pushed = ["plain", '{"n": 1}', b"\x00\xff"]
    await upstream.push(*pushed)
    await client.collect(3, "earliest")
    target = "/v1/messages?cursor=earliest&limit=1&wait=0"
    for payload in pushed:
        response = await client.request("GET", target, headers={"Accept": "text/plain"})
        assert response.status == 200
        assert response.body == (payload if isinstance(payload, bytes) else payload.encode())
        target = response.headers["Link"].split(">")[0][1:]
    empty = await client.request("GET", target, headers={"Accept": "text/plain"})
    assert (empty.status, empty.body) == (204, b"")


async def test_lines_have_line_ends_and_are_compressed_if_accepted(gateway, upstream):
    client = gateway.client()
    await upstream.push(*(f"number {i} of some" for i in range(100)))
    await client.collect(100, "earliest")
    plain = await client.get(cursor="earliest", wait=0, headers={"Accept-Encoding": "identity"})
    packed = await client.get(cursor="earliest", wait=0, headers={"Accept-Encoding": "gzip"})
    assert packed.json == plain.json
    assert packed.headers["Content-Encoding"] == "gzip"
    assert int(packed.headers["Content-Length"]) < int(plain.headers["Content-Length"]) / 2
    lines = await client.get(cursor="earliest", wait=0, headers={"Accept": "application/x-ndjson"})
    assert lines.body.endswith(b"\n")
    assert lines.body.count(b"\n") == 100
