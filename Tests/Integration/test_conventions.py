"""Openings, heartbeats, payload codecs and cursors: conventions of upstreams beyond WebSocket itself."""

import asyncio
import base64
import gzip
import hashlib
import hmac
import json
import signal
import urllib.parse
import uuid
import zlib

import pytest

from harness.conventions import ConventionUpstream, listen
from harness.gateway import run
from harness.waiting import eventually


@pytest.fixture
def convention(start):
    """`await convention(converse)`: an upstream that runs the coroutine `converse` on each connection."""

    async def convention(converse, **options):
        return await start(ConventionUpstream(converse, **options))

    return convention


async def session(gateway):
    return await gateway.client().session()


OPENING = """
upstream:
  on_open:
    - expect: {json: {/type: hello}}
    - send: '{"type":"login","token":"${json:${file:TOKEN}}","nonce":"${string:/nonce}"}'
      expect: {json: {/type: welcome}}
      refuse: {json: {/type: denied}}
    - send: subscribe
"""


@pytest.fixture
def token(tmp_path):
    path = tmp_path / "token"
    path.write_text('s3"cret\n')
    return path


async def test_the_queue_waits_for_the_end_of_the_setup(convention, gateway_for, token):
    gate = asyncio.Event()

    async def converse(conversation):
        await conversation.say('{"type":"hello","nonce":"n\\u00f6"}')
        login = json.loads(await conversation.hear())
        assert login == {"type": "login", "token": 's3"cret', "nonce": "nö"}
        await conversation.say("news that came meanwhile")
        await gate.wait()
        await conversation.say('{"type":"welcome"}')
        await listen(conversation)

    upstream = await convention(converse)
    gateway = await gateway_for(upstream, config=OPENING.replace("TOKEN", str(token)), ready=False)
    client = gateway.client()
    await client.accepted("posted early")
    await upstream.has_heard(1)
    assert (await session(gateway))["state"] == "opening"
    assert (await gateway.manage("/readyz")).status == 503
    gate.set()
    await gateway.ready()
    assert (await upstream.has_heard(3))[1:] == ["subscribe", "posted early"]
    # Messages that the opening expected stay within the session. All other messages are pushes.
    assert (await client.poll(cursor="earliest", wait=10)).payloads == ["news that came meanwhile"]


async def test_pushes_of_a_connection_that_ends_during_the_setup_are_followed_by_a_gap(convention, gateway_for):
    async def converse(conversation):
        # The first connection ends after it has brought a push.
        if len(upstream.conversations) == 1:
            await conversation.say("early")
            return
        await gate.wait()
        await conversation.say("welcome", "later")
        await listen(conversation)

    gate = asyncio.Event()
    upstream = await convention(converse)
    gateway = await gateway_for(upstream, config="upstream: {on_open: [{expect: welcome}]}\n", ready=False)
    client = gateway.client()
    first = await client.poll(cursor="earliest", wait=10)
    assert (first.payloads, first.gap) == (["early"], None)
    await upstream.has_conversations(2)
    gate.set()
    second = await client.poll(cursor=first.cursor, wait=10)
    if not second.payloads:
        assert second.gap["reason"] == "upstream"
        second = await client.poll(cursor=second.cursor, wait=10)
        assert second.gap is None
    else:
        assert second.gap["reason"] == "upstream"
    assert second.payloads == ["later"]


async def test_a_secret_is_read_for_each_connection_attempt(convention, gateway_for, token):
    tokens = []

    async def converse(conversation):
        await conversation.say('{"type":"hello","nonce":""}')
        tokens.append(json.loads(await conversation.hear())["token"])
        await conversation.say('{"type":"welcome"}')
        await listen(conversation)

    upstream = await convention(converse)
    gateway = await gateway_for(upstream, config=OPENING.replace("TOKEN", str(token)))
    token.write_text("rotated\n")
    upstream.reset_connections()
    await eventually(lambda: tokens == ['s3"cret', "rotated"], what="the second attempt has the new token")
    await gateway.ready()
    assert "rotated" not in gateway.output
    assert 's3"' not in gateway.output


