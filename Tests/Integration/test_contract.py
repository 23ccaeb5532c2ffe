"""Checks the running program against `openapi.yaml`: schemathesis sends allowed and forbidden requests.

DRAWBRIDGE_CONTRACT_EXAMPLES sets the number of random cases for each operation. 'make contract' runs the long form.
"""

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

from harness.credentials import with_tokens
from harness.store import storing
from harness.upstream import Upstream

EXAMPLES = os.environ.get("DRAWBRIDGE_CONTRACT_EXAMPLES")

# Polls end soon, and the cases themselves may close and open the session.
QUICK = {"DRAWBRIDGE_DELIVERY_WAIT": "0s", "DRAWBRIDGE_DELIVERY_MAXIMUM_WAIT": "20ms"}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("state", ["connected", "not connected", "authenticated"])
async def test_schemathesis_finds_no_fault(gateway_for, start, tmp_path, tokens, state):
    upstream = await start(Upstream())
    if state == "not connected":
        await upstream.kill()
    env, credentials = QUICK, ()
    if state == "authenticated":
        # schemathesis also sends each request without the token and with a wrong token, and expects 401.
        token = tokens.add("schemathesis", scopes="send,receive,call,admin")
        env = {**QUICK, **with_tokens(tokens), "DRAWBRIDGE_LIMITS_FAILED_AUTHENTICATIONS": "none"}
        credentials = ("--header", f"Authorization: Bearer {token}")
    gateway = await gateway_for(upstream, env=env, ready=state != "not connected")
    # Few responses differ between the states, so two states get fewer random cases in the short form.
    await examine(gateway.url(), tmp_path, 15 if state == "connected" else 6, *credentials)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("engine", ["sqlite", "redis, holder", "redis, follower"])
async def test_schemathesis_finds_no_fault_with_any_store(
    gateway_for, upstream, store_path, replicas_for, tmp_path, engine
):
    if engine == "sqlite":
        url = (await gateway_for(upstream, env={**QUICK, **storing(store_path)})).url()
    else:
        replicas = await replicas_for(2, env=QUICK)
        holder = await replicas.holder()
        url = (holder if engine == "redis, holder" else (await replicas.followers())[0]).gateway.url()
    await examine(url, tmp_path, 3)


async def examine(url, folder, examples, *arguments):
    """Sends random requests for each operation: `examples` requests, or the number of the long form."""
    few = ["--max-examples", str(examples), "--seed", "1", "--no-shrink"]
    options = ["--max-examples", EXAMPLES] if EXAMPLES else few
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("st"),
        *("--config-file", Path(__file__).with_name("schemathesis.toml")),
        *("run", f"{url}/openapi.yaml", "--checks", "all", "--phases", "examples,coverage,fuzzing,stateful"),
        # This path exists only on management listeners.
        *("--exclude-path", "/history"),
        *("--request-timeout", "30", "--no-color", *arguments, *options),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    text = out.decode()
    assert process.returncode == 0, text[-6000:]
    selected, total = re.search(r"(\d+) selected / (\d+) total", text).groups()
    assert int(selected) == int(total) - 1, text[:2000]
