"""The configurations of reverse proxies in deploy/, in front of real gateways."""

import asyncio
import contextlib
import json
import os
import re
import subprocess

import aiohttp
import pytest
import pytest_asyncio
import yaml

from harness.client import Client
from harness.deployed import (
    DEPLOY,
    DEPLOYED_PROXIES,
    DeployedApache,
    DeployedCaddy,
    DeployedEnvoy,
    DeployedNginx,
    gateway_settings,
)
from harness.gateway import run
from harness.ports import reserve_port
from harness.program import find
from harness.raw import RawUpstream, read_head
from harness.tokens import bearer
from harness.waiting import eventually

NAME = "gateway.example.org"
BALANCERS = [kind for kind in DEPLOYED_PROXIES if kind.has_two_gateways]


def each_proxy_of(kinds):
    return pytest.mark.parametrize("kind", kinds, ids=lambda kind: kind.program)


each_proxy = each_proxy_of(DEPLOYED_PROXIES)


def settings(kind, tokens):
    """The gateway settings that the proxy's file requires, for a proxy on this machine."""
    # Envoy replaces a loopback address of its client with an address of the machine.
    own = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=True).stdout.split()
    text = gateway_settings(kind.path)
    proxy = "192.0.2.10" if kind.has_two_gateways else "127.0.0.1"
    assert text.count(f"[{proxy}]") == 1
    text = text.replace(f"[{proxy}]", json.dumps(["127.0.0.1", *own]))
    return text.replace("/etc/drawbridge/tokens", str(tokens.path))


@pytest_asyncio.fixture
async def proxied_by(start, tmp_path, gateway_for, upstream, tokens):
    """`await proxied_by(kind)`: a gateway, and a client that reaches it through a proxy by its public name."""
    async with contextlib.AsyncExitStack() as stack:

        async def proxied_by(kind, *arguments, management=None, compresses=False, **changes):
            fields = {"Host": NAME, **bearer(tokens.add(f"client-{kind.program}", scopes="send,receive"))}
            config = settings(kind, tokens)
            env = {
                **changes,
                # The public names in this file replace the names of the other tests.
                "DRAWBRIDGE_HTTP_HOSTS": ",".join(yaml.safe_load(config)["http"]["hosts"]),
                "DRAWBRIDGE_LOG_ACCESS": "all",
                "DRAWBRIDGE_SHUTDOWN_PAUSE": "0s",
            }
            gateway = await gateway_for(upstream, *arguments, config=config, env=env)
            checked = await management(gateway) if management else gateway.address("management")
            proxy = await start(kind(tmp_path, (gateway.address(), checked), compresses=compresses))
            client = Client("http://{}:{}".format(*proxy.address), headers=fields)
            stack.push_async_callback(client.close)
            client.address = proxy.address
            client.fields = fields

            async def is_checked():
                return (await client.get(wait=0)).status == 200

            await eventually(is_checked, what="the proxy has found the gateway healthy")
            return gateway, client

        yield proxied_by


@pytest_asyncio.fixture(params=DEPLOYED_PROXIES, ids=lambda kind: kind.program)
async def proxied(request, proxied_by):
    return await proxied_by(request.param)


def request_head(client, line):
    return "\r\n".join([line, *(f"{name}: {value}" for name, value in client.fields.items()), "", ""]).encode()


def check(kind, folder):
    """The proxy's own check of its file."""
    proxy = kind(folder, (("127.0.0.1", 8080), ("127.0.0.1", 9090)))
    command = [find(kind.program), *proxy.check()]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@each_proxy
def test_the_proxy_accepts_its_file_without_a_warning(kind, tmp_path):
    result = check(kind, tmp_path)
    assert result.returncode == 0, result.stderr
    assert "warn" not in (result.stdout + result.stderr).lower()


@each_proxy_of(BALANCERS)
async def test_the_gateway_listens_where_the_proxy_connects(kind, tokens, tmp_path):
    """Here the file has its original addresses. The other tests replace them."""
    path = tmp_path / "drawbridge.yaml"
    path.write_text(f"{settings(kind, tokens)}\nupstream: {{url: 'ws://x/'}}\n")
    status, _, err = await run("check-config", "--config", path)
    assert status == 0, err
    listeners = yaml.safe_load(gateway_settings(kind.path))["listeners"]
    servers = {
        "http": r"192\.0\.2\.1[12](?:, port_value: |:)(\d+)",
        "management": r"(?:check port|\{port_value:) (\d+)",
    }
    for name, pattern in servers.items():
        ports = set(re.findall(pattern, (DEPLOY / kind.path).read_text()))
        assert listeners[name] == [f"0.0.0.0:{port}" for port in ports], name


