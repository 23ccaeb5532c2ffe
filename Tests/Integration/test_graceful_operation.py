"""Requests while the gateway is restarted: with inherited sockets, and behind load balancers that watch /readyz.

No request fails, and each message that was accepted reaches the upstream once. Cursors belong to an instance: a client
that returns with one to another instance gets a gap with the reason `restart`, and so knows. Without a gap, pushes come
in order, each once: with held requests and in streams, which continue where they ended.

DRAWBRIDGE_OPERATION_REQUESTS sets the number of requests per test; the issue's number is 10000.
"""

import asyncio
import collections
import itertools
import json
import os
import socket
import sys
from pathlib import Path

import aiohttp
import pytest

from harness import inheritance
from harness.gateway import Gateway
from harness.reverse_proxies import HAProxy
from harness.sidecar import Sidecar
from harness.streams import FORMATS
from harness.waiting import eventually

REQUESTS = int(os.environ.get("DRAWBRIDGE_OPERATION_REQUESTS", "600"))
RESTARTS = 3
CLIENTS = 8
# Longer than the health checks need to see that /readyz fails.
PAUSE = {"DRAWBRIDGE_SHUTDOWN_PAUSE": "2s"}


class Sequence:
    """The pushes that one client sees: they have consecutive numbers, unless there is a gap."""

    def __init__(self):
        self._last = None
        # Pushes that came after their predecessor.
        self.followed = 0

    def gap(self):
        self._last = None

    def received(self, number):
        assert self._last in (None, number - 1), (number, "follows", self._last)
        self.followed += self._last is not None
        self._last = number


class Traffic:
    """Clients that post, poll and keep their connections as long as responses allow, `count` requests or more.

    Others wait for the pushes of the upstream: with held requests, and with a stream of each format.
    """

    def __init__(self, address, count, upstream):
        self.address = address
        self.count = count
        self.upstream = upstream
        self.pushed = 0
        self._pushing = asyncio.Lock()
        self.sequences = {"held": Sequence(), **{format: Sequence() for format in FORMATS}}
        self.accepted = []
        self.statuses = collections.Counter()
        self.gaps = collections.Counter()
        # Whether all restarts are over. The requests go on until then.
        self.is_undisturbed = False

    @property
    def made(self):
        return sum(self.statuses.values())

    async def run(self):
        async with asyncio.TaskGroup() as group:
            streams = [group.create_task(self._stream(format)) for format in FORMATS]
            await asyncio.gather(self._wait(), *(self._client(client) for client in range(CLIENTS)))
            for stream in streams:
                stream.cancel()

    async def _push(self):
        async with self._pushing:
            if self.upstream.connected:
                self.pushed += 1
                await self.upstream.push(str(self.pushed))

    async def _wait(self):
        """Held requests, which a drain ends."""
        connection = cursor = None
        sequence = self.sequences["held"]
        while self.made < self.count or not self.is_undisturbed:
            if connection is None:
                connection = await asyncio.open_connection(*self.address)
            query = f"&cursor={cursor}" if cursor else ""
            status, fields, body = await self._request(connection, f"GET /v1/messages?wait=2{query}")
            self.statuses[status] += 1
            cursor = body["cursor"]
            if body["gap"]:
                self._note(body["gap"], sequence)
            for message in body["messages"]:
                sequence.received(int(message["data"]))
            if fields.get("connection") == "close":
                connection[1].close()
                connection = None
        if connection:
            connection[1].close()

    async def _stream(self, format):
        """Each stream ends in order and continues where the one before it has ended."""
        media, parser = FORMATS[format]
        sequence, position = self.sequences[format], None
        async with aiohttp.ClientSession("http://{}:{}".format(*self.address)) as http:
            while True:
                headers, query = {"Accept": media}, {}
                if format == "lines":
                    query = {"stream": "1"} | ({"cursor": position} if position else {})
                elif position:
                    headers["Last-Event-ID"] = position
                if not position:
                    sequence.gap()
                async with http.get("/v1/messages", headers=headers, params=query) as response:
                    assert response.status == 200, (response.status, await response.read())
                    self.statuses[200] += 1
                    reading = parser()
                    async for data in response.content.iter_any():
                        for event in reading.feed(data):
                            if event.type == "gap":
                                self._note(event.json, sequence)
                            elif event.type == "message":
                                sequence.received(int(event.json["data"]))
                    position = reading.last_id or position

    def _note(self, gap, sequence=None):
        if sequence:
            sequence.gap()
        self.gaps[tuple(gap.get("reasons") or [gap["reason"]])] += 1

    async def _client(self, client):
        connection = cursor = None
        while self.made < self.count or not self.is_undisturbed:
            if connection is None:
                connection = await asyncio.open_connection(*self.address)
            number = self.made
            if number % 2:
                text = f"client {client} message {len(self.accepted)}"
                status, fields, _ = await self._request(connection, "POST /v1/messages", text)
                if status == 202:
                    self.accepted.append(text)
            else:
                # Short polls, from the position that the client has: another instance says that it does not know it.
                query = f"&cursor={cursor}" if cursor else ""
                status, fields, body = await self._request(connection, f"GET /v1/messages?wait=0{query}")
                cursor = body["cursor"]
                if body["gap"]:
                    self._note(body["gap"])
            self.statuses[status] += 1
            if number % 10 == 5:
                await self._push()
            if fields.get("connection") == "close" or number % 10 == 9:
                connection[1].close()
                connection = None
        if connection:
            connection[1].close()

    async def _request(self, connection, line, body=""):
        reader, writer = connection
        # Envoy chooses the gateway by it.
        application = f"Authorization: Bearer application-{self.made}"
        fields = f"Host: localhost\r\n{application}\r\nContent-Length: {len(body)}"
        writer.write(f"{line} HTTP/1.1\r\n{fields}\r\n\r\n{body}".encode())
        head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)).decode()
        first, *lines = head.strip().split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        content = await asyncio.wait_for(reader.readexactly(int(fields["content-length"])), 60)
        status = int(first.split()[1])
        assert status in (200, 202), (line, first, content)
        return status, fields, json.loads(content)


