"""The opening handshake (RFC 6455 section 4.1, RFC 7692 section 7.1): request, accepted responses, failures."""

import asyncio
import base64

import pytest

from harness.raw import frame, linger, read_head, says, upgrade
from harness.sanitizer import memory_is_judged
from harness.waiting import eventually

TEXT = 1


def upgrades(*fields, **options):
    async def behave(reader, writer):
        await upgrade(reader, writer, *fields, **options)
        await linger(reader)

    return behave


async def failed_session(gateway):
    """The session's document, once it reports a failed attempt."""

    async def reported():
        session = await gateway.client().session()
        return session if session["last_failure"] else None

    return await eventually(reported, what="the session reports a failure")


# -- The request -------------------------------------------------------------------------------------------------------


async def test_the_upgrade_request_follows_the_protocol(raw_upstream, gateway_for):
    heads = []

    async def behave(reader, writer):
        head, fields = await read_head(reader)
        heads.append((head.decode(), fields))
        writer.close()

    upstream = await raw_upstream(behave)
    await gateway_for(
        None,
        "--upstream",
        f"ws://127.0.0.1:{upstream.port}/chat?x=1",
        "--subprotocol",
        "one",
        "--subprotocol",
        "two",
        ready=False,
    )
    await eventually(lambda: len(heads) >= 2, what="two attempts")
    head, fields = heads[0]
    assert head.startswith("GET /chat?x=1 HTTP/1.1\r\n")
    assert fields["host"] == f"127.0.0.1:{upstream.port}"
    assert fields["upgrade"].lower() == "websocket"
    assert "upgrade" in fields["connection"].lower()
    assert fields["sec-websocket-version"] == "13"
    assert fields["sec-websocket-protocol"] == "one, two"
    assert fields["sec-websocket-extensions"].startswith("permessage-deflate")
    keys = [base64.b64decode(fields["sec-websocket-key"], validate=True) for _, fields in heads]
    assert all(len(key) == 16 for key in keys)
    assert keys[0] != keys[1], "a key must be new for each connection"


# -- Accepted responses
# --------------------------------------------------------------------------------------------------

