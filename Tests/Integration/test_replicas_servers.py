"""Gateways on servers other than Debian's Redis: the oldest version that they accept, and Valkey."""

import asyncio
import os
import re
import sys

import pytest

from harness.gateway import PROJECT
from harness.numbered import confirmed, read_to
from harness.redis import OTHER_SERVERS, RedisServer, documented_rights, other_server
from harness.replicas import LEASE, Databases
from harness.waiting import eventually

_PASSWORD = "password-of-drawbridge"


@pytest.fixture(params=OTHER_SERVERS)
def program(request):
    """The path of each server that is installed, or None for Debian's server."""
    return request.param and other_server(request.param)


@pytest.fixture
def version(program, request):
    return request.node.callspec.params["program"]


async def _is_of(server, version):
    info = await server.client.info("server")
    kind = "valkey" if "valkey_version" in info else "redis"
    assert f"{kind}-{info[f'{kind}_version']}".startswith(f"{version}.")


class Worker:
    """A client of a work-sharing consumer."""

    def __init__(self, client):
        self._client = client

    async def create(self):
        settings = {"share": True, "start": "earliest", "visibility": "60s"}
        response = await self._client.request("PUT", "/v1/consumers/w", json=settings)
        assert response.status == 201, response.body

    async def receive(self, limit):
        """The numbers of some pushes, with the lease of each."""
        response = await self._client.request("POST", f"/v1/consumers/w/receive?wait=10s&limit={limit}")
        assert response.status == 200, response.body
        return {message["data"]["n"]: message["lease"] for message in response.json["messages"]}

    async def acknowledge(self, leases):
        response = await self._client.request("POST", "/v1/consumers/w/settle", json={"ack": list(leases)})
        assert response.status == 200, response.body


def _no_command_failed(replicas):
    for member in replicas:
        for gateway in member.gateways:
            assert not re.search(r"\b(ERR|NOPERM|WRONGTYPE|NOSCRIPT|Redis has refused)\b", gateway.output)


async def test_a_session_is_shared_and_outlives_its_holder(replicas_for, tmp_path, recorder, program, version):
    rights = documented_rights()[0].split()
    databases = Databases(tmp_path, program=program, options=["--user", "drawbridge", "on", f">{_PASSWORD}", *rights])
    url = f"redis://drawbridge@127.0.0.1:{databases.primary.port}"
    store = {"url": url, "password": _PASSWORD}
    replicas = await replicas_for(2, databases=databases, lease=LEASE, settings={"store": store})
    await _is_of(databases.primary, version)
    holder = await replicas.holder()
    (follower,) = await replicas.followers()
    client = follower.client()
    cursor = await client.here()
    sent = (await client.accepted("before", headers={"Idempotency-Key": "key"}))["id"]
    await confirmed(holder.client(), sent)
    worker = Worker(client)
    await worker.create()
    recorder.push(9)
    assert await read_to(client, cursor, await recorder.push_one()) == list(range(1, 11))
    leases = await worker.receive(4)
    assert sorted(leases) == [1, 2, 3, 4]
    await worker.acknowledge([leases.pop(1), leases.pop(2)])
    await holder.kill()
    assert await replicas.holder(of=[follower]) is follower
    await recorder.opens(1)
    # A worker can acknowledge the leased pushes and receive other pushes, and the next message is sent.
    await worker.acknowledge(leases.values())
    assert sorted(await worker.receive(100)) == list(range(5, 11))
    again = await client.send("before", headers={"Idempotency-Key": "key"})
    assert (again.status, again.json["id"]) == (200, sent)
    await confirmed(client, (await client.accepted("after"))["id"])
    assert await read_to(client, cursor, await recorder.push_one()) == [*range(1, 11), "upstream", 11]
    await holder.run()
    await confirmed(holder.client(), (await holder.client().accepted("last"))["id"])
    # This holder ends in order, so the other gateway continues at once.
    await follower.drain()
    await recorder.opens(2)
    assert await read_to(holder.client(), cursor, await recorder.push_one()) == [
        *range(1, 11),
        "upstream",
        11,
        "upstream",
        12,
    ]
    assert recorder.received == ["before", "after", "last"]
    assert await databases.primary.client.acl_log() == []
    _no_command_failed(replicas)


async def test_a_failover_loses_no_connection(replicas_for, tmp_path, recorder, program):
    databases = Databases(tmp_path, replicas=2, sentinels=1, program=program)
    replicas = await replicas_for(2, databases=databases)
    client = (await replicas.followers())[0].client()
    cursor = await client.here()
    await confirmed(client, (await client.accepted("before"))["id"])
    primary = await databases.present_primary()
    await databases.sentinels[0].client.execute_command("SENTINEL", "FAILOVER", "main")

    async def has_another_primary():
        return await databases.present_primary() is not primary

    await eventually(has_another_primary, what="the Sentinel has another primary")
    await confirmed(client, (await client.accepted("after"))["id"])
    assert await read_to(client, cursor, await recorder.push_one()) == [1]
    assert recorder.received == ["before", "after"]
    assert len(recorder.connections) == 1
    _no_command_failed(replicas)