async def test_refused_credentials_are_tried_once_more_and_then_parked(convention, gateway_for, token):
    why = "\x7fno " + json.dumps('s3"cret')[1:-1] + " here"
    refusal = '{"type":"denied","why":"' + why + '","more":"' + "x" * 1000 + '"}'

    async def converse(conversation):
        await conversation.say('{"type":"hello","nonce":""}')
        await conversation.hear()
        await conversation.say(refusal)
        await listen(conversation)

    upstream = await convention(converse)
    gateway = await gateway_for(upstream, config=OPENING.replace("TOKEN", str(token)), ready=False)

    async def parked():
        status = await session(gateway)
        return status if status["state"] == "parked" else None

    status = await eventually(parked, what="the session is parked")
    assert len(upstream.conversations) == 2
    assert 55 < status["next_attempt_in_seconds"] <= 60
    # The document shows the beginning of the upstream's text, without our secret and without control characters.
    said = refusal[:256].replace(json.dumps('s3"cret')[1:-1], "***").replace("\x7f", "\\x7f")
    assert status["last_failure"] == (
        f"the upstream refused the credentials in its response to opening message 2 ('upstream.on_open[1]'): {said}"
    )


async def test_a_setup_without_a_response_fails_and_names_the_step(convention, gateway_for):
    upstream = await convention(listen)
    config = "upstream: {on_open: [{send: hello}, {send: login, expect: welcome, timeout: 200ms}]}\n"
    gateway = await gateway_for(upstream, config=config, ready=False)
    await upstream.has_conversations(2)
    assert upstream.conversations[0].heard == ["hello", "login"]
    assert (await session(gateway))["last_failure"] == (
        "no message of the upstream matched 'upstream.on_open[1].expect' within the timeout"
        " ('upstream.on_open[1].timeout')"
    )


@pytest.mark.parametrize("response", ["{}", "not JSON", '{"type":"hello"}'])
async def test_a_response_without_a_value_for_the_next_message_fails_the_setup(convention, gateway_for, response):
    async def converse(conversation):
        await conversation.say(response)
        await listen(conversation)

    upstream = await convention(converse)
    config = "upstream: {on_open: [{expect: {prefix: ''}}, {send: 'n ${raw:/nonce}'}]}\n"
    gateway = await gateway_for(upstream, config=config, ready=False)
    await upstream.has_conversations(2)
    assert "no value at '/nonce'" in (await session(gateway))["last_failure"]
    assert all(not conversation.heard for conversation in upstream.conversations)


# -- Heartbeats -------------------------------------------------------------------------------------------------------


async def test_the_reply_to_an_upstream_heartbeat_has_its_token(convention, gateway_for):
    pings = ['{"ping":1492420473027}', '{"ping": 9007199254740993.10 }', '{"ping":"a\\u0022b"}']

    async def converse(conversation):
        await conversation.say(*pings, '{"tick":1}')
        await listen(conversation)

    upstream = await convention(converse)
    config = """
upstream:
  heartbeat:
    server: {match: {json_has: /ping}, reply: '{"pong":${raw:/ping}}'}
"""
    gateway = await gateway_for(upstream, config=config)
    assert await upstream.has_heard(3) == [
        '{"pong":1492420473027}',
        '{"pong":9007199254740993.10}',
        '{"pong":"a\\u0022b"}',
    ]
    assert (await gateway.client().poll(cursor="earliest", wait=10)).payloads == [{"tick": 1}]
    assert (await gateway.metrics())["drawbridge_upstream_heartbeats_received_total"] == 3


CLIENT_HEARTBEAT = """
upstream:
  heartbeat:
    client: {message: '{"op":"ping","n":${counter}}', interval: 100ms, expect: {json: {/op: pong}}, timeout: 3s}
"""


async def test_heartbeats_are_counted_and_their_replies_are_not_pushes(convention, gateway_for):
    async def converse(conversation):
        while True:
            number = json.loads(await conversation.hear())["n"]
            await conversation.say(f'{{"op":"pong","n":{number}}}')
            if number == 3:
                await conversation.say("news")

    upstream = await convention(converse)
    gateway = await gateway_for(upstream, config=CLIENT_HEARTBEAT)
    heard = await upstream.has_heard(4)
    assert [json.loads(message)["n"] for message in heard[:4]] == [1, 2, 3, 4]
    assert (await gateway.client().poll(cursor="earliest", wait=10)).payloads == ["news"]
    assert len(upstream.conversations) == 1


