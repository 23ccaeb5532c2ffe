"""The built-in profiles, each against a server that follows its convention."""

import asyncio
import base64
import gzip
import hashlib
import itertools
import json
import re

import aiohttp.web
import pytest
from test_services import LARGE, SMALL

from harness.conventions import ConventionUpstream, listen
from harness.gateway import PROJECT, Gateway, run
from harness.ports import reserve_port
from harness.socketio import SocketIOServer
from harness.waiting import eventually

PROFILES = PROJECT / "config" / "profiles"
SECRETS = {
    "HASS_TOKEN": 'long-lived "token"',
    "OBS_PASSWORD": "supersecretpassword",
    "TOKEN": "a token of Jupyter",
    **{"WAMP_REALM": "realm1", "STOMP_LOGIN": "guest", "STOMP_DESTINATION": "/topic/a"},
    **{"DISCORD_TOKEN": "a token", "DISCORD_INTENTS": "513"},
    **{"XMPP_DOMAIN": "xmpp.test", "XMPP_USER": "robot", "NATS_SUBJECT": "orders.>"},
}


@pytest.fixture
def profile(start):
    """`await profile(name, converse)`: a gateway with that profile, and an upstream that runs `converse`."""

    async def profile(name, converse, *, path="", ready=True, settings=None, env=SECRETS, **options):
        upstream = await start(ConventionUpstream(converse, **options))
        arguments = ("--profile", name, "--upstream", upstream.url + path)
        gateway = await start(Gateway(*arguments, env={**env, **(settings or {})}))
        if ready:
            await gateway.ready()
        return gateway, upstream

    return profile


async def poll(gateway, count=1):
    """The first `count` pushes."""
    client = gateway.client()

    async def enough():
        payloads = (await client.poll(cursor="earliest", wait=0)).payloads
        return payloads if len(payloads) >= count else None

    return await eventually(enough, what=f"{count} pushes are in")


async def reconnect(gateway, upstream, count):
    """Breaks the connection. Returns at least `count` messages of the next connection."""
    before = len(upstream.conversations)
    upstream.reset_connections()
    await upstream.has_conversations(before + 1)
    heard = await upstream.has_heard(count)
    await gateway.ready()
    return [json.loads(message) for message in heard[:count]]


async def post(gateway, message):
    await gateway.client().accepted(message if isinstance(message, str) else json.dumps(message))


async def call(gateway, message):
    """The reply of the upstream to a call."""
    client = gateway.client()
    headers = {"Content-Type": "application/json"}
    body = json.dumps(message)
    response = await client.request("POST", "/v1/call", params={"wait": "30s"}, data=body, headers=headers)
    assert response.status == 200, response.body
    return response


@pytest.mark.parametrize("path", sorted(PROFILES.glob("*.yaml")), ids=lambda path: path.stem)
async def test_every_profile_is_a_valid_configuration(path):
    # A profile without a URL gets its address from another server, so the command line must not give one.
    address = ("--upstream", "wss://127.0.0.1:1/") if "\n  url: " in path.read_text() else ()
    status, out, err = await run("check-config", "--profile", path.stem, *address, env=SECRETS)
    assert (status, err) == (0, ""), err
    assert out.startswith(f"profile {path.stem}: valid\n")
    assert all(secret not in out for secret in SECRETS.values())


@pytest.mark.parametrize("path", sorted(PROFILES.glob("*.yaml")), ids=lambda path: path.stem)
async def test_the_address_of_a_profile_is_used_only_if_it_is_no_example(path):
    text = path.read_text()
    url = re.search(r"^  url: (.*)$", text, re.MULTILINE)
    status, _, err = await run("check-config", "--profile", path.stem, env=SECRETS)
    if not url or "--upstream" not in text[: text.index("\nupstream:")]:
        assert (status, err) == (0, "")
        return
    example = url[1].split("?")[0]
    example += "/" if example.count("/") == 2 else ""
    line = text[: url.start()].count("\n") + 1
    assert status == 78
    assert err == (
        f"drawbridge: profile {path.stem}:{line}:8: 'upstream.url' cannot be used: the address in a profile is only an "
        f"example: give the address of your service, as in --upstream {example}\n"
    )


