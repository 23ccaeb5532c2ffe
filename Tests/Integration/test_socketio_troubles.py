"""Problems that users of Socket.IO clients have reported, with one test each.

The numbers are issues of socket.io-client-swift, unless another project is named. Two tests are elsewhere:
`test_namespaces_are_joined_before_the_first_event_after_a_kill` in test_socketio_kills.py, and
`anHourOfHeartbeatsInVirtualTime` in UpstreamSessionTests/HeartbeatTests.swift.
"""

import asyncio
import base64
import contextlib
import json
import random
from urllib.parse import parse_qs

import pytest

from harness.conventions import ConventionUpstream
from harness.socketio import OPEN, Plays, SocketIOServer, configuration, forever
from harness.waiting import eventually

JSON = {"Content-Type": "application/json"}


@pytest.fixture(params=[4, 3], ids=["engine4", "engine3"])
def version(request):
    return request.param


@pytest.fixture
def real(start, gateway_for):
    """`await real(version, …)`: python-socketio, and a gateway in front of it."""

    async def real(version, *, upstream=None, server=None, **socketio):
        server = await start(SocketIOServer(version, **(server or {})))
        config = configuration(server, **socketio)
        config["upstream"].update(upstream or {})
        return server, await gateway_for(None, config=json.dumps(config))

    return real


@pytest.fixture
def played(start, gateway_for):
    """`await played(play, …)`: a server with one script per connection, and a gateway in front of it."""

    async def played(*plays, ready=True, upstream=None, opening=OPEN, **socketio):
        plays = Plays(*plays, opening=opening)
        server = await start(ConventionUpstream(plays))
        settings = {"kind": "socketio", "url": server.url, "socketio": socketio}
        reconnect = {"base": "20ms", "maximum": "100ms"}
        config = {"upstream": {**settings, "reconnect": reconnect, **(upstream or {})}}
        return plays, server, await gateway_for(None, config=json.dumps(config), ready=ready)

    return played


async def join(plays, conversation):
    await plays.connect(conversation)
    await conversation.say('40{"sid":"x"}')


async def emit(client, event, *args, path="messages", **members):
    body = json.dumps({"event": event, "args": args, **members})
    return await client.request("POST", f"/v1/{path}", data=body, headers=JSON)


async def patch(client, desired):
    return await client.request("PATCH", "/v1/session", data=json.dumps({"desired": desired}), headers=JSON)


async def test_never_two_sockets_of_one_session_after_manual_reconnects(played):
    """Double connections after a manual reconnect (#700, #1156)."""
    open_now, most = set(), [0]

    async def play(plays, conversation):
        open_now.add(conversation)
        most[0] = max(most[0], len(open_now))
        try:
            await join(plays, conversation)
            await forever(conversation)
        finally:
            open_now.discard(conversation)

    plays, _, gateway = await played(play)
    client = gateway.client()
    for _ in range(10):
        for desired in ("up", "down", "up", "up"):
            await patch(client, desired)
        await gateway.ready()
    assert plays.count > 1
    assert most == [1]


async def test_patching_the_session_to_up_resets_the_attempts(played):
    """Attempts that are not reset on connect (#1368). PATCH up connects at once, whatever the backoff."""
    refuses = [True]

    async def play(plays, conversation):
        if not refuses[0]:
            await join(plays, conversation)
            await forever(conversation)

    fixed = {"reconnect": {"strategy": "fixed", "base": "1h", "maximum": "1h"}}
    _, server, gateway = await played(play, ready=False, upstream=fixed)
    client = gateway.client()
    await server.has_conversations(1)
    refuses[0] = False

    async def up():
        await patch(client, "up")
        return (await client.session())["state"] == "ready"

    await eventually(up, what="the session is ready")
    assert (await client.session())["failed_attempts"] == 0


async def test_a_rotated_token_is_in_the_next_connect(real, tmp_path):
    """Tokens that are not renewed (#734, #1461, #1506, #1100)."""
    secret = tmp_path / "token"
    secret.write_text("first")
    auth = '{"token":"${json:${file:' + str(secret) + '}}"}'
    server, _gateway = await real(4, namespaces=["/", {"name": "/admin", "auth": auth}])
    secret.write_text("second")
    await server.kill()
    await server.start()
    assert [connect[2] for connect in await server.first("connect", "/admin", 2)] == [
        {"token": "first"},
        {"token": "second"},
    ]


async def test_the_server_sees_the_auth_payload_of_each_namespace(real):
    """An auth payload that cannot be sent (#1350)."""
    namespaces = [{"name": "/", "auth": '{"user":{"id":7}}'}, {"name": "/admin", "auth": '{"token":"abc"}'}]
    server, _ = await real(4, namespaces=namespaces)
    assert [connect[2] for connect in await server.first("connect", "/")] == [{"user": {"id": 7}}]
    assert [connect[2] for connect in await server.first("connect", "/admin")] == [{"token": "abc"}]


async def test_every_printable_byte_of_the_parameters_arrives(real, version):
    """`+`, `|`, `<` and `{` in connectParams (#57, #115, #1241, #1421, #72)."""
    printable = "".join(chr(code) for code in range(0x20, 0x7F)) + "ä€"
    server, _ = await real(version, query={"userID": printable, "a+b": "c d"})
    (connect,) = await server.first("connect", "/")
    query = parse_qs(connect[3], keep_blank_values=True)
    assert (query["userID"], query["a+b"]) == ([printable], ["c d"])


