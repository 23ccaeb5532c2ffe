"""Pushes that are too large for a turn of an event loop arrive unchanged and in order."""

import asyncio
import base64
import gzip
import json
import os

import pytest

from harness.scripted import Script
from harness.store import storing

# `DRAWBRIDGE_TEST_PUSH_BYTES` makes the pushes larger, to measure the turns of the loop.
SIZE = int(os.environ.get("DRAWBRIDGE_TEST_PUSH_BYTES", "2000000"))

CONTENTS = {
    "text": "word é " * (SIZE // 8),
    "lines": "\n" * SIZE,
    "string": json.dumps("x" * SIZE),
    "numbers": "[" + "1," * (SIZE // 2 - 2) + "2]",
    "members": json.dumps({f"member {number}": number for number in range(SIZE // 30)}),
    "escapes": json.dumps("\n" * (SIZE // 2 - 2)),
    "binary": bytes(range(256)) * (SIZE // 256),
}


def data(content):
    """`data` of a push with this content."""
    try:
        return json.loads(content)
    except ValueError:
        return content


async def payloads(client, count, **parameters):
    cursor = "earliest"
    received = []
    while len(received) < count:
        batch = await client.poll(cursor=cursor, wait=20, **parameters)
        assert batch.messages, "no push arrives"
        assert batch.gap is None
        received += batch.payloads
        cursor = batch.cursor
    return received


@pytest.mark.parametrize("kind", CONTENTS)
@pytest.mark.parametrize("is_stored", [False, True], ids=["memory", "store"])
async def test_a_large_push_arrives_between_small_pushes(kind, is_stored, gateway_for, upstream, tmp_path):
    gateway = await gateway_for(upstream, "--loops", "1", env=storing(tmp_path / "store") if is_stored else None)
    await upstream.push("before", CONTENTS[kind], "after", CONTENTS[kind], "last")
    client = gateway.client()
    content = data(CONTENTS[kind])
    assert await payloads(client, 5) == ["before", content, "after", content, "last"]


@pytest.mark.parametrize("kind", ["text", "numbers", "binary"])
async def test_a_push_that_the_upstream_has_compressed_itself(kind, gateway_for, upstream):
    gateway = await gateway_for(upstream, config="upstream: {payload_codec: gzip}")
    content = CONTENTS[kind].encode() if isinstance(CONTENTS[kind], str) else CONTENTS[kind]
    await upstream.push(gzip.compress(content, 1), gzip.compress(b"after"))
    assert await payloads(gateway.client(), 2) == [data(CONTENTS[kind]), "after"]


async def test_a_large_push_has_its_topic(gateway_for, upstream):
    config = 'upstream: {topic: {pointer: /topic}, failure: [{match: {json: {/end: "1"}}, cause: it has ended}]}'
    gateway = await gateway_for(upstream, config=config)
    content = {**json.loads(CONTENTS["members"]), "topic": "large"}
    await upstream.push(json.dumps({"topic": "small"}), json.dumps(content))
    assert await payloads(gateway.client(), 1, topic="large") == [content]


@pytest.mark.parametrize("ids", ["string", "sequence"])
async def test_the_large_reply_to_a_call(ids, gateway_for, upstream):
    config = f"upstream: {{correlation: {{protocol: jsonrpc, ids: {ids}}}}}"
    gateway = await gateway_for(upstream, config=config)
    client = gateway.client()
    request = {"jsonrpc": "2.0", "method": "m", "params": CONTENTS["members"], "id": "mine"}
    task = asyncio.create_task(client.request("POST", "/v1/call?wait=30", json=request))
    sent = json.loads((await upstream.has_received(1))[0])
    assert sent == {**request, "id": sent["id"]}
    result = json.loads(CONTENTS["members"])
    await upstream.push(json.dumps({"jsonrpc": "2.0", "result": result, "id": sent["id"]}), "after")
    assert (await task).json == {"jsonrpc": "2.0", "result": result, "id": "mine"}
    assert await payloads(client, 1) == ["after"]


@pytest.mark.parametrize("acknowledgements", ["off", "stored", "client"])
async def test_large_events_of_socketio(acknowledgements, scripted):
    text, numbers = "x" * SIZE, json.loads(CONTENTS["numbers"])
    parts = [os.urandom(200_000) for _ in range(5)]

    async def play(conversation):
        await conversation.say(
            '42["small"]', "42" + json.dumps(["text", text]), "42" + json.dumps(["numbers", numbers])
        )
        places = [{"_placeholder": True, "num": number} for number in range(len(parts))]
        # No part is large, but the event is.
        await conversation.say(f"45{len(parts)}-7" + json.dumps(["parts", *places]), *parts)
        await conversation.say('42["last"]')

    options = {"attachments": len(parts), "acks": acknowledgements}
    _, _, client = await scripted(Script(play), **options)
    cursor, messages = "earliest", []
    while len(messages) < 5:
        batch = await client.poll(cursor=cursor, wait=20)
        messages, cursor = messages + batch.messages, batch.cursor
    assert [message["topic"] for message in messages] == ["small", "text", "numbers", "parts", "last"]
    assert messages[1]["data"] == [text]
    assert messages[2]["data"] == [numbers]
    assert [base64.b64decode(part) for part in messages[3]["attachments"]] == parts
    assert ("ack" in messages[3]) == (acknowledgements == "client")