async def test_every_profile_is_listed_and_printed():
    status, out, _ = await run("profiles")
    files = {path.stem: path for path in PROFILES.glob("*.yaml")}
    documented = re.findall(r"^\| `([a-z-]+)` \|", (PROJECT / "docs/upstreams.md").read_text(), re.MULTILINE)
    listed = [line.split()[0] for line in out.splitlines()]
    assert status == 0
    assert set(listed) == files.keys()
    assert documented[: len(listed)] == listed
    for name, path in files.items():
        assert await run("profiles", name) == (0, path.read_text(), "")


async def test_a_profile_is_overridden_by_file_environment_set_and_flag_in_this_order(tmp_path):
    file = tmp_path / "drawbridge.yaml"
    file.write_text("upstream: {heartbeat: {interval: 11s, timeout: 11s}, subprotocols: [a], queue: {ttl: 11s}}\n")

    async def settings(*arguments, env=None):
        status, out, err = await run(
            "check-config", "--all", "--profile", "plain", "--upstream", "ws://127.0.0.1:1/", *arguments, env=env or {}
        )
        assert status == 0, err
        return dict(line.split("  #")[0].split(": ", 1) for line in out.splitlines()[1:] if not line.startswith("#"))

    assert (await settings())["upstream.heartbeat.interval"] == "20s"
    arguments = ["--config", file]
    found = await settings(*arguments)
    assert (found["upstream.heartbeat.interval"], found["upstream.queue.ttl"]) == ("11s", "11s")
    env = {"DRAWBRIDGE_UPSTREAM_HEARTBEAT_INTERVAL": "12s", "DRAWBRIDGE_UPSTREAM_SUBPROTOCOLS": "b"}
    found = await settings(*arguments, env=env)
    assert (found["upstream.heartbeat.interval"], found["upstream.heartbeat.timeout"]) == ("12s", "11s")
    arguments += ["--set", "upstream.heartbeat.interval=13s", "--set", "upstream.subprotocols=c,d"]
    found = await settings(*arguments, env=env)
    assert (found["upstream.heartbeat.interval"], found["upstream.subprotocols"]) == ("13s", '["c", "d"]')
    assert (await settings(*arguments, "--subprotocol", "e", env=env))["upstream.subprotocols"] == '["e"]'


async def test_the_profile_can_be_in_the_environment():
    arguments = ("check-config", "--upstream", "ws://127.0.0.1:1/")
    status, out, _ = await run(*arguments, env={"DRAWBRIDGE_PROFILE": "socketio"})
    assert (status, out.splitlines()[0]) == (0, "profile socketio: valid")


async def test_healthcheck_reads_the_profile_that_serve_reads(start):
    server = await start(SocketIOServer())
    namespaces = {"DRAWBRIDGE_PROFILE": "socketio", "DRAWBRIDGE_UPSTREAM_SOCKETIO_NAMESPACES": "[{name: /}]"}
    gateway = await start(Gateway("--upstream", server.url, env=namespaces))
    host, port = gateway.address("management")
    status, _, err = await run("healthcheck", "--management", f"{host}:{port}", env=namespaces)
    assert status == 0, err


async def test_a_credential_replaces_the_credential_of_the_profile(tmp_path):
    file = tmp_path / "token"
    file.write_text("long-lived")
    arguments = ("check-config", "--profile", "home-assistant", "--set", f"upstream.credential.file={file}")
    status, out, err = await run(*arguments)
    assert status == 0, err
    assert f"upstream.credential.file: {file}" in out.replace('"', "")
    assert "upstream.credential.env" not in out