async def test_a_post_a_poll_and_a_stream_pass_through_the_proxy(proxied, upstream):
    gateway, client = proxied
    here = await client.here()
    await client.accepted("x" * (2 << 20))
    assert len((await upstream.has_received(1))[0]) == 2 << 20
    async with aiohttp.ClientSession(client.base, headers=client.fields) as session:
        fields = {"Accept": "application/x-ndjson"}
        async with session.get("/v1/messages?stream=1", headers=fields) as stream:
            assert stream.status == 200
            poll = asyncio.create_task(client.poll(cursor=here, wait=50))
            await eventually(lambda: held(gateway, 1), what="the poll is held")
            await upstream.push("now")
            assert (await poll).payloads == ["now"]
            # The push arrives while the stream is open, so the proxy buffers nothing.
            assert await pushed(stream) == "now"
            await upstream.push("then")
            assert await pushed(stream) == "then"


async def pushed(stream):
    """The next push of a stream."""
    while "data" not in (record := json.loads(await asyncio.wait_for(stream.content.readline(), 30))):
        pass
    return record["data"]


async def held(gateway, count):
    return (await gateway.metrics())["drawbridge_polls_held"] == count


@each_proxy_of([kind for kind in DEPLOYED_PROXIES if kind is not DeployedCaddy])
async def test_the_gateway_finds_the_client_behind_two_proxies(kind, proxied_by):
    """The client is the rightmost address that is not trusted.

    Each proxy appends its peer's address, and both proxies are trusted here. Caddy replaces the field.
    """
    gateway, client = await proxied_by(kind)
    await client.request("GET", "/v1/session", headers={"X-Forwarded-For": "198.51.100.7"})
    await gateway.logs(
        lambda record: record.get("route") == "/v1/session" and record["client"].startswith("198.51.100.7"),
        what="the request with the address of the client",
    )


@each_proxy_of([kind for kind in DEPLOYED_PROXIES if kind is not DeployedEnvoy])
async def test_a_client_cannot_state_its_address_or_that_it_uses_tls(kind, proxied_by):
    """Envoy is not tested here, since it replaces any loopback address with an address of this machine."""
    gateway, client = await proxied_by(kind)
    stated = {"X-Forwarded-For": "198.51.100.7", "X-Forwarded-Proto": "https"}
    connector = aiohttp.TCPConnector(local_addr=("127.0.0.2", 0))
    async with aiohttp.ClientSession(client.base, headers=client.fields | stated, connector=connector) as session:
        for scheme, status in {"http": 200, "https": 403}.items():
            async with session.get("/v1/session", headers={"Origin": f"{scheme}://{NAME}"}) as response:
                assert response.status == status, await response.text()
    await gateway.logs(
        lambda record: record.get("route") == "/v1/session" and record["client"].startswith("127.0.0.2"),
        what="the request with the address of the client",
    )


async def hold_and_abort(client, gateway):
    here = await client.here()
    _, writer = await asyncio.open_connection(*client.address)
    writer.write(request_head(client, f"GET /v1/messages?wait=50&cursor={here} HTTP/1.1"))
    await eventually(lambda: held(gateway, 1), what="the poll is held")
    writer.transport.abort()


@each_proxy_of([kind for kind in DEPLOYED_PROXIES if kind.passes_aborts])
async def test_the_wait_of_a_disconnected_client_ends(kind, proxied_by):
    gateway, client = await proxied_by(kind)
    await hold_and_abort(client, gateway)
    await eventually(lambda: held(gateway, 0), what="the poll has ended")


class FlushingCaddy(DeployedCaddy):
    """Caddy with the setting that its file warns of."""

    def configuration(self):
        text = super().configuration()
        assert "\t\ttransport http {" in text
        return text.replace("\t\ttransport http {", "\t\tflush_interval -1\n\t\ttransport http {")


@each_proxy_of([*(kind for kind in DEPLOYED_PROXIES if not kind.passes_aborts), FlushingCaddy])
async def test_the_poll_of_a_disconnected_client_counts_until_the_next_push(kind, proxied_by, upstream):
    gateway, client = await proxied_by(kind, DRAWBRIDGE_LIMITS_ADDRESS_HELD="1")
    await hold_and_abort(client, gateway)
    (await client.get(wait=50)).problem(429)
    await upstream.push("news")
    await eventually(lambda: held(gateway, 0), what="the poll has ended")
    assert (await client.get(wait=1)).status == 200


