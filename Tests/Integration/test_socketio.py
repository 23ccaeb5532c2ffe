"""Socket.IO upstreams, with python-socketio in both versions as real servers."""

import asyncio
import base64
import json
import signal
from urllib.parse import parse_qs

import pytest

from harness.gateway import run
from harness.socketio import SocketIOServer, configuration
from harness.waiting import eventually


@pytest.fixture(params=[4, 3], ids=["engine4", "engine3"])
def version(request):
    return request.param


@pytest.fixture
def session_with(start, gateway_for):
    """`await session_with(version, …)`: a server, and a gateway in front of it that is ready."""

    async def session_with(version, *, server=None, ready=True, upstream=None, path="", **socketio):
        server = await start(SocketIOServer(version, **(server or {})))
        config = configuration(server, path=path, **socketio)
        config["upstream"].update(upstream or {})
        gateway = await gateway_for(None, config=json.dumps(config), ready=ready)
        return server, gateway, gateway.client()

    return session_with


async def emit(client, event, body=b"", *, type="application/json", **parameters):
    data = json.dumps(body).encode() if type == "application/json" and not isinstance(body, bytes) else body
    return await client.request(
        "POST",
        f"{client.root}/messages",
        params={"event": event, **parameters},
        data=data,
        headers={"Content-Type": type},
    )


async def envelope(client, path="messages", **members):
    return await client.request(
        "POST", f"{client.root}/{path}", data=json.dumps(members), headers={"Content-Type": "application/json"}
    )


async def received(client, count, **parameters):
    """The first `count` messages since the start."""

    async def read():
        response = await client.request(
            "GET", "/v1/messages", params={"cursor": "earliest", "wait": "0", "limit": "1000", **parameters}
        )
        assert response.status == 200, response.body
        messages = response.json["messages"]
        return [messages] if len(messages) >= count else None

    return (await eventually(read, what=f"{count} pushes"))[0]


# -- Events -----------------------------------------------------------------------------------------------------------


async def test_events_pass_both_ways(session_with, version):
    server, _, client = await session_with(version)
    assert (await emit(client, "echo", {"n": 1})).status == 202
    assert (await emit(client, "echo", "hello", type="text/plain")).status == 202
    assert (await emit(client, "echo", b"hello", type="application/x-www-form-urlencoded")).status == 202
    assert (await emit(client, "echo")).status == 202
    response = await envelope(client, event="echo", args=["hi", {"n": [1, None]}, 2])
    assert response.status == 202
    assert response.json["type"] == "event"
    messages = await received(client, 5)
    assert [message["data"] for message in messages] == [
        [{"n": 1}],
        ["hello"],
        ["hello"],
        [],
        ["hi", {"n": [1, None]}, 2],
    ]
    assert {(m["type"], m["topic"], m["namespace"]) for m in messages} == {("event", "echoed", "/")}
    assert await server.first("echo") == [["/", [{"n": 1}]]]
    # In version 4, a WebSocket ping confirms the event, and in version 3 a packet of Engine.IO.
    await eventually(lambda: is_confirmed(client, response), what="the event is confirmed")


async def is_confirmed(client, response):
    state = await client.request("GET", response.headers["Location"])
    return state.json["state"] == "confirmed"


async def test_binary_data_keeps_its_place_in_an_event(session_with, version):
    server, _, client = await session_with(version)
    assert (await emit(client, "echo", b"\x00\xff", type="application/octet-stream")).status == 202
    args = [{"a": {"_placeholder": True, "num": 1}}, [{"num": 0, "_placeholder": True}], "x"]
    attachments = [base64.b64encode(data).decode() for data in (b"\x01\x02\x03", b"\x04")]
    assert (await envelope(client, event="echo", args=args, attachments=attachments)).status == 202
    first, second = await received(client, 2)
    assert first["data"] == [{"_placeholder": True, "num": 0}]
    assert first["attachments"] == [base64.b64encode(b"\x00\xff").decode()]
    assert sorted(second["attachments"]) == sorted(attachments)
    _, echoed = await server.first("echo", count=2)
    assert echoed == ["/", [{"a": {"bytes": "BA=="}}, [{"bytes": "AQID"}], "x"]]


