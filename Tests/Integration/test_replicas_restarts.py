"""Gateways that share a session, restarted one after another behind a load balancer: nobody notices."""

import asyncio
import collections
import os

import pytest

from harness.reverse_proxies import CheckingHAProxy
from harness.traffic import Traffic
from harness.waiting import eventually

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


@pytest.mark.timeout(900)
async def test_no_request_fails_and_no_push_is_lost_in_a_rolling_restart(
    replicas_for, recorder, start, tmp_path, measured
):
    replicas = await replicas_for(env=PAUSE)
    proxy = await start(
        CheckingHAProxy(tmp_path, [(member.address, ("127.0.0.1", member.management_port)) for member in replicas])
    )
    cursor = await replicas[0].client().here()
    traffic = ReplicaTraffic(proxy.address, REQUESTS, recorder)

    async def restart():
        for number, member in enumerate(replicas):
            share = traffic.count * (number + 1) // 5
            await eventually(lambda share=share: traffic.made >= share, within=600, what="progress")
            await member.drain()
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
    # A gateway that ends may not know the term of the next holder.
    assert set(traffic.gaps) <= {("upstream",), ("store",)}
    last = await recorder.push_one()
    for member in replicas:
        assert await pushes(member, cursor, last) == list(range(1, last + 1))
    assert all(connection.was_closed_in_order for connection in recorder.connections[:-1])
    measured(
        f"{traffic.made} requests, 3 restarts, {len(recorder.connections)} connections, "
        f"{len(traffic.accepted)} messages once each, {last} pushes, none lost, "
        f"{traffic.gaps[('store',)]} gaps that were none, 0 failed"
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