@pytest.mark.parametrize(
    ("arguments", "status", "error"),
    [
        (["--profile", "phenix"], 64, "unknown profile 'phenix' (did you mean 'phoenix'?)"),
        (["--set", "upstream.url"], 64, "use KEY=VALUE"),
        (
            ["--set", "upstream.queue.tll=3s"],
            78,
            "--set upstream.queue.tll: no such setting (did you mean 'upstream.queue.ttl'?)",
        ),
        (
            ["--set", "upstream.queue=3"],
            78,
            "'upstream.queue' is a section: set one of its keys, such as upstream.queue.",
        ),
        (["--set", "sessions.a.upstream.url=ws://a/"], 78, "'sessions' can be set in a file only"),
        (["--set", "upstream.heartbeat.interval=x"], 78, "'x' is not valid for 'upstream.heartbeat.interval'"),
        (["--set", "upstream.close_codes={4401: nothing}"], 78, "--set upstream.close_codes"),
    ],
)
async def test_a_wrong_profile_or_assignment_is_refused(arguments, status, error):
    found, _, err = await run("check-config", "--upstream", "ws://127.0.0.1:1/", *arguments)
    assert found == status
    assert error in err


def test_every_profile_is_tested():
    names = {path.stem for path in PROFILES.glob("*.yaml")}
    assert names
    tests = " ".join(name for name in globals() if name.startswith("test_"))
    # test_services.py tests the others against real servers, and test_discord.py against a simulation.
    elsewhere = {service.profile for service in SMALL + LARGE} | {"discord"}
    assert {name for name in names - elsewhere if f"_{name.replace('-', '_')}_" not in tests} == set()


# -- plain ------------------------------------------------------------------------------------------------------------


async def test_a_plain_upstream_is_bridged(profile):
    async def converse(conversation):
        while True:
            await conversation.say("echo " + await conversation.hear())

    gateway, _ = await profile("plain", converse)
    await post(gateway, "hello")
    assert await poll(gateway) == ["echo hello"]


# -- Socket.IO --------------------------------------------------------------------------------------------------------


async def test_a_socketio_server_is_bridged(start):
    server = await start(SocketIOServer(4))
    gateway = await start(Gateway("--config", PROFILES / "socketio.yaml", "--upstream", server.url))
    await gateway.ready()
    response = await gateway.client().request("POST", "/v1/messages", params={"event": "echo"}, data="hello")
    assert response.status == 202
    assert await poll(gateway) == [["hello"]]


# -- JSON-RPC 2.0 -----------------------------------------------------------------------------------------------------


async def test_a_json_rpc_server_is_bridged(profile):
    async def converse(conversation):
        while True:
            call = json.loads(await conversation.hear())
            if call["method"] == "add":
                response = {"jsonrpc": "2.0", "id": call["id"], "result": sum(call["params"])}
            else:
                error = {"code": -32601, "message": "Method not found"}
                response = {"jsonrpc": "2.0", "id": call["id"], "error": error}
            await conversation.say(json.dumps(response))

    quick = {"DRAWBRIDGE_UPSTREAM_HEARTBEAT_CLIENT_INTERVAL": "50ms"}
    gateway, upstream = await profile("json-rpc", converse, settings=quick)
    await upstream.has_heard(3)
    await post(gateway, {"jsonrpc": "2.0", "id": 1, "method": "add", "params": [1, 2]})
    assert await poll(gateway) == [{"jsonrpc": "2.0", "id": 1, "result": 3}]
    assert len(upstream.conversations) == 1
    beats = [json.loads(message)["id"] for message in upstream.last.heard[:3]]
    assert beats == ["drawbridge-1", "drawbridge-2", "drawbridge-3"]


# -- Home Assistant ---------------------------------------------------------------------------------------------------


class HomeAssistant:
    """The authentication phase and the rule about ids, as documented."""

    def __init__(self, token):
        self.token = token

    async def __call__(self, conversation):
        await conversation.say('{"type":"auth_required","ha_version":"2025.1.0"}')
        login = json.loads(await conversation.hear())
        assert login.keys() == {"type", "access_token"}
        assert login["type"] == "auth"
        if login["access_token"] != self.token:
            await conversation.say('{"type":"auth_invalid","message":"Invalid access token or password"}')
            return
        await conversation.say('{"type":"auth_ok","ha_version":"2025.1.0"}')
        last = 0
        while True:
            command = json.loads(await conversation.hear())
            if command["id"] <= last:
                error = {"code": "id_reuse", "message": "Identifier values have to increase."}
                await conversation.say(json.dumps({"id": command["id"], "type": "result", "error": error}))
                continue
            last = command["id"]
            if command["type"] == "ping":
                await conversation.say(json.dumps({"id": last, "type": "pong"}))
                continue
            await conversation.say(json.dumps({"id": last, "type": "result", "success": True, "result": None}))
            if command["type"] == "subscribe_events":
                event = {"event_type": command["event_type"], "data": {"entity_id": "light.kitchen"}}
                await conversation.say(json.dumps({"id": last, "type": "event", "event": event}))


