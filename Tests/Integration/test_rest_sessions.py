"""Sessions that clients create from profiles: their life and their limits."""

import asyncio
import hashlib
import secrets
import socket

import pytest

from harness.created_sessions import profile
from harness.flood import Flood
from harness.heap import HeapCounter
from harness.upstream import Upstream
from harness.waiting import eventually


async def test_a_client_creates_uses_and_closes_a_session(sessions_for, upstream):
    config = profile(
        f"{upstream.url}feed/{{symbol}}",
        extra=", headers: {X-Symbol: '{symbol}'}, on_open: [{send: '{\"subscribe\":\"{symbol}\"}'}]",
    )
    sessions = await sessions_for(config)
    response = await sessions.created("btc", symbol="BTC")
    assert response.headers["Location"] == "/v1/sessions/btc"
    creation = response.json["creation"]
    assert (creation["profile"], creation["variables"]) == ("market", {"symbol": "BTC"})
    await sessions.ready("btc")
    assert upstream.requests[0].path == "/feed/BTC"
    assert upstream.requests[0].headers["X-Symbol"] == "BTC"
    client = sessions.gateway.client(session="btc")
    here = await client.here()
    await client.accepted("hello")
    assert await upstream.has_received(2) == ['{"subscribe":"BTC"}', "hello"]
    await upstream.push("tick")
    assert (await client.collect(1, here))[0] == ["tick"]

    assert (await sessions.put("btc", symbol="BTC")).status == 200
    (await sessions.put("btc", symbol="ETH")).problem(409)
    assert "market" in (await sessions.put("eth", profile="none")).problem(422)["detail"]
    (await sessions.put("eth", symbol="E/H")).problem(422)
    (await sessions.put("eth", symbol="ETH", x="1")).problem(422)
    assert [each["session"] for each in (await sessions.list())["sessions"]] == ["btc"]

    held = asyncio.create_task(client.request("GET", "/v1/sessions/btc/messages?wait=30s"))
    metrics = sessions.gateway.metrics

    async def is_held():
        return (await metrics())["drawbridge_polls_held"] == 1

    await eventually(is_held, what="the poll is held")
    assert (await sessions.delete("btc", "?code=3999")).status == 204
    assert (await held).problem(410)["type"] == "/errors/session-closed"
    (await sessions.delete("btc")).problem(404)
    (await sessions.get("btc")).problem(404)
    await eventually(lambda: upstream.closes, what="the upstream sees the close")
    assert upstream.closes[0][0] == 3999

    await sessions.created("btc", symbol="ETH")
    again = await client.request("GET", f"/v1/sessions/btc/messages?wait=0&cursor={here}")
    assert again.json["gap"]["reason"] == "restart"


async def test_a_reload_changes_a_profile_for_new_sessions_only(sessions_for, start, upstream):
    other = await start(Upstream())
    sessions = await sessions_for(profile(f"{upstream.url}{{symbol}}"))
    await sessions.created("a", symbol="A")
    await sessions.ready("a")
    sessions.gateway.rewrite(profile(f"{other.url}{{symbol}}"))
    sessions.gateway.signal(1)
    await sessions.gateway.logs(lambda each: each["message"] == "configuration reloaded", what="the reload")
    await sessions.created("b", symbol="B")
    await sessions.ready("b")
    assert (upstream.connected, other.connected) == (1, 1)
    assert other.requests[0].path == "/B"
    await upstream.stop()
    await eventually(lambda: upstream.connected == 0, what="the upstream is gone")
    await upstream.start()
    await sessions.ready("a")
    assert upstream.requests[-1].path == "/A"


async def test_limits_name_their_settings(sessions_for, upstream):
    limits = "created_sessions: {total: 3, per_principal: 2}\n"
    sessions = await sessions_for(profile(f"{upstream.url}{{symbol}}") + limits)
    for name in ("a", "b"):
        await sessions.created(name, symbol="A")
    response = await sessions.put("c", symbol="A")
    assert "created_sessions.per_principal" in response.problem(503)["detail"]
    assert int(response.headers["Retry-After"]) > 0


