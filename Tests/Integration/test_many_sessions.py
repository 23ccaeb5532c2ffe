"""Ten thousand upstream sessions in one process, each with its own connection: the memory of one session."""

import asyncio
import contextlib
import json
import os
import resource

import pytest

from harness.gateway import PROJECT
from harness.heap import HeapCounter
from harness.raw import frame, read_frame, upgrade

HERD = PROJECT / ".build/release/session-herd"
COUNT = 10_000
# The maximum memory of a session without permessage-deflate, outside of the kernel.
LIMIT = 12 * 1024


async def converse(reader, writer):
    """An upstream that responds to pings and otherwise sends nothing."""
    await upgrade(reader, writer)
    while True:
        opcode, payload = await read_frame(reader)
        if opcode == 9:
            writer.write(frame(10, payload))


@pytest.mark.load
@pytest.mark.timeout(240)
@pytest.mark.skipif(not HERD.exists(), reason=f"{HERD.name} is not built; scripts/test builds it")
async def test_ten_thousand_sessions_fit_into_12_kib_each(raw_upstream, tmp_path, measured):
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    upstream = await raw_upstream(converse)
    heap = HeapCounter(tmp_path)
    process = await asyncio.create_subprocess_exec(
        HERD,
        upstream.url,
        str(COUNT),
        env={**os.environ, **heap.environment},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert (await process.stdout.readline()).strip() == b"starting"
        before = heap.read()
        process.stdin.write(b"go\n")
        result = json.loads(await process.stdout.readline())
        used = heap.read() - before
        assert result["ready"] == COUNT
        # Each further attempt would add to the history of its session.
        assert result["at_first_attempt"] == COUNT
        measured(f"{used.bytes / COUNT:.0f} bytes a session, all ready after {result['seconds']:.1f} s")
        assert used.bytes / COUNT <= LIMIT
    finally:
        process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
