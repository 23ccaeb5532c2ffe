"""The running program against `openapi.yaml`: schemathesis sends what the document allows and what it forbids.

DRAWBRIDGE_CONTRACT_EXAMPLES sets how many random cases each operation gets; 'make contract' runs the long form.
"""

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

from harness.upstream import Upstream

EXAMPLES = os.environ.get("DRAWBRIDGE_CONTRACT_EXAMPLES")

# Polls end soon, and the session may be closed and opened by the cases themselves.
QUICK = {"DRAWBRIDGE_DELIVERY_WAIT": "0s", "DRAWBRIDGE_DELIVERY_MAXIMUM_WAIT": "20ms"}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("is_connected", [True, False], ids=["connected", "not connected"])
async def test_schemathesis_finds_nothing(gateway_for, start, tmp_path, is_connected):
    upstream = await start(Upstream())
    if not is_connected:
        await upstream.kill()
    gateway = await gateway_for(upstream, env=QUICK, ready=is_connected)
    options = ["--max-examples", EXAMPLES] if EXAMPLES else ["--max-examples", "15", "--seed", "1", "--no-shrink"]
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("st"),
        *("--config-file", Path(__file__).with_name("schemathesis.toml")),
        *("run", f"{gateway.url()}/openapi.yaml", "--checks", "all", "--phases", "examples,coverage,fuzzing,stateful"),
        *("--request-timeout", "30", "--no-color", *options),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    text = out.decode()
    assert process.returncode == 0, text[-6000:]
    assert re.search(r"(\d+) selected / \1 total", text), text[:2000]
