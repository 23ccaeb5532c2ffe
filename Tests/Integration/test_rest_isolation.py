"""Sessions that clients create do not affect the configured sessions or the sessions of other clients."""

import asyncio
import hashlib
import json
import secrets

import pytest

from harness.nameserver import Nameserver, needs_nameserver
from harness.raw import upgrade
from harness.upstream import Upstream
from harness.waiting import eventually

PROFILES = (
    "profiles: {market: {variables: {symbol: }, addresses: {allow: [127.0.0.1]}, upstream: {url: '%s{symbol}'%s}}}\n"
)


class Client:
    """One client of a gateway, which creates sessions."""

    def __init__(self, gateway, token=None):
        self._client = gateway.client()
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    async def request(self, method, name, **options):
        return await self._client.request(method, f"/v1/sessions/{name}", headers=self._headers, **options)

    async def put(self, name, **variables):
        response = await self.request("PUT", name, json={"profile": "market", "variables": variables})
        assert response.status == 201, response.body

    async def state(self, name):
        return (await self.request("GET", name)).json

    async def ready(self, name):
        async def is_ready():
            return (await self.state(name))["state"] == "ready"

        await eventually(is_ready, what=f"session {name} is ready")


@pytest.fixture
def tokens(tmp_path):
    """The tokens of two clients, and the setting that allows them."""
    tokens = [secrets.token_urlsafe(32) for _ in range(2)]
    lines = [
        f"p{index} sha256:{hashlib.sha256(token.encode()).hexdigest()} scopes=send,receive\n"
        for index, token in enumerate(tokens)
    ]
    (tmp_path / "tokens").write_text("".join(lines))
    return tokens, f"authentication: {{tokens: {tmp_path / 'tokens'}}}\n"


async def test_created_and_deleted_sessions_use_up_no_attempts_of_others(gateway_for, upstream, tokens):
    """With a limit of one attempt per second, they would use up four minutes of attempts."""
    (first, second), authentication = tokens
    config = PROFILES % (upstream.url, "") + authentication
    config += f"upstream: {{url: '{upstream.url}', dials: {{per_second: 1, burst: 1}}}}\n"
    gateway = await gateway_for(None, config=config)
    client = Client(gateway, first)
    for _ in range(240):
        await client.put("x", symbol="a")
        assert (await client.request("DELETE", "x")).status == 204
    other = Client(gateway, second)
    await other.put("y", symbol="b")
    await other.ready("y")
    await client.put("x", symbol="a")
    await client.ready("x")
    await upstream.stop()
    await eventually(lambda: upstream.connected == 0, what="the upstream is gone")
    await upstream.start()
    await eventually(lambda: any(each.path == "/" for each in upstream.requests[-3:]), what="the configured session")
    await gateway.ready()


