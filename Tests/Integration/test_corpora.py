"""Conformance cases collected from other projects, run against the gateway, where the corpora are present.

They lie beside the project, in ../shared or where DRAWBRIDGE_CORPORA points, and are not part of it. The short form is
part of `make test`; DRAWBRIDGE_CORPORA_SPLITS=1 also sends every case byte by byte and cut at random, for minutes.
"""

import asyncio
import collections
import json
import os
import sys
from pathlib import Path

import pytest
import pytest_asyncio

from harness.gateway import PROJECT

SHARED = Path(os.environ.get("DRAWBRIDGE_CORPORA", PROJECT.parent / "shared"))
RUN_HTTP1 = SHARED / "tools/run_http1.py"

long_form = pytest.mark.skipif(
    not os.environ.get("DRAWBRIDGE_CORPORA_SPLITS"), reason="only with DRAWBRIDGE_CORPORA_SPLITS=1"
)

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not RUN_HTTP1.exists(), reason=f"the corpora are not at {SHARED}"),
]

# Several cases at once: most of the time of a case is waiting for silence.
JOBS = "8"


async def run(*command):
    process = await asyncio.create_subprocess_exec(
        sys.executable, *map(str, command), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await process.communicate()
    return process.returncode, out.decode()


async def http_cases(gateway, folder, *options):
    """Runs the HTTP/1.1 corpus; the results by case, and its output for the report."""
    results = folder / "results.json"
    host, port = gateway.address()
    # Many cases ask for PATH?something: that the parameter is unknown is said by the application, not by the protocol.
    application = ("--path", "/v1/messages", "--app-400", "#invalid-(parameter|text)")
    status, out = await run(RUN_HTTP1, host, port, *application, "--jobs", JOBS, "--json", results, *options)
    assert status in (0, 1), out[-4000:]
    return json.loads(results.read_text())["results"], out


@pytest_asyncio.fixture
async def impatient(gateway_for, upstream):
    """A gateway that holds no poll: a GET is answered at once, as the corpus expects."""
    return await gateway_for(upstream, env={"DRAWBRIDGE_DELIVERY_WAIT": "0s"})


def failures(results):
    return [(case["id"], case["level"], case["kind"], case["detail"][:100]) for case in results if not case["ok"]]


@pytest.mark.parametrize(
    "split", ["whole", pytest.param("byte", marks=long_form), pytest.param("random", marks=long_form)]
)
async def test_http_requests_by_the_letter(impatient, tmp_path, measured, split):
    results, out = await http_cases(impatient, tmp_path, "--profile", "rfc", "--split", split)
    failed = failures(results)
    measured(f"{len(results) - len(failed)} of {len(results)} cases")
    assert [case for case in failed if case[1] == "must"] == [], out[-2000:]
    assert len(failed) <= 0.02 * len(results), failed
    kinds = collections.Counter(case["kind"] for case in results if not case["ok"])
    assert not kinds.keys() & {"SMUGGLED", "desync", "server-fault", "rejected-valid", "garbled-response"}, failed


@pytest.mark.parametrize(
    "split", ["whole", pytest.param("byte", marks=long_form), pytest.param("random", marks=long_form)]
)
async def test_http_requests_as_a_hardened_edge(impatient, tmp_path, measured, split):
    results, _ = await http_cases(impatient, tmp_path, "--profile", "hardened", "--split", split)
    failed = failures(results)
    measured(f"{len(results) - len(failed)} of {len(results)} cases")
    assert len(failed) <= 0.05 * len(results), failed
