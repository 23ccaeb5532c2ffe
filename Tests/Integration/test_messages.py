"""Messages both ways, byte for byte, over ws and wss, with and without permessage-deflate."""

import json
import os
import random

import pytest

from harness.raw import exchange
from harness.upstream import Upstream

MEBIBYTE = 1 << 20

TEXTS = {
    "a word": "hello",
    "one byte": "x",
    "empty": "",
    "every plane of Unicode": "ASCII é ☃ 𝄞 \u0000 \u007f \uffff \U0010ffff",
    "looks like JSON": '{"a": [1, 2.50, 1e400, "\\u0041"], "a": null}',
    "quotes, backslashes, control characters": '"\\\b\f\n\r\t\x01\x1f</script>\u2028',
}

BINARIES = {
    "one byte": b"\x00",
    "empty": b"",
    "every byte": bytes(range(256)),
    "not UTF-8": b"\xff\xfe\xc0\xaf",
}

# Lengths on both sides of every boundary of the frame header (RFC 6455 section 5.2).
LENGTHS = (1, 2, 3, 124, 125, 126, 127, 128, 65534, 65535, 65536, 65537)


def as_told(message):
    """The form of a message in a response: valid JSON becomes its value, and other text stays unchanged."""
    try:
        return json.loads(message) if isinstance(message, str) else message
    except ValueError:
        return message


def ten_mebibytes_of_text():
    """One part repeats and one part does not, so compression meets both. Multi-byte characters begin at odd offsets."""
    generator = random.Random(1)
    noise = "".join(chr(generator.choice((generator.randint(32, 126), 0xE9, 0x2603, 0x1D11E))) for _ in range(MEBIBYTE))
    text = noise + "the same again, é " * (10 * MEBIBYTE // 18)
    encoded = text.encode()[: 10 * MEBIBYTE]
    return encoded.decode(errors="ignore").ljust(10)


def ten_mebibytes():
    return random.Random(2).randbytes(5 * MEBIBYTE) + bytes(5 * MEBIBYTE)


@pytest.fixture(params=["ws", "wss", "ws without compression"])
async def peers(request, start, gateway_for, authority, certificate):
    """An upstream and a ready gateway, for each kind of connection."""
    match request.param:
        case "ws":
            upstream = await start(Upstream())
        case "ws without compression":
            upstream = await start(Upstream(compression=None))
        case "wss":
            upstream = await start(Upstream(certificate=certificate))
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_UPSTREAM_TLS_CA_FILE": str(authority.path)})
    return upstream, gateway.client()


async def test_posts_reach_the_upstream_byte_for_byte(peers):
    upstream, client = peers
    sent = [*TEXTS.values(), *BINARIES.values(), *(os.urandom(n) for n in LENGTHS), *("y" * n for n in LENGTHS)]
    for message in sent:
        await client.accepted(message)
    assert await upstream.has_received(len(sent)) == sent


async def test_pushes_reach_a_poll_byte_for_byte(peers):
    upstream, client = peers
    pushed = [*TEXTS.values(), *BINARIES.values(), *(os.urandom(n) for n in LENGTHS), *("y" * n for n in LENGTHS)]
    cursor = await client.here()
    await upstream.push(*pushed)
    payloads, _ = await client.collect(len(pushed), cursor)
    assert payloads == [as_told(message) for message in pushed]


@pytest.mark.parametrize("make", [ten_mebibytes_of_text, ten_mebibytes])
async def test_ten_mebibytes_pass_each_way(peers, make):
    upstream, client = peers
    message = make()
    await client.accepted(message)
    assert (await upstream.has_received(1))[0] == message

    cursor = await client.here()
    await upstream.push(message)
    payloads, _ = await client.collect(1, cursor)
    assert payloads == [message]


async def test_a_message_in_many_fragments_is_one_message(peers):
    upstream, client = peers
    cursor = await client.here()

    async def fragments():
        for piece in ("", "one, ", "", "two é ", "☃", ""):
            yield piece

    await upstream.push(fragments())
    payloads, _ = await client.collect(1, cursor)
    assert payloads == ["one, two é ☃"]


async def test_text_that_is_json_appears_as_json(peers):
    upstream, client = peers
    cursor = await client.here()
    await upstream.push('{"price": 12.50, "tags": ["a", null]}', "[1,", "7", '"quoted"')
    batch = await client.poll(cursor=cursor, wait=10)
    while len(batch.messages) < 4:
        more = await client.poll(cursor=batch.cursor, wait=10)
        batch.messages += more.messages
        batch.cursor = more.cursor
    assert batch.payloads == [{"price": 12.5, "tags": ["a", None]}, "[1,", 7, "quoted"]
    assert [message["type"] for message in batch.messages] == ["json", "text", "json", "json"]


@pytest.mark.parametrize(
    ("type", "kind"),
    [
        ("text/plain", str),
        ("text/xml; charset=utf-8", str),
        ("application/json", str),
        ("APPLICATION/JSON", str),
        ("application/x-www-form-urlencoded", str),
        ("application/atom+xml", str),
        ("application/octet-stream", bytes),
        ("image/png", bytes),
    ],
)
async def test_the_content_type_decides_between_text_and_binary(upstream, client, type, kind):
    await client.accepted(b"[1]", type=type)
    received = (await upstream.has_received(1))[0]
    assert isinstance(received, kind)


async def test_text_that_is_not_utf8_is_refused(client, upstream):
    (await client.send(b"caf\xe9", type="text/plain")).problem(400)
    await client.accepted(b"caf\xc3\xa9", type="text/plain")
    assert await upstream.has_received(1) == ["café"]


async def test_a_message_over_the_limit_is_refused_whole(client, upstream):
    (await client.send(bytes(17 * MEBIBYTE))).problem(413)
    await client.accepted("still here")
    assert await upstream.has_received(1) == ["still here"]


async def test_the_response_to_a_post_has_the_id_of_the_message(client):
    response = await client.send("hello")
    assert response.status == 202
    told = response.json
    assert told["id"]
    assert told["state"]
    assert told["session"]
    other = await client.accepted("hello")
    assert other["id"] != told["id"]


@pytest.mark.parametrize("topic", [b"\xe9", b"", b"x" * 129, b"a\tb"])
async def test_a_topic_is_printable_ascii(gateway, topic):
    request = b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTopic: " + topic + b"\r\n\r\na"
    response = await exchange(gateway.address(), request, end_of_input=True)
    assert response.statuses == [400]
    assert b"Topic" in response.data