async def test_home_assistant_is_bridged(profile):
    quick = {"DRAWBRIDGE_UPSTREAM_HEARTBEAT_CLIENT_INTERVAL": "50ms"}
    gateway, upstream = await profile("home-assistant", HomeAssistant(SECRETS["HASS_TOKEN"]), settings=quick)
    subscribe = {"id": 1, "type": "subscribe_events", "event_type": "state_changed"}
    subscribed = await call(gateway, subscribe)
    assert subscribed.json == {"id": 1, "type": "result", "success": True, "result": None}
    (event,) = (await gateway.client().poll(cursor="earliest", wait=30, topic="state_changed")).payloads
    assert str(event["id"]) == subscribed.headers["Gateway-Call-Id"]
    # Any number of clients may use any ids.
    responses = await asyncio.gather(*(call(gateway, {"id": 7, "type": "get_states"}) for _ in range(20)))
    assert [response.json["success"] for response in responses] == [True] * 20
    # After a restart, Home Assistant gets the token and the subscription again.
    upstream.reset_connections()
    await upstream.has_conversations(2)
    await gateway.ready()
    assert (await call(gateway, {"id": 3, "type": "get_states"})).json["id"] == 3
    heard = [json.loads(message) for message in upstream.last.heard[1:]]
    assert [message["id"] for message in heard] == list(range(1, len(heard) + 1))
    assert [message["type"] for message in heard if message["type"] != "ping"] == ["subscribe_events", "get_states"]


async def test_home_assistant_refuses_a_wrong_token(profile):
    gateway, upstream = await profile("home-assistant", HomeAssistant("another"), ready=False)

    async def parked():
        status = await gateway.client().session()
        return status if status["state"] == "parked" else None

    status = await eventually(parked, what="the session is parked")
    assert "refused the credentials" in status["last_failure"]
    assert len(upstream.conversations) == 2
    assert SECRETS["HASS_TOKEN"] not in gateway.output


# -- OBS --------------------------------------------------------------------------------------------------------------


def sha256_base64(text):
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


class OBS:
    """Hello, Identify and Identified, with the challenge in the protocol's description."""

    def __init__(self, password):
        self.password = password
        self.salts = (f"salt {number} ä+/=" for number in itertools.count())

    async def __call__(self, conversation):
        assert conversation.connection.subprotocol == "obswebsocket.json"
        salt = next(self.salts)
        authentication = {"challenge": "+IxH4CnCiqpX1rM9scsNynZzbOe4KhDeYcTNS3PDaeY=", "salt": salt}
        hello = {"obsWebSocketVersion": "5.5.2", "rpcVersion": 1, "authentication": authentication}
        await conversation.say(json.dumps({"op": 0, "d": hello}))
        identify = json.loads(await conversation.hear())
        assert identify["op"] == 1
        assert identify["d"]["rpcVersion"] == 1
        proof = sha256_base64(sha256_base64(self.password + salt) + authentication["challenge"])
        if identify["d"]["authentication"] != proof:
            await conversation.close(4009, "Authentication failed.")
            return
        await conversation.say('{"op":2,"d":{"negotiatedRpcVersion":1}}')
        while True:
            request = json.loads(await conversation.hear())["d"]
            status = {"requestStatus": {"result": True, "code": 100}, "requestId": request["requestId"]}
            await conversation.say(json.dumps({"op": 7, "d": status}))


async def test_obs_is_bridged(profile):
    gateway, upstream = await profile("obs", OBS(SECRETS["OBS_PASSWORD"]), subprotocols=["obswebsocket.json"])
    await post(gateway, {"op": 6, "d": {"requestType": "GetVersion", "requestId": "1"}})
    assert (await poll(gateway))[0]["d"]["requestStatus"]["result"] is True
    response = await call(gateway, {"op": 6, "d": {"requestType": "GetVersion", "requestId": "1"}})
    assert response.json["d"]["requestId"] == "1"
    # Each connection has a challenge of its own.
    upstream.reset_connections()
    await upstream.has_conversations(2)
    await gateway.ready()
    assert upstream.conversations[0].heard[0] != upstream.conversations[1].heard[0]


