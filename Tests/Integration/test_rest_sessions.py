"""Sessions that clients create from profiles: their life, their limits, and what they must not reach."""

import asyncio
import contextlib
import hashlib
import json
import secrets
import socket

import pytest

from harness.nameserver import Nameserver, needs_nameserver
from harness.raw import frame, upgrade
from harness.upstream import Upstream
from harness.waiting import eventually


def profile(url, *, name="market", allow="127.0.0.1", variables="{symbol: {pattern: '[A-Za-z0-9]{1,12}'}}", extra=""):
    addresses = f"addresses: {{allow: [{allow}]}}, " if allow else ""
    return f"profiles: {{{name}: {{variables: {variables}, {addresses}upstream: {{url: '{url}'{extra}}}}}}}\n"


class Sessions:
    """Creates, shows and closes the sessions of one gateway."""

    def __init__(self, gateway):
        self._client = gateway.client()
        self.gateway = gateway

    async def put(self, name, *, profile="market", **variables):
        body = {"profile": profile, "variables": variables}
        return await self._client.request("PUT", f"/v1/sessions/{name}", json=body)

    async def created(self, name, **variables):
        answer = await self.put(name, **variables)
        assert answer.status == 201, answer.body
        return answer

    async def get(self, name):
        return await self._client.request("GET", f"/v1/sessions/{name}")

    async def delete(self, name, query=""):
        return await self._client.request("DELETE", f"/v1/sessions/{name}{query}")

    async def list(self, query=""):
        return (await self._client.request("GET", f"/v1/sessions{query}")).json

    async def ready(self, name):
        async def is_ready():
            return (await self.get(name)).json["state"] == "ready"

        await eventually(is_ready, what=f"session {name} is ready")

    async def failure(self, name, text):
        """Waits until the last failure of the session has this text."""

        async def has_failed():
            return text in ((await self.get(name)).json["last_failure"] or "")

        await eventually(has_failed, what=f"{name} fails with {text!r}")


@pytest.fixture
async def sessions_for(gateway_for):
    async def sessions_for(config, **options):
        return Sessions(await gateway_for(None, config=config, ready=False, **options))

    return sessions_for


async def test_a_client_creates_uses_and_closes_a_session(sessions_for, upstream):
    config = profile(
        f"{upstream.url}feed/{{symbol}}",
        extra=", headers: {X-Symbol: '{symbol}'}, on_open: [{send: '{\"subscribe\":\"{symbol}\"}'}]",
    )
    sessions = await sessions_for(config)
    answer = await sessions.created("btc", symbol="BTC")
    assert answer.headers["Location"] == "/v1/sessions/btc"
    creation = answer.json["creation"]
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
    answer = await sessions.put("c", symbol="A")
    assert "created_sessions.per_principal" in answer.problem(503)["detail"]
    assert int(answer.headers["Retry-After"]) > 0


# Hosts of a URL that mean this machine, a private network or a metadata service, and no name server.
HOSTS = [
    "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0x7F.0.0.1", "0177.0.0.1", "017700000001", "127.0.0.1.",
    "0", "0.0.0.0", "localhost", "LocalHost", "localhost.", "a.localhost",
    "169.254.169.254", "2852039166", "0xa9fea9fe", "10.0.0.1", "192.168.1.1", "172.16.0.1", "100.64.0.1",
    "168.63.129.16", "224.0.0.1", "255.255.255.255", "198.18.0.1",
]  # fmt: skip

# Attempts to end the host early, or to use characters that a resolver may map.
TRICKS = [
    "public.example@127.0.0.1", "127.0.0.1:80", "127.0.0.1/x", "127.0.0.1#x", "127.0.0.1?x", "127.0.0.1\\x", "[::1]",
    "::1", "127%2e0.0.1", "127\u30020\u30020\u30021", "\uff11\uff12\uff17.0.0.1", "a b", "",
]  # fmt: skip

ANY_HOST = "{host: {}}, hosts: ['*']"


