"""The commands of docs/socketio.md, as they are printed there, against `drawbridge demo --kind socketio`."""

import asyncio
import json
import re

import pytest_asyncio

from harness.gateway import PROJECT, Gateway

EXAMPLES = dict(
    re.findall(r"<!-- example: (\w+) -->\n```sh\n(.*?)```", (PROJECT / "docs/socketio.md").read_text(), re.DOTALL)
)


async def shell(command, url):
    process = await asyncio.create_subprocess_shell(
        f"set -e; URL={url}\n{command}", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err
    return [json.loads(line) for line in out.decode().splitlines() if line.strip()]


@pytest_asyncio.fixture
async def demo(start):
    gateway = await start(Gateway("--kind", "socketio", command="demo"))
    await gateway.ready()
    return gateway


async def test_the_examples_of_the_page_work(demo):
    assert EXAMPLES.keys() == {"receive", "filter", "emit", "envelope", "call"}
    (reply,) = await shell(EXAMPLES["call"].replace("curl", "curl -s"), demo.url())
    # The demo acknowledges with the arguments of the event.
    assert reply == {"args": [1, 2], "attachments": []}
    accepted = await shell(EXAMPLES["emit"].replace("curl", "curl -s"), demo.url())
    accepted += await shell(EXAMPLES["envelope"].replace("curl", "curl -s"), demo.url())
    assert [response["type"] for response in accepted] == ["event"] * 3

    async def chats():
        for _ in range(1000):
            (batch,) = await shell(EXAMPLES["receive"].replace("curl", "curl -s"), demo.url())
            messages = [m for m in batch["messages"] if m["topic"] == "chat"]
            if len(messages) == 3:
                return messages
        raise AssertionError(batch)

    messages = await chats()
    assert [m["data"] for m in messages] == [["hello"], [{"n": 1}], ["hi", {"file": {"_placeholder": True, "num": 0}}]]
    assert messages[2]["attachments"] == ["AQID"]
    (filtered,) = await shell(
        EXAMPLES["filter"].replace("curl", "curl -s").replace("&topic", "&wait=0&topic"), demo.url()
    )
    assert filtered["messages"] == []
