"""Listening sockets that the gateway inherits at its start (LISTEN_FDS)."""

import asyncio
import contextlib
import os
import shutil
import socket
import sys
from pathlib import Path

import pytest

from harness import inheritance
from harness.gateway import Gateway
from harness.ports import reserve_port
from harness.sanitizer import options
from harness.waiting import eventually

REQUEST = b"GET /v1/messages?wait=0 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def listening(address="127.0.0.1"):
    return socket.create_server((address, 0), backlog=128)


def inheriting(sockets, names="-", **options):
    """The arguments of a gateway that inherits `sockets`."""
    descriptors = [peer.fileno() for peer in sockets]
    prefix = (sys.executable, Path(inheritance.__file__), names, ",".join(map(str, descriptors)))
    return {"prefix": prefix, "pass_fds": descriptors, **options}


def address(server):
    return "{}:{}".format(*server.getsockname())


async def get(where):
    reader, writer = await asyncio.open_connection(*where)
    writer.write(REQUEST)
    response = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    return response.split(b"\r\n")[0]


def is_watched(gateway, server):
    """Whether the socket wakes an event loop of the gateway."""
    entry = f"ino:{os.fstat(server.fileno()).st_ino:x} "
    for file in Path(f"/proc/{gateway.process.pid}/fdinfo").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if entry in file.read_text():
                return True
    return False


async def test_sockets_are_used_by_name_and_replace_the_configured_addresses(upstream, gateway_for):
    with listening() as first, listening() as second, listening() as management:
        sockets = [first, management, second]
        gateway = await gateway_for(upstream, **inheriting(sockets, "http:management:http"))
        assert gateway.addresses("api") == [address(first), address(second)]
        assert gateway.addresses("management") == [address(management)]
        assert all(record["inherited"] for record in gateway.records if record["message"] == "listening")
        for server in (first, second):
            assert await get(server.getsockname()) == b"HTTP/1.1 200 OK"
            # Connections inherit this option from the listener.
            assert server.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_a_socket_without_a_name_is_used_by_its_address(upstream, gateway_for):
    with listening() as server, listening() as named:
        gateway = await gateway_for(
            upstream,
            "--listen",
            address(server),
            "--listen",
            "127.0.0.1:0",
            **inheriting([server, named], "x:management"),
        )
        assert gateway.addresses("api")[0] == address(server)
        assert len(gateway.addresses("api")) == 2
        assert await get(server.getsockname()) == b"HTTP/1.1 200 OK"


async def test_every_loop_accepts_from_an_inherited_socket(upstream, gateway_for):
    with listening() as server:
        gateway = await gateway_for(upstream, "--loops", "3", **inheriting([server], "http"))
        responses = await asyncio.gather(*(get(server.getsockname()) for _ in range(300)))
        assert set(responses) == {b"HTTP/1.1 200 OK"}
        assert gateway.sockets().count("tcp") >= 3


async def test_a_socket_file_of_the_parent_stays(upstream, start, tmp_path):
    path = tmp_path / "api.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        for _ in range(2):
            gateway = await start(Gateway("--upstream", upstream.url, folder=tmp_path, **inheriting([server], "http")))
            assert gateway.addresses("api") == [f"unix:{path}"]
            assert (await gateway.client().get(wait=0)).status == 200
            await gateway.stop()
            assert path.is_socket()


