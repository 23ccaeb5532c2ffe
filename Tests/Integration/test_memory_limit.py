"""The memory limit of the control group: the log line about it, and whether clients can make a gateway exceed it."""

import asyncio
import contextlib
import re

import pytest
import pytest_asyncio

from harness.deployed import COMPOSE, DEPLOY, container, manifest
from harness.gateway import PROJECT, Gateway
from harness.memory import memory_group
from harness.waiting import eventually

MEBIBYTE = 1 << 20
WARNING = "the settings allow more memory than is available"


@pytest_asyncio.fixture
async def limited(upstream, tmp_path):
    """`await limited(bytes, config=…)`: a gateway with that memory limit."""
    async with contextlib.AsyncExitStack() as stack:

        async def limited(limit, **options):
            group = stack.enter_context(memory_group(limit))
            gateway = Gateway("--upstream", upstream.url, folder=tmp_path, prefix=group.prefix, **options)
            await gateway.start()
            stack.push_async_callback(gateway.stop)
            gateway.group = group
            return await gateway.ready()

        yield limited


async def test_settings_that_allow_more_than_the_limit_are_a_warning_with_figures(limited):
    gateway = await limited(256 * MEBIBYTE)
    (warning,) = (record for record in gateway.records if record["message"] == WARNING)
    assert warning["level"] == "warning"
    assert warning["reason"].startswith("the memory limit 256 MiB of the control group is below ")
    assert "http.connections (" in warning["reason"]
    assert warning["bytes"] > 256 * MEBIBYTE


def mebibytes(text):
    return int(text.rstrip("mMi")) * MEBIBYTE


DEPLOYED = {
    "kubernetes": (manifest("ConfigMap")["data"]["drawbridge.yaml"], container()["resources"]["limits"]["memory"]),
    "compose": (
        (DEPLOY / "compose/config/drawbridge.yaml").read_text(),
        COMPOSE["services"]["drawbridge"]["mem_limit"],
    ),
    # The package installs the default settings.
    "systemd": (
        "http: {}",
        re.search(r"`MemoryMax=(\w+)`", (PROJECT / "docs/deployment.md").read_text())[1],
    ),
}


@pytest.mark.parametrize("name", DEPLOYED)
async def test_the_deployed_settings_fit_in_their_limit(limited, tmp_path, name):
    config, limit = DEPLOYED[name]
    # The secrets are removed, since their files are missing here and use no memory.
    config = "\n".join(line for line in config.splitlines() if not re.search("tokens:|headers:|Authorization:", line))
    config = config.replace("authentication:\n", "").replace(
        "engine: sqlite", f"engine: sqlite\n  path: {tmp_path}/drawbridge.db"
    )
    gateway = await limited(mebibytes(limit), config=config, env={"DRAWBRIDGE_SHUTDOWN_PAUSE": "0s"})
    assert not any(record["message"] == WARNING for record in gateway.records)


# The maximum memory that 300 clients can make the gateway use: heads, bodies, and unread responses.
FITTING = """
http: {connections: 300, pending_body_bytes: 24MiB, body_bytes: 4MiB, unsent_bytes: 24MiB, idempotency_keys: 16384}
delivery: {bytes: 16MiB}
upstream: {message_bytes: 4MiB, queue: {bytes: 2MiB}}
"""


@pytest.mark.load
async def test_clients_cannot_exceed_a_limit_that_the_settings_fit_in(limited, upstream, measured):
    limit = 192 * MEBIBYTE
    gateway = await limited(limit, config=FITTING)
    assert not any(record["message"] == WARNING for record in gateway.records)
    client = gateway.client()
    start = await client.here()
    for _ in range(20):
        await upstream.push("x" * MEBIBYTE)

    async def is_full():
        return (await gateway.metrics())["drawbridge_buffer_bytes"] > 14 * MEBIBYTE

    await eventually(is_full, what="the buffer is full")
    peers = []

    async def fill(request, body=b""):
        reader, writer = await asyncio.open_connection(*gateway.address())
        peers.append(writer)
        with contextlib.suppress(OSError):
            writer.write(request)
            writer.write(body)
            await asyncio.wait_for(writer.drain(), 30)
        return reader

    head = b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000000\r\n\r\n"
    poll = f"GET /v1/messages?max_bytes=64MiB&cursor={start} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    long_head = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 30_000
    for _ in range(60):
        await asyncio.gather(fill(head, bytes(900_000)), fill(poll), fill(long_head))
    try:
        assert gateway.process.returncode is None
        metrics = await gateway.metrics()
        assert metrics["drawbridge_http_body_bytes"] > 12 * MEBIBYTE
        peak = gateway.group.peak()
        measured(f"{peak / MEBIBYTE:.0f} of {limit / MEBIBYTE:.0f} MiB")
        assert peak < limit
    finally:
        for peer in peers:
            peer.transport.abort()
    assert (await client.get(wait=0)).status == 200