async def test_obs_refuses_another_password(profile):
    gateway, upstream = await profile("obs", OBS("other"), subprotocols=["obswebsocket.json"], ready=False)

    async def parked():
        return (await gateway.client().session())["state"] == "parked"

    await eventually(parked, what="the session is parked")
    assert len(upstream.conversations) == 2


# -- Binance ----------------------------------------------------------------------------------------------------------


async def test_binance_is_bridged(profile):
    async def converse(conversation):
        streams = []
        # A WebSocket ping with a payload. `websockets` waits for the pong and compares the payload.
        await asyncio.wait_for(await conversation.connection.ping("1735689600000"), 30)
        while True:
            command = json.loads(await conversation.hear())
            if command["method"] == "SUBSCRIBE":
                streams += command["params"]
            await conversation.say(json.dumps({"result": None, "id": command["id"]}))
            for stream in streams:
                symbol, _, kind = stream.partition("@")
                await conversation.say(json.dumps({"e": kind, "s": symbol.upper(), "p": "0.00100000"}))

    gateway, upstream = await profile("binance", converse)
    assert await poll(gateway) == [{"e": "miniTicker", "s": "BTCUSDT", "p": "0.00100000"}]
    await post(gateway, {"method": "SUBSCRIBE", "params": ["ethusdt@trade"], "id": 1})
    pushes = await poll(gateway, 4)
    assert pushes[1:] == [
        {"result": None, "id": 1},
        {"e": "miniTicker", "s": "BTCUSDT", "p": "0.00100000"},
        {"e": "trade", "s": "ETHUSDT", "p": "0.00100000"},
    ]
    assert len(upstream.conversations) == 1
    await post(gateway, {"method": "SUBSCRIBE", "params": ["bnbusdt@trade"], "id": 2})
    await post(gateway, {"method": "UNSUBSCRIBE", "params": ["ethusdt@trade"], "id": 3})
    await upstream.has_heard(4)
    heard = await reconnect(gateway, upstream, 2)
    assert [message["params"] for message in heard] == [["btcusdt@miniTicker"], ["bnbusdt@trade"]]
    assert (await call(gateway, {"method": "LIST_SUBSCRIPTIONS", "id": 1})).json == {"result": None, "id": 1}


# -- Huobi ------------------------------------------------------------------------------------------------------------


async def test_huobi_is_bridged(profile):
    def packed(value):
        return gzip.compress(json.dumps(value).encode())

    async def converse(conversation):
        pings = itertools.count(1492420473027)
        unanswered = []
        while True:
            message = json.loads(await conversation.hear())
            if "pong" in message:
                assert message == {"pong": unanswered.pop(0)}
            elif "sub" in message:
                response = {"id": message["id"], "status": "ok", "subbed": message["sub"], "ts": 1}
                await conversation.say(packed(response), packed({"ch": message["sub"], "tick": {"close": 7.5}}))
            ping = next(pings)
            if ping < 1492420473027 + 20:
                unanswered.append(ping)
                await conversation.say(packed({"ping": ping}))

    gateway, upstream = await profile("huobi", converse)
    heard = await upstream.has_heard(21)
    assert sum("pong" in message for message in heard) == 20
    await post(gateway, {"sub": "market.ethusdt.trade.detail", "id": "1"})
    pushes = await poll(gateway, 3)
    assert pushes == [
        {"ch": "market.btcusdt.ticker", "tick": {"close": 7.5}},
        {"id": "1", "status": "ok", "subbed": "market.ethusdt.trade.detail", "ts": 1},
        {"ch": "market.ethusdt.trade.detail", "tick": {"close": 7.5}},
    ]
    upstream.reset_connections()
    await upstream.has_conversations(2)

    def subscribed():
        return [message["sub"] for message in map(json.loads, upstream.last.heard) if "sub" in message]

    again = ["market.btcusdt.ticker", "market.ethusdt.trade.detail"]
    await eventually(lambda: subscribed() == again, what="both are subscribed to again")
    response = await call(gateway, {"sub": "market.ethusdt.trade.detail", "id": "9"})
    assert (response.json["id"], response.json["status"]) == ("9", "ok")


