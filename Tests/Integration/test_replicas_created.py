"""Created sessions that gateways share on one Redis: created at one gateway, used at all, and closed at any."""

import asyncio
import re
import signal

import pytest_asyncio

from harness.created_sessions import Sessions, profile
from harness.gateway import PROJECT
from harness.numbered import confirmed
from harness.redis import RedisServer
from harness.waiting import eventually

_LIMITS = "created_sessions: {{total: {total}, per_principal: {total}, idle_after: {idle}}}\n"


@pytest_asyncio.fixture
async def database(start, tmp_path):
    return await start(RedisServer(tmp_path))


@pytest_asyncio.fixture
async def shared_by(start, gateway_for, database, upstream):
    """`await shared_by(count)`: for each of the gateways, a client that creates sessions there."""

    async def shared_by(count, *, total=100, idle="10m", profiles=None, store="", database=database, user=""):
        members = []
        for number in range(count):
            config = (profiles or {}).get(number, profile(f"{upstream.url}{{symbol}}"))
            config += _LIMITS.format(total=total, idle=idle)
            url = f"redis://{user}127.0.0.1:{database.port}"
            config += f"store: {{engine: redis, prefix: drawbridge, url: '{url}', lease: 3s{store}}}\n"
            config += "listeners: {peers: '127.0.0.1:0'}\n"
            members.append(Sessions(await gateway_for(None, config=config, ready=False)))
        for member in members:
            await _is_connected(member)
        return members

    return shared_by


async def _is_connected(member):
    """Waits until the gateway has the list of sessions. Before that, it cannot say that a name is unknown."""

    async def is_known():
        return (await member.get("none")).status == 404

    await eventually(is_known, what="the gateway has read the list of sessions")


async def _status(member, name, status):
    async def has_status():
        return (await member.get(name)).status == status

    await eventually(has_status, what=f"{name} has the status {status}")


async def _holders(members):
    figures = [await member.gateway.metrics() for member in members]
    return [int(each["drawbridge_store_held_sessions"]) for each in figures]


async def _collect(client, cursor, count):
    """The next messages. A held request ends early when the gateway gets another copy of the session."""
    texts = []
    while len(texts) < count:
        batch = await client.poll(cursor=cursor, wait=10)
        texts += [message["data"] for message in batch.messages]
        cursor = batch.cursor
    return texts


async def test_a_session_is_served_by_every_gateway(shared_by, upstream):
    members = await shared_by(3)
    response = await members[0].created("btc", symbol="BTC")
    assert response.headers["Location"] == "/v1/sessions/btc"
    assert response.json["creation"]["variables"] == {"symbol": "BTC"}
    assert await _holders(members) == [1, 0, 0]
    for member in members:
        await member.ready("btc")
        assert [each["session"] for each in (await member.list())["sessions"]] == ["btc"]
        assert (await member.put("btc", symbol="BTC")).status == 200
        (await member.put("btc", symbol="ETH")).problem(409)
    assert upstream.requests[0].path == "/BTC"
    clients = [member.gateway.client(session="btc") for member in members]
    here = await clients[1].here()
    for number, client in enumerate(clients):
        await client.accepted(f"from {number}")
    assert sorted(await upstream.has_received(3)) == ["from 0", "from 1", "from 2"]
    await upstream.push("tick", "tock")
    for client in clients:
        assert await _collect(client, here, 2) == ["tick", "tock"]
    assert len(upstream.requests) == 1


async def test_a_session_can_be_closed_at_any_gateway_and_leaves_no_state(shared_by, upstream, database):
    members = await shared_by(3)
    await members[0].created("btc", symbol="BTC")
    await members[0].ready("btc")
    await _status(members[1], "btc", 200)
    here = await members[1].gateway.client(session="btc").here()
    held = asyncio.create_task(
        members[1].gateway.client().request("GET", f"/v1/sessions/btc/messages?wait=30s&cursor={here}")
    )

    async def is_held():
        return (await members[1].gateway.metrics())["drawbridge_polls_held"] == 1

    await eventually(is_held, what="the poll is held")
    assert (await members[2].delete("btc", "?code=3999")).status == 204
    (await members[2].get("btc")).problem(404)
    assert (await held).problem(410)["type"] == "/errors/session-closed"
    await eventually(lambda: upstream.closes, what="the upstream sees the close")
    assert upstream.closes[0][0] == 3999
    for member in members:
        await _status(member, "btc", 404)
    assert not [key async for key in database.client.scan_iter("*:s:*")]
    # A new session gets the same name at another gateway. Cursors of the old session are lost.
    await members[1].created("btc", symbol="ETH")
    await members[1].ready("btc")
    batch = await members[1].gateway.client(session="btc").poll(cursor=here, wait=0)
    assert batch.gap["reason"] == "restart"


