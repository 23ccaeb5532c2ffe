"""The gateway as a process: its standard streams, its signals, its descriptors."""

import asyncio
import contextlib
import os
import signal
import socket

import pytest

from harness.gateway import BINARY
from harness.waiting import eventually


@contextlib.asynccontextmanager
async def serving(folder, *, prefix=(), **streams):
    """A gateway without an upstream, on a Unix-domain socket, with the test's standard streams."""
    path = folder / "api.sock"
    process = await asyncio.create_subprocess_exec(
        *prefix,
        *map(str, (BINARY, "serve", "--upstream", "ws://127.0.0.1:1/", "--listen", f"unix:{path}")),
        *("--management", f"unix:{folder / 'management.sock'}"),
        env={name: value for name, value in os.environ.items() if not name.startswith("DRAWBRIDGE_")},
        **{"stdin": asyncio.subprocess.DEVNULL, "stdout": asyncio.subprocess.DEVNULL, **streams},
    )
    try:
        await eventually(lambda: process.returncode is not None or is_accepting(path), what="the gateway listens")
        assert process.returncode is None
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def is_accepting(path):
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


@pytest.fixture
def unread_pipe():
    """The writing end of a full pipe that no process reads."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"x")
    os.set_blocking(writing, True)
    yield writing
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize("signals", [1, 2])
async def test_the_gateway_ends_although_nobody_reads_its_standard_error(tmp_path, unread_pipe, signals):
    async with serving(tmp_path, stderr=unread_pipe) as process:
        for _ in range(signals):
            process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 30) == 0


async def test_a_line_reaches_a_non_blocking_standard_error_that_is_read_late(tmp_path):
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    filler = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            filler += os.write(writing, b"x" * 4096)
    async with serving(tmp_path, stderr=writing) as process:
        os.close(writing)
        # The first lines were dropped, because the pipe was full. The pipe now has room.
        output = b""
        while output.count(b"listening") < 2:
            output += await asyncio.wait_for(asyncio.to_thread(os.read, reading, 1 << 20), 30)
        assert b"dropped" not in output
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 30) == 0
    os.close(reading)


async def test_standard_streams_that_are_closed_at_the_start_are_not_given_to_sockets(tmp_path):
    prefix = ("sh", "-c", 'exec "$0" "$@" 0<&- 1>&- 2>&-')
    async with serving(tmp_path, prefix=prefix) as process:
        names = [os.readlink(f"/proc/{process.pid}/fd/{number}") for number in range(3)]
        assert names == ["/dev/null"] * 3
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 30) == 0


async def test_clients_leave_descriptors_for_management_and_the_upstream(upstream, gateway_for):
    gateway = await gateway_for(upstream, prefix=("sh", "-c", 'ulimit -n 160; exec "$0" "$@"'))
    crowd = []
    try:
        for _ in range(200):
            # The gateway resets connections above the limit, perhaps before their connect has returned.
            with contextlib.suppress(ConnectionError):
                crowd.append(await asyncio.open_connection(*gateway.address()))
                crowd[-1][1].write(b"GET /v1/messages?wait=50 HTTP/1.1\r\nHost: localhost\r\n\r\n")

        async def is_alive():
            client = gateway.client("management")
            return (await client.request("GET", "/livez")).status == 200

        for _ in range(10):
            assert await is_alive()
        upstream.reset_connections()

        async def is_back():
            return len(upstream.requests) > 1 and (await gateway.metrics())["drawbridge_session_ready"] == 1

        await eventually(is_back, what="the session is ready again")
        await gateway.logs(lambda record: record.get("limit") == "http.connections", what="that there are too many")
        reason = "open-file limit 160 is below http.connections (16384)"
        await gateway.logs(lambda record: reason in record.get("reason", ""), what="both numbers")
        assert "a system resource is exhausted" not in gateway.output, "no accept fails for lack of descriptors"
    finally:
        for _, writer in crowd:
            writer.transport.abort()


async def test_the_level_of_the_log_changes_without_a_restart(upstream, gateway_for):
    def config(level, overlap="1s"):
        """The change of `overlap` causes a hand-over, which shows that the reload is complete."""
        return f"upstream: {{url: '{upstream.url}', overlap: {overlap}}}\nlog: {{level: {level}}}\n"

    async def settles(*, beyond):
        """Waits until only one connection exists, whose generation exceeds `beyond`. Returns its generation."""

        async def generation():
            status = await client.session()
            return status["state"] == "ready" and status["generation"] > beyond and status["generation"]

        return await eventually(generation, what=f"a generation after {beyond} is ready")

    gateway = await gateway_for(None, config=config("info"))
    client = gateway.client()
    assert not any(record["level"] == "debug" for record in gateway.records)
    gateway.rewrite(config("debug", overlap="300ms"))
    gateway.signal(signal.SIGHUP)
    generation = await settles(beyond=1)
    upstream.reset_connections()
    generation = await settles(beyond=generation)
    await gateway.logs(lambda record: record["level"] == "debug", what="what only the new level writes")
    assert "restart" not in gateway.output

    gateway.rewrite(config("warning", overlap="200ms"))
    gateway.signal(signal.SIGHUP)
    generation = await settles(beyond=generation)
    before = len(gateway.log)
    upstream.reset_connections()
    await settles(beyond=generation)
    await eventually(lambda: len(gateway.log) > before, what="a warning")
    # The log line about the hand-over may have been late.
    lines = [record for record in gateway.records[before:] if record.get("generation") != generation]
    assert {record["level"] for record in lines} <= {"warning"}
