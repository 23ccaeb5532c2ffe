"""Gateways that share a session restart one after another behind a load balancer, and no client notices.

DRAWBRIDGE_OTHER_BINARY names the program of another version. The test then also upgrades from it and back.
"""

import asyncio
import collections
import json
import os

import pytest

from harness.gateway import BINARY
from harness.numbered import read_to
from harness.reverse_proxies import CheckingHAProxy
from harness.traffic import Traffic
from harness.waiting import eventually

OTHER = os.environ.get("DRAWBRIDGE_OTHER_BINARY")
REQUESTS = int(os.environ.get("DRAWBRIDGE_OPERATION_REQUESTS", "400"))
# The pause is longer than the health checks need to notice that /readyz fails.
PAUSE = {"DRAWBRIDGE_SHUTDOWN_PAUSE": "1s"}


class ReplicaTraffic(Traffic):
    """Pushes of a recording upstream."""

    async def _push(self):
        self.upstream.push()

    @staticmethod
    def number(message):
        return message["data"]["n"]


# For each restart, the gateway and its next program.
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
    # The first program is the program of the last restart.
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
    assert traffic.made >= traffic.count
    followed = {name: sequence.followed for name, sequence in traffic.sequences.items()}
    assert all(followed.values()), followed
    await recorder.has_received(len(traffic.accepted))
    assert collections.Counter(recorder.received) == collections.Counter(traffic.accepted)
    assert set(traffic.gaps) <= {("upstream",)}
    last = await recorder.push_one()
    for member in replicas:
        log = await read_to(member.client(), cursor, last)
        # The log has a gap wherever the holder changed, since each holder has its own connection.
        assert [entry for entry in log if entry != "upstream"] == list(range(1, last + 1))
    assert all(connection.was_closed_in_order for connection in recorder.connections[:-1])
    measured(
        f"{traffic.made} requests, {len(restarts)} restarts, {len(recorder.connections)} connections, "
        f"{len(traffic.accepted)} messages once each, {last} pushes, none lost, of which clients got right after their "
        f"predecessors {followed}, 0 failed"
    )


BODIES = {
    "/v1/call": {"jsonrpc": "2.0", "id": 1, "method": "m"},
    # The lease is unknown, so this request gets 409.
    "/v1/consumers/c/settle": {"ack": ["l-1.1.0123456789abcdef"]},
}


class Requests:
    """Requests that no gateway may repeat, since they would be executed twice. Each client sends them in turn."""

    def __init__(self, clients):
        #: The number of responses with each status.
        self.statuses = collections.Counter()
        self.unknown = []
        self._tasks = [asyncio.create_task(self._run(client, path)) for client in clients for path in BODIES]

    async def _run(self, client, path):
        while True:
            response = await client.request("POST", path, json=BODIES[path])
            self.statuses[response.status] += 1
            if response.status == 502:
                self.unknown.append((path, response.body))
            await asyncio.sleep(0.002)

    async def end(self):
        for task in self._tasks:
            if task.done():
                task.result()
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def test_no_outcome_is_unknown_while_the_release_of_a_session_is_stored_late(replicas_for, recorder, measured):
    recorder.respond = lambda text: json.dumps({"jsonrpc": "2.0", "result": 0, "id": json.loads(text)["id"]})
    replicas = await replicas_for(settings={"upstream": {"url": recorder.url, "correlation": "jsonrpc"}})
    holder = await replicas.holder()
    created = await holder.client().request("PUT", "/v1/consumers/c", json={"share": True})
    assert created.status == 201, created.body
    requests = Requests([member.client() for member in await replicas.followers()])
    await eventually(lambda: min(requests.statuses[200], requests.statuses[409]) >= 20, what="requests are executed")
    # During this pause, the other gateways do not learn that the session has no holder.
    await replicas.databases.primary.client.client_pause(300, all=False)
    await holder.drain()
    statuses = requests.statuses.copy()
    await eventually(
        lambda: min(requests.statuses[200] - statuses[200], requests.statuses[409] - statuses[409]) >= 20,
        what="requests are executed by the next holder",
    )
    await requests.end()
    assert requests.unknown == []
    measured(f"{dict(requests.statuses)}")


async def accepted(member):
    return (await member.gateway.metrics())["drawbridge_http_request_seconds_count"]


async def is_used(member, before):
    # The load balancer's checks go to the management listener and are not counted here.
    return await accepted(member) > before + 20