async def test_names_and_limits_apply_to_all_gateways_together(shared_by):
    members = await shared_by(2, total=8)
    responses = await asyncio.gather(*(members[n % 2].put("one", symbol="A") for n in range(8)))
    assert sorted(response.status for response in responses) == [200] * 7 + [201]
    responses = await asyncio.gather(*(members[n % 2].put(f"s{n}", symbol="A") for n in range(12)))
    assert sorted(response.status for response in responses) == [201] * 7 + [503] * 5
    refused = next(response for response in responses if response.status == 503)
    assert refused.problem(503)["type"] == "/errors/too-many-sessions"
    assert (await members[1].delete("one")).status == 204
    await members[0].created("two", symbol="A")
    assert [len((await member.list())["sessions"]) for member in members] == [8, 8]


async def test_a_session_that_another_gateway_just_stored_is_found(shared_by, database):
    members = await shared_by(2)
    await members[0].created("first", symbol="A")
    key = "{drawbridge}:sessions"
    definition = (await database.client.hget(key, "first")).partition(b" ")[2]
    list_id, _, count = (await database.client.hget(key, "")).partition(b" ")
    for number in range(20):
        # Defines sessions like another gateway, but publishes nothing. The gateways thus learn of them some heartbeats
        # later.
        text = b"%016x " % number + definition
        version = list_id + b" %d" % (int(count) + number + 1)
        await database.client.hset(key, mapping={"": version, f"s{number}": text})
        response = await members[1].get(f"s{number}")
        assert response.status in (200, 503), response.body
        if response.status == 503:
            assert response.problem(503)["retryable"]
            assert response.headers["Retry-After"] == "1"
        assert (await members[1].get(f"s{number}")).status == 200
        (await members[1].get("none")).problem(404)


async def test_a_session_outlives_its_gateway(shared_by, upstream):
    members = await shared_by(3)
    await members[0].created("btc", symbol="BTC")
    await members[0].ready("btc")
    others = members[1:]
    for member in others:
        await _status(member, "btc", 200)
    client = others[0].gateway.client(session="btc")
    here = await client.here()
    await upstream.push("before")
    assert await _collect(client, here, 1) == ["before"]
    await members[0].gateway.kill()
    await eventually(lambda: len(upstream.requests) == 2, what="another gateway has the connection")
    await others[1].ready("btc")
    await upstream.push("after")
    assert await _collect(client, here, 2) == ["before", "after"]
    assert sum(await _holders(others)) == 1
    # The session also survives an orderly end of its holder.
    await (others.pop(0)).gateway.stop()
    await others[0].ready("btc")
    assert (await others[0].put("btc", symbol="BTC")).status == 200
    assert (await others[0].delete("btc")).status == 204


async def test_an_idle_session_is_closed_everywhere(shared_by, database):
    members = await shared_by(2, idle="2s")
    await members[0].created("idle", symbol="A")
    for member in members:
        await _status(member, "idle", 404)
    assert not [key async for key in database.client.scan_iter("*:s:*")]
    metrics = [await member.gateway.metrics() for member in members]
    assert sum(each.samples["drawbridge_sessions_closed_total", 'reason="idle"'] for each in metrics) == 1
    assert [each["drawbridge_sessions_created_total"] for each in metrics] == [1, 0]


async def test_a_reader_at_another_gateway_keeps_an_idle_session(shared_by, upstream):
    members = await shared_by(2, idle="2s")
    await members[0].created("read", symbol="A")
    await members[0].created("unread", symbol="A")
    await _status(members[1], "read", 200)
    client = members[1].gateway.client(session="read")
    here = await client.here()
    held = asyncio.create_task(client.poll(cursor=here, wait=60))
    await _status(members[1], "unread", 404)
    # Another session is created and then closed because it is idle. This shows that the idle time has passed once more.
    await members[0].created("later", symbol="A")
    await _status(members[1], "later", 404)
    assert not held.done()
    await upstream.push("tick")
    assert [message["data"] for message in (await held).messages] == ["tick"]


