"""Compressed bodies of POST (RFC 9110 section 8.4). The unpacked body is the message. Other bodies are refused."""

import gzip

import pytest

TEXT = "packed, and unpacked again: " + "ä" * 5000


async def post(client, body, coding, type="text/plain"):
    return await client.request(
        "POST", "/v1/messages", data=body, headers=[("Content-Type", type), *(("Content-Encoding", c) for c in coding)]
    )


@pytest.mark.parametrize("coding", [["gzip"], ["x-gzip"], ["GZIP"], ["identity, gzip"], ["identity", "gzip"]])
async def test_a_packed_message_arrives_unpacked(coding, client, upstream):
    assert (await post(client, gzip.compress(TEXT.encode()), coding)).status == 202
    assert await upstream.has_received(1) == [TEXT]


async def test_consecutive_gzip_members_are_one_message(client, upstream):
    packed = gzip.compress(TEXT.encode()) + gzip.compress(b", and more")
    assert (await post(client, packed, ["gzip"])).status == 202
    assert await upstream.has_received(1) == [TEXT + ", and more"]


@pytest.mark.parametrize("coding", [["identity"], ["identity", "identity"], [""]])
async def test_identity_content_codings_are_accepted(coding, client, upstream):
    assert (await post(client, TEXT.encode(), coding)).status == 202
    assert await upstream.has_received(1) == [TEXT]


REFUSED = {
    "another coding": (TEXT.encode(), ["br"], 415, "gzip, once, or identity"),
    "two codings": (gzip.compress(TEXT.encode()), ["br, gzip"], 415, "gzip, once, or identity"),
    "gzip twice": (gzip.compress(gzip.compress(TEXT.encode())), ["gzip, gzip"], 415, "gzip, once, or identity"),
    "gzip in two fields": (gzip.compress(gzip.compress(b"x")), ["gzip", "gzip"], 415, "gzip, once, or identity"),
    "what is not gzip": (TEXT.encode(), ["gzip"], 415, "not gzip data"),
    "gzip that is cut off": (gzip.compress(TEXT.encode())[:-4], ["gzip"], 415, "is incomplete"),
    "nothing": (b"", ["gzip"], 415, "is incomplete"),
    "something behind gzip": (gzip.compress(TEXT.encode()) + b"!", ["gzip"], 415, "not gzip data"),
    "a bomb": (gzip.compress(bytes(17 << 20)), ["gzip"], 413, "http.inflation_ratio"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_a_body_that_cannot_be_unpacked_is_refused_with_the_reason(name, client, upstream):
    body, coding, status, told = REFUSED[name]
    assert told in (await post(client, body, coding)).problem(status)["detail"]
    await client.accepted("honest")
    assert await upstream.has_received(1) == ["honest"]
