"""The promises of docs/socketio.md, with servers that follow the rules and servers that do not."""

import asyncio
import contextlib
import json

import pytest
from websockets.asyncio.server import ServerConnection
from websockets.frames import OP_PING

from harness.gateway import run
from harness.raw import RawUpstream, read_head
from harness.scripted import Script, emit, failure, opening, pushes
from harness.socketio import SocketIOServer, configuration
from harness.waiting import eventually


async def post(client, **envelope):
    return await client.request(
        "POST", "/v1/messages", data=json.dumps(envelope), headers={"Content-Type": "application/json"}
    )


# -- Servers ----------------------------------------------------------------------------------------------------------


async def test_a_server_without_websocket_is_explained(start, gateway_for):
    server = await start(SocketIOServer(4, transports=["polling"]))
    gateway = await gateway_for(None, config=json.dumps(configuration(server)), ready=False)
    text = await failure(gateway.client(), "no WebSocket transport at this path")
    assert "Invalid transport" in text


async def test_a_server_that_closes_without_a_response_is_explained(start, gateway_for):
    async def behave(reader, writer):
        await read_head(reader)

    server = await start(RawUpstream(behave))
    config = {"upstream": {"kind": "socketio", "url": server.url}}
    gateway = await gateway_for(None, config=json.dumps(config), ready=False)
    await failure(gateway.client(), "check the path of 'upstream.url'")


class WithoutPongs(ServerConnection):
    """Does not respond to WebSocket pings, like netty-socketio."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        receive = self.protocol.recv_frame
        self.pings = 0

        def receive_others(frame):
            if frame.opcode is OP_PING:
                self.pings += 1
            else:
                receive(frame)

        self.protocol.recv_frame = receive_others


async def test_a_server_without_pongs_stays_connected(scripted):
    async def play(conversation):
        # Sends ten heartbeats, each after a WebSocket ping.
        for beat in range(10):
            await eventually(lambda beat=beat: conversation.connection.pings > beat, what="a ping")
            await conversation.say("2")
            assert await conversation.hear() == "3"

    beats = {"interval": "50ms", "timeout": "100ms"}
    server, gateway, client = await scripted(
        Script(play, pingInterval=30000, pingTimeout=30000),
        upstream={"heartbeat": beats},
        options={"create_connection": WithoutPongs},
    )
    await server.has_heard(11)
    warning = await gateway.logs(
        lambda record: "responds to no WebSocket ping" in record["message"], what="the warning"
    )
    assert "'upstream.heartbeat.ping' to false" in warning["message"]
    assert len([record for record in gateway.records if record["message"] == warning["message"]]) == 1
    assert len(server.conversations) == 1
    assert server.failures == []
    assert (await client.session())["state"] == "ready"


async def test_other_messages_are_not_heartbeats(scripted):
    """Only the server's pings extend the time that the server has announced."""

    async def play(conversation):
        while True:
            await conversation.say('42["alive"]')
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(conversation.hear(), 0.02)

    server, gateway, _ = await scripted(Script(play, pingInterval=300, pingTimeout=200), ready=False)
    await server.has_conversations(2)
    await gateway.logs(lambda record: record.get("cause") == "heartbeat", what="the missing heartbeat")


# -- Events -----------------------------------------------------------------------------------------------------------


async def test_events_with_long_names_and_invalid_text_are_delivered(scripted):
    name = "n" * 257

    async def play(conversation):
        await conversation.say(f'42["{name}",1]', '42["half","\\ud800"]')

    _, _, client = await scripted(Script(play))
    long, half = await pushes(client, 2)
    assert (long["topic"], long["event"], long["data"]) == (None, name, [1])
    assert (half["topic"], half["data"]) == (None, '42["half","\\ud800"]')


async def test_unknown_packets_are_counted(scripted):
    async def play(conversation):
        await conversation.say(
            '42/nowhere,["a"]', "41/nowhere,", "4399[]", '451-/nowhere,["b",{"_placeholder":true,"num":0}]', b"\x01"
        )
        await conversation.say('42["end"]')

    server, gateway, client = await scripted(Script(play))
    assert [message["topic"] for message in await pushes(client, 1)] == ["end"]
    assert (await gateway.metrics())["drawbridge_upstream_ignored_packets_total"] == 4
    assert len(server.conversations) == 1