# -- GraphQL ----------------------------------------------------------------------------------------------------------


class GraphQL:
    """graphql-transport-ws: no message before connection_init, no id twice, and pings in both directions."""

    async def __call__(self, conversation):
        assert conversation.connection.subprotocol == "graphql-transport-ws"
        first = json.loads(await conversation.hear())
        assert first["type"] == "connection_init"
        await conversation.say('{"type":"connection_ack"}', '{"type":"ping","payload":{}}')
        active = set()
        while True:
            message = json.loads(await conversation.hear())
            match message["type"]:
                case "ping":
                    await conversation.say('{"type":"pong"}')
                case "pong":
                    pass
                case "subscribe" if "unknown" in message["payload"]["query"]:
                    await conversation.say(json.dumps({"id": message["id"], "type": "error", "payload": []}))
                case "subscribe":
                    if message["id"] in active:
                        await conversation.close(4409, f"Subscriber for {message['id']} already exists")
                        return
                    active.add(message["id"])
                    data = {"data": {"price": 3}}
                    await conversation.say(json.dumps({"id": message["id"], "type": "next", "payload": data}))
                case "complete":
                    active.discard(message["id"])
                case kind:
                    await conversation.close(4400, f"Invalid message type {kind}")
                    return


async def test_graphql_transport_ws_is_bridged(profile):
    quick = {"DRAWBRIDGE_UPSTREAM_HEARTBEAT_CLIENT_INTERVAL": "50ms"}
    gateway, upstream = await profile(
        "graphql-transport-ws", GraphQL(), settings=quick, subprotocols=["graphql-transport-ws"]
    )
    await post(gateway, {"id": "prices", "type": "subscribe", "payload": {"query": "subscription { price }"}})
    assert await poll(gateway) == [{"id": "prices", "type": "next", "payload": {"data": {"price": 3}}}]
    await eventually(
        lambda: sum('"ping"' in message for message in upstream.last.heard) >= 3, what="three pings are sent"
    )
    assert '{"type":"pong"}' in upstream.last.heard
    assert len(await poll(gateway)) == 1, "no ping and no pong is a push"
    assert len(upstream.conversations) == 1
    await post(gateway, {"id": "order", "type": "subscribe", "payload": {"query": "mutation { buy }"}})
    await poll(gateway, 2)
    commented = "# all of them\n  subscription { prices }"
    await post(gateway, {"id": "more", "type": "subscribe", "payload": {"query": commented}})
    await post(gateway, {"id": "bad", "type": "subscribe", "payload": {"query": "subscription { unknown }"}})
    assert (await poll(gateway, 4))[-1] == {"id": "bad", "type": "error", "payload": []}
    upstream.reset_connections()
    await upstream.has_conversations(2)

    def subscribed():
        return [message["id"] for message in map(json.loads, upstream.last.heard) if message["type"] == "subscribe"]

    await eventually(lambda: '"ping"' in str(upstream.last.heard[3:]), what="the new connection is in use")
    assert subscribed() == ["prices", "more"], "and nothing is bought twice, and nothing that has failed is asked again"
    query = {"id": "1", "type": "subscribe", "payload": {"query": "{ price }"}}
    assert (await call(gateway, query)).json == {"id": "1", "type": "next", "payload": {"data": {"price": 3}}}


async def test_a_forbidden_graphql_session_is_parked(profile):
    async def converse(conversation):
        await conversation.hear()
        await conversation.close(4403, "Forbidden")

    gateway, upstream = await profile(
        "graphql-transport-ws", converse, ready=False, subprotocols=["graphql-transport-ws"]
    )

    async def parked():
        return (await gateway.client().session())["state"] == "parked"

    await eventually(parked, what="the session is parked")
    assert len(upstream.conversations) == 2


# -- Phoenix ----------------------------------------------------------------------------------------------------------