async def test_a_missing_heartbeat_reply_ends_its_own_connection_only(convention, gateway_for):
    async def converse(conversation):
        responses = len(upstream.conversations) > 1
        while True:
            await conversation.hear()
            if responses:
                await conversation.say('{"op":"pong"}')

    upstream = await convention(converse)
    gateway = await gateway_for(upstream, config=CLIENT_HEARTBEAT)
    await upstream.has_conversations(2)
    await upstream.has_heard(10)
    # The new connection counts from 1 again (1, 2, 3 and so on), without a beat of the old connection in between.
    assert [json.loads(message)["n"] for message in upstream.last.heard[:10]] == list(range(1, 11))
    assert "upstream.heartbeat" in (await session(gateway))["last_failure"]
    assert len(upstream.conversations) == 2


async def test_a_missing_heartbeat_of_the_upstream_causes_a_reconnect(convention, gateway_for):
    async def converse(conversation):
        await conversation.say("beat")
        await listen(conversation)

    upstream = await convention(converse)
    config = "upstream: {heartbeat: {ping: false, server: {match: beat, within: 300ms}}}\n"
    gateway = await gateway_for(upstream, config=config)
    await upstream.has_conversations(3)
    assert (await gateway.client().poll(cursor="earliest", wait=0)).payloads == []


# -- The end ----------------------------------------------------------------------------------------------------------


LAST = """
upstream:
  overlap: 100ms
  on_open: [{send: !!binary EAAA, expect: ok}, {send: hello}]
  on_close: ["bye ${sequence}", !!binary 4AA=]
  heartbeat: {client: {message: !!binary wAA=, interval: 50ms}}
"""
LOGOUT = ["bye 1", b"\xe0\0"]


def ends(conversation):
    return [message for message in conversation.heard[2:] if message != b"\xc0\0"]


@pytest.mark.parametrize("end", ["operator", "shutdown", "hand-over"])
async def test_last_messages_precede_the_close_frame(convention, gateway_for, end):
    async def converse(conversation):
        assert await conversation.hear() == b"\x10\0\0"
        await conversation.say("ok")
        await listen(conversation)

    upstream = await convention(converse)
    gateway = await gateway_for(upstream, config=LAST)
    first = upstream.last
    await eventually(lambda: b"\xc0\0" in first.heard, what="a heartbeat arrives")
    if end == "operator":
        await gateway.client().request("PATCH", "/v1/session", json={"desired": "down"})
    elif end == "shutdown":
        gateway.signal(signal.SIGTERM)
    else:
        gateway.signal(signal.SIGHUP)
    await eventually(lambda: first.connection.close_code is not None, what="the connection is closed")
    assert first.connection.close_code == (1001 if end == "shutdown" else 1000)
    assert first.heard[1] == "hello"
    assert ends(first) == LOGOUT
    if end == "hand-over":
        assert len(upstream.conversations) == 2
        assert ends(upstream.last) == []


async def test_no_last_message_follows_the_end_of_the_upstream(convention, gateway_for):
    async def converse(conversation):
        await conversation.hear()
        number = len(upstream.conversations)
        if number == 1:
            # The login is not complete.
            await gate.wait()
        await conversation.say("ok")
        if number == 2:
            await conversation.say("over")
        await listen(conversation)

    gate = asyncio.Event()
    upstream = await convention(converse)
    config = LAST + "  failure: {match: over, cause: it is over}\n"
    gateway = await gateway_for(upstream, config=config, ready=False)
    await upstream.has_heard(1)
    await gateway.client().request("PATCH", "/v1/session", json={"desired": "down"})
    await eventually(lambda: upstream.last.connection.close_code is not None, what="the first connection is closed")
    await gateway.client().request("PATCH", "/v1/session", json={"desired": "up"})
    await upstream.has_conversations(3)
    await gateway.ready()
    assert [ends(each) for each in upstream.conversations] == [[], [], []]
    gate.set()


async def test_an_upstream_that_accepts_one_connection_is_reloaded(convention, gateway_for):
    async def converse(conversation):
        others = [each for each in upstream.conversations[:-1] if each.connection.close_code is None]
        if others:
            refused.append(conversation)
            await conversation.close(4409, "already connected")
            return
        await conversation.say(f"welcome {len(upstream.conversations)}")
        await listen(conversation)

    refused = []
    upstream = await convention(converse)
    gateway = await gateway_for(upstream, config="upstream: {exclusive: true, on_close: bye}\n")
    client = gateway.client()
    first, cursor = await client.collect(1, "earliest")
    gateway.signal(signal.SIGHUP)
    await upstream.has_conversations(2)
    await gateway.ready()
    await client.accepted("hello")
    assert await upstream.has_heard(1) == ["hello"]
    batch = await client.poll(cursor=cursor, wait=10)
    if not batch.payloads:
        assert batch.gap["reason"] == "upstream"
        batch = await client.poll(cursor=batch.cursor, wait=10)
    else:
        assert batch.gap["reason"] == "upstream"
    assert (first, batch.payloads) == (["welcome 1"], ["welcome 2"])
    assert (upstream.conversations[0].heard, len(upstream.conversations), refused) == (["bye"], 2, [])