async def test_no_host_of_a_client_is_this_machine_or_a_private_network(sessions_for):
    sessions = await sessions_for(profile("ws://{host}:9/", allow="", variables=ANY_HOST))
    for host in HOSTS:
        detail = (await sessions.put("x", host=host)).problem(422)["detail"]
        assert "refused unless" in detail or "this machine" in detail, (host, detail)
    for host in TRICKS:
        (await sessions.put("x", host=host)).problem(422)
    assert (await sessions.list())["sessions"] == []


@needs_nameserver
async def test_a_name_that_changes_its_address_is_judged_at_every_connection(sessions_for, start, tmp_path):
    """127.0.0.1 is allowed here, and stands for a public address; 127.0.0.2 for a private one."""
    upstream, hidden = await start(Upstream()), Upstream(host="127.0.0.2")
    hidden.port = upstream.port
    await start(hidden)
    names = {
        "rebinding.example": [["127.0.0.1"], ["127.0.0.2"]],
        "mixed.example": [["127.0.0.2", "127.0.0.1"]],
        "127.0.0.2.nip.example": [["127.0.0.2"]],
        "mapped.example": [["::ffff:127.0.0.2"]],
        "private.example": [["10.1.2.3", "192.168.0.1"]],
        "metadata.example": [["169.254.169.254"]],
    }
    server = await start(Nameserver(tmp_path, names))
    config = profile(f"ws://{{host}}:{upstream.port}/", variables=ANY_HOST)
    sessions = await sessions_for(config, prefix=server.prefix)

    await sessions.created("rebinding", host="rebinding.example")
    await sessions.ready("rebinding")
    await upstream.stop()
    await sessions.failure("rebinding", "rebinding.example is 127.0.0.2: the address is loopback")
    await upstream.start()

    await sessions.created("mixed", host="mixed.example")
    await sessions.ready("mixed")
    for name, kind in (
        ("127.0.0.2.nip.example", "loopback"), ("127.0.0.2.nip.example.", "loopback"), ("mapped.example", "loopback"),
        ("private.example", "private"), ("metadata.example", "metadata"),
    ):  # fmt: skip
        session = name.replace(".", "-")
        await sessions.created(session, host=name)
        if name == "mapped.example":
            # Without IPv6 on this machine the name has no address.
            continue
        await sessions.failure(session, kind)
    assert hidden.requests == [], "nothing has reached the hidden upstream"


