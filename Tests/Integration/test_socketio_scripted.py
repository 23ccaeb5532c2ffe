"""The cases of Socket.IO's own test suites for servers, reversed: a scripted server plays each case to the gateway.

test_socketio_troubles.py has the problems that users of Socket.IO clients have reported.
"""

import asyncio
import json

import pytest
from websockets.exceptions import ConnectionClosed

from harness.raw import RawUpstream, read_head, upgrade
from harness.scripted import QUIET, Script, emit, failure, opening, pushes
from harness.waiting import eventually

# -- Engine.IO --------------------------------------------------------------------------------------------------------


async def test_the_gateway_responds_to_each_ping(scripted):
    async def play(conversation):
        for content in ("", "probe", "x"):
            await conversation.say("2" + content)
            assert await conversation.hear() == "3" + content

    server, _, _ = await scripted(Script(play))
    await server.has_heard(4)
    assert server.failures == []


async def test_the_gateway_sends_the_pings_of_version_three(scripted):
    async def play(conversation):
        for _ in range(4):
            assert await conversation.hear() == "2"
            await conversation.say("3")

    server, _, _ = await scripted(Script(play, version=3, pingInterval=300, pingTimeout=5000), version=3)
    await server.has_heard(4)
    assert server.failures == []
    assert len(server.conversations) == 1


@pytest.mark.parametrize("version", [4, 3])
async def test_a_silent_server_is_dead_after_interval_and_timeout(scripted, version):
    async def play(conversation):
        await conversation.connection.wait_closed()

    server, gateway, _ = await scripted(
        Script(play, version=version, pingInterval=300, pingTimeout=200), version=version, ready=False
    )
    await server.has_conversations(2)
    await gateway.logs(lambda record: record.get("cause") == "heartbeat", what="the missing heartbeat")


async def test_a_close_packet_ends_the_connection_cleanly(scripted):
    async def play(conversation):
        if len(server_of) == 0:
            server_of.append(conversation)
            await conversation.say("1")
            with pytest.raises(ConnectionClosed) as closed:
                await conversation.hear()
            assert closed.value.rcvd.code == 1000

    server_of = []
    server, _, client = await scripted(Script(play), ready=False)
    await server.has_conversations(2)
    await failure(client, "closed the Engine.IO connection")
    assert server.failures == []


@pytest.mark.parametrize(
    ("message", "part"),
    [
        ("abc", "not an Engine.IO packet"),
        ("49", "type of a Socket.IO packet"),
        ("42{}", "does not fit its type"),
        ("43[]", "has no id"),
        ("43abc[]", "no valid JSON"),
        ("4212345678901234567890[]", "more than 19 digits"),
        ('4511-["a"]', "more than 10 attachments"),
        (b"\x01", "no packet announced"),
        ('451-["a",{"_placeholder":true,"num":1}]', "placeholder"),
        (opening(4), "second open packet"),
    ],
)
async def test_a_violation_closes_with_1002(scripted, message, part):
    codes = []

    async def play(conversation):
        await conversation.say(message)
        try:
            while True:
                await conversation.hear()
        except ConnectionClosed as closed:
            codes.append(closed.rcvd.code if closed.rcvd else None)

    _, _, client = await scripted(Script(play), ready=False)
    await failure(client, part)
    await eventually(lambda: codes, what="the close code")
    assert codes[0] == 1002


@pytest.mark.parametrize("interval", [0, 99, 600_001])
async def test_an_absurd_heartbeat_fails_the_opening(scripted, interval):
    _, _, client = await scripted(Script(pingInterval=interval), ready=False)
    await failure(client, "from 100 ms to 10 minutes")


REFUSALS = [
    (b'{"code":0,"message":"Transport unknown"}', "no WebSocket transport at this path"),
    (b'{"code":5,"message":"Unsupported protocol version"}', "set 'upstream.socketio.version' to 3"),
    (b'"The client is using an unsupported version of the Socket.IO or Engine.IO protocols"', "version' to 3"),
    (b'{"code":4,"message":"Forbidden"}', "refused the request (Forbidden)"),
]