class Phoenix:
    """Channels with the second serializer: join, reply, broadcast, heartbeat."""

    def __init__(self, accepts=True):
        self.accepts = accepts

    async def __call__(self, conversation):
        assert conversation.request.path == "/socket/websocket?vsn=2.0.0"
        joined = {}
        while True:
            join, ref, topic, event, payload = json.loads(await conversation.hear())
            reply = {"status": "ok", "response": {}}
            if event == "phx_join":
                joined[topic] = join
                if not self.accepts:
                    reply = {"status": "error", "response": {"reason": "unauthorized"}}
            elif topic != "phoenix" and joined.get(topic) != join:
                reply = {"status": "error", "response": {"reason": "unmatched topic"}}
            await conversation.say(json.dumps([join, ref, topic, "phx_reply", reply]))
            if event == "new_msg":
                await conversation.say(json.dumps([None, None, topic, event, payload]))


async def test_phoenix_is_bridged(profile):
    quick = {"DRAWBRIDGE_UPSTREAM_HEARTBEAT_CLIENT_INTERVAL": "50ms"}
    gateway, upstream = await profile("phoenix", Phoenix(), path="socket/websocket?vsn=2.0.0", settings=quick)
    await upstream.has_heard(4)
    beats = [json.loads(message)[1:4] for message in upstream.last.heard[1:4]]
    assert beats == [[f"drawbridge-{number}", "phoenix", "heartbeat"] for number in (1, 2, 3)]
    await post(gateway, ["1", "7", "room:lobby", "new_msg", {"body": "hello"}])
    assert await poll(gateway, 2) == [
        ["1", "7", "room:lobby", "phx_reply", {"status": "ok", "response": {}}],
        [None, None, "room:lobby", "new_msg", {"body": "hello"}],
    ]
    assert len(upstream.conversations) == 1
    await post(gateway, ["8", "8", "room:tea", "phx_join", {}])
    await poll(gateway, 3)
    heard = await reconnect(gateway, upstream, 2)
    assert [message[2:4] for message in heard] == [["room:lobby", "phx_join"], ["room:tea", "phx_join"]]
    response = await call(gateway, ["1", "9", "room:lobby", "new_msg", {"body": "hello"}])
    assert response.json == ["1", "9", "room:lobby", "phx_reply", {"status": "ok", "response": {}}]


async def test_phoenix_refuses_to_join_a_channel(profile):
    gateway, upstream = await profile("phoenix", Phoenix(False), path="socket/websocket?vsn=2.0.0", ready=False)

    async def parked():
        return (await gateway.client().session())["state"] == "parked"

    await eventually(parked, what="the session is parked")
    assert len(upstream.conversations) == 2


# -- Slack: a simulation of its documentation --------------------------------------------------------------------------


class Slack:
    """The method apps.connections.open over HTTP, and the WebSocket that its response names."""

    def __init__(self, token):
        self.token = token
        self.acknowledged = []
        self.tickets = []
        self.websocket = ConventionUpstream(self._converse)
        self.port = reserve_port()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    async def start(self):
        await self.websocket.start()
        application = aiohttp.web.Application()
        application.router.add_post("/api/apps.connections.open", self._open)
        self._runner = aiohttp.web.AppRunner(application)
        await self._runner.setup()
        await aiohttp.web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    async def stop(self):
        await self._runner.cleanup()
        await self.websocket.stop()

    async def _open(self, request):
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return aiohttp.web.json_response({"ok": False, "error": "invalid_auth"})
        self.tickets.append(f"ticket-{len(self.tickets)}")
        # Slack writes each slash of the URL as \/.
        url = f"{self.websocket.url}link/?ticket={self.tickets[-1]}&app_id=A1".replace("/", "\\/")
        return aiohttp.web.Response(text=f'{{"ok":true,"url":"{url}"}}', content_type="application/json")

    async def _converse(self, conversation):
        assert conversation.request.path == f"/link/?ticket={self.tickets[-1]}&app_id=A1"
        info = {"app_id": "A1", "approximate_connection_time": 18060}
        await conversation.say(json.dumps({"type": "hello", "num_connections": 1, "debug_info": info}))
        while True:
            self.acknowledged.append(json.loads(await conversation.hear()))

    async def send(self, envelope, type="events_api", **payload):
        message = {"envelope_id": envelope, "type": type, "payload": payload, "accepts_response_payload": False}
        await self.websocket.last.say(json.dumps(message))


