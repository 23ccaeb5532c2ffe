"""Gateways that share a session, restarted one after another behind a load balancer: nobody notices.

DRAWBRIDGE_OTHER_BINARY names the program of another version: then the gateways are also upgraded from it, and back.
"""

import asyncio
import collections
import os

import pytest

from harness.gateway import BINARY
from harness.reverse_proxies import CheckingHAProxy
from harness.traffic import Traffic
from harness.waiting import eventually

OTHER = os.environ.get("DRAWBRIDGE_OTHER_BINARY")
REQUESTS = int(os.environ.get("DRAWBRIDGE_OPERATION_REQUESTS", "400"))
# Longer than the health checks need to see that /readyz fails.
PAUSE = {"DRAWBRIDGE_SHUTDOWN_PAUSE": "1s"}


class ReplicaTraffic(Traffic):
    """Pushes of a recording upstream."""

    async def _push(self):
        self.upstream.push()

    @staticmethod
    def number(message):
        return message["data"]["n"]


# The gateways that are restarted one after another, and the program of each.
SAME = [(number, BINARY) for number in range(3)]
UPGRADED = [*SAME, *((number, OTHER) for number in range(3))]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "restarts",
    [
        pytest.param(SAME, id="of one version"),
        pytest.param(
            UPGRADED,
            id="of two versions",
            marks=pytest.mark.skipif(OTHER is None, reason="DRAWBRIDGE_OTHER_BINARY names no other version"),
        ),
    ],
)
async def test_no_request_fails_and_no_push_is_lost_in_a_rolling_restart(
    replicas_for, recorder, start, tmp_path, measured, restarts
):
    # The program that ends the restarts is the one that begins.
    replicas = await replicas_for(env=PAUSE, program=restarts[-1][1])
    proxy = await start(
        CheckingHAProxy(tmp_path, [(member.address, ("127.0.0.1", member.management_port)) for member in replicas])
    )
    cursor = await replicas[0].client().here()
    traffic = ReplicaTraffic(proxy.address, REQUESTS, recorder)

    async def restart():
        for turn, (number, program) in enumerate(restarts):
            member = replicas[number]
            share = traffic.count * (turn + 1) // (len(restarts) + 2)
            await eventually(lambda share=share: traffic.made >= share, within=600, what="progress")
            await member.drain()
            member.program = program
            await member.run()
            await member.ready()
            before = await accepted(member)
            await eventually(
                lambda m=member, b=before: is_used(m, b), within=60, what="the load balancer uses it again"
            )
        traffic.is_undisturbed = True

    async with asyncio.TaskGroup() as group:
        group.create_task(traffic.run())
        group.create_task(restart())
    await recorder.has_received(len(traffic.accepted))
    assert collections.Counter(recorder.received) == collections.Counter(traffic.accepted)
    assert set(traffic.gaps) <= {("upstream",)}
    last = await recorder.push_one()
    for member in replicas:
        assert await pushes(member, cursor, last) == list(range(1, last + 1))
    assert all(connection.was_closed_in_order for connection in recorder.connections[:-1])
    measured(
        f"{traffic.made} requests, {len(restarts)} restarts, {len(recorder.connections)} connections, "
        f"{len(traffic.accepted)} messages once each, {last} pushes, none lost, 0 failed"
    )


async def accepted(member):
    return (await member.gateway.metrics())["drawbridge_http_request_seconds_count"]


async def is_used(member, before):
    # The load balancer's checks are requests to the management listener, and few.
    return await accepted(member) > before + 20


async def pushes(member, cursor, last):
    seen = []
    while last not in seen:
        batch = await member.client().poll(cursor=cursor, wait=10)
        seen += [message["data"]["n"] for message in batch.messages]
        cursor = batch.cursor
    return seen