@pytest.mark.parametrize("upgraded", [False, True], ids=["instead", "after-the-upgrade"])
@pytest.mark.parametrize(("body", "part"), REFUSALS)
async def test_refusals_are_explained(start, gateway_for, body, part, upgraded):
    """The official server accepts the upgrade before it sends its HTTP response."""

    async def behave(reader, writer):
        if upgraded:
            await upgrade(reader, writer)
        else:
            await read_head(reader)
        response = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-type: text/html\r\n"
        writer.write(response + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()

    server = await start(RawUpstream(behave))
    config = {"upstream": {"kind": "socketio", "url": server.url}}
    gateway = await gateway_for(None, config=json.dumps(config), ready=False)
    client = gateway.client()
    text = await failure(client, part)
    assert "400" in text
    state = (await client.request("GET", "/v1/session")).json
    assert state["last_refusal"]["status"] == 400


# -- Socket.IO --------------------------------------------------------------------------------------------------------


async def test_the_connect_packets_have_the_documented_bytes(scripted):
    heard = []

    async def script(conversation):
        await conversation.say(opening(4, **QUIET))
        for name in ("", "/custom,"):
            heard.append(await conversation.hear())
            await conversation.say("40" + name + '{"sid":"x"}')
        while True:
            await conversation.hear()

    await scripted(script, namespaces=[{"name": "/custom", "auth": '{"token":"123"}'}, {"name": "/"}])
    assert heard == ["40", '40/custom,{"token":"123"}']


async def test_events_and_acknowledgements_have_the_documented_bytes(scripted):
    server, _, client = await scripted(Script())
    for response in (
        await emit(client, "message", 1, "2", {"3": [True]}),
        await emit(client, "b", {"_placeholder": True, "num": 0}, attachments=["AQID"]),
    ):
        assert response.status == 202
    heard = await server.has_heard(4)
    assert heard[1:] == [
        '42["message",1, "2", {"3": [true]}]',
        '451-["b",{"_placeholder": true, "num": 0}]',
        b"\x01\x02\x03",
    ]
    call = asyncio.create_task(emit(client, "ask", 1, path="call"))
    heard = await server.has_heard(5)
    assert heard[4] == '423["ask",1]'
    await server.last.say('461-3["x",{"_placeholder":true,"num":0}]', b"\x04")
    assert (await call).json == {"args": ["x", {"_placeholder": True, "num": 0}], "attachments": ["BA=="]}
    await server.last.say('42456["q"]')
    assert (await server.has_heard(6))[5] == "43456[]"


async def test_a_missing_response_to_connect_times_out(scripted):
    async def script(conversation):
        await conversation.say(opening(4, **QUIET))
        while True:
            await conversation.hear()

    _, _, client = await scripted(script, ready=False, upstream={"timeouts": {"on_open": "300ms"}})
    await failure(client, "did not respond to the CONNECT of namespace '/'")


async def test_an_optional_namespace_may_respond_after_the_setup(scripted):
    may_respond = asyncio.Event()

    async def script(conversation):
        await conversation.say(opening(4, **QUIET))
        for name in ("", "/slow,", "/last,"):
            assert await conversation.hear() == "40" + name
            if name != "/slow,":
                await conversation.say("40" + name + '{"sid":"x"}')
        await may_respond.wait()
        await conversation.say('40/slow,{"sid":"y"}', '42/slow,["late"]')
        while True:
            await conversation.hear()

    _, gateway, client = await scripted(
        script,
        namespaces=["/", {"name": "/slow", "required": False}, "/last"],
        upstream={"timeouts": {"on_open": "1s"}},
    )
    await gateway.logs(lambda record: "without an optional namespace" in record["message"], what="what is missing")
    state = (await client.session())["namespaces"][1]
    assert (state["state"], state["reason"]) == ("connecting", "the server has not responded to its CONNECT")
    assert "not connected" in (await emit(client, "x", namespace="/slow")).problem(503)["detail"]
    may_respond.set()
    assert (await pushes(client, 1))[0]["topic"] == "late"
    assert (await client.session())["namespaces"][1]["state"] == "connected"
    assert (await emit(client, "x", namespace="/slow")).status == 202


# -- The responses to clients ------------------------------------------------------------------------------------------


async def test_the_size_of_an_event_counts_its_attachments(scripted):
    async def play(conversation):
        await conversation.say('451-7["b",{"_placeholder":true,"num":0}]', b"\x01\x02\x03", '42["plain",1]')

    _, _, client = await scripted(Script(play), acks="client")
    whole, plain = await pushes(client, 2)
    async with client._http.get(
        "/v1/messages",
        params={"cursor": "earliest", "stream": "1", "data": "omit"},
        headers={"Accept": "application/x-ndjson"},
    ) as stream:
        first, second = [json.loads(await anext(messages_of(stream))) for _ in range(2)]
    assert first["bytes"] == len('[{"_placeholder":true,"num":0}]') + 3
    assert first["ack"] == whole["ack"]
    assert first.keys() == whole.keys() - {"data", "attachments"} | {"bytes"}
    assert second == {key: plain[key] for key in plain if key != "data"} | {"bytes": 3}


async def messages_of(stream):
    async for line in stream.content:
        if b'"type":"event"' in line:
            yield line


async def test_a_filter_for_an_unknown_namespace_is_refused(scripted, gateway_for, upstream):
    _, _, client = await scripted(Script())
    response = await client.get(namespace="/nowhere", wait=0)
    assert "'/nowhere' is not one of upstream.socketio.namespaces: use /" in response.problem(400)["detail"]
    assert (await client.get(namespace="/", wait=0)).status in (200, 204)
    plain = (await gateway_for(upstream)).client()
    assert "namespace is for Socket.IO upstreams" in (await plain.get(namespace="/", wait=0)).problem(400)["detail"]


async def test_an_event_for_a_namespace_that_has_ended_says_when_it_is_joined_again(scripted):
    async def script(conversation):
        await conversation.say(opening(4, **QUIET))
        assert await conversation.hear() == "40"
        await conversation.say('40{"sid":"x"}')
        assert await conversation.hear() == "40/extra,"
        await conversation.say('40/extra,{"sid":"y"}', "41/extra,")
        while True:
            await conversation.hear()

    _, _, client = await scripted(script, namespaces=["/", {"name": "/extra", "required": False}])

    async def refused():
        response = await emit(client, "x", namespace="/extra")
        return response if response.status == 503 else None

    response = await eventually(refused, what="the namespace has ended")
    assert response.headers["Retry-After"] == "60"
    assert "PATCH /v1/session down and up" in response.problem(503)["detail"]


async def test_without_pings_the_shutdown_waits_for_no_confirmation(scripted):
    _, gateway, client = await scripted(Script(), upstream={"heartbeat": {"ping": False}})
    response = await emit(client, "x")

    async def is_written():
        return (await client.request("GET", response.headers["Location"])).json["state"] == "written"

    await eventually(is_written, what="the event is written")
    await gateway.stop()


async def test_an_acknowledgement_that_was_not_sent_can_be_sent_again(scripted):
    async def play(conversation):
        await conversation.say('427["question"]')

    server, _, client = await scripted(
        Script(play), acks="client", upstream={"queue": {"rate": 1, "rate_interval": "1h", "burst": 1}}
    )
    token = (await pushes(client, 1))[0]["ack"]
    # This event uses up the rate, so the acknowledgement stays queued until it expires.
    assert (await emit(client, "first")).status == 202
    await server.has_heard(2)

    async def acknowledge(ttl):
        return await client.request(
            "POST",
            "/v1/messages",
            data=json.dumps({"ack": token, "args": ["yes"]}),
            headers={"Content-Type": "application/json", "TTL": ttl},
        )

    expired = await acknowledge("1")
    assert expired.status == 202
    (await acknowledge("60")).problem(410)

    async def has_expired():
        return (await client.request("GET", expired.headers["Location"])).json["state"] == "expired"

    await eventually(has_expired, what="the acknowledgement expires")
    assert (await acknowledge("1")).status == 202
