"""Conformance cases collected from other projects, run against the gateway if the corpora are present.

The corpora are beside the project, in ../shared or where DRAWBRIDGE_CORPORA points, and are not part of it. By default,
every case is sent whole. Each other combination of profile and split gets a quarter of the cases, so that every case is
also sent in pieces once. DRAWBRIDGE_CORPORA_SPLITS=1 sends every case in every combination, which takes minutes.
"""

import asyncio
import base64
import collections
import contextlib
import gzip
import json
import os
import sys
from pathlib import Path

import pytest
import pytest_asyncio

from harness.gateway import PROJECT

SHARED = Path(os.environ.get("DRAWBRIDGE_CORPORA", PROJECT.parent / "shared"))
RUN_HTTP1 = SHARED / "tools/run_http1.py"

HTTP1_CORPUS = SHARED / "corpora/http1_public.jsonl.gz"
ALL_SPLITS = bool(os.environ.get("DRAWBRIDGE_CORPORA_SPLITS"))

# The quarter of the cases that a combination sends by default. The four quarters take about as long as one whole run.
QUARTERS = {("rfc", "byte"): 0, ("rfc", "random"): 1, ("hardened", "byte"): 2, ("hardened", "random"): 3}

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not RUN_HTTP1.exists(), reason=f"the corpora are not at {SHARED}"),
]

# Several cases run at once, since a case waits for silence most of its time.
JOBS = "8"


async def run(*command):
    process = await asyncio.create_subprocess_exec(
        sys.executable, *map(str, command), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await process.communicate()
    return process.returncode, out.decode()


def corpus_for(profile, split, folder):
    """The file of the cases that this combination sends."""
    if ALL_SPLITS or split == "whole":
        return HTTP1_CORPUS
    with gzip.open(HTTP1_CORPUS, "rt") as file:
        cases = file.readlines()[QUARTERS[profile, split] :: len(QUARTERS)]
    path = folder / "corpus.jsonl.gz"
    with gzip.open(path, "wt") as file:
        file.writelines(cases)
    return path


async def http_cases(gateway, folder, profile, split):
    """Runs the HTTP/1.1 corpus. Returns the results by case, and the output for the report."""
    results = folder / "results.json"
    options = ("--profile", profile, "--split", split, "--corpus", corpus_for(profile, split, folder))
    host, port = gateway.address()
    # Many cases request PATH?something. This is valid HTTP, but the API refuses the unknown parameter.
    application = ("--path", "/v1/messages", "--app-400", "/errors/invalid-(parameter|text)")
    status, out = await run(RUN_HTTP1, host, port, *application, "--jobs", JOBS, "--json", results, *options)
    assert status in (0, 1), out[-4000:]
    return json.loads(results.read_text())["results"], out


@pytest_asyncio.fixture
async def impatient(gateway_for, upstream):
    """A gateway that holds no poll: it responds to a GET at once, as the corpus expects."""
    return await gateway_for(upstream, env={"DRAWBRIDGE_DELIVERY_WAIT": "0s"})


def failures(results):
    return [(case["id"], case["level"], case["kind"], case["detail"][:100]) for case in results if not case["ok"]]


@pytest.mark.parametrize("split", ["whole", "byte", "random"])
async def test_requests_of_the_corpus_follow_the_rfc(impatient, tmp_path, measured, split):
    results, out = await http_cases(impatient, tmp_path, "rfc", split)
    failed = failures(results)
    assert len(results) > 150
    measured(f"{len(results) - len(failed)} of {len(results)} cases")
    assert [case for case in failed if case[1] == "must"] == [], out[-2000:]
    assert len(failed) <= 0.02 * len(results), failed
    kinds = collections.Counter(case["kind"] for case in results if not case["ok"])
    assert not kinds.keys() & {"SMUGGLED", "desync", "server-fault", "rejected-valid", "garbled-response"}, failed


@pytest.mark.parametrize("split", ["whole", "byte", "random"])
async def test_requests_of_the_corpus_follow_the_rules_of_a_hardened_edge(impatient, tmp_path, measured, split):
    results, _ = await http_cases(impatient, tmp_path, "hardened", split)
    failed = failures(results)
    assert len(results) > 150
    measured(f"{len(results) - len(failed)} of {len(results)} cases")
    assert len(failed) <= 0.05 * len(results), failed


def strictly(text):
    """The value of a JSON text, with numbers as they are written. Raises ValueError for NaN and infinities."""

    def refuse(word):
        raise ValueError(word)

    return json.loads(text, parse_int=str, parse_float=str, parse_constant=refuse)


async def test_valid_json_of_the_upstream_is_distinguished_from_similar_text(gateway, upstream, measured):
    """Compares the gateway with a parser: responses contain a JSON push as JSON, and any other push as a string."""
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
        response = await client.get(cursor=cursor, limit=1, max_bytes=1)
        assert response.status == 200
        # The response itself must be valid JSON for any push.
        batch = strictly(response.body.decode())
        cursor = response.headers["Gateway-Cursor"]
        (message,) = batch["messages"]
        as_json = message["data"] != text
        if expect == "accept" and message["data"] != strictly(text):
            wrong.append((name, "valid JSON was changed or reported as a string"))
        if expect == "reject" and as_json:
            wrong.append((name, "text that is not JSON was reported as JSON"))
    measured(f"{len(texts) - len(wrong)} of {len(texts)} texts")
    assert len(texts) > 250
    assert wrong == []