async def _is_refused_as_the_store_fails(member, reason):
    """Waits until a message is refused and /readyz names the reason."""

    async def says_so():
        response = await member.gateway.manage("/readyz")
        return (response.status, response.body.decode()) == (503, f"{reason}\n")

    response, _ = await asyncio.gather(
        member.client().send("refused"), eventually(says_so, within=20, what=f"/readyz says '{reason}'")
    )
    assert response.problem(503)["type"] == "/errors/store-failed"


async def _works(member):
    await member.ready()

    async def is_accepted():
        response = await member.client().send("after")
        return response.json["id"] if response.status == 202 else None

    await confirmed(member.client(), await eventually(is_accepted, what="a message is accepted"))


async def test_a_full_server_refuses_messages_and_says_so(replicas_for, tmp_path, recorder, program):
    replicas = await replicas_for(2, databases=Databases(tmp_path, program=program))
    holder = await replicas.holder()
    redis = replicas.databases.primary.client
    await redis.config_set("maxmemory", 1)
    await _is_refused_as_the_store_fails(holder, "Redis refuses writes")
    await redis.config_set("maxmemory", 0)
    await _works(holder)
    assert len(recorder.connections) == 1


async def test_a_server_that_becomes_a_replica_is_detected_at_once(replicas_for, start, tmp_path, recorder, program):
    replicas = await replicas_for(2, databases=Databases(tmp_path, program=program), lease=5)
    holder = await replicas.holder()
    # This server requires a password, so the tested server cannot copy its data, and keeps its own data.
    other = await start(RedisServer(tmp_path, program=program, options=["--requirepass", _PASSWORD]))
    redis = replicas.databases.primary.client
    await redis.execute_command("REPLICAOF", "127.0.0.1", str(other.port))
    await _is_refused_as_the_store_fails(holder, "no connection to Redis")
    await redis.execute_command("REPLICAOF", "NO", "ONE")
    await _works(holder)


@pytest.mark.parametrize("program", [None, *OTHER_SERVERS], indirect=True)
async def test_a_follower_shows_only_what_a_replica_has(replicas_for, tmp_path, recorder, program):
    databases = Databases(tmp_path, replicas=1, wait_replicas=1, program=program)
    replicas = await replicas_for(2, databases=databases)
    (follower,) = await replicas.followers()
    first = await recorder.push_one()
    await read_to(follower.client(), "earliest", first)
    databases.servers[1].freeze()
    second = await recorder.push_one()

    async def shown(member):
        return (await member.client().poll(last=1, wait=0)).messages[0]["data"]["n"]

    async def has_read_it():
        short = (await follower.gateway.metrics())["drawbridge_store_wait_short_total"]
        return short > 0 or await shown(follower) == second

    # A read that Redis does not confirm in time also counts.
    await eventually(has_read_it, what="the follower has read the push")
    assert [await shown(member) for member in replicas] == [first, first]
    databases.servers[1].thaw()
    for member in replicas:
        await read_to(member.client(), "earliest", second)


@pytest.mark.parametrize("program", [None, *OTHER_SERVERS], indirect=True)
async def test_a_holder_that_connects_again_accepts_only_what_a_replica_has(replicas_for, tmp_path, recorder, program):
    databases = Databases(tmp_path, replicas=1, wait_replicas=1, program=program)
    replicas = await replicas_for(2, databases=databases)
    holder = await replicas.holder()
    await confirmed(holder.client(), (await holder.client().accepted("before"))["id"])
    databases.servers[1].freeze()

    async def last_change():
        return (await databases.primary.client.xrevrange("{drawbridge}:s:default:c", count=1))[0][0]

    before = await last_change()
    posting = asyncio.create_task(holder.client().send("meanwhile"))

    async def is_written():
        return await last_change() != before

    await eventually(is_written, what="the primary has the message")
    # The reply is lost.
    holder.network.cut()
    holder.network.heal()
    response = await posting
    assert response.problem(503)["type"] == "/errors/store-failed"
    assert recorder.received == ["before"]
    databases.servers[1].thaw()
    await _works(holder)


async def test_the_scripts_have_the_same_results_on_the_server_of_debian(program):
    tests = PROJECT / "Tests/Integration/test_redis_scripts.py"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pytest", tests),
        env={**os.environ, "DRAWBRIDGE_REDIS_SERVER": program},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    assert re.search(r"^\d+ passed in", output.decode(), re.MULTILINE), output.decode()