async def test_a_body_whose_type_is_stated_is_text_or_bytes_whatever_its_content_type(session_with, version):
    _server, _, client = await session_with(version)

    async def post(data, content_type, **parameters):
        return await client.request(
            "POST", f"{client.root}/messages", params=parameters, data=data, headers={"Content-Type": content_type}
        )

    assert (await post(b'{"n":1}', "application/json", event="echo", type="binary")).status == 202
    assert (await post(b'{"n":1}', "application/octet-stream", event="echo", type="text")).status == 202
    assert (await post(b'{"n":1}', "application/json", event="echo", type="text")).status == 202
    assert (await post(b'{"event":"echo","args":[2]}', "application/octet-stream", type="text")).status == 202
    bytes_, text, json_, envelope_ = await received(client, 4)
    assert bytes_["attachments"] == [base64.b64encode(b'{"n":1}').decode()]
    assert [m["data"] for m in (text, json_, envelope_)] == [['{"n":1}'], [{"n": 1}], [2]]
    detail = (await post(b'{"event":"echo"}', "application/json", type="binary")).problem(415)["detail"]
    assert "type=text" in detail

    async def call(data, content_type, **parameters):
        response = await client.request(
            "POST", f"{client.root}/call", params=parameters, data=data, headers={"Content-Type": content_type}
        )
        assert response.status == 200, response.body
        return response.json

    assert (await call(b'{"n":1}', "application/octet-stream", event="mirror", type="text"))["args"] == ['{"n":1}']
    assert (await call(b'{"event":"mirror","args":[2]}', "application/octet-stream", type="text"))["args"] == [2]
    assert (await call(b'{"n":1}', "application/json", event="mirror", type="binary"))["attachments"] == [
        base64.b64encode(b'{"n":1}').decode()
    ]


async def test_events_of_several_namespaces_pass(session_with, version):
    _server, _, client = await session_with(version, namespaces=[{"name": "/admin"}, {"name": "/"}])
    assert (await emit(client, "echo", 1, namespace="/admin")).status == 202
    assert (await envelope(client, event="echo", args=[2], namespace="/")).status == 202
    assert {(m["namespace"], m["data"][0]) for m in await received(client, 2)} == {("/admin", 1), ("/", 2)}
    assert [m["data"] for m in await received(client, 1, namespace="/admin")] == [[1]]
    assert [m["data"] for m in await received(client, 1, namespace="/", topic="echo*")] == [[2]]
    state = (await client.request("GET", "/v1/session")).json
    assert [(n["name"], n["state"]) for n in state["namespaces"]] == [("/", "connected"), ("/admin", "connected")]


async def test_a_batch_has_one_envelope_per_line(session_with):
    _, _, client = await session_with(4)
    lines = "\n".join(json.dumps({"event": "echo", "args": [number]}) for number in range(5))
    response = await client.request(
        "POST", "/v1/messages", data=lines, headers={"Content-Type": "application/x-ndjson", "Idempotency-Key": "k"}
    )
    assert response.status == 202
    assert len(response.json["results"]) == 5
    assert [m["data"] for m in await received(client, 5)] == [[number] for number in range(5)]
    bad = await client.request(
        "POST", "/v1/messages", data=lines + '\n{"x":1}', headers={"Content-Type": "application/x-ndjson"}
    )
    assert "message 6 of the batch" in bad.problem(422)["detail"]