# -- Signatures -------------------------------------------------------------------------------------------------------


async def test_a_login_may_be_signed_with_a_secret(convention, gateway_for, token):
    logins = []

    async def converse(conversation):
        logins.append(json.loads(await conversation.hear()))
        await conversation.say("ok")
        await listen(conversation)

    upstream = await convention(converse)
    text = "${now:seconds}GET/self"
    login = {
        "time": "${now:seconds}",
        "hex": f"${{hmac_sha256_hex:${{file:{token}}}:{text}}}",
        "base64": f"${{hmac_sha256_base64:${{file:{token}}}:{text}}}",
        "plain": "${base64:-user-${file:TOKEN}}".replace("TOKEN", str(token)),
        "id": "${uuid}",
        "again": "${uuid}",
    }
    config = f"upstream: {{on_open: [{{send: '{json.dumps(login)}', expect: ok}}]}}\n"
    gateway = await gateway_for(upstream, config=config)
    upstream.reset_connections()
    await eventually(lambda: len(logins) == 2, what="the second login arrives")
    for login in logins:
        signature = hmac.new(b's3"cret', f"{login['time']}GET/self".encode(), hashlib.sha256).digest()
        assert login["hex"] == signature.hex()
        assert login["base64"] == base64.b64encode(signature).decode()
        assert base64.b64decode(login["plain"]) == b'-user-s3"cret'
        assert str(uuid.UUID(login["id"])) == login["again"]
    assert logins[0]["id"] != logins[1]["id"]
    assert 's3"' not in gateway.output


async def test_the_time_of_a_header_field_is_taken_after_the_credential_was_read(convention, gateway_for):
    upstream = await convention(listen)
    config = """upstream:
      credential: {command: [sh, -c, "sleep 0.2; date +%s%3N"], header: "X-Times: ${credential} ${now}"}
    """
    await gateway_for(upstream, config=config)
    end, now = map(int, upstream.last.request.headers["X-Times"].split())
    assert end <= now < end + 60_000


# -- Failures ---------------------------------------------------------------------------------------------------------


async def test_a_message_that_ends_the_session_causes_a_reconnect(convention, gateway_for):
    gate = asyncio.Event()

    async def converse(conversation):
        await conversation.say('{"type":"welcome"}')
        if len(upstream.conversations) == 1:
            await gate.wait()
            await conversation.say('{"chat":"{\\"type\\":\\"timeout\\"}"}', '{"type":"timeout","id":7}')
        await listen(conversation)

    upstream = await convention(converse)
    failure = "failure: {match: {json: {/type: timeout}}, cause: the session of the service has timed out}"
    gateway = await gateway_for(upstream, config=f"upstream: {{{failure}}}\n")
    client = gateway.client()
    assert (await session(gateway))["last_failure"] is None
    gate.set()
    await upstream.has_conversations(2)
    await gateway.ready()
    assert (await session(gateway))["last_failure"] == (
        "the upstream ended the session: the session of the service has timed out"
    )
    # Clients get the quotation, and not the message.
    before = await client.poll(cursor="earliest", wait=10)
    assert before.payloads == [{"type": "welcome"}, {"chat": '{"type":"timeout"}'}]
    after = await client.poll(cursor=before.cursor, wait=10)
    gaps = [after.gap]
    if not after.payloads:
        after = await client.poll(cursor=after.cursor, wait=10)
        gaps.append(after.gap)
    assert after.payloads == [{"type": "welcome"}]
    assert [gap["reason"] for gap in gaps if gap] == ["upstream"]
    assert upstream.conversations[0].connection.close_code == 1000


# -- Topics -----------------------------------------------------------------------------------------------------------


TOPICS = """
upstream:
  topic: {pointer: /channel, rules: [{match: {prefix: "tick "}, topic: ticks}]}
"""