async def test_each_acknowledgement_ends_its_own_call_once(played):
    """200 calls at a time, acknowledged in random order or never. Each has its own outcome (#1462, #554, #565)."""

    async def play(plays, conversation):
        await join(plays, conversation)
        pending = []
        while len(pending) < 200:
            message = await conversation.hear()
            number, _, rest = message.removeprefix("42").partition("[")
            pending.append((number, json.loads("[" + rest)[1]))
        random.shuffle(pending)
        for number, value in pending:
            if value % 10:
                await conversation.say(f"43{number}[{value}]")
        await forever(conversation)

    _, _, gateway = await played(play)
    client = gateway.client()
    responses = await asyncio.gather(
        *(
            client.request(
                "POST",
                "/v1/call",
                params={"event": "x", "wait": "3s" if value % 10 == 0 else "30s"},
                data=str(value),
                headers=JSON,
            )
            for value in range(200)
        )
    )
    for value, response in enumerate(responses):
        if value % 10:
            assert response.json == {"args": [value], "attachments": []}
        else:
            response.problem(504)


async def test_the_first_queued_event_arrives_after_the_connect_response(played):
    """An event that is emitted right after connecting is lost (#1293, socket.io-client #305, #1499)."""
    release = asyncio.Event()

    async def play(plays, conversation):
        assert await plays.connect(conversation) == "40"
        await release.wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(conversation.hear(), 0.2)
        await conversation.say('40{"sid":"x"}')
        await forever(conversation)

    _, server, gateway = await played(play, ready=False)
    assert (await emit(gateway.client(), "first")).status == 202
    release.set()
    await gateway.ready()
    assert (await server.has_heard(2))[1] == '42["first"]'
    assert server.failures == []


async def test_a_silent_server_is_detected_within_interval_and_timeout(played, version):
    """Connected, but dead (#1139, #87, #319): the server neither reads nor sends any more."""

    replaced = asyncio.Event()

    async def join(plays, conversation):
        if version == 4:
            await plays.connect(conversation)
        await conversation.say('40{"sid":"x"}' if version == 4 else "40")

    async def first(plays, conversation):
        await join(plays, conversation)
        conversation.connection.transport.pause_reading()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(replaced.wait(), 40)

    async def second(plays, conversation):
        replaced.set()
        await join(plays, conversation)
        await forever(conversation)

    opening = "0" + json.dumps({"sid": "s", "upgrades": [], "pingInterval": 200, "pingTimeout": 300})
    # With WebSocket pings (RFC 6455), it would take minutes.
    quiet = {"heartbeat": {"interval": "10m", "timeout": "10m"}}
    _, server, gateway = await played(first, second, opening=opening, upstream=quiet, version=version)
    await server.has_conversations(2)
    await gateway.logs(lambda record: record.get("cause") == "heartbeat", what="the missing heartbeat")


async def test_nested_and_interleaved_binary_events_do_not_mix(played):
    """1,000 events with nested attachments, between other events (#1298, #177)."""

    async def play(plays, conversation):
        await join(plays, conversation)
        for number in range(1000):
            holder = '{"deep":[{"num":0,"_placeholder":true}]}'
            await conversation.say(f'451-["bin",{number},{holder}]', number.to_bytes(2), f'42["plain",{number}]')
        await forever(conversation)

    _, _, gateway = await played(play)
    client = gateway.client()

    async def all_of_them():
        messages = (await client.poll(cursor="earliest", wait=0, limit=5000)).messages
        return messages if len(messages) == 2000 else None

    messages = await eventually(all_of_them, what="2,000 pushes")
    assert [m["topic"] for m in messages] == ["bin", "plain"] * 1000
    assert [m["data"][0] for m in messages[::2]] == list(range(1000))
    assert [int.from_bytes(base64.b64decode(m["attachments"][0])) for m in messages[::2]] == list(range(1000))


ODD = [
    "",
    "4",
    "42",
    "42[]",
    "42[null]",
    "42{}",
    "42[1e999]",
    "43",
    "430",
    "43[]",
    "4399999[]",
    "44",
    "45",
    "45-[]",
    '451-["a"]',
    '452-["a",{"_placeholder":true,"num":9}]',
    "4/",
    "40/,",
    "41/nowhere,",
    '42/nowhere,["a"]',
    "47",
    "5",
    "6",
    "7",
    "b4",
    "bAQID",
    '42["a",' + "[" * 5000,
    '42["\\ud800"]',
    b"",
    b"\x00",
]


async def test_unusual_packets_do_not_crash_the_gateway(played):
    """Crashes on packets that are empty, cut or unexpected (#639, #703, #1251, #303). The fuzz corpus has them, too."""

    async def play(plays, conversation):
        await join(plays, conversation)
        if plays.count <= len(ODD):
            await conversation.say(ODD[plays.count - 1])
            # If this packet was not a violation, the next packet ends the connection.
            await conversation.say('42["next"]', "1")
            await conversation.connection.wait_closed()
        await forever(conversation)

    plays, server, gateway = await played(play, ready=False)
    client = gateway.client()

    async def all_played():
        # The gateway waits longer for an upstream that violates the protocol repeatedly. PATCH up ends the wait.
        await patch(client, "up")
        return plays.count > len(ODD)

    await eventually(all_played, within=60, what="a connection for each packet")
    await gateway.ready()
    assert server.failures == []
    assert (await emit(client, "works")).status == 202


@pytest.mark.parametrize(("server", "configured"), [(4, 3), (3, 4)])
async def test_a_wrong_protocol_version_is_explained(start, gateway_for, server, configured):
    """A version mismatch that the error does not explain (python-socketio #578, #614, socket.io-client #1337)."""
    peer = await start(SocketIOServer(server))
    config = configuration(peer)
    config["upstream"]["socketio"]["version"] = configured
    client = (await gateway_for(None, config=json.dumps(config), ready=False)).client()

    async def sentence():
        return f"set 'upstream.socketio.version' to {server}" in ((await client.session())["last_failure"] or "")

    await eventually(sentence, what="the sentence")