async def test_a_redirect_is_judged_like_the_url(sessions_for, raw_upstream, start):
    hidden = await start(Upstream(host="127.0.0.2"))

    async def redirect(reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        target = {
            "address": f"ws://127.0.0.2:{hidden.port}/", "number": f"ws://2130706434:{hidden.port}/",
            "name": f"ws://localhost:{hidden.port}/", "metadata": "http://169.254.169.254/latest/meta-data/",
            "six": f"ws://[::ffff:127.0.0.2]:{hidden.port}/", "relative": f"//127.0.0.2:{hidden.port}/",
            "private": "ws://192.168.0.1/",
        }[head.split()[1][1:]]  # fmt: skip
        writer.write(f"HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()

    entrance = await raw_upstream(redirect)
    sessions = await sessions_for(profile(f"{entrance.url.rstrip('/')}/{{symbol}}", allow="127.0.0.1/32"))
    for way in ("address", "number", "metadata", "six", "relative", "private"):
        await sessions.created(way, symbol=way)
        await sessions.failure(way, "refused unless 'addresses.allow' of the profile has it")
    assert hidden.requests == [], "nothing has reached the hidden upstream"


async def test_a_thousand_sessions_return_their_memory_and_descriptors(sessions_for, start, measured, tmp_path):
    """Fifty principals with twenty sessions each: created, used, and closed because nobody uses them any more."""
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
    sessions = await sessions_for(config)
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
        peak = gateway.memory(), gateway.descriptors()
        await upstream.push("tick")
        await asyncio.gather(*users)
        await eventually(is_gone, within=60, what="idle sessions are closed")
        await eventually(lambda: upstream.connected == 0, within=60, what="their connections end")
        # The connections of the test's clients stay open.
        await eventually(
            lambda peak=peak: gateway.descriptors() <= peak[1] - count, what="the descriptors of the upstream return"
        )
        used.append((peak[0], gateway.memory()))
        descriptors.append((peak[1], gateway.descriptors()))
    assert not any('"s1' in labels for _, labels in (await gateway.metrics()).samples), "names are no labels"
    measured(
        f"with {count} sessions and after them: "
        + ", ".join(f"{peak / 2**20:.0f} and {after / 2**20:.0f} MiB" for peak, after in used)
        + ", descriptors: "
        + ", ".join(f"{peak} and {after}" for peak, after in descriptors)
    )
    # The allocator keeps what it has, for the next thousand.
    assert used[1][0] <= used[0][0] * 1.2
    assert used[1][1] <= used[0][1] * 1.2


async def test_creation_is_refused_while_the_gateway_drains(sessions_for, upstream):
    shutdown = "shutdown: {drain: 5s, flush: 5s}\n"
    sessions = await sessions_for(profile(f"{upstream.url}{{symbol}}") + shutdown)
    await sessions.created("a", symbol="A")
    await sessions.ready("a")
    host, port = sessions.gateway.address()
    reader, writer = await asyncio.open_connection(host, port)
    body = json.dumps({"profile": "market", "variables": {"symbol": "B"}}).encode()
    head = f"PUT /v1/sessions/b HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    # The head is read before the drain begins, so that the connection stays open for the response.
    writer.write(head.encode() + body[:-1])
    await writer.drain()

    async def has_begun():
        return (await sessions.gateway.metrics())["drawbridge_http_connections"] >= 1

    await eventually(has_begun, what="the request is being received")
    sessions.gateway.signal()
    await sessions.gateway.logs(lambda each: each["message"] == "shutting down", what="the shutdown")
    writer.write(body[-1:])
    answer = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    assert answer.split()[1] in (b"503",), answer[:300]
    assert await sessions.gateway.exit_status() == 0


async def test_a_flooding_upstream_and_a_stalled_reader_leave_the_others_alone(
    sessions_for, raw_upstream, start, measured
):
    """One session's upstream sends as fast as it can, and the one client of that session reads nothing."""
    calm = await start(Upstream(echo=True))
    flooded = asyncio.Event()

    async def flood(reader, writer):
        await upgrade(reader, writer)
        data = frame(1, b"x" * 1000) * 64
        sent = 0
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(data)
                await writer.drain()
                sent += 64
                if sent > 20_000:
                    flooded.set()
                # Python is slower than the gateway, and must leave time for the clients of this test.
                await asyncio.sleep(0)

    flooding = await raw_upstream(flood)
    config = (
        "profiles:\n"
        f"  calm: {{addresses: {{allow: [127.0.0.1]}}, upstream: {{url: '{calm.url}'}}}}\n"
        f"  flood: {{addresses: {{allow: [127.0.0.1]}}, upstream: {{url: '{flooding.url}'}}}}\n"
    )
    sessions = await sessions_for(config, env={"DRAWBRIDGE_LOOPS": "2"})
    gateway = sessions.gateway
    assert (await sessions.put("calm", profile="calm")).status == 201
    await sessions.ready("calm")
    client = gateway.client(session="calm")

    async def rounds(count):
        loop = asyncio.get_running_loop()
        began = loop.time()
        cursor = await client.here()
        for index in range(count):
            await client.accepted(f"m{index}")
            _, cursor = (await client.collect(1, cursor))[:2]
        return (loop.time() - began) / count

    quiet = await rounds(30)
    assert (await sessions.put("flood", profile="flood")).status == 201
    host, port = gateway.address()
    stalled = socket.create_connection((host, port))
    try:
        stalled.sendall(
            b"GET /v1/sessions/flood/messages?cursor=earliest HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n"
        )
        await asyncio.wait_for(flooded.wait(), 30)
        loud = await rounds(30)
    finally:
        stalled.close()
    measured(
        f"a round trip takes {quiet * 1e3:.1f} ms, and {loud * 1e3:.1f} ms beside a flood: {loud / quiet:.1f} times"
    )
    # The flood and the test share the processors, so this is generous. To wait behind the flood would be far more.
    assert loud < quiet * 60 + 0.5
    assert (await gateway.metrics())["drawbridge_buffer_bytes"] < 140 << 20


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
