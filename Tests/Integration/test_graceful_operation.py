"""Requests while the gateway is restarted: with inherited sockets, and behind load balancers that watch /readyz.

No request fails, and each message that was accepted reaches the upstream once. Cursors belong to an instance: a client
that returns with one to another instance gets a gap with the reason `restart`, and so knows.

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

import pytest

from harness import inheritance
from harness.gateway import Gateway
from harness.program import Program
from harness.waiting import eventually

REQUESTS = int(os.environ.get("DRAWBRIDGE_OPERATION_REQUESTS", "600"))
RESTARTS = 3
CLIENTS = 8
# Longer than the health checks need to see that /readyz fails.
PAUSE = {"DRAWBRIDGE_SHUTDOWN_PAUSE": "2s"}


class Traffic:
    """Clients that post, poll and keep their connections as long as responses allow, `count` requests or more."""

    def __init__(self, address, count):
        self.address = address
        self.count = count
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
            for client in range(CLIENTS):
                group.create_task(self._client(client))

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
                    self.gaps[tuple(body["gap"].get("reasons") or [body["gap"]["reason"]])] += 1
            self.statuses[status] += 1
            if fields.get("connection") == "close" or number % 10 == 9:
                connection[1].close()
                connection = None
        if connection:
            connection[1].close()

    async def _request(self, connection, line, body=""):
        reader, writer = connection
        writer.write(f"{line} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
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
    measured(
        f"{traffic.made} requests, {RESTARTS} restarts, {len(traffic.accepted)} messages once each, "
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

        traffic = Traffic(server.getsockname(), REQUESTS)
        await during(traffic, restart)
        await check(traffic, upstream, gateways, measured)


class HAProxyForTwo(Program):
    """HAProxy before two gateways, each checked by its /readyz."""

    program = "haproxy"

    def __init__(self, folder, gateways):
        super().__init__(folder)
        self.gateways = gateways

    def arguments(self):
        servers = "\n".join(
            f"  server s{number} {api[0]}:{api[1]} check port {management[1]} inter 200 fall 1 rise 1"
            for number, (api, management) in enumerate(self.gateways)
        )
        path = self._folder / f"haproxy-{self.port}.conf"
        path.write_text(f"""
defaults
  mode http
  timeout connect 5000
  timeout client 50000
  timeout server 50000
  option httpchk GET /readyz
frontend clients
  bind 127.0.0.1:{self.port}
  default_backend gateways
backend gateways
  balance roundrobin
{servers}
""")
        return ["-db", "-f", path]


class EnvoyForTwo(Program):
    """Envoy before two gateways, each checked by its /readyz."""

    program = "envoy"

    def __init__(self, folder, gateways):
        super().__init__(folder)
        self.gateways = gateways

    def arguments(self):
        filters = "envoy.extensions.filters"

        def at(host, port):
            return {"socket_address": {"address": host, "port_value": port}}

        router = {"@type": f"type.googleapis.com/{filters}.http.router.v3.Router"}
        route = {"match": {"prefix": "/"}, "route": {"cluster": "gateways"}}
        manager = {
            "@type": f"type.googleapis.com/{filters}.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "clients",
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
            "http_filters": [{"name": "envoy.filters.http.router", "typed_config": router}],
        }
        chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        endpoints = [
            {"endpoint": {"address": at(*api), "health_check_config": {"port_value": management[1]}}}
            for api, management in self.gateways
        ]
        check = {
            "timeout": "1s",
            "interval": "0.2s",
            "unhealthy_interval": "0.2s",
            "no_traffic_interval": "0.2s",
            "unhealthy_threshold": 1,
            "healthy_threshold": 1,
            # By default the name of the cluster, which a loopback listener refuses. If none is healthy, Envoy uses all.
            "http_health_check": {"path": "/readyz", "host": "localhost"},
        }
        cluster = {
            "name": "gateways",
            "health_checks": [check],
            "load_assignment": {"cluster_name": "gateways", "endpoints": [{"lb_endpoints": endpoints}]},
        }
        listener = {"address": at(*self.address), "filter_chains": [chain]}
        path = self._folder / f"envoy-{self.port}.json"
        path.write_text(json.dumps({"static_resources": {"listeners": [listener], "clusters": [cluster]}}))
        return ["--disable-hot-restart", "--concurrency", "1", "-l", "error", "-c", path]


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

    traffic = Traffic(proxy.address, REQUESTS)
    await during(traffic, drain)
    await check(traffic, upstream, gateways, measured)


async def receives_more(gateway, before):
    return (await gateway.metrics())["drawbridge_messages_accepted_total"] > before
