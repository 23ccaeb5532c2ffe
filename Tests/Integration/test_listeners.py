"""The gateway's listeners: IPv4, IPv6, Unix-domain sockets, and several loops on one port."""

import asyncio
import socket

import pytest

from harness.client import Client
from harness.gateway import run
from harness.raw import upgrade
from harness.upstream import Upstream
from harness.waiting import eventually


def has_ipv6():
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")


@needs_ipv6
async def test_the_gateway_listens_on_ipv6(gateway_for, upstream):
    gateway = await gateway_for(upstream, "--listen", "[::1]:0", "--management", "[::1]:0")
    assert gateway.address()[0] == "::1"
    await gateway.client().accepted("over IPv6")
    assert await upstream.has_received(1) == ["over IPv6"]


@needs_ipv6
async def test_an_upstream_is_reached_by_its_ipv6_address(gateway_for, start):
    upstream = await start(Upstream(host="::1"))
    gateway = await gateway_for(upstream)
    await gateway.client().accepted("over IPv6")
    assert await upstream.has_received(1) == ["over IPv6"]


async def test_an_upstream_is_reached_by_name(gateway_for, upstream):
    gateway = await gateway_for(None, "--upstream", f"ws://localhost:{upstream.port}/path?query=1")
    await gateway.client().accepted("by name")
    assert await upstream.has_received(1) == ["by name"]
    assert upstream.requests[0].path == "/path?query=1"
    assert upstream.requests[0].headers["Host"] == f"localhost:{upstream.port}"


async def test_the_gateway_listens_on_a_unix_domain_socket(gateway_for, upstream, tmp_path):
    path = tmp_path / "api.sock"
    gateway = await gateway_for(upstream, "--listen", f"unix:{path}")
    client = Client("http://localhost", unix=str(path))
    try:
        await client.accepted("over a path")
        assert await upstream.has_received(1) == ["over a path"]
    finally:
        await client.close()
    await gateway.stop()
    assert not path.exists(), "the socket is taken away at the end"


async def test_a_unix_domain_socket_left_by_a_crash_is_replaced(gateway_for, upstream, tmp_path):
    path = tmp_path / "api.sock"
    crashed = await gateway_for(upstream, "--listen", f"unix:{path}")
    await crashed.kill()
    assert path.exists()
    await gateway_for(upstream, "--listen", f"unix:{path}")
    client = Client("http://localhost", unix=str(path))
    try:
        await client.poll(wait=0)
    finally:
        await client.close()


async def test_an_ending_process_does_not_remove_the_socket_of_its_successor(raw_upstream, gateway_for, tmp_path):
    async def deaf_to_the_close(reader, writer):
        await upgrade(reader, writer)
        await asyncio.Event().wait()

    path = tmp_path / "api.sock"
    upstream = await raw_upstream(deaf_to_the_close)
    old = await gateway_for(upstream, "--listen", f"unix:{path}")
    old.signal()

    def is_free():
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(path)) != 0

    await eventually(is_free, what="the old process listens no more")
    assert old.process.returncode is None, "it waits for the upstream's close"
    await gateway_for(upstream, "--listen", f"unix:{path}")
    assert await old.exit_status() == 0
    client = Client("http://localhost", unix=str(path))
    try:
        await client.poll(wait=0)
    finally:
        await client.close()


async def test_a_unix_domain_socket_that_is_in_use_is_refused(gateway_for, upstream, tmp_path):
    path = tmp_path / "api.sock"
    await gateway_for(upstream, "--listen", f"unix:{path}")
    status, _, err = await run("serve", "--upstream", upstream.url, "--listen", f"unix:{path}")
    assert status == 69
    assert "Address already in use" in err
    client = Client("http://localhost", unix=str(path))
    try:
        await client.poll(wait=0)
    finally:
        await client.close()


@pytest.mark.parametrize("loops", [1, 2, 4])
async def test_a_gateway_may_have_any_number_of_loops(gateway_for, upstream, loops):
    gateway = await gateway_for(upstream, "--loops", loops)
    # Each client opens a new connection, so that the kernel distributes them over the loops.
    clients = [gateway.client() for _ in range(16)]
    cursor = await clients[0].here()
    for number, client in enumerate(clients):
        await client.accepted(str(number))
    assert await upstream.has_received(16) == [str(number) for number in range(16)]
    await upstream.push("to all")
    for client in clients:
        assert (await client.collect(1, cursor))[0] == ["to all"]


async def test_a_client_that_disconnects_before_its_response_ends_no_other_request(gateway_for, upstream, tmp_path):
    """In one turn, the loop reads a request, half of another and the end of input.

    It cannot send the first response.
    """
    path = tmp_path / "api.sock"
    await gateway_for(upstream, "--listen", f"unix:{path}")
    request = b"GET /v1/session HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for _ in range(20):
        peers = [socket.socket(socket.AF_UNIX) for _ in range(50)]
        for peer in peers:
            peer.connect(str(path))
            peer.sendall(request)
            assert peer.recv(65536).startswith(b"HTTP/1.1 200")
        for peer in peers:
            peer.sendall(request + b"GET /v1/sess")
            peer.close()
    client = Client("http://localhost", unix=str(path))
    try:
        await client.accepted("still here")
    finally:
        await client.close()
    assert await upstream.has_received(1) == ["still here"]
