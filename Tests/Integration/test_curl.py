"""The commands that people type: the commands of the README and of the docs, with the real curl."""

import asyncio
import json
import re
import shlex

import pytest

from harness.gateway import PROJECT

PAGES = ["README.md", *(f"docs/{name}.md" for name in ("getting-started", "sending", "receiving", "operations"))]


def lines(page):
    """Each `curl …` in a sentence or a table, and each line of a block that is a complete command."""
    text = (PROJECT / page).read_text()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    commands = "\n".join(block for language, block in blocks if language in ("", "sh"))
    found = re.findall(r"`(curl [^`]+)`", text)
    found += re.findall(r"^(?:\$ )?(curl [^\\|;$]+?)(?: {2,}#.*)?$", commands, re.MULTILINE)
    return list(dict.fromkeys(line for line in found if "localhost" in line))


LINES = [(page, line) for page in PAGES for line in lines(page)]


async def run(*command, folder=None):
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0, err.decode()
    return out


async def first_bytes(*arguments):
    """The first output of a program that does not end by itself."""
    process = await asyncio.create_subprocess_exec(*arguments, stdout=asyncio.subprocess.PIPE)
    try:
        return await asyncio.wait_for(process.stdout.read(1024), 30)
    finally:
        process.kill()
        await process.wait()


async def test_curl_posts_and_polls_from_the_earliest_message(gateway, upstream, curl):
    told = json.loads(await run(curl, "-sS", "-d", "hello", f"{gateway.url()}/v1/messages"))
    assert told["id"]
    assert await upstream.has_received(1) == ["hello"]
    await upstream.push("hello, curl")
    response = json.loads(await run(curl, "-sS", f"{gateway.url()}/v1/messages?cursor=earliest"))
    assert [message["data"] for message in response["messages"]] == ["hello, curl"]


async def test_a_large_post_of_curl_expects_100_continue(gateway, upstream, curl, tmp_path):
    # Above a mebibyte, curl sends 'Expect: 100-continue' and waits for the response.
    body = tmp_path / "body"
    body.write_bytes(bytes(range(256)) * 8192)
    headers = ("-H", "Content-Type: application/octet-stream", "-H", "Expect: 100-continue")
    out = await run(curl, "-sS", *headers, "--data-binary", f"@{body}", f"{gateway.url()}/v1/messages")
    assert json.loads(out)["id"]
    assert await upstream.has_received(1) == [body.read_bytes()]


async def test_a_curl_that_keeps_the_etag_misses_no_push(gateway, upstream, curl, tmp_path):
    position = tmp_path / "position"
    poll = [curl, "-sS", "--etag-compare", position, "--etag-save", position, f"{gateway.url()}/v1/messages?wait=0"]
    # Without a stored position, curl sends `If-None-Match: ""`. It stores the tag of a 200 response, but not of a 304
    # response.
    assert json.loads(await run(*poll))["gap"] is None
    assert await run(*poll) == b""
    await upstream.push("first")
    response = json.loads(await run(*poll[:-1], poll[-1].replace("wait=0", "wait=20")))
    assert ([message["data"] for message in response["messages"]], response["gap"]) == (["first"], None)


async def test_an_http_1_0_client_is_served(gateway, curl):
    out = await run(curl, "-sS", "--http1.0", "-i", f"{gateway.url()}/v1/messages?wait=0")
    assert out.startswith((b"HTTP/1.1 200 ", b"HTTP/1.0 200 "))


async def test_one_connection_serves_many_requests(gateway, curl):
    urls = [f"{gateway.url()}/v1/messages?wait=0"] * 5
    discard = [word for _ in urls for word in ("-o", "/dev/null")]
    counts = (await run(curl, "-sS", "-w", "%{num_connects}\n", *discard, *urls)).split()
    assert counts == [b"1", b"0", b"0", b"0", b"0"]


@pytest.mark.parametrize("page", PAGES)
def test_every_page_has_an_example_with_curl(page):
    assert len(lines(page)) >= 4


@pytest.mark.parametrize(("page", "line"), LINES)
async def test_every_command_of_the_page_works(page, line, gateway, curl, tmp_path):
    client = gateway.client()
    (tmp_path / "file").write_bytes(b"\x00\xff")
    (tmp_path / "lines").write_text('"one"\n{"two": 2}\n')
    line = re.sub(r"(?<=/deliveries/)[\w.-]+", (await client.accepted("before"))["id"], line)
    line = line.replace("CURSOR", await client.here()).replace("localhost:8080", "{}:{}".format(*gateway.address()))
    line = line.replace("localhost:9090", "{}:{}".format(*gateway.address("management")))
    words = shlex.split(line)[1:]
    if not any(word in words for word in ("-d", "--data-binary", "-N")):
        # Without `wait=0` a poll would wait for a push.
        words = [re.sub(r"/v1/messages\??", "/v1/messages?wait=0&", word) for word in words]
    if "-N" in words:
        assert b"retry: 2000\n" in await first_bytes(curl, *words)
        return
    out = await run(curl, "-sS", "-w", "\n%{http_code}", *words, folder=tmp_path)
    # A poll for one payload may find no push.
    assert out.splitlines()[-1] in (b"200", b"202", *([b"204"] if "Accept: text/plain" in line else [])), out