async def test_pushes_have_topics_that_clients_filter_by(gateway_for, upstream):
    gateway = await gateway_for(upstream, config=TOPICS)
    client = gateway.client()
    pushed = ["tick 1", '{"channel":"a.b"}', "other", '{"channel":"a.c"}', '{"channel":null}', "tick 2"]
    await upstream.push(*pushed, b"tick 3")
    _, end = await client.collect(7, "earliest")
    batch = await client.poll(cursor="earliest", wait=0)
    assert [message["topic"] for message in batch.messages] == ["ticks", "a.b", None, "a.c", None, "ticks", None]
    assert (await client.poll(cursor="earliest", wait=0, topic="ticks")).payloads == ["tick 1", "tick 2"]
    assert (await client.poll(cursor="earliest", wait=0, topic="a.*")).payloads == [
        {"channel": "a.b"},
        {"channel": "a.c"},
    ]
    none = await client.poll(cursor="earliest", wait=0, topic="nothing")
    assert (none.payloads, none.cursor, none.more) == ([], end, False)
    # A held poll gets only pushes that match its topics, however many other pushes arrive in between.
    held = asyncio.create_task(client.poll(cursor=end, wait=30, topic="a.*"))
    await upstream.push(*("tick" for _ in range(100)), '{"channel":"a.d"}')
    assert (await held).payloads == [{"channel": "a.d"}]


async def test_a_rule_can_search_the_whole_message(gateway_for, upstream):
    rules = (
        """[{match: {contains: ['from="a"', 'type="chat"']}, topic: chats of a}, {match: {contains: <iq}, topic: iq}]"""
    )
    gateway = await gateway_for(upstream, config=f"upstream: {{topic: {{rules: {rules}}}}}\n")
    pushed = ['<m type="chat" from="a"/>', '<m from="a" type="chat"/>', '<m from="a"/>', "<a><iq/></a>"]
    await upstream.push(*pushed)
    await gateway.client().collect(4, "earliest")
    batch = await gateway.client().poll(cursor="earliest", wait=0)
    assert [message["topic"] for message in batch.messages] == ["chats of a", "chats of a", None, "iq"]


# -- Payload codecs ---------------------------------------------------------------------------------------------------


def bare(data):
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("codec", "pack"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("deflate", bare), ("auto", gzip.compress)],
)
async def test_packed_payloads_reach_clients_unpacked(convention, gateway_for, codec, pack):
    binary = bytes(range(256))

    async def converse(conversation):
        await conversation.say(pack(b'{"ping":7}'), pack("täglich".encode()), pack(binary), "plain text")
        await listen(conversation)

    upstream = await convention(converse)
    config = f"""
upstream:
  payload_codec: {codec}
  heartbeat: {{server: {{match: {{json_has: /ping}}, reply: 'pong ${{raw:/ping}}'}}}}
"""
    gateway = await gateway_for(upstream, config=config)
    assert await upstream.has_heard(1) == ["pong 7"]
    client = gateway.client()
    payloads = []
    cursor = "earliest"
    while len(payloads) < 3:
        batch = await client.poll(cursor=cursor, wait=10)
        payloads += batch.payloads
        cursor = batch.cursor
    assert payloads == ["täglich", binary, "plain text"]


async def test_a_payload_that_cannot_be_unpacked_is_delivered_unchanged(convention, gateway_for):
    # The data is compressed only once. Its header contains the time, so a second result would differ.
    cut = gzip.compress(b"cut short")[:-4]

    async def converse(conversation):
        await conversation.say(b"\x00\x01", cut)
        await listen(conversation)

    upstream = await convention(converse)
    gateway = await gateway_for(upstream, config="upstream: {payload_codec: gzip}\n")
    metric = "drawbridge_upstream_malformed_payloads_total"

    async def both():
        return (await gateway.metrics())[metric] == 2

    await eventually(both, what="two malformed payloads are counted")
    payloads = (await gateway.client().poll(cursor="earliest", wait=10)).payloads
    assert payloads == [b"\x00\x01", cut]


async def test_a_payload_that_grows_beyond_the_limit_ends_the_connection(convention, gateway_for):
    bomb = gzip.compress(bytes(64 << 20))
    codes = []

    async def converse(conversation):
        if len(upstream.conversations) == 1:
            await conversation.say(bomb)
        try:
            await listen(conversation)
        finally:
            codes.append(conversation.connection.close_code)

    upstream = await convention(converse)
    gateway = await gateway_for(upstream, config="upstream: {payload_codec: gzip}\n")
    before = gateway.memory()
    await eventually(lambda: codes == [1009], what="the upstream is told 1009")
    await gateway.ready()
    assert gateway.memory() - before < 48 << 20