async def test_a_client_acknowledges_with_attachments(scripted):
    async def play(conversation):
        await conversation.say('42789["question"]')

    server, _, client = await scripted(Script(play), acks="client")
    token = (await pushes(client, 1))[0]["ack"]
    args = [{"_placeholder": True, "num": 1}, "x", {"_placeholder": True, "num": 0}]
    assert (await post(client, ack=token, args=args, attachments=["AQID", "BA=="])).status == 202
    text, *attachments = (await server.has_heard(4))[1:]
    assert text.startswith("462-789[")
    assert json.loads(text.removeprefix("462-789")) == args
    assert attachments == [b"\x01\x02\x03", b"\x04"]


async def test_with_acks_off_no_acknowledgement_is_sent(scripted):
    async def play(conversation):
        await conversation.say('427["question"]')

    server, _, client = await scripted(Script(play), acks="off")
    (message,) = await pushes(client, 1)
    assert "ack" not in message
    assert (await emit(client, "next")).status == 202
    assert (await server.has_heard(2))[1] == '42["next"]'


async def test_queued_events_have_a_ttl_and_a_topic(scripted):
    """The events wait until the namespaces are joined."""
    connects = []

    async def script(conversation):
        await conversation.say(opening(4, pingInterval=60000, pingTimeout=60000))
        connects.append(await conversation.hear())
        await eventually(lambda: may_join, what="the events are queued")
        await conversation.say('40{"sid":"x"}')
        while True:
            await conversation.hear()

    may_join = []
    server, gateway, client = await scripted(script, ready=False)
    await eventually(lambda: connects, what="the CONNECT")

    async def queue(event, **fields):
        return await client.request("POST", "/v1/messages", params={"event": event}, data=b"", headers=fields)

    (await queue("volatile", TTL="0")).problem(503)
    older = await queue("older", Topic="t")
    newer = await queue("newer", Topic="t")
    assert (older.status, newer.status) == (202, 202)
    may_join.append(True)
    await gateway.ready()
    assert (await server.has_heard(2))[1] == '42["newer"]'
    response = await client.request("POST", "/v1/messages", params={"event": "last", "until": "confirmed"}, data=b"")
    assert response.status == 200
    assert response.json["state"] == "confirmed"
    assert (await client.request("GET", older.headers["Location"])).json["state"] == "replaced"
    assert (await server.has_heard(3))[2] == '42["last"]'


# -- Configuration ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("upstream", "part"),
    [
        ({"subscriptions": {"add": {"match": {"json_has": "/a"}, "key": "/a"}}}, "join rooms with events of 'on_open'"),
        ({"heartbeat": {"server": {"within": "1m"}}}, "the server announces its heartbeat"),
        ({"heartbeat": {"client": {"message": "{}"}}, "socketio": {"version": 3}}, "in version 3 the gateway sends"),
        (
            {"socketio": {"version": 3, "namespaces": [{"name": "/", "auth": "a=b"}]}},
            "use 'upstream.socketio.query'",
        ),
        ({"socketio": {"namespaces": [{"name": "/", "auth": "[1]"}]}}, "is not a JSON object"),
    ],
)
async def test_settings_that_do_not_apply_are_refused(tmp_path, upstream, part):
    path = tmp_path / "drawbridge.yaml"
    path.write_text(json.dumps({"upstream": {"kind": "socketio", "url": "ws://h", **upstream}}))
    status, out, err = await run("check-config", "--config", path)
    assert status == 78, (out, err)
    assert part in out + err


async def test_a_heartbeat_of_the_configuration_is_an_event(scripted):
    beat = {"message": '{"event":"beat","args":[${counter}]}', "interval": "50ms"}
    server, _, _ = await scripted(Script(), upstream={"heartbeat": {"client": beat}})
    assert (await server.has_heard(3))[1:3] == ['42["beat",1]', '42["beat",2]']