async def test_refusals_say_what_is_accepted(session_with):
    _, _, client = await session_with(4, server={"max_http_buffer_size": 10_000})
    for name in ("connect", "disconnect", "newListener", "connect_error"):
        assert "reserved" in (await emit(client, name)).problem(422)["detail"]
    assert "/nowhere" in (await emit(client, "x", namespace="/nowhere")).problem(422)["detail"]
    assert (
        "an envelope is an object"
        in (await envelope(client, "messages") and await client.send("[1]")).problem(422)["detail"]
    )
    assert "no 'event'" in (await envelope(client, args=[])).problem(422)["detail"]
    assert "placeholder" in (await envelope(client, event="x", attachments=["AQID"])).problem(422)["detail"]
    assert "base64" in (await envelope(client, event="x", attachments=["?"])).problem(422)["detail"]
    assert "not valid JSON" in (await emit(client, "x", b"{")).problem(422)["detail"]
    assert "?event=NAME" in (await client.send(b"\xff")).problem(415)["detail"]
    assert (
        "namespace needs event"
        in (await client.request("POST", "/v1/messages", params={"namespace": "/"}, data=b"")).problem(400)["detail"]
    )
    large = await emit(client, "x", "y" * 10_000)
    assert "limit of the upstream" in large.problem(413)["detail"]
    assert (await envelope(client, ack="a-1", args=[])).problem(422)["detail"].startswith("clients do not send")


async def test_plain_sessions_have_no_events(gateway, client):
    response = await client.request("POST", "/v1/messages", params={"event": "x"}, data=b"")
    assert "Socket.IO" in response.problem(400)["detail"]


# -- Acknowledgements -------------------------------------------------------------------------------------------------


async def test_calls_wait_for_the_acknowledgement(session_with, version):
    _, _, client = await session_with(version, namespaces=["/", "/admin"])
    response = await envelope(client, "call", event="sum", args=[1, 2, 3], namespace="/admin")
    assert (response.status, response.json) == (200, {"args": [6, {"of": 3}], "attachments": []})
    response = await client.request("POST", "/v1/call", params={"event": "mirror"}, data=b"\x01\xff")
    assert response.json == {"args": [{"_placeholder": True, "num": 0}], "attachments": ["Af8="]}


async def test_a_late_acknowledgement_is_shown_by_the_delivery(session_with):
    _, _, client = await session_with(4)
    response = await client.request("POST", "/v1/call", params={"event": "later", "wait": "50ms"}, data="x")
    location = response.headers["Location"]
    response.problem(504)

    async def late():
        return (await client.request("GET", location)).json.get("reply")

    assert (await eventually(late, what="the late reply"))["args"] == ["x"]


async def test_a_call_ends_with_its_connection(session_with):
    server, _, client = await session_with(4)
    call = asyncio.create_task(client.request("POST", "/v1/call", params={"event": "slow"}, data=b"x"))
    await eventually(lambda: server.of("slow"), what="the event has arrived")
    await server.kill()
    (await call).problem(502)


async def test_a_call_ends_with_its_namespace(session_with, version):
    server, _gateway, client = await session_with(version, namespaces=["/", {"name": "/admin", "required": False}])
    call = asyncio.create_task(
        client.request("POST", "/v1/call", params={"event": "slow", "namespace": "/admin"}, data=b"x")
    )
    await eventually(lambda: server.of("slow"), what="the event has arrived")
    assert (await emit(client, "bye", namespace="/admin")).status == 202
    (await call).problem(502)
    # The other namespace still works.
    assert (await envelope(client, "call", event="sum", args=[1])).json["args"][0] == 1
    state = (await client.request("GET", "/v1/session")).json
    assert state["namespaces"][1] == {
        "name": "/admin",
        "required": False,
        "state": "disconnected",
        "reason": None,
    }
    refused = await emit(client, "echo", namespace="/admin")
    assert "disconnected" in refused.problem(503)["detail"]
    assert await server.first("connect", "/") == server.of("connect", "/")


async def test_the_gateway_acknowledges_what_it_has_stored(session_with, version):
    server, _, client = await session_with(version)
    assert (await emit(client, "ask", "really?")).status == 202
    message = (await received(client, 1))[0]
    assert (message["topic"], message["data"]) == ("question", ["really?"])
    assert "ack" not in message
    assert await server.first("acknowledged") == [["/", ["really?"], []]]