async def test_an_outage_of_redis_changes_no_session(shared_by, database):
    members = await shared_by(2)
    await members[0].created("btc", symbol="BTC")
    await _status(members[1], "btc", 200)
    database.freeze()

    async def is_refused():
        response = await members[1].put("eth", symbol="ETH")
        return response.status == 503 and response.problem(503)["type"] == "/errors/store-failed"

    await eventually(is_refused, what="no session is created")
    assert (await members[1].delete("btc")).problem(503)["type"] == "/errors/store-failed"

    async def is_unknown():
        return (await members[1].get("none")).status == 503

    await eventually(is_unknown, what="an unknown name may exist")
    database.thaw()
    for member in members:
        await _is_connected(member)
    assert (await members[1].put("eth", symbol="ETH")).status in (200, 201)
    for member in members:
        await member.ready("btc")


async def test_a_session_that_redis_has_lost_is_stored_again(shared_by, database, upstream):
    members = await shared_by(2)
    await members[0].created("btc", symbol="BTC")
    await members[0].ready("btc")
    await _status(members[1], "btc", 200)
    await database.client.flushall()
    await members[0].gateway.client(session="btc").accepted("still here")
    assert await upstream.has_received(1) == ["still here"]

    async def is_stored():
        return await database.client.hexists("{drawbridge}:sessions", "btc")

    await eventually(is_stored, what="the holder has stored the session again")
    for member in members:
        await member.ready("btc")
        assert (await member.put("btc", symbol="BTC")).status == 200
    assert len(upstream.requests) == 1


async def test_a_gateway_without_the_profile_serves_the_session_and_never_takes_it(shared_by, upstream):
    other = profile(f"{upstream.url}{{symbol}}", name="other")
    members = await shared_by(3, profiles={1: other})
    await members[0].created("btc", symbol="BTC")
    await members[1].ready("btc")
    await members[1].gateway.client(session="btc").accepted("through the other")
    assert await upstream.has_received(1) == ["through the other"]
    await members[0].gateway.kill()
    await eventually(lambda: len(upstream.requests) == 2, what="the third gateway has the connection")
    assert await _holders(members[1:]) == [0, 1]


async def test_the_rights_in_the_documentation_are_enough(shared_by, start, tmp_path, upstream):
    text = (PROJECT / "docs/scaling.md").read_text()
    rights = re.search(r"^user drawbridge on (.*)$", text, re.MULTILINE)[1]
    rights = rights.replace("PASSWORD", "secret").replace("PREFIX", "drawbridge")
    folder = tmp_path / "restricted"
    folder.mkdir()
    database = await start(RedisServer(folder, options=["--user", "drawbridge", "on", *rights.split()]))
    members = await shared_by(2, database=database, user="drawbridge@", store=", password: secret", idle="1s")
    # Runs every script: the session gets pushes and messages, changes its holder, and is removed.
    await members[0].created("btc", symbol="BTC")
    await members[1].ready("btc")
    client = members[1].gateway.client(session="btc")
    cursor = await client.here()
    await upstream.push("push")
    assert await _collect(client, cursor, 1) == ["push"]
    sent = (await client.accepted("message", headers={"Idempotency-Key": "key"}))["id"]
    await members[0].gateway.stop()
    # The next holder knows the message.
    await confirmed(client, sent)
    assert (await members[1].delete("btc")).status == 204
    await _status(members[1], "btc", 404)
    log = await database.client.acl_log()
    assert log == []
    assert [line for gateway in members for line in gateway.gateway.log if "Redis has refused" in str(line)] == []


async def test_a_gateway_that_gets_the_profile_takes_the_session(shared_by, upstream):
    other = profile(f"{upstream.url}{{symbol}}", name="other")
    members = await shared_by(2, profiles={1: other})
    await members[0].created("btc", symbol="BTC")
    await members[1].ready("btc")
    gateway = members[1].gateway
    gateway.rewrite(gateway.config.replace("{other:", "{market:"))
    gateway.signal(signal.SIGHUP)
    await gateway.logs(lambda record: record["message"] == "configuration reloaded", what="the reload")
    await members[0].gateway.kill()
    await eventually(lambda: len(upstream.requests) == 2, what="the other gateway has the connection")
    assert await _holders(members[1:]) == [1]