async def during(traffic, disturb):
    """Runs `disturb` three times while `traffic` goes on, spread over its requests."""
    async with asyncio.TaskGroup() as group:
        group.create_task(traffic.run())
        for number in range(RESTARTS):
            share = traffic.count * (number + 1) // (RESTARTS + 2)
            await eventually(lambda share=share: traffic.made >= share, within=600, what="progress")
            await disturb()
        traffic.is_undisturbed = True


async def check(traffic, upstream, gateways, measured):
    assert traffic.made >= traffic.count
    received = collections.Counter(await upstream.has_received(len(traffic.accepted)))
    assert received == collections.Counter(traffic.accepted), "a message was lost or sent twice"
    assert set(traffic.gaps) <= {("restart",)}
    followed = {name: sequence.followed for name, sequence in traffic.sequences.items()}
    assert all(followed.values()), followed
    measured(
        f"{traffic.made} requests, {RESTARTS} restarts, {len(traffic.accepted)} messages once each, "
        f"{traffic.pushed} pushes, of which clients got right after their predecessors {followed}, "
        f"{traffic.gaps.total()} gaps because of a restart, 0 failed"
    )


@pytest.mark.timeout(900)
async def test_no_request_fails_while_the_gateway_is_restarted_with_inherited_sockets(
    start, upstream, tmp_path, measured
):
    with socket.create_server(("127.0.0.1", 0), backlog=128) as server:
        descriptor = server.fileno()
        prefix = (sys.executable, Path(inheritance.__file__), "http", str(descriptor))

        async def next_gateway():
            gateway = Gateway("--upstream", upstream.url, folder=tmp_path, prefix=prefix, pass_fds=(descriptor,))
            return await start(gateway)

        gateways = [await next_gateway()]

        async def restart():
            gateways[-1].signal()
            assert await gateways[-1].exit_status() == 0
            gateways.append(await next_gateway())

        traffic = Traffic(server.getsockname(), REQUESTS, upstream)
        await during(traffic, restart)
        await check(traffic, upstream, gateways, measured)


class HAProxyForTwo(HAProxy):
    """HAProxy before two gateways, each checked by its /readyz, as docs/operations.md advises."""

    def __init__(self, folder, gateways):
        # A check of a busy machine must not fail for its slowness: with no server left, the response would be 503.
        super().__init__(folder, None, "option httpchk GET /readyz", "timeout check 10s", "option redispatch")
        self.gateways = gateways

    def servers(self):
        return "\n".join(
            f"  server s{number} {api[0]}:{api[1]} check port {management[1]} inter 200 fall 1 rise 1"
            for number, (api, management) in enumerate(self.gateways)
        )


class EnvoyForTwo(Sidecar):
    """Envoy before two gateways, each checked by its /readyz, with the configuration that docs/sidecar.md explains."""

    def __init__(self, folder, gateways):
        super().__init__(folder, [(api, management[1]) for api, management in gateways], check_often)


def check_often(cluster):
    """A drain takes as long as the health check needs to notice it."""
    cluster["health_checks"][0] |= {
        "interval": "0.2s",
        "unhealthy_interval": "0.2s",
        "no_traffic_interval": "0.2s",
        "unhealthy_threshold": 1,
        # Of a busy machine.
        "timeout": "10s",
    }


@pytest.mark.timeout(900)
@pytest.mark.parametrize("balancer", [HAProxyForTwo, EnvoyForTwo], ids=lambda kind: kind.program)
async def test_no_request_fails_while_one_of_two_gateways_drains(balancer, start, upstream, tmp_path, measured):
    async def gateway(*addresses):
        folder = tmp_path / f"gateway-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        arguments = ["--upstream", upstream.url]
        for option, (host, port) in zip(("--listen", "--management"), addresses, strict=False):
            arguments += [option, f"{host}:{port}"]
        return await (await start(Gateway(*arguments, env=PAUSE, folder=folder))).ready()

    gateways = [await gateway(), await gateway()]
    addresses = [(each.address(), each.address("management")) for each in gateways]
    proxy = await start(balancer(tmp_path, addresses))
    turns = itertools.cycle(range(2))

    async def serves(number):
        before = (await gateways[number].metrics())["drawbridge_messages_accepted_total"]
        await eventually(
            lambda: receives_more(gateways[number], before), within=60, what="the load balancer uses it again"
        )

    async def drain():
        number = next(turns)
        await serves(number)
        await serves(1 - number)
        gateways[number].signal()
        assert await gateways[number].exit_status() == 0
        gateways[number] = await gateway(*addresses[number])

    traffic = Traffic(proxy.address, REQUESTS, upstream)
    await during(traffic, drain)
    await check(traffic, upstream, gateways, measured)


async def receives_more(gateway, before):
    return (await gateway.metrics())["drawbridge_messages_accepted_total"] > before