async def slack(start, folder, service, token):
    """A gateway with the profile, whose command asks the simulation."""
    await start(service)
    config = (PROFILES / "slack.yaml").read_text().replace("https://slack.com", service.url)
    config += f"\nstore: {{engine: sqlite, path: '{folder}/slack.db'}}\n"
    return await start(Gateway(config=config, env={"SLACK_APP_TOKEN": token}, folder=folder))


async def test_slack_is_bridged(start, tmp_path):
    service = Slack("xapp-secret")
    gateway = await slack(start, tmp_path, service, "xapp-secret")
    await gateway.ready()
    client = gateway.client()
    await service.send("e1", event={"type": "message", "text": "hello"})
    await service.send("e2", type="slash_commands", command="/deploy")
    payloads, _ = await client.collect(1, "earliest", topic="message")
    assert payloads[0]["payload"]["event"]["text"] == "hello"
    payloads, cursor = await client.collect(1, "earliest", topic="slash_commands")
    assert payloads[0]["payload"]["command"] == "/deploy"
    both = [{"envelope_id": "e1"}, {"envelope_id": "e2"}]
    await eventually(lambda: service.acknowledged == both, what="both are acknowledged")
    # Slack asks for a new connection, whose URL has a new ticket.
    await service.websocket.last.say('{"type":"disconnect","reason":"warning","debug_info":{"host":"wss-1.slack.com"}}')
    await service.websocket.has_conversations(2)
    await gateway.ready()
    assert (await client.session())["last_failure"].endswith(": Slack requests a new connection")
    await service.send("e3", event={"type": "message", "text": "again"})
    await eventually(lambda: service.acknowledged == [*both, {"envelope_id": "e3"}], what="it is acknowledged")
    batch = await client.poll(cursor=cursor, wait=0, topic="message")
    assert [each["envelope_id"] for each in batch.payloads] == ["e3"]
    assert batch.gap["reason"] == "upstream"
    assert service.tickets == ["ticket-0", "ticket-1"]
    assert "xapp-secret" not in gateway.output
    assert "ticket-" not in gateway.output


async def test_slack_refuses_a_wrong_token(start, tmp_path):
    gateway = await slack(start, tmp_path, Slack("xapp-secret"), "xapp-other")

    async def failed():
        return "has no text at '/url' ('upstream.url.pointer'), but the error: invalid_auth" in (
            (await gateway.client().session())["last_failure"] or ""
        )

    await eventually(failed, what="the session reports that there is no URL")
    assert "xapp-other" not in gateway.output


# -- Twitch: a simulation of its documentation -------------------------------------------------------------------------


def twitch(kind, *, type="", **payload):
    subscription = {"subscription_type": type} if type else {}
    return json.dumps({"metadata": {"message_id": "m", "message_type": kind, **subscription}, "payload": payload})


async def test_twitch_is_bridged(profile):
    async def converse(conversation):
        number = len(upstreams)
        upstreams.append(conversation)
        await conversation.say(
            twitch(
                "session_welcome", session={"id": f"session {number}", "status": "connected", "reconnect_url": None}
            ),
            twitch("session_keepalive"),
            twitch("notification", type="stream.online", event={"n": number}),
        )
        await listen(conversation)

    upstreams = []
    gateway, upstream = await profile("twitch", converse, path="ws")
    client = gateway.client()

    payloads, _ = await client.collect(1, "earliest", topic="stream.online")
    assert [each["payload"]["event"] for each in payloads] == [{"n": 0}]
    assert (await client.session())["captures"] == {"session": "session 0"}
    assert (await client.poll(cursor="earliest", wait=0, topic="session_keepalive")).messages == []
    # Twitch moves the session: the next connection goes to its address.
    address = f"{upstream.url}move?id=secret"
    await upstreams[0].say(twitch("session_reconnect", session={"id": "session 0", "reconnect_url": address}))
    await upstream.has_conversations(2)
    await gateway.ready()
    assert upstream.last.request.path == "/move?id=secret"
    assert "secret" not in gateway.output