# -- Cursor -----------------------------------------------------------------------------------------------------------


async def test_a_new_connection_requests_the_messages_after_the_last_push(convention, gateway_for):
    async def converse(conversation):
        if len(upstream.conversations) == 1:
            await conversation.hear()
            await conversation.say('{"seq":"41"}', '{"seq":"42"}', '{"other":1}')
        await listen(conversation)

    upstream = await convention(converse)
    config = "upstream: {on_open: [{send: 'resume ${cursor}'}], cursor: {pointer: /seq, initial: 'start'}}\n"
    gateway = await gateway_for(upstream, config=config)
    assert await upstream.has_heard(1) == ["resume start"]
    client = gateway.client()

    async def three():
        return len((await client.poll(cursor="earliest", wait=1)).payloads) == 3

    await eventually(three, what="three pushes are in")
    upstream.reset_connections()
    await upstream.has_conversations(2)
    assert await upstream.has_heard(1) == ["resume 42"]


# -- Subscriptions ----------------------------------------------------------------------------------------------------

SUBSCRIPTIONS = """
upstream:
  on_open: [{send: hello}]
  subscriptions:
    add: {match: {json: {/op: sub}}, key: /ch}
    remove: {match: {json: {/op: unsub}}, key: /ch}
    ended: {match: {json: {/op: gone}}, key: /ch}
"""


def sub(channel, **more):
    return json.dumps({"op": "sub", "ch": channel, **more})


async def test_subscriptions_are_repeated_before_the_queue(convention, gateway_for):
    async def converse(conversation):
        while True:
            if (await conversation.hear()) == "drop d":
                await conversation.say('{"op":"gone","ch":"d"}')

    upstream = await convention(converse)
    gateway = await gateway_for(upstream, config=SUBSCRIPTIONS)
    client = gateway.client()
    unsub = json.dumps({"op": "unsub", "ch": "b"})
    posts = [sub("a"), sub("b"), sub("c"), sub("d"), "other", sub("a", depth=5), unsub, "drop d"]
    for post in posts:
        await client.accepted(post)
    assert (await upstream.has_heard(9))[1:] == posts
    pushes, _ = await client.collect(1, "earliest")
    assert pushes == [{"op": "gone", "ch": "d"}]
    assert (await gateway.metrics())["drawbridge_subscriptions"] == 2

    upstream.reset_connections()
    await upstream.has_conversations(2)
    await gateway.ready()
    await client.accepted("after")
    assert await upstream.has_heard(4) == ["hello", sub("c"), sub("a", depth=5), "after"]


async def test_subscriptions_that_fill_a_write_do_not_block_the_queue(convention, gateway_for):
    async def converse(conversation):
        while True:
            await conversation.hear()

    may_open = asyncio.Event()
    may_open.set()

    async def wait(connection, request):
        await may_open.wait()

    upstream = await convention(converse, process_request=wait, compression=None)
    more = "  queue: {high_water: 4KiB, low_water: 1KiB}\n  heartbeat: {interval: 10m}\n"
    gateway = await gateway_for(upstream, config=SUBSCRIPTIONS + more)
    client = gateway.client()
    subscriptions = [sub(name, filling="x" * 8_192) for name in ("a", "b", "c")]
    for post in subscriptions:
        await client.accepted(post)
    await upstream.has_heard(4)

    may_open.clear()
    upstream.reset_connections()
    await client.accepted("after")
    may_open.set()
    await upstream.has_conversations(2)
    assert await upstream.has_heard(5) == ["hello", *subscriptions, "after"]


async def test_a_queued_subscription_is_sent_once(convention, gateway_for):
    upstream = await convention(listen)
    port = upstream.port
    gateway = await gateway_for(upstream, config=SUBSCRIPTIONS)
    client = gateway.client()
    await client.accepted(sub("a"))
    await upstream.has_heard(2)
    await upstream.stop()

    async def is_down():
        return (await client.session())["state"] != "ready"

    await eventually(is_down, what="the gateway notices")
    await client.accepted(sub("b"))
    again = ConventionUpstream(listen)
    again.port = port
    await again.start()
    try:
        await client.accepted("last")
        assert await again.has_heard(4) == ["hello", sub("a"), sub("b"), "last"]
    finally:
        await again.stop()