@each_proxy
async def test_the_stream_of_a_disconnected_client_ends_at_a_heartbeat(kind, proxied_by):
    gateway, client = await proxied_by(kind, DRAWBRIDGE_DELIVERY_STREAM_HEARTBEAT="1s")

    async def open_streams(count):
        return (await gateway.metrics())["drawbridge_streams_open"] == count

    async with aiohttp.ClientSession(client.base, headers=client.fields) as session:
        async with session.get("/v1/messages", headers={"Accept": "text/event-stream"}) as stream:
            # The beginning of a stream arrives before any push.
            assert await asyncio.wait_for(stream.content.readline(), 30)
            assert await open_streams(1)
            stream.connection.transport.abort()
        await eventually(lambda: open_streams(0), what="the stream has ended")


async def follow_etags(gateway, client, upstream):
    """Repeats polls with the last `ETag`, with and without new pushes. Returns all responses."""
    packed = {"Accept-Encoding": "gzip"}
    responses = [await client.get(wait=0, headers=packed)]
    for text in ["short " * 50, "long " * 1000, "then " * 50]:
        fields = packed | {"If-None-Match": responses[-1].headers["ETag"]}
        assert (await client.get(wait=0, headers=fields)).status == 304
        poll = asyncio.create_task(client.get(wait=50, headers=fields))
        await eventually(lambda: held(gateway, 1), what="the poll is held")
        await upstream.push(text)
        responses.append(await poll)
        assert [message["data"] for message in responses[-1].json["messages"]] == [text]
        assert responses[-1].json["gap"] is None
    return responses


@each_proxy
async def test_an_etag_continues_although_a_response_was_compressed(kind, proxied_by, upstream):
    gateway, client = await proxied_by(kind, compresses=True)
    responses = await follow_etags(gateway, client, upstream)
    # The gateway compresses only the long response. A proxy may leave the first response uncompressed, since it is
    # empty.
    compressed = [response.headers.get("Content-Encoding") == "gzip" for response in responses[1:]]
    assert compressed == ([True, True, True] if kind.compression else [False, True, False])


class AlteringApache(DeployedApache):
    """Apache without the setting that keeps the ETag unchanged."""

    def configuration(self):
        text = super().configuration()
        assert "DeflateAlterETag NoChange" in text
        return text.replace("DeflateAlterETag NoChange", "")


async def test_an_etag_that_apache_has_altered_continues(proxied_by, upstream):
    gateway, client = await proxied_by(AlteringApache, compresses=True)
    responses = await follow_etags(gateway, client, upstream)
    assert responses[1].headers["ETag"].endswith('-gzip"')


@each_proxy
async def test_the_largest_body_passes_through_the_proxy(kind, proxied_by, upstream):
    _, client = await proxied_by(kind)
    message = os.urandom(16 << 20)
    await client.accepted(message)
    assert await upstream.has_received(1) == [message]
    if kind.limits_bodies:
        assert (await client.send(message + b"x")).status == 413
        return
    # The gateway responds with 413 and closes the connection while the proxy still sends. The client gets 413, 502, 503
    # or no response.
    with contextlib.suppress(aiohttp.ClientError):
        assert (await client.send(message + b"x")).status in (413, 502, 503)
    await client.accepted("small")
    assert await upstream.has_received(2) == [message, "small"]


@pytest.mark.timeout(180)
async def test_a_poll_is_held_for_longer_than_proxies_wait_by_default(proxied_by):
    """The polls go through all proxies at once, since each takes more than a minute."""

    async def hold(kind):
        _, client = await proxied_by(kind, DRAWBRIDGE_DELIVERY_MAXIMUM_WAIT="70s")
        loop = asyncio.get_running_loop()
        began = loop.time()
        response = await client.get(wait=65)
        # The gateway ended the poll, not a timeout of the proxy.
        assert response.status == 200, (kind, response.body)
        assert loop.time() - began >= 64, kind

    await asyncio.gather(*map(hold, DEPLOYED_PROXIES))


@each_proxy
async def test_the_proxy_reaches_a_restarted_gateway(kind, proxied_by, gateway_for, upstream):
    listeners = {name: f"127.0.0.1:{reserve_port()}" for name in ("--listen", "--management")}
    arguments = [word for pair in listeners.items() for word in pair]
    gateway, client = await proxied_by(kind, *arguments)
    await client.accepted("before")
    await gateway.stop()
    assert (await client.send("meanwhile")).status in (502, 503)
    await gateway_for(upstream, *arguments, config=gateway.config, env={"DRAWBRIDGE_HTTP_HOSTS": NAME})

    async def is_reached():
        return (await client.get(wait=0)).status == 200

    # With Apache's default settings this would take a minute.
    await eventually(is_reached, within=30, what="the restarted gateway is reached")
    await client.accepted("after")
    assert (await upstream.has_received(2)) == ["before", "after"]


