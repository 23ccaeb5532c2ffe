"""Tests of the test peers: a wrong measurement must not make a wrong gateway look right."""

import asyncio
import errno
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from harness.beside import Beside
from harness.clock import ShiftedClock
from harness.conventions import ConventionUpstream, listen
from harness.frames import FramePeer, FrameServer
from harness.metrics import Metrics
from harness.namespaces import needs_namespaces
from harness.ports import release_ports, reserve_port
from harness.raw import RawUpstream, frame, upgrade
from harness.receiver import Receiver
from harness.redis import RedisServer
from harness.upstream import Upstream
from harness.waiting import eventually


async def test_the_upstream_echoes_compressed_over_tls(start, authority, certificate):
    upstream = await start(Upstream(certificate=certificate, echo=True))
    trust = ssl.create_default_context(cafile=authority.path)
    async with connect(upstream.url, ssl=trust, max_size=None) as connection:
        assert "permessage-deflate" in connection.response.headers["Sec-WebSocket-Extensions"]
        for message in ("", "x", "é" * 100_000, b"", bytes(10 << 20)):
            await connection.send(message)
            assert await connection.recv() == message
    assert await eventually(lambda: upstream.closes) == [(1000, "")]


async def test_a_signal_to_a_process_that_has_just_ended_keeps_its_exit_status():
    for _ in range(20):
        process = await asyncio.create_subprocess_exec("true")
        # Without an `await`, the loop does not learn that the process has ended. So the test also sends signals after
        # the end.
        while Path(f"/proc/{process.pid}/stat").exists():
            process.send_signal(0)
        assert await process.wait() == 0


async def test_the_upstream_restarts_on_its_port(start):
    upstream = await start(Upstream())
    url = upstream.url
    for _ in range(3):
        async with connect(url) as connection:
            await connection.send("hello")
            await upstream.has_received(1)
            await upstream.kill()
            with pytest.raises(ConnectionClosed):
                await connection.recv()
        with pytest.raises(OSError):
            await connect(url)
        await upstream.start()
        assert upstream.url == url


@pytest.mark.parametrize(
    "make",
    [Upstream, lambda: RawUpstream(None), lambda: FrameServer(FramePeer), lambda: ConventionUpstream(listen), Receiver],
    ids=["Upstream", "RawUpstream", "FrameServer", "ConventionUpstream", "Receiver"],
)
async def test_a_server_that_is_stopped_keeps_its_port_from_others(make):
    server = make()
    for _ in range(2):
        await server.start()
        await server.stop()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", server.port))


def test_a_reserved_port_refuses_connections_and_lets_any_address_listen():
    port = reserve_port()
    with socket.socket() as client:
        assert client.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED
    for address in ("127.0.0.1", "127.0.0.2", ""):
        for _ in range(2):
            with socket.create_server((address, port)), socket.create_connection((address or "127.0.0.1", port)):
                pass
    release_ports()
    with socket.socket() as other:
        # Connections of this test may be in TIME-WAIT.
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("", port))


async def test_a_valid_handshake_of_the_raw_upstream_is_accepted(start):
    async def behave(reader, writer):
        await upgrade(reader, writer, then=frame(1, b"hello"))
        await reader.read()

    upstream = await start(RawUpstream(behave))
    async with connect(upstream.url, compression=None, close_timeout=0.1) as connection:
        assert await connection.recv() == "hello"


@pytest.mark.parametrize("text", ["metric one\n", "metric 1", "# TYPE m guage\n", 'm{a="b" 1\n', "m 1\nm 2\n"])
def test_malformed_metrics_are_noticed(text):
    with pytest.raises(AssertionError):
        Metrics(text)


def test_metrics_are_summed_over_labels():
    metrics = Metrics('# HELP m What.\n# TYPE m counter\nm{a="x"} 1\nm{a="y\\"z"} 2.5\n')
    assert metrics["m"] == 3.5
    with pytest.raises(KeyError):
        metrics["n"]


async def test_a_wait_that_fails_names_its_condition():
    with pytest.raises(AssertionError, match="the moon"):
        await eventually(lambda: False, within=0.01, what="the moon")
    assert await eventually(lambda: asyncio.sleep(0, "answer")) == "answer"


async def test_a_healthy_client_that_must_wait_is_reported(gateway, start):
    beside = await start(Beside(gateway))

    async def standstill():
        gateway.signal(signal.SIGSTOP)
        await asyncio.sleep(1)
        gateway.signal(signal.SIGCONT)

    with pytest.raises(AssertionError, match="times slower"):
        await beside.unharmed_by(standstill)


async def test_a_step_of_a_clock_affects_redis_and_only_its_own_server(start, tmp_path):
    day = 86_400
    clock = ShiftedClock(tmp_path)
    other = clock.beside(tmp_path / "other")
    server = await start(RedisServer(tmp_path, environment=clock.environment))
    steady = await start(RedisServer(tmp_path, environment=other.environment))
    for shift in (0, day, -day):
        clock.shift(shift)
        # The shift is a day. A difference of an hour is allowed, so that other changes of the machine's clock do not
        # fail this test.
        assert abs((await server.client.time())[0] - time.time() - shift) < 3600
        assert abs((await steady.client.time())[0] - time.time()) < 3600
        # LASTSAVE reads the clock with `time`, so this function must be shifted, too.
        await server.client.save()
        assert abs((await server.client.lastsave()).timestamp() - time.time() - shift) < 3600


def python(program, *, prefix=()):
    """Runs a Python program that imports the harness. Returns its standard output and its exit status."""
    here = Path(__file__).parent
    done = subprocess.run(
        [*prefix, sys.executable, "-c", program], cwd=here, stdout=subprocess.PIPE, text=True, timeout=30, check=False
    )
    return done.stdout.strip(), done.returncode


@needs_namespaces
async def test_a_killed_test_leaves_no_namespace():
    program = """
import os, signal
from harness.namespaces import Cable
cable = Cable()
cable.start()
print(cable.near.path, cable.far.path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    printed, status = python(program)
    assert status == -signal.SIGKILL
    for path in printed.split():
        await eventually(lambda path=path: not Path(path).exists(), what=f"{path} is gone")


@needs_namespaces
def test_without_namespaces_tests_are_skipped_with_the_reason():
    # Runs as root without any capability, as in most containers.
    refused = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
    program = "from harness.namespaces import reason_to_skip; print(reason_to_skip())"
    reason, status = python(program, prefix=refused)
    assert status == 0
    assert "does not permit" in reason
    assert "unshare" in reason