async def test_connections_in_the_backlog_are_served_by_the_next_process(upstream, start, tmp_path):
    with listening() as server:
        options = inheriting([server], "http", env={"DRAWBRIDGE_SHUTDOWN_DRAIN": "10m"})
        first = await start(Gateway("--upstream", upstream.url, folder=tmp_path, **options))
        _, unfinished = await asyncio.open_connection(*server.getsockname())
        unfinished.write(b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx")

        async def has_begun():
            return (await first.metrics())["drawbridge_http_body_bytes"] > 0

        await eventually(has_begun, what="the first one has a request")
        assert is_watched(first, server)
        first.signal()

        async def has_stopped_accepting():
            await first.logs(lambda record: record["message"] == "draining", what="the drain")
            return (await first.metrics())["drawbridge_http_connections_accepted_total"]

        await has_stopped_accepting()
        await eventually(lambda: not is_watched(first, server), what="new connections no longer wake the first one")
        waiting = [asyncio.create_task(get(server.getsockname())) for _ in range(50)]
        # The first gateway still runs, but accepts no connection while it drains.
        second = await start(Gateway("--upstream", upstream.url, folder=tmp_path, **options))
        assert set(await asyncio.gather(*waiting)) == {b"HTTP/1.1 200 OK"}
        assert first.process.returncode is None
        unfinished.write(b"12345678")
        assert await first.exit_status() == 0
        assert await get(server.getsockname()) == b"HTTP/1.1 200 OK"
        unfinished.close()
        assert second.process.returncode is None


async def fails(tmp_path, sockets, names="-", *arguments, count=None):
    """The exit status and standard error of a gateway that cannot start with these sockets."""
    options = inheriting(sockets, names)
    gateway = Gateway("--upstream", "ws://127.0.0.1:1/", *arguments, folder=tmp_path, **options)
    with pytest.raises(AssertionError, match="ended at once") as caught:
        await gateway.start()
    return gateway.process.returncode, str(caught.value)


async def test_descriptors_that_cannot_be_used_are_clear_errors(tmp_path):
    with listening() as server, socket.socket() as silent, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        status, text = await fails(tmp_path, [server], "web")
        assert status == 78
        assert f"inherited socket 3 ('web', {address(server)}) is for no listener" in text
        status, text = await fails(tmp_path, [server, silent], "http:http")
        assert (status, "inherited descriptor 4 ('http') does not listen" in text) == (69, True)
        status, text = await fails(tmp_path, [datagrams])
        assert (status, "inherited descriptor 3 is not a stream socket" in text) == (69, True)
        with (tmp_path / "file").open("w") as file:
            status, text = await fails(tmp_path, [file])
            assert (status, "inherited descriptor 3 is not a socket" in text) == (69, True)


async def test_an_address_for_two_listeners_is_a_clear_error(tmp_path):
    with listening() as server:
        status, text = await fails(tmp_path, [server], "http", "--management", address(server))
        assert status == 78
        assert f"the inherited socket {address(server)}: another listener uses this address" in text
    with (
        socket.create_server(("127.0.0.1", 0), reuse_port=True) as first,
        socket.create_server(first.getsockname(), reuse_port=True) as second,
    ):
        status, text = await fails(tmp_path, [first, second], "http:management")
        assert (status, "another listener uses this address" in text) == (78, True)


async def test_a_socket_that_other_machines_can_reach_needs_authentication(tmp_path):
    with listening("0.0.0.0") as server:
        status, text = await fails(tmp_path, [server], "http")
        assert status == 78
        assert f"the inherited socket {address(server)}: other machines can connect to it" in text


async def test_variables_for_another_process_are_ignored(upstream, gateway_for):
    gateway = await gateway_for(upstream, env={"LISTEN_PID": "1", "LISTEN_FDS": "7"})
    assert await get(gateway.address()) == b"HTTP/1.1 200 OK"


async def test_children_get_neither_the_variables_nor_the_sockets(upstream, gateway_for, tmp_path):
    script = tmp_path / "credential"
    script.write_text(
        f"#!/bin/sh\nenv > {tmp_path}/env.new; ls /proc/self/fd > {tmp_path}/fd\n"
        f"mv {tmp_path}/env.new {tmp_path}/env; echo secret\n"
    )
    script.chmod(0o755)
    credential = f"{{command: [{script}], header: 'X-Token: ${{credential}}'}}"
    config = f"upstream: {{url: '{upstream.url}', credential: {credential}}}\n"
    with listening() as server:
        env = {"NOTIFY_SOCKET": f"{tmp_path}/none"}
        await gateway_for(None, config=config, **inheriting([server], "http", env=env))
        variables = (tmp_path / "env").read_text()
        assert "LISTEN_" not in variables
        assert "NOTIFY_SOCKET" not in variables
        # Descriptor 3 is the folder that the command lists.
        assert set((tmp_path / "fd").read_text().split()) <= {"0", "1", "2", "3"}


async def test_the_supervisor_is_notified_of_start_reload_and_stop(upstream, gateway_for, tmp_path):
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(path))
        supervisor.setblocking(False)

        async def state():
            return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(supervisor, 4096), 30)

        gateway = await gateway_for(upstream, env={"NOTIFY_SOCKET": str(path)})
        assert await state() == b"READY=1"
        gateway.signal(1)
        reloading, _, time = (await state()).partition(b"\nMONOTONIC_USEC=")
        assert reloading == b"RELOADING=1"
        assert time.isdigit()
        assert await state() == b"READY=1"
        gateway.signal()
        assert await state() == b"STOPPING=1"
        assert await gateway.exit_status() == 0


async def test_systemd_socket_activate_passes_its_sockets(upstream, tmp_path, start):
    program = shutil.which("systemd-socket-activate") or pytest.skip("systemd-socket-activate is missing")
    port = reserve_port()
    # systemd-socket-activate starts the gateway when the first connection arrives.
    prefix = (program, "--listen", f"127.0.0.1:{port}", "--fdname", "http")
    passed = [*options(), *(name for name in os.environ if name.startswith("DRAWBRIDGE_"))]
    prefix += tuple(f"--setenv={name}" for name in passed)
    gateway = Gateway("--upstream", upstream.url, folder=tmp_path, prefix=prefix)
    starting = asyncio.create_task(start(gateway))

    async def first():
        try:
            return await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return None

    reader, writer = await eventually(first, what="systemd-socket-activate listens")
    writer.write(REQUEST)
    assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200 ")
    writer.close()
    await starting
    assert gateway.addresses("api") == [f"127.0.0.1:{port}"]
