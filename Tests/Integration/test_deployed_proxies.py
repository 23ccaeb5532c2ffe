"""The configurations of nginx, HAProxy and Envoy in deploy/, in front of real gateways."""

import asyncio
import contextlib
import json
import subprocess

import aiohttp
import pytest
import pytest_asyncio

from harness.client import Client
from harness.deployed import DEPLOYED_PROXIES
from harness.program import find
from harness.waiting import eventually

NAME = "gateway.example.org"


def settings():
    """What the files ask for in the configuration of the gateway."""
    # Envoy writes an address of the machine in place of the loopback address of its client.
    own = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=True).stdout.split()
    return {"DRAWBRIDGE_HTTP_HOSTS": NAME, "DRAWBRIDGE_HTTP_TRUSTED_PROXIES": ",".join(["127.0.0.1", *own])}


each_proxy = pytest.mark.parametrize("kind", DEPLOYED_PROXIES, ids=lambda kind: kind.program)


@pytest_asyncio.fixture(params=DEPLOYED_PROXIES, ids=lambda kind: kind.program)
async def proxied(request, start, tmp_path, gateway_for, upstream):
    """A gateway, and a client that reaches it through a proxy by its public name."""
    gateway = await gateway_for(upstream, env={**settings(), "DRAWBRIDGE_LOG_ACCESS": "all"})
    proxy = await start(request.param(tmp_path, (gateway.address(), gateway.address("management"))))
    client = Client("http://{}:{}".format(*proxy.address), headers={"Host": NAME})
    client.address = proxy.address

    async def is_checked():
        return (await client.get(wait=0)).status == 200

    await eventually(is_checked, what="the proxy has found the gateway healthy")
    yield gateway, client
    await client.close()


def check(kind, folder):
    """The proxy's own check of its file."""
    proxy = kind(folder, (("127.0.0.1", 8080), ("127.0.0.1", 9090)))
    path = proxy.write_configuration()
    arguments = {
        "nginx": ["-t", "-p", folder, "-c", path, "-e", "stderr"],
        "haproxy": ["-c", "-f", path],
        "envoy": ["--mode", "validate", "-l", "warning", "-c", path],
    }
    command = [find(kind.program), *arguments[kind.program]]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@each_proxy
def test_the_proxy_accepts_its_file_without_a_warning(kind, tmp_path):
    result = check(kind, tmp_path)
    assert result.returncode == 0, result.stderr
    assert "warn" not in (result.stdout + result.stderr).lower()


async def test_a_post_a_poll_and_a_stream_pass(proxied, upstream):
    gateway, client = proxied
    here = await client.here()
    await client.accepted("x" * (2 << 20))
    assert len((await upstream.has_received(1))[0]) == 2 << 20
    async with aiohttp.ClientSession(client.base, headers={"Host": NAME}) as session:
        fields = {"Accept": "application/x-ndjson"}
        async with session.get("/v1/messages?stream=1", headers=fields) as stream:
            assert stream.status == 200
            poll = asyncio.create_task(client.poll(cursor=here, wait=50))
            await eventually(lambda: held(gateway, 1), what="the poll is held")
            await upstream.push("now")
            assert (await poll).payloads == ["now"]
            # Each push arrives while the stream goes on: nothing is buffered.
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


async def test_the_gateway_knows_the_client_and_not_only_the_proxy(proxied):
    gateway, client = proxied
    # Each of them appends its peer, which is trusted here. The rightmost address that is not is the client.
    await client.request("GET", "/v1/session", headers={"X-Forwarded-For": "198.51.100.7"})
    await gateway.logs(
        lambda record: record.get("route") == "/v1/session" and record["client"].startswith("198.51.100.7"),
        what="the request with the address of the client",
    )


async def test_the_wait_of_a_client_that_is_gone_ends(proxied):
    gateway, client = proxied
    here = await client.here()
    _, writer = await asyncio.open_connection(*client.address)
    writer.write(f"GET /v1/messages?wait=50&cursor={here} HTTP/1.1\r\nHost: {NAME}\r\n\r\n".encode())
    await eventually(lambda: held(gateway, 1), what="the poll is held")
    writer.transport.abort()
    await eventually(lambda: held(gateway, 0), what="the poll has ended")


class Forgetful:
    """A gateway that takes each request and closes the connection without a response."""

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
            # Until the proxy has found a gateway healthy, and passes the request on.
            if arrived():
                break
            assert status == b"503"
    assert status in (b"502", b"503")
    assert arrived() == ["POST"]


async def _statuses(address, method):
    """The statuses of requests, one after another, each after its response or its end."""
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