async def test_clients_acknowledge_once(session_with, version):
    server, _, client = await session_with(version, acks="client")
    assert (await emit(client, "ask", "really?")).status == 202
    token = (await received(client, 1))[0]["ack"]
    response = await envelope(client, ack=token, args=["yes", {"n": 1}])
    assert response.status == 202
    assert await server.first("acknowledged") == [["/", ["really?"], ["yes", {"n": 1}]]]
    assert (await envelope(client, ack=token)).problem(410)["type"] == "/errors/acknowledgement-gone"
    assert (await emit(client, "ask", "again")).status == 202
    token = (await received(client, 2))[1]["ack"]
    await server.kill()
    await eventually(lambda: is_gone(client, token), what="the acknowledgement is gone")


async def is_gone(client, token):
    return (await envelope(client, ack=token)).status == 410


# -- Opening ----------------------------------------------------------------------------------------------------------


async def test_the_query_and_the_credentials_are_sent(session_with, version, tmp_path):
    secret = tmp_path / "token"
    secret.write_text('s3cret-"1"\n')
    auth = '{"token":"${json:${credential}}","n":1}' if version == 4 else "token=abc"
    server, _, _ = await session_with(
        version,
        query={"t": "${credential}"},
        namespaces=[{"name": "/admin", "auth": auth}],
        upstream={"credential": {"file": str(secret)}},
        path="/socket.io/?own=1",
    )
    (connect,) = await server.first("connect", "/admin")
    if version == 4:
        assert connect[2] == {"token": 's3cret-"1"', "n": 1}
    query = parse_qs(connect[3], keep_blank_values=True)
    assert query["t"] == ['s3cret-"1"']
    assert (query["own"], query["EIO"], query["transport"]) == (["1"], [str(version)], ["websocket"])


async def test_on_open_sends_envelopes(session_with, version):
    server, _, client = await session_with(
        version,
        upstream={
            "on_open": [
                {
                    "send": '{"event":"echo","args":["hello"]}',
                    "expect": {"json": {"/0": "echoed", "/1": "hello"}},
                }
            ]
        },
    )
    assert await server.first("echo") == [["/", ["hello"]]]
    assert await received(client, 0) == []


async def test_events_before_the_connect_response_are_kept(session_with, version):
    _, _, client = await session_with(version, server={"early": True})
    message = (await received(client, 1))[0]
    assert (message["topic"], message["data"]) == ("early", ["bird"])


async def failure(gateway, client, part):
    async def last():
        text = (await client.request("GET", "/v1/session")).json["last_failure"]
        return text if text and part in text else None

    return await eventually(last, what=f"the failure names {part!r}")


async def test_a_refused_namespace_is_explained(session_with, version):
    _, gateway, client = await session_with(
        version, server={"refused": ["/admin"]}, ready=False, namespaces=["/", "/admin"]
    )
    text = await failure(gateway, client, "refused the namespace '/admin'")
    assert "not here" in text


async def test_an_optional_namespace_may_be_refused(session_with, version):
    _, _, client = await session_with(
        version, server={"refused": ["/admin"]}, namespaces=["/", {"name": "/admin", "required": False}]
    )
    state = (await client.request("GET", "/v1/session")).json
    assert [(n["name"], n["state"]) for n in state["namespaces"]] == [("/", "connected"), ("/admin", "refused")]
    assert "refused" in (await emit(client, "x", namespace="/admin")).problem(503)["detail"]


async def test_a_refusal_does_not_show_the_token(session_with, tmp_path):
    secret = tmp_path / "token"
    secret.write_text("hunter2-hunter2")
    _, gateway, client = await session_with(
        4,
        server={"token": "another"},
        ready=False,
        namespaces=[{"name": "/", "auth": '{"token":"${file:' + str(secret) + '}"}'}],
    )
    text = await failure(gateway, client, "bad token")
    assert "hunter2" not in text
    assert "***" in text