class Forgetful:
    """A gateway that reads each request and closes the connection without a response."""

    def __init__(self):
        self.requests = []
        self.address = None

    async def start(self):
        self._server = await asyncio.start_server(self._converse, "127.0.0.1", 0)
        self.address = self._server.sockets[0].getsockname()

    async def stop(self):
        self._server.close()

    async def _converse(self, reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"GET /readyz"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            else:
                self.requests.append(head.split(b" ")[0].decode())
            await writer.drain()
        writer.close()


@each_proxy
async def test_a_post_whose_response_is_lost_is_not_repeated(kind, start, tmp_path):
    gateways = [await start(Forgetful()) for _ in range(2)]
    proxy = await start(kind(tmp_path, *((gateway.address, gateway.address) for gateway in gateways)))

    def arrived():
        return [request for gateway in gateways for request in gateway.requests]

    async with contextlib.aclosing(_statuses(proxy.address, b"POST")) as statuses:
        async for status in statuses:
            # The proxy passes on no request before it has found a gateway healthy.
            if arrived():
                break
            assert status == b"503"
    # lighttpd responds with 500.
    assert status in (b"500", b"502", b"503")
    assert arrived() == ["POST"]


async def _statuses(address, method):
    """The statuses of requests. Each request is sent after the previous request has ended."""
    while True:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(
            method + b" /v1/messages HTTP/1.1\r\nHost: gateway.example.org\r\nContent-Length: 2\r\n"
            b"Connection: close\r\n\r\nhi"
        )
        response = await asyncio.wait_for(reader.read(), 30)
        writer.close()
        yield response.split(b" ")[1]
        await asyncio.sleep(0.01)


class Checks(RawUpstream):
    """The management listener of a gateway, as health checks see it. Counts failed checks."""

    def __init__(self, gateway):
        super().__init__(self._respond)
        self.gateway = gateway
        self.failed = 0

    async def _respond(self, reader, writer):
        while True:
            head, _ = await read_head(reader)
            response = await self.gateway.manage(head.split(b" ")[1].decode())
            self.failed += response.status != 200
            writer.write(f"HTTP/1.1 {response.status} -\r\nContent-Length: 0\r\n\r\n".encode())


@each_proxy
async def test_messages_are_queued_while_the_upstream_is_down(kind, proxied_by, start, upstream):
    """All gateways have the same upstream, so no gateway is ready while it is down."""
    checks = []

    async def management(gateway):
        checks.append(await start(Checks(gateway)))
        return "127.0.0.1", checks[0].port

    _, client = await proxied_by(kind, management=management)
    await upstream.kill()
    # Two checks of each server, and one more. There are two servers, which Envoy counts as one, because they have the
    # same address.
    enough = {"haproxy": 5, "envoy": 3}.get(kind.program, 0)
    await eventually(lambda: checks[0].failed >= enough, what="the checks fail")
    texts = [f"queued {number}" for number in range(10)]
    for text in texts:
        await client.accepted(text)
    await upstream.start()
    assert await upstream.has_received(10) == texts


@each_proxy_of([kind for kind in DEPLOYED_PROXIES if kind is not DeployedNginx])
async def test_a_post_passes_beside_more_held_polls_than_the_default_connections_of_a_proxy(kind, proxied_by):
    """The default limits are 1,024 connections in Envoy and 150 threads in Apache.

    The limit of nginx is not set in its file.
    """
    count = 1100
    gateway, client = await proxied_by(kind)
    head = request_head(client, f"GET /v1/messages?wait=55&cursor={await client.here()} HTTP/1.1")
    polls = []
    try:
        for _ in range(count):
            polls.append((await asyncio.open_connection(*client.address))[1])
            polls[-1].write(head)
        await eventually(lambda: held(gateway, count), what="the polls are held")
        # Uses a new connection, because Apache closes idle connections while many of its threads are occupied.
        other = Client(client.base, headers=client.fields)
        try:
            await other.accepted("beside them")
        finally:
            await other.close()
        assert await held(gateway, count)
    finally:
        for poll in polls:
            poll.transport.abort()