@pytest.mark.load
async def test_a_thousand_sessions_return_their_memory_and_descriptors(sessions_for, start, measured, tmp_path):
    """Fifty principals create twenty sessions each, use them, and leave them until the gateway closes them as idle."""
    principals, each = 50, 20
    count = principals * each
    upstream = await start(Upstream(compression=None))
    tokens = [secrets.token_urlsafe(32) for _ in range(principals)]
    (tmp_path / "tokens").write_text(
        "".join(
            f"p{index} sha256:{hashlib.sha256(token.encode()).hexdigest()} scopes=send,receive\n"
            for index, token in enumerate(tokens)
        )
    )
    config = profile(f"{upstream.url}{{symbol}}") + (
        f"created_sessions: {{idle_after: 3s, per_principal: {each}}}\n"
        f"authentication: {{tokens: {tmp_path / 'tokens'}}}\n"
        "upstream: {dials: {per_second: 100000, burst: 100000, at_once: 100000}}\n"
    )
    heap = HeapCounter(tmp_path)
    sessions = await sessions_for(config, env=heap.environment)
    gateway = sessions.gateway
    client = gateway.client()
    gate = asyncio.Semaphore(50)

    async def metric(name):
        return (await gateway.metrics())[name]

    async def use(index):
        """Creates a session, sends a message, and holds a poll until the first push."""
        path = f"/v1/sessions/s{index}"
        headers = {"Authorization": f"Bearer {tokens[index % principals]}"}
        body = {"profile": "market", "variables": {"symbol": f"S{index}"}}
        async with gate:
            created = await client.request("PUT", path, json=body, headers=headers)
            assert created.status == 201, created.body
            sent = await client.request("POST", f"{path}/messages", data="hello", headers=headers)
            assert sent.status == 202, sent.body
        polled = await client.request("GET", f"{path}/messages?cursor=earliest&wait=50s", headers=headers)
        assert [each["data"] for each in polled.json["messages"]] == ["tick"]

    used, descriptors = [], []
    for _ in range(2):
        before = len(upstream.received)
        users = [asyncio.create_task(use(index)) for index in range(count)]

        async def is_held():
            return await metric("drawbridge_polls_held") == count

        async def is_gone():
            return await metric("drawbridge_created_sessions") == 0

        await eventually(is_held, within=60, what="every session has a held poll")
        await upstream.has_received(before + count, within=60)
        assert await metric("drawbridge_created_sessions") == upstream.connected == count
        peak = heap.read().bytes, gateway.descriptors()
        await upstream.push("tick")
        await asyncio.gather(*users)
        await eventually(is_gone, within=60, what="idle sessions are closed")
        await eventually(lambda: upstream.connected == 0, within=60, what="their connections end")
        # The connections of the test's clients stay open.
        await eventually(
            lambda peak=peak: gateway.descriptors() <= peak[1] - count, what="the descriptors of the upstream return"
        )
        used.append((peak[0], heap.read().bytes))
        descriptors.append((peak[1], gateway.descriptors()))
    assert not any('"s1' in labels for _, labels in (await gateway.metrics()).samples), "names are no labels"
    measured(
        f"heap with {count} sessions and after them: "
        + ", ".join(f"{peak / 2**20:.1f} and {after / 2**20:.1f} MiB" for peak, after in used)
        + f", memory {gateway.memory() / 2**20:.0f} MiB, descriptors: "
        + ", ".join(f"{peak} and {after}" for peak, after in descriptors)
    )
    # The descriptors of the clients' connections are part of both numbers.
    assert used[1][1] <= used[0][1] * 1.05


async def test_a_flooding_upstream_and_a_stalled_reader_do_not_delay_others(sessions_for, start, measured):
    """The upstream of one session sends as fast as it can, and the only client of that session does not read.

    The other sessions are on the same loop. Between two of their messages, the loop reads a limited part of the flood.
    """
    echo, flood = await start(Upstream(echo=True)), await start(Flood())
    config = (
        "profiles:\n"
        f"  calm: {{addresses: {{allow: [127.0.0.1]}}, upstream: {{url: '{echo.url}'}}}}\n"
        f"  flood: {{addresses: {{allow: [127.0.0.1]}}, upstream: {{url: '{flood.url}'}}}}\n"
    )
    sessions = await sessions_for(config, env={"DRAWBRIDGE_LOOPS": "1"})
    gateway = sessions.gateway
    calm = [f"calm{index}" for index in range(4)]
    for name in calm:
        assert (await sessions.put(name, profile="calm")).status == 201
        await sessions.ready(name)
    assert (await sessions.put("flood", profile="flood")).status == 201

    async def exchange(name, count):
        client = gateway.client(session=name)
        cursor = await client.here()
        for index in range(count):
            await client.accepted(f"m{index}")
            payloads, cursor = await client.collect(1, cursor)
            assert payloads == [f"m{index}"]

    stalled = socket.create_connection(gateway.address())
    try:
        stalled.sendall(
            b"GET /v1/sessions/flood/messages?cursor=earliest HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n"
        )
        await eventually(lambda: flood.sent >= 20_000, what="the flood")
        before, pushes = flood.sent, (await gateway.metrics())["drawbridge_pushes_total"]
        await asyncio.gather(*(exchange(name, 20) for name in calm))
        pushes = (await gateway.metrics())["drawbridge_pushes_total"] - pushes
        measured(f"80 messages, and {pushes:.0f} pushes of the flood meanwhile")
        assert flood.sent > before, "the flood has gone on"
        # A loop that read a whole flood before it served another connection would never reach the other connection.
        assert pushes < 80 * 50_000
        assert (await gateway.metrics())["drawbridge_streams_open"] == 1
        assert (await gateway.metrics())["drawbridge_buffer_bytes"] < 140 << 20
    finally:
        stalled.close()


async def test_sessions_survive_the_restart_of_their_upstream(sessions_for, upstream):
    sessions = await sessions_for(profile(f"{upstream.url}{{symbol}}"))
    names = [f"s{index}" for index in range(20)]
    for name in names:
        await sessions.created(name, symbol=name)
    for name in names:
        await sessions.ready(name)
    await upstream.stop()
    await eventually(lambda: upstream.connected == 0, what="the upstream is gone")
    clients = {name: sessions.gateway.client(session=name) for name in names}
    for name in names:
        await clients[name].accepted(f"to {name}")
    await upstream.start()
    received = await upstream.has_received(len(names))
    assert sorted(received) == sorted(f"to {name}" for name in names)