async def test_a_server_without_socketio_is_explained(gateway_for, upstream):
    """The server accepts the upgrade and sends nothing."""
    timeouts = {"upgrade": "500ms", "on_open": "200ms"}
    config = {"upstream": {"kind": "socketio", "url": upstream.url, "timeouts": timeouts}}
    gateway = await gateway_for(None, config=json.dumps(config), ready=False)
    text = await failure(gateway, gateway.client(), "is it a Socket.IO server")
    assert "'upstream.timeouts.on_open'" in text


async def test_a_required_namespace_that_ends_reconnects(session_with, version):
    server, _, client = await session_with(version, namespaces=["/", "/admin"])
    assert (await emit(client, "bye", namespace="/admin")).status == 202
    await server.first("connect", "/admin", 2)


async def test_heartbeats_keep_a_quiet_connection_open(session_with, version):
    server, gateway, _client = await session_with(version, server={"ping_interval": 1, "ping_timeout": 1})

    async def beats():
        metrics = await gateway.metrics()
        name = "received" if version == 4 else "sent"
        return metrics[f"drawbridge_upstream_heartbeats_{name}_total"] >= 4

    await eventually(beats, what="four heartbeats")
    assert await server.first("connect", "/") == server.of("connect", "/")


async def test_a_dead_server_is_detected_by_its_heartbeat(session_with, version):
    server, _, client = await session_with(version, server={"ping_interval": 1, "ping_timeout": 1})
    server.process.send_signal(signal.SIGSTOP)
    try:
        await eventually(lambda: has_failed(client), what="the connection counts as dead")
    finally:
        server.process.send_signal(signal.SIGCONT)


async def has_failed(client):
    return (await client.request("GET", "/v1/session")).json["last_failure"] is not None


# -- Configuration ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("upstream", "part"),
    [
        ({"socketio": {"namespaces": ["saas"]}}, "a namespace begins with '/': write '/saas'"),
        ({"socketio": {"namespaces": [{"name": "/"}, {"name": "/"}]}}, "listed twice"),
        ({"url": "ws://h/socket.io/?EIO=4"}, "leave 'EIO' out of the URL"),
        ({"url": "ws://h/socket.io/?a=b&transport=websocket"}, "leave 'transport' out of the URL"),
        ({"socketio": {"version": 5}}, "one of 3, 4"),
        ({"socketio": {"acks": "sometimes"}}, "one of stored, client, off"),
        ({"socketio": {"query": {"EIO": "4"}}}, "Engine.IO itself uses EIO"),
        ({"correlation": "jsonrpc"}, "calls wait for the acknowledgement"),
        ({"topic": {"pointer": "/a"}}, "the name of an event is the topic"),
        ({"payload_codec": "gzip"}, "attachments are passed on unchanged"),
        ({"kind": "websocket", "socketio": {"version": 3}}, "requires 'kind: socketio'"),
        ({"credential": {"env": "HOME"}}, "not sent anywhere"),
    ],
)
async def test_check_config_explains_the_settings_of_socketio(tmp_path, upstream, part):
    path = tmp_path / "drawbridge.yaml"
    path.write_text(json.dumps({"upstream": {"kind": "socketio", "url": "ws://h", **upstream}}))
    status, out, err = await run("check-config", "--config", path)
    assert status == 78, (out, err)
    assert part in out + err


async def test_check_config_explains_the_url_of_a_profile(tmp_path):
    path = tmp_path / "drawbridge.yaml"
    upstream = {"kind": "socketio", "url": "wss://{host}.example/socket.io/?EIO=4"}
    profile = {"variables": {"host": {}}, "hosts": ["*.example"], "upstream": upstream}
    path.write_text(json.dumps({"profiles": {"chat": profile}}))
    status, out, err = await run("check-config", "--config", path)
    assert status == 78, (out, err)
    assert "profiles.chat.upstream.url" in out + err
    assert "leave 'EIO' out of the URL" in out + err