async def test_retry_after_for_one_client_delays_nobody_else(gateway_for, raw_upstream, tokens):
    """For one value of the variable, the upstream refuses with Retry-After. It serves other values."""
    (first, second), authentication = tokens
    connections = []

    async def serve(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        path = head.split()[1].decode()
        if path == "/busy":
            writer.write(b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3600\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            return
        # `upgrade` reads the head again.
        reader.feed_data(head)
        await upgrade(reader, writer)
        connections.append((path, writer))
        await reader.read()

    entrance = await raw_upstream(serve)
    config = PROFILES % (entrance.url, "") + authentication + f"upstream: {{url: '{entrance.url}'}}\n"
    gateway = await gateway_for(None, config=config)
    client, other = Client(gateway, first), Client(gateway, second)
    await client.put("busy", symbol="busy")

    async def is_held():
        state = await client.state("busy")
        return state["last_failure"] and "429" in state["last_failure"]

    await eventually(is_held, what="the upstream refuses")
    await other.put("calm", symbol="calm")
    await other.ready("calm")
    # The configured session loses its connection, and connects again.
    connections[0][1].close()
    await eventually(lambda: [path for path, _ in connections] == ["/", "/calm", "/"], what="it connects again")


@needs_nameserver
async def test_hanging_look_ups_of_one_client_do_not_delay_another(gateway_for, start, tmp_path, tokens):
    """A lookup of the first client occupies its thread for a minute, longer than the test waits for a session."""
    (first, second), authentication = tokens

    class SlowNameserver(Nameserver):
        def datagram_received(self, data, peer):
            if b"slow" not in data:
                super().datagram_received(data, peer)

    upstream = await start(Upstream())
    server = await start(SlowNameserver(tmp_path, {"quick.example": [["127.0.0.1"]]}, options="timeout:30 attempts:2"))
    config = authentication + (
        "profiles: {market: {variables: {host: }, hosts: ['*'], addresses: {allow: [127.0.0.1]}, "
        f"upstream: {{url: 'ws://{{host}}:{upstream.port}/'}}}}}}\n"
    )
    gateway = await gateway_for(None, config=config, ready=False, prefix=server.prefix)
    client, other = Client(gateway, first), Client(gateway, second)
    for index in range(100):
        await client.put(f"s{index}", host=f"slow{index}.example")
    await other.put("quick", host="quick.example")
    await other.ready("quick")
    for index in range(100):
        assert (await client.request("DELETE", f"s{index}")).status == 204

    async def is_gone():
        return (await gateway.metrics())["drawbridge_created_sessions"] == 1

    await eventually(is_gone, what="the sessions have ended")


async def test_metrics_of_created_sessions_are_sums(gateway_for, upstream):
    subscriptions = ", subscriptions: {add: {match: {json: {/op: sub}}, key: /ch}}"
    gateway = await gateway_for(None, config=PROFILES % (upstream.url, subscriptions), ready=False)
    client = Client(gateway)

    async def kept(count):
        async def is_kept():
            return (await gateway.metrics())["drawbridge_subscriptions"] == count

        await eventually(is_kept, what=f"{count} subscriptions are kept")

    for name in ("a", "b"):
        await client.put(name, symbol=name)
        await gateway.client(session=name).accepted(json.dumps({"op": "sub", "ch": name}))
    await kept(2)
    assert (await client.request("DELETE", "a")).status == 204
    await kept(1)


@needs_nameserver
async def test_a_client_learns_no_address_of_a_name(gateway_for, start, tmp_path):
    server = await start(Nameserver(tmp_path, {"feed.corp.example": [["10.1.2.3"]]}))
    config = "profiles: {market: {variables: {host: }, hosts: ['*'], upstream: {url: 'ws://{host}:9/'}}}\n"
    gateway = await gateway_for(None, config=config, ready=False, prefix=server.prefix)
    client = Client(gateway)
    await client.put("x", host="feed.corp.example")

    async def has_failed():
        return (await client.state("x"))["last_failure"]

    failure = await eventually(has_failed, what="it is refused")
    assert failure.startswith("feed.corp.example: the address is private"), failure
    assert "10.1.2.3" not in json.dumps(await client.state("x"))
    await gateway.logs(lambda each: each.get("address") == "10.1.2.3", what="the address")


async def test_lines_about_created_sessions_are_limited(gateway_for, upstream):
    gateway = await gateway_for(None, config=PROFILES % (upstream.url, ""), ready=False)
    client = Client(gateway)
    count = 300

    async def come_and_go(index):
        await client.put(f"x{index}", symbol="a")
        assert (await client.request("DELETE", f"x{index}")).status == 204

    began = asyncio.get_running_loop().time()
    for first in range(0, count, 10):
        await asyncio.gather(*(come_and_go(index) for index in range(first, first + 10)))
    seconds = asyncio.get_running_loop().time() - began
    lines = [each for each in gateway.records if each.get("session", "").startswith("x")]
    # The limit is five lines per second, and the first and the last second are partial.
    assert 0 < len(lines) <= 5 * (seconds + 2), len(lines)

    async def is_reported():
        # A line of a later second gives the number of missing lines.
        await come_and_go(count)
        return any(each.get("suppressed", 0) > 0 for each in gateway.records)

    await eventually(is_reported, what="the log says how many lines are missing")
