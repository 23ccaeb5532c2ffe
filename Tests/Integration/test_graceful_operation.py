"""Requests while the gateway restarts: with inherited sockets, and behind load balancers that watch /readyz.

No request fails, and each accepted message reaches the upstream once. Cursors belong to an instance: a client that
presents a cursor to another instance gets a gap with the reason `restart`. Without a gap, pushes come in order and
once, in polls and in streams. A stream continues where it ended.

DRAWBRIDGE_OPERATION_REQUESTS sets the number of requests per test; `make restarts` uses 10000.
"""

import asyncio
import collections
import itertools
import os
import socket
import sys
from pathlib import Path

import pytest

from harness import inheritance
from harness.gateway import Gateway
from harness.reverse_proxies import CheckingHAProxy
from harness.sidecar import Sidecar
from harness.traffic import Traffic
from harness.waiting import eventually

REQUESTS = int(os.environ.get("DRAWBRIDGE_OPERATION_REQUESTS", "600"))
RESTARTS = 3
# The pause is longer than the health checks need to notice that /readyz fails.
PAUSE = {"DRAWBRIDGE_SHUTDOWN_PAUSE": "2s"}


async def during(traffic, disturb):
    """Runs `disturb` three times, distributed over the requests of `traffic`."""
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


class EnvoyForTwo(Sidecar):
    """Envoy in front of two gateways, with checks of their /readyz, as docs/sidecar.md explains."""

    def __init__(self, folder, gateways):
        super().__init__(folder, [(api, management[1]) for api, management in gateways], check_often)


def check_often(cluster):
    """Checks often, since a drain waits until the health check notices it."""
    cluster["health_checks"][0] |= {
        "interval": "0.2s",
        "unhealthy_interval": "0.2s",
        "no_traffic_interval": "0.2s",
        "unhealthy_threshold": 1,
        # A busy machine may need long to respond.
        "timeout": "10s",
    }


@pytest.mark.timeout(900)
@pytest.mark.parametrize("balancer", [CheckingHAProxy, EnvoyForTwo], ids=lambda kind: kind.program)
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