async def test_a_subscription_that_returns_to_the_queue_is_sent_once(convention, gateway_for):
    async def converse(conversation):
        while await conversation.hear() != sub("a") or len(upstream.conversations) > 1:
            pass
        conversation.connection.transport.abort()

    upstream = await convention(converse)
    more = "  queue: {redeliver: unconfirmed, confirm_delay: 1s}\n  heartbeat: {interval: 10m}\n"
    gateway = await gateway_for(upstream, config=SUBSCRIPTIONS + more)
    client = gateway.client()
    await client.accepted(sub("a"))
    await upstream.has_conversations(2)
    await client.accepted("last")
    assert await upstream.has_heard(3) == ["hello", sub("a"), "last"]


async def test_a_subscription_that_is_too_large_for_the_upstream_is_not_repeated(convention, gateway_for):
    upstream = await convention(listen, max_size=1_000, compression=None)
    gateway = await gateway_for(upstream, config=SUBSCRIPTIONS)
    client = gateway.client()
    await client.accepted(sub("a"))
    await client.accepted(sub("b", filling="x" * 1_000))
    await upstream.has_conversations(2)
    await gateway.ready()
    await client.accepted("last")
    assert await upstream.has_heard(3) == ["hello", sub("a"), "last"]
    assert (await gateway.metrics())["drawbridge_subscriptions"] == 1


async def test_a_call_that_subscribes_is_not_kept_under_the_id_of_the_gateway(convention, gateway_for):
    async def converse(conversation):
        while True:
            message = await conversation.hear()
            if message.startswith("{"):
                await conversation.say(json.dumps({"id": json.loads(message)["id"], "result": 1}))

    config = """
upstream:
  correlation: {request: /id, reply: /id}
  subscriptions:
    add: {match: {json: {/op: sub}}, key: /id}
    remove: {match: {json: {/op: unsub}}, key: /id}
"""
    upstream = await convention(converse)
    gateway = await gateway_for(upstream, config=config)
    client = gateway.client()
    call = json.dumps({"op": "sub", "id": 1})
    reply = await client.request("POST", "/v1/call", data=call, headers={"Content-Type": "application/json"})
    assert (reply.status, reply.json["id"]) == (200, 1)
    posted = json.dumps({"op": "sub", "id": 2})
    await client.accepted(posted)
    await upstream.has_heard(2)
    assert (await gateway.metrics())["drawbridge_subscriptions"] == 1
    upstream.reset_connections()
    await upstream.has_conversations(2)
    await client.accepted("last")
    assert await upstream.has_heard(2) == [posted, "last"]


async def test_the_number_of_kept_subscriptions_is_limited(convention, gateway_for):
    upstream = await convention(listen)
    config = SUBSCRIPTIONS + "    entries: 3\n"
    gateway = await gateway_for(upstream, config=config)
    client = gateway.client()
    for number in range(5):
        await client.accepted(sub(f"channel {number}"))
    assert len(await upstream.has_heard(6)) == 6, "all are sent"
    upstream.reset_connections()
    await upstream.has_conversations(2)
    assert await upstream.has_heard(4) == ["hello", *(sub(f"channel {number}") for number in range(3))]
    assert any(
        record["message"].startswith("a limit of upstream.subscriptions is reached") for record in gateway.records
    )


# -- Credentials ------------------------------------------------------------------------------------------------------


HEADER = """
upstream:
  headers: {Authorization: Bearer old}
  credential: {%s, header: "Authorization: Bearer ${credential}", query: access_token}
"""


@pytest.mark.parametrize("source", ["env", "file", "command"])
async def test_a_credential_is_sent_in_a_header_and_in_the_query(convention, gateway_for, tmp_path, source):
    secret = 'tö"k&n =/'
    path = tmp_path / "credential"
    path.write_text(secret + "\n")
    sources = {"env": "env: SECRET", "file": f"file: {path}", "command": f"command: [cat, '{path}']"}
    upstream = await convention(listen)
    gateway = await gateway_for(upstream, config=HEADER % sources[source], env={"SECRET": secret})
    request = upstream.last.request
    assert urllib.parse.parse_qs(urllib.parse.urlsplit(request.path).query) == {"access_token": [secret]}
    assert [value.encode("latin-1", "surrogateescape") for value in request.headers.get_all("Authorization")] == [
        f"Bearer {secret}".encode()
    ] or request.headers.get_all("Authorization") == [f"Bearer {secret}"]
    status = json.dumps(await session(gateway))
    assert "access_token" not in status + gateway.output


