"""Conformance cases collected from other projects, run against the gateway, where the corpora are present.

They lie beside the project, in ../shared or where DRAWBRIDGE_CORPORA points, and are not part of it. The short form is
part of `make test`; DRAWBRIDGE_CORPORA_SPLITS=1 also sends every case byte by byte and cut at random, for minutes.
"""

import asyncio
import base64
import collections
import contextlib
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


def strictly(text):
    """What a JSON text means, numbers as they are written; NaN and the like are no JSON."""

    def refuse(word):
        raise ValueError(word)

    return json.loads(text, parse_int=str, parse_float=str, parse_constant=refuse)


async def test_json_of_the_upstream_is_told_from_text_that_only_looks_like_it(gateway, upstream, measured):
    """Where this gateway judges JSON: a push that is JSON stands in answers as it is, any other as a string."""
    cases = [json.loads(line) for line in (SHARED / "corpora/json_corpus.jsonl").read_text().splitlines()]
    texts = []
    for case in cases:
        with contextlib.suppress(UnicodeDecodeError):
            texts.append((case["id"], case["expect"], base64.b64decode(case["bytes_base64"]).decode()))
    client = gateway.client()
    cursor = await client.here()
    await upstream.push(*(text for _, _, text in texts))
    wrong = []
    for name, expect, text in texts:
        answer = await client.get(cursor=cursor, limit=1, max_bytes=1)
        assert answer.status == 200
        # Whatever was pushed, the answer itself must be JSON.
        batch = strictly(answer.body.decode())
        cursor = answer.headers["Gateway-Cursor"]
        (message,) = batch["messages"]
        as_json = message["data"] != text
        if expect == "accept" and message["data"] != strictly(text):
            wrong.append((name, "valid JSON was changed or told as a string"))
        if expect == "reject" and as_json:
            wrong.append((name, "what is no JSON was told as such"))
    measured(f"{len(texts) - len(wrong)} of {len(texts)} texts")
    assert len(texts) > 250
    assert wrong == []