FINE = {
    "as usual": {},
    "Upgrade in other letters": {"upgrade_field": "Upgrade: WebSocket"},
    "Connection as a list": {"connection_field": "Connection: keep-alive, Upgrade"},
    "Connection in two fields": {"connection_field": "Connection: keep-alive\r\nConnection: upgrade"},
    "another reason": {"status": "101 Web Socket Protocol Handshake"},
    "no reason": {"status": "101 "},
    "an offered subprotocol": {"fields": ["Sec-WebSocket-Protocol: two"]},
    "compression": {"fields": ["Sec-WebSocket-Extensions: permessage-deflate"]},
    "compression with parameters": {
        "fields": [
            "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; client_no_context_takeover;"
            ' server_max_window_bits="9"; client_max_window_bits=10'
        ]
    },
    "an interim response first": {"before": b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"},
    "fields that mean nothing here": {"fields": ["Server: x", "Date: now", "X-Frame-Options: DENY"]},
}


@pytest.mark.parametrize("name", FINE)
@pytest.mark.parametrize("dripped", [False, True], ids=["whole", "byte by byte"])
async def test_a_valid_response_is_accepted(name, dripped, raw_upstream, gateway_for):
    options = dict(FINE[name])

    async def behave(reader, writer):
        await upgrade(
            reader, writer, *options.pop("fields", []), then=frame(TEXT, b"hello"), dripped=dripped, **options
        )
        await linger(reader)

    upstream = await raw_upstream(behave)
    fields = FINE[name].get("fields", [""])[0]
    gateway = await gateway_for(upstream, "--subprotocol", "one", "--subprotocol", "two")
    assert (await gateway.client().collect(1, "earliest"))[0] == ["hello"]
    session = await gateway.client().session()
    assert session["subprotocol"] == ("two" if "Protocol" in fields else None)
    assert session["compression"] == ("permessage-deflate" in fields)


# -- Failures
# ------------------------------------------------------------------------------------------------------------

ACCEPT = "the Sec-WebSocket-Accept of the 101 response does not match our key"
EXTENSIONS = "the Sec-WebSocket-Extensions of the 101 response is not acceptable: "
PROTOCOL = "the Sec-WebSocket-Protocol of the 101 response is not acceptable: "
DEFLATE = "Sec-WebSocket-Extensions: permessage-deflate; "

REFUSED = {
    "no Upgrade": (upgrades(upgrade_field=""), "has no 'Upgrade: websocket'"),
    "Upgrade to something else": (upgrades(upgrade_field="Upgrade: h2c"), "has no 'Upgrade: websocket'"),
    "Upgrade to several things": (
        upgrades(upgrade_field="Upgrade: websocket, h2c"),
        "has no 'Upgrade: websocket'",
    ),
    "no Connection": (upgrades(connection_field=""), "has no 'Connection: Upgrade'"),
    "Connection without the token": (
        upgrades(connection_field="Connection: not-an-upgrade, close"),
        "has no 'Connection: Upgrade'",
    ),
    "no accept value": (upgrades(accept=""), ACCEPT),
    "another accept value": (upgrades(accept="s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), ACCEPT),
    "two accept values": (upgrades("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), ACCEPT),
    "HTTP/1.0": (upgrades(version="HTTP/1.0"), "is HTTP/1.0, which has no upgrade"),
    "an unoffered extension": (upgrades("Sec-WebSocket-Extensions: x-more"), EXTENSIONS + "'x-more' was not offered"),
    "two extensions": (
        upgrades("Sec-WebSocket-Extensions: permessage-deflate, x-more"),
        EXTENSIONS + "it accepts more extensions than were offered",
    ),
    "the extension field twice": (
        upgrades("Sec-WebSocket-Extensions: permessage-deflate", "Sec-WebSocket-Extensions: permessage-deflate"),
        EXTENSIONS + "the field is repeated",
    ),
    "an extension field that is none": (
        upgrades("Sec-WebSocket-Extensions: permessage-deflate;;"),
        EXTENSIONS + "'permessage-deflate;;' does not match the grammar of the field",
    ),
    "an unknown parameter": (upgrades(DEFLATE + "level=9"), EXTENSIONS + "permessage-deflate has no parameter level"),
    "a parameter twice": (
        upgrades(DEFLATE + "server_no_context_takeover; server_no_context_takeover"),
        EXTENSIONS + "parameter server_no_context_takeover is repeated",
    ),
    "a value where none belongs": (
        upgrades(DEFLATE + "client_no_context_takeover=1"),
        EXTENSIONS + "parameter client_no_context_takeover takes no value",
    ),
    "a window too small": (
        upgrades(DEFLATE + "server_max_window_bits=7"),
        EXTENSIONS + "parameter server_max_window_bits must be a number from 8 to 15",
    ),
    "a window too large": (
        upgrades(DEFLATE + "client_max_window_bits=16"),
        EXTENSIONS + "parameter client_max_window_bits must be a number from 8 to 15",
    ),
    "a window with a leading zero": (
        upgrades(DEFLATE + "client_max_window_bits=09"),
        EXTENSIONS + "parameter client_max_window_bits must be a number from 8 to 15",
    ),
    "a window without its number": (
        upgrades(DEFLATE + "server_max_window_bits"),
        EXTENSIONS + "parameter server_max_window_bits must be a number from 8 to 15",
    ),
    "an unoffered subprotocol": (upgrades("Sec-WebSocket-Protocol: other"), PROTOCOL + "'other' was not offered"),
    "several subprotocols": (upgrades("Sec-WebSocket-Protocol: one, two"), PROTOCOL + "'one, two' was not offered"),
    "a subprotocol in other letters": (upgrades("Sec-WebSocket-Protocol: ONE"), PROTOCOL + "'ONE' was not offered"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_an_invalid_101_is_refused_with_the_reason(name, raw_upstream, gateway_for):
    behave, expected = REFUSED[name]
    upstream = await raw_upstream(behave)
    gateway = await gateway_for(upstream, "--subprotocol", "one", "--subprotocol", "two", ready=False)
    session = await failed_session(gateway)
    assert expected in session["last_failure"]
    assert session["last_refusal"] == {"phase": "upgrading", "status": 101}
    # The status page shows the response, so that an operator can find the cause.
    refusal, _ = (await gateway.status_page()).refusal
    assert refusal[0] == "101 while upgrading"
    assert len(refusal) > 1
    await eventually(lambda: upstream.connections >= 2, what="the gateway reconnects")


async def test_compression_that_was_not_offered_is_refused(raw_upstream, gateway_for):
    upstream = await raw_upstream(upgrades("Sec-WebSocket-Extensions: permessage-deflate"))
    config = "upstream:\n  compression:\n    offer: false\n"
    session = await failed_session(await gateway_for(upstream, config=config, ready=False))
    assert "'permessage-deflate' was not offered" in session["last_failure"]


NOT_HTTP = {
    "another protocol": (b"220 mail.example ESMTP\r\n", "not valid HTTP: the status line is malformed"),
    "HTTP/2": (b"\x00\x00\x12\x04\x00\x00\x00\x00\x00", "not valid HTTP"),
    "a bare line feed": (b"HTTP/1.1 101 X\nUpgrade: websocket\n\n", "not valid HTTP: a line ends with LF only"),
    "a field without a colon": (b"HTTP/1.1 101 X\r\nnonsense\r\n\r\n", "has no colon"),
    "a folded field": (b"HTTP/1.1 101 X\r\nA: b\r\n c\r\n\r\n", "folded"),
    "a NUL": (b"HTTP/1.1 101 X\r\nA: \0\r\n\r\n", "byte 0 is not allowed"),
    "a head of 40 KiB": (b"HTTP/1.1 101 X\r\nA: " + b"x" * 40_000 + b"\r\n\r\n", "larger than 32768 bytes"),
    "101 fields": (b"HTTP/1.1 101 X\r\n" + b"A: b\r\n" * 101 + b"\r\n", "more than 100 header fields"),
    "endless interim responses": (b"HTTP/1.1 102 Processing\r\n\r\n" * 50, "more than 8 interim responses"),
}


@pytest.mark.parametrize("name", NOT_HTTP)
async def test_an_invalid_response_is_reported(name, raw_upstream, gateway_for):
    data, expected = NOT_HTTP[name]
    upstream = await raw_upstream(says(data))
    session = await failed_session(await gateway_for(upstream, ready=False))
    assert expected in session["last_failure"]


def endless(piece):
    async def behave(reader, writer):
        await read_head(reader)
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\n")
        while not writer.is_closing():
            writer.write(piece)
            await writer.drain()

    return behave


@pytest.mark.parametrize(
    ("piece", "expected"),
    [
        (b"X-More: " + b"y" * 1000 + b"\r\n", "larger than 32768 bytes"),
        (b"y" * 4096, "larger than 32768 bytes"),
        (b"A:\r\n", "more than 100 header fields"),
    ],
    ids=["fields", "a line", "many small fields"],
)
async def test_an_endless_head_ends_the_attempt(piece, expected, raw_upstream, gateway_for):
    upstream = await raw_upstream(endless(piece))
    gateway = await gateway_for(upstream, ready=False)
    before = gateway.memory()
    assert expected in (await failed_session(gateway))["last_failure"]
    await eventually(lambda: upstream.connections >= 3, what="the gateway reconnects")
    memory_is_judged()
    assert gateway.memory() < before + (4 << 20)


async def test_a_slow_head_ends_the_attempt_at_the_timeout(raw_upstream, gateway_for):
    async def behave(reader, writer):
        await read_head(reader)
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nX: ")
        while not writer.is_closing():
            writer.write(b"y")
            await writer.drain()
            await asyncio.sleep(0.02)

    upstream = await raw_upstream(behave)
    config = f"upstream:\n  url: {upstream.url}\n  timeouts:\n    opening: 400ms\n"
    session = await failed_session(await gateway_for(None, config=config, ready=False))
    assert (
        session["last_failure"]
        == "the upstream did not respond to the opening request within 0.4 s ('upstream.timeouts.opening')"
    )


@pytest.mark.parametrize(
    ("key", "limits"), [("upgrade", "{upgrade: 300ms}"), ("opening", "{upgrade: 1m, opening: 300ms}")]
)
async def test_the_error_names_the_timeout_that_passed(key, limits, raw_upstream, gateway_for):
    async def never_respond(reader, writer):
        await reader.read()

    upstream = await raw_upstream(never_respond)
    config = f"upstream:\n  url: {upstream.url}\n  timeouts: {limits}\n"
    session = await failed_session(await gateway_for(None, config=config, ready=False))
    assert session["last_failure"] == (
        f"the upstream did not respond to the opening request within 0.3 s ('upstream.timeouts.{key}')"
    )


# -- Refusals ----------------------------------------------------------------------------------------------------------


async def refusal_of(data, raw_upstream, gateway_for, *, close=False):
    async def behave(reader, writer):
        await read_head(reader)
        writer.write(data)
        await writer.drain()
        if not close:
            await linger(reader)

    gateway = await gateway_for(await raw_upstream(behave), ready=False)
    session = await failed_session(gateway)
    assert session["last_refusal"].keys() == {"phase", "status"}, "all else is on the status page"
    return session["last_failure"], (await gateway.status_page()).refusal


BODY = "<h1>No, because…</h1>"


@pytest.mark.parametrize(
    ("framing", "body", "close"),
    [
        (f"Content-Length: {len(BODY.encode())}", BODY.encode(), False),
        ("Transfer-Encoding: chunked", b"4\r\n<h1>\r\n13\r\n" + BODY.encode()[4:] + b"\r\n0\r\n\r\n", False),
        ("Connection: close", BODY.encode(), True),
    ],
    ids=["length", "chunks", "end"],
)
async def test_a_refusal_is_reported_with_status_fields_and_body(framing, body, close, raw_upstream, gateway_for):
    head = f"HTTP/1.1 403 Forbidden\r\nX-Reason: quota\r\nSet-Cookie: id=secret\r\n{framing}\r\n\r\n"
    failure, (lines, body) = await refusal_of(head.encode() + body, raw_upstream, gateway_for, close=close)
    assert failure == f"the upstream responded with 403 Forbidden instead of 101 Switching Protocols: {BODY}"
    assert lines == ["403 while upgrading", "X-Reason: quota", framing]
    assert body == BODY


async def test_the_first_4_kib_of_a_long_body_are_reported(raw_upstream, gateway_for):
    data = b"HTTP/1.1 500 Oops\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 1_000_000
    _, (_, body) = await refusal_of(data, raw_upstream, gateway_for)
    assert body == "x" * 4096


async def test_a_body_that_does_not_arrive_delays_the_report_only_briefly(raw_upstream, gateway_for):
    data = b"HTTP/1.1 500 Oops\r\nContent-Length: 100\r\n\r\nonly this"
    failure, (_, body) = await refusal_of(data, raw_upstream, gateway_for)
    assert failure.startswith("the upstream responded with 500 Oops")
    assert body == "only this"


async def test_a_refusal_that_repeats_secrets_is_reported_without_them(raw_upstream, gateway_for, tmp_path):
    """Some error pages repeat the whole request, cut off at any byte."""

    async def echoes(reader, writer):
        head, fields = await read_head(reader)
        body = head.decode().replace("\r\n", " | ") + base64.b64decode(fields["x-basic"].split()[1]).decode()
        body += "." * (4096 - len(body) - 8) + "tok-3n-of-a-file"
        writer.write(f"HTTP/1.1 403 No, tok-3n-of-a-file\r\nX-Echo: {fields['x-key']}\r\n".encode())
        writer.write(f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
        await writer.drain()
        await linger(reader)

    upstream = await raw_upstream(echoes)
    (tmp_path / "token").write_text("tok-3n-of-a-file\n")
    basic = base64.b64encode(b"ann:pass-word").decode()
    config = (
        f"upstream:\n  url: ws://bob:s3cr%65t@127.0.0.1:{upstream.port}/chat?key=que%72y-key\n"
        f"  headers: ['X-Key: header-key', 'X-Basic: Basic {basic}']\n"
        f"  credential: {{file: {tmp_path}/token, query: token}}\n"
    )
    gateway = await gateway_for(None, config=config, ready=False)
    session = await failed_session(gateway)
    expected = (
        "the upstream responded with 403 No, *** instead of 101 Switching Protocols: GET /chat?key=***&token=*** HTTP"
    )
    assert session["last_failure"].startswith(expected)
    lines, body = (await gateway.status_page()).refusal
    assert "X-Echo: ***" in lines
    assert "GET /chat?key=***&token=*** HTTP/1.1" in body
    assert body.endswith(".***")
    shown = gateway.output + (await gateway.status_page()).text + str(session)
    secrets = ["tok-3n", "header-key", basic, "ery-key", "s3cr", base64.b64encode(b"bob:s3cret").decode()]
    assert [secret for secret in secrets if secret in shown] == []


async def test_a_close_reason_with_part_of_a_secret_is_masked(raw_upstream, gateway_for):
    """A close frame has 123 bytes for the reason, so an upstream that repeats a long credential cuts off its end."""
    secret = "tok-3n-" + "0123456789" * 30

    async def closes(reader, writer):
        await upgrade(reader, writer)
        reason = f"invalid token {secret}".encode()[:123]
        writer.write(frame(8, (4001).to_bytes(2, "big") + reason))
        await writer.drain()
        await linger(reader)

    upstream = await raw_upstream(closes)
    config = f"upstream:\n  url: {upstream.url}\n  headers: ['Authorization: Bearer {secret}']\n"
    gateway = await gateway_for(None, config=config, ready=False)
    session = await failed_session(gateway)
    assert session["last_failure"].endswith("closed the connection with 4001: invalid token ***")
    assert "tok-3n" not in gateway.output + str(session)


# -- Frames after the response -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [0, 1, 2, 5, 7])
async def test_frames_in_the_same_segment_as_the_101_are_read(cut, raw_upstream, gateway_for):
    frames = frame(TEXT, b"first") + frame(TEXT, b"second")

    async def behave(reader, writer):
        await upgrade(reader, writer, then=frames[: len(frames) - cut])
        writer.write(frames[len(frames) - cut :])
        await writer.drain()
        await linger(reader)

    gateway = await gateway_for(await raw_upstream(behave))
    assert (await gateway.client().collect(2, "earliest"))[0] == ["first", "second"]