async def test_a_refused_credential_is_read_again_once_and_then_parked(convention, gateway_for, tmp_path):
    path = tmp_path / "credential"
    path.write_text("stale\n")
    seen = []

    def judge(connection, request):
        seen.append(request.headers["Authorization"])
        if len(seen) == 1 and "fresh" in wanted:
            path.write_text("fresh\n")
        if request.headers["Authorization"] not in wanted.values():
            return connection.respond(401, "no\n")
        return None

    config = 'upstream: {credential: {file: %s, header: "Authorization: ${credential}"}}\n' % path  # noqa: UP031
    wanted = {"fresh": "fresh"}
    upstream = await convention(listen, process_request=judge)
    await gateway_for(upstream, config=config)
    assert seen == ["stale", "fresh"]

    seen.clear()
    wanted = {"nothing": "that is written"}
    other = await convention(listen, process_request=judge)
    gateway = await gateway_for(other, config=config, ready=False)

    async def parked():
        status = await session(gateway)
        return status if status["state"] == "parked" else None

    status = await eventually(parked, what="the session is parked")
    assert len(seen) == 2
    assert 55 < status["next_attempt_in_seconds"] <= 60


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("[sh, -c, 'echo half; exit 7']", "failed with exit status 7"),
        ("[sh, -c, 'sleep 600']", "was killed"),
        ("[/no/such/program]", "cannot be started"),
        ("['true']", "is empty"),
        ("['yes']", "more than 65536 bytes"),
    ],
)
async def test_a_command_without_a_credential_fails_the_attempt_with_the_reason(convention, gateway_for, command, told):
    upstream = await convention(listen)
    config = """
upstream: {credential: {command: %s, timeout: 500ms, header: "Authorization: ${credential}"}}
"""
    gateway = await gateway_for(upstream, config=config % command, ready=False)

    async def failed():
        return told in ((await session(gateway))["last_failure"] or "")

    await eventually(failed, what=f"the session tells: {told}")
    assert upstream.conversations == []
    assert "half" not in gateway.output


async def test_a_credential_is_not_sent_to_another_origin(convention, gateway_for):
    stranger = await convention(listen)

    def redirect(connection, request):
        response = connection.respond(307, "there\n")
        response.headers["Location"] = stranger.url
        return response

    upstream = await convention(listen, process_request=redirect)
    config = """
upstream:
  credential: {env: SECRET, header: "Authorization: ${credential}", query: token}
"""
    await gateway_for(upstream, config=config, env={"SECRET": "s3cret"})
    await stranger.has_conversations(1)
    assert "Authorization" not in stranger.last.request.headers
    assert "s3cret" not in stranger.last.request.path

    config = "upstream: {on_open: [{send: 's3cret'}]}\n"
    gateway = await gateway_for(upstream, config=config, ready=False)

    async def failed():
        return "another origin" in ((await session(gateway))["last_failure"] or "")

    await eventually(failed, what="the opening fails")
    assert all(not conversation.heard for conversation in stranger.conversations)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("credential: {file: /etc/hostname}", "it is not sent anywhere"),
        ("credential: {query: token}", "has no source"),
        ("credential: {file: /etc/hostname, env: PATH, query: token}", "only one of"),
        ("credential: {file: /etc/hostname, query: 'a&b'}", "upstream.credential.query"),
        ("credential: {file: /etc/hostname, header: '${credential}'}", "upstream.credential.header"),
        ("credential: {env: NOT_THERE, query: token}", "variable 'NOT_THERE' is not set"),
        ("subscriptions: {add: {match: x}}", "match and key must be set together"),
        ("subscriptions: {remove: {match: x, key: /a}}", "'remove' and 'ended' require 'add'"),
        ("{heartbeat: {ping: false}, queue: {redeliver: unconfirmed}}", "upstream.heartbeat.ping"),
    ],
)
async def test_settings_that_contradict_each_other_are_reported(tmp_path, setting, told):
    path = tmp_path / "drawbridge.yaml"
    path.write_text(f"upstream: {setting if setting.startswith('{') else '{' + setting + '}'}\n")
    arguments = ("--listen", "127.0.0.1:0", "--management", "127.0.0.1:0", "--upstream", "ws://127.0.0.1:1/")
    status, _, err = await run("serve", "--config", path, *arguments)
    assert status == 78
    assert told in err
