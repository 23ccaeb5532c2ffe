"""Credentials that expire or are removed while requests are held and streams are open for them."""

import asyncio
import json
import time

import pytest

from harness.certificates import CertificateAuthority
from harness.conventions import ConventionUpstream
from harness.credentials import with_tokens
from harness.https import connect, exchange, is_held, trusting
from harness.partial_requests import PartialRequest, request
from harness.streams import RawStream
from harness.tokens import bearer
from harness.waiting import eventually

#: A wait that is longer than any test.
LONG = {"wait": 50}
SCOPES = "send,receive,call"
CALLS = {"DRAWBRIDGE_UPSTREAM_CORRELATION": "jsonrpc"}


async def stream_with(gateway, token, query="", **options):
    return await RawStream.open(gateway.address(), query, fields=f"Authorization: Bearer {token}\r\n", **options)


async def end(stream):
    """Reads a stream to its end."""
    while await stream.read():
        pass
    stream.close()


async def ended(tasks):
    """The responses to held requests, which end long before their waits."""
    async with asyncio.timeout(30):
        return await asyncio.gather(*tasks)


def refused(response):
    assert response.problem(401)["type"] == "/errors/unauthorized"
    assert 'error="invalid_token"' in response.headers["WWW-Authenticate"]


class Silent:
    """An upstream that reads messages, and replies to calls only when the test calls `reply`."""

    def __init__(self):
        self.conversation = None
        self.heard = []

    async def __call__(self, conversation):
        self.conversation = conversation
        while True:
            self.heard.append(await conversation.hear())

    @property
    def calls(self):
        return [json.loads(message) for message in self.heard if message.startswith("{")]

    async def reply(self, number):
        call = self.calls[number]
        await self.conversation.say(json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": call["params"]}))

    def pause(self):
        """Stops reading, so that pings get no pong and no message is confirmed."""
        self.conversation.connection.transport.pause_reading()

    def resume(self):
        self.conversation.connection.transport.resume_reading()


@pytest.fixture
def silent(start, gateway_for):
    """`await silent(env)`: a gateway with the silent upstream behind it."""

    async def silent(env):
        upstream = Silent()
        return await gateway_for(await start(ConventionUpstream(upstream)), env={**CALLS, **env}), upstream

    return silent


def call(client, token, number, **parameters):
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "echo", "params": number})
    return client.request("POST", "/v1/call", params=parameters, data=body, headers=bearer(token))


async def hold(gateway, upstream, token):
    """Holds a call, a send that waits for confirmation, and a wait for a delivery. Returns their tasks."""
    client = gateway.client()
    calls = len(upstream.calls)
    tasks = [asyncio.create_task(call(client, token, calls, **LONG))]
    await eventually(lambda: len(upstream.calls) > calls, what="the upstream has the call")
    upstream.pause()
    location = (await client.send("first", headers=bearer(token))).headers["Location"]
    send = client.request(
        "POST", "/v1/messages", params={"until": "confirmed", **LONG}, data="second", headers=bearer(token)
    )
    tasks.append(asyncio.create_task(send))
    tasks.append(asyncio.create_task(client.request("GET", location, params=LONG, headers=bearer(token))))

    async def is_queued():
        # The second message was sent after the heads of the held requests, and waits for its own response.
        return (await gateway.metrics())["drawbridge_messages_accepted_total"] >= 2

    await eventually(is_queued, what="the messages are accepted")
    return tasks


# ------------------------------------------------------------------------------------------------------------- Expiry


async def test_held_requests_end_when_their_token_expires(silent, issuer):
    gateway, upstream = await silent(issuer.settings())
    client = gateway.client()
    token = issuer.token(exp=time.time() + 3, scope="send receive call")
    for document in ({"share": True}, {}):
        name = f"c{len(document)}"
        assert (
            await client.request("PUT", f"/v1/consumers/{name}", json=document, headers=bearer(token))
        ).status == 201
    stream = await stream_with(gateway, token)
    tasks = [asyncio.create_task(client.get(bearer(token), **LONG))]
    tasks += [
        asyncio.create_task(client.request("POST", f"/v1/consumers/{name}/receive", params=LONG, headers=bearer(token)))
        for name in ("c0", "c1")
    ]
    tasks += await hold(gateway, upstream, token)
    poll, *receives, called, sent, delivery = await ended(tasks)
    await end(stream)
    # Each request ends as if its wait were over.
    assert (poll.status, poll.json["messages"]) == (200, [])
    assert [(response.status, response.json["messages"]) for response in receives] == [(200, [])] * 2
    assert called.problem(504)["type"] == "/errors/reply-timeout"
    assert (sent.status, sent.json["state"]) == (202, "written")
    assert (delivery.status, delivery.json["state"]) == (200, "written")
    upstream.resume()

    async def has_expired():
        response = await client.get(bearer(token), wait=0)
        return 'error_description="the token has expired"' in response.headers.get("WWW-Authenticate", "")

    await eventually(has_expired, what="the token is refused")


# ---------------------------------------------------------------------------------------------------------- Revocation


async def removed(gateway, tokens, token):
    """Removes a token, and waits until the gateway refuses it."""
    tokens.remove(token)
    client = gateway.client()

    async def is_removed():
        return (await client.get(bearer(token), wait=0)).status in (401, 429)

    await eventually(is_removed, what="the token is removed")


async def test_a_stream_ends_when_its_token_is_removed(gateway_for, upstream, tokens):
    token, other = tokens.add("a", scopes="receive"), tokens.add("b", scopes="receive")
    env = {**with_tokens(tokens), "DRAWBRIDGE_DELIVERY_STREAM_HEARTBEAT": "1s"}
    gateway = await gateway_for(upstream, env=env)
    ending = await stream_with(gateway, token)
    lasting = await stream_with(gateway, other)
    tokens.remove(token)
    await end(ending)
    await upstream.push("still here")
    await lasting.has(1)
    lasting.close()


@pytest.mark.parametrize("format", ["events", "lines"])
async def test_a_stream_that_ends_with_its_token_gives_its_position(gateway_for, upstream, tokens, format):
    """The client of the stream continues after the pushes that did not match its topics."""
    token, other = tokens.add("a", scopes="receive"), tokens.add("b", scopes="receive")
    gateway = await gateway_for(upstream, env=with_tokens(tokens))
    stream = await stream_with(gateway, token, "topic=a*", format=format)
    start = stream.parser.last_id
    client = gateway.client()
    for number in range(3):
        await upstream.push(json.dumps({"topic": "b", "n": number}))

    async def have_arrived():
        return len((await client.get(bearer(other), cursor="earliest", wait=0)).json["messages"]) == 3

    await eventually(have_arrived, what="the pushes are there")
    await removed(gateway, tokens, token)
    # The next push would match, but the stream ends before sending it.
    await upstream.push(json.dumps({"topic": "a"}))
    await end(stream)
    assert stream.events == []
    assert stream.parser.last_id != start
    rest = await client.get(bearer(other), cursor=stream.parser.last_id, wait=10)
    assert [message["data"] for message in rest.json["messages"]] == [{"topic": "a"}]
    assert rest.json["gap"] is None


async def test_held_requests_get_no_push_after_their_token_is_removed(gateway_for, upstream, tokens):
    token, other = tokens.add("a", scopes="receive"), tokens.add("b", scopes="receive")
    gateway = await gateway_for(upstream, env=with_tokens(tokens))
    client = gateway.client()
    for name, document in (("one", {}), ("shared", {"share": True})):
        response = await client.request("PUT", f"/v1/consumers/{name}", json=document, headers=bearer(other))
        assert response.status == 201

    def receive(name):
        return client.request("POST", f"/v1/consumers/{name}/receive", params={"wait": 50}, headers=bearer(token))

    held = [
        client.get(bearer(token), wait=50),
        client.get(bearer(token), wait=50, topic="a*"),
        receive("one"),
        receive("shared"),
    ]
    held = [asyncio.create_task(request) for request in held]
    lasting = asyncio.create_task(client.get(bearer(other), wait=50))

    async def are_held():
        metrics = await gateway.metrics()
        return metrics["drawbridge_polls_held"] == 3 and metrics["drawbridge_receives_held"] == 2

    await eventually(are_held, what="all requests are held")
    await removed(gateway, tokens, token)
    await upstream.push(json.dumps({"topic": "a1"}))
    for response in await ended(held):
        refused(response)
    assert (await lasting).json["messages"][0]["data"] == {"topic": "a1"}
    # The client with the removed token got no lease.
    response = await client.request("POST", "/v1/consumers/shared/receive", params={"wait": 0}, headers=bearer(other))
    assert [message["deliveries"] for message in response.json["messages"]] == [1]


async def test_only_a_request_without_an_effect_gets_401_after_its_token_is_removed(silent, tokens):
    token, other = tokens.add("a", scopes=SCOPES), tokens.add("b", scopes=SCOPES)
    gateway, upstream = await silent(with_tokens(tokens))
    client = gateway.client()
    lasting = asyncio.create_task(call(client, other, "mine", **LONG))
    await eventually(lambda: len(upstream.calls) == 1, what="the upstream has the call")
    held = await hold(gateway, upstream, token)
    await removed(gateway, tokens, token)
    assert not any(task.done() for task in held)
    # From now on, each request could get its result.
    await upstream.reply(1)
    upstream.resume()
    called, sent, delivery = await ended(held)
    assert called.problem(502)["type"] == "/errors/outcome-unknown"
    assert b"jsonrpc" not in called.body
    refused(delivery)
    assert (sent.status, sent.json["state"]) == (200, "confirmed")
    # The gateway still sends accepted messages, and requests of other clients continue.
    await eventually(lambda: {"first", "second"} <= set(upstream.heard), what="the messages are sent")
    await upstream.reply(0)
    assert (await lasting).json["result"] == "mine"


# --------------------------------------------------------------------------------------------------------- Slow bodies


async def test_a_slow_body_has_no_effect_after_its_token_has_expired(silent, issuer):
    gateway, upstream = await silent(issuer.settings())
    client = gateway.client()
    token, other = issuer.token(exp=time.time() + 2), issuer.token(exp=time.time() + 600)
    slow = await PartialRequest.begin(gateway.address(), request("POST", "/v1/messages", bearer(token), b"late"), -1)
    assert (await client.get(bearer(token), wait=0)).status == 200

    async def has_expired():
        return (await client.get(bearer(token), wait=0)).status == 401

    await eventually(has_expired, what="the token is refused")
    response = await slow.finish()
    refused(response)
    assert "nothing was done" in response.json["detail"]
    await client.accepted("marker", headers=bearer(other))
    await eventually(lambda: "marker" in upstream.heard, what="the upstream has a later message")
    assert "late" not in upstream.heard


# ------------------------------------------------------------------------------------------------------- Late replies


async def test_only_the_client_of_a_call_sees_its_late_reply(silent, tokens):
    names = {"caller": "call", "sender": "send", "other": SCOPES}
    of = {name: tokens.add(name, scopes=scopes) for name, scopes in names.items()}
    gateway, upstream = await silent(with_tokens(tokens))
    client = gateway.client()
    late = await call(client, of["caller"], "secret", wait="0s")
    location = late.headers["Location"]
    assert late.problem(504)["type"] == "/errors/reply-timeout"
    await eventually(lambda: len(upstream.calls) == 1, what="the upstream has the call")
    await upstream.reply(0)

    async def delivery(name):
        response = await client.request("GET", location, headers=bearer(of[name]))
        assert response.status == 200
        return response.json

    reply = await eventually(lambda: _reply(delivery("caller")), what="the caller gets the reply")
    assert reply == {"jsonrpc": "2.0", "id": 1, "result": "secret"}
    for name in ("sender", "other"):
        assert "reply" not in await delivery(name)


async def _reply(delivery):
    return (await delivery).get("reply")


# ------------------------------------------------------------------------------------------------------------- Metrics


async def test_refused_credentials_are_counted_by_reason(gateway_for, upstream, tokens, issuer):
    token = tokens.add("a", scopes="receive", topics="a*")
    gateway = await gateway_for(upstream, env={**issuer.settings(), **with_tokens(tokens)})
    client = gateway.client()
    now = int(time.time())
    twice = {"Cookie": "drawbridge_token=a; drawbridge_token=b", "Sec-Fetch-Site": "same-origin"}
    refusals = {
        "missing": [{}] * 2,
        "other-scheme": [{"Authorization": "Basic YTpi"}],
        "repeated-cookie": [twice],
        "unknown-token": [bearer(issuer.token(headers={"kid": "nobody"}))],
        # A token that is not in the file of static tokens must be a JWT.
        "malformed-token": [bearer(token + "x"), bearer("a.b.c" * 10), bearer("x")],
        "signature": [bearer(issuer.token()[:-8] + "AAAAAAAA")],
        "expired": [bearer(issuer.token(exp=now - 10))] * 2,
        "not-yet-valid": [bearer(issuer.token(nbf=now + 60))],
        "audience": [bearer(issuer.token(aud="https://other.example"))],
        "issuer": [bearer(issuer.token(iss="https://other.example"))],
        "claims": [bearer(issuer.token(exp=None))],
    }
    for fields in (field for group in refusals.values() for field in group):
        (await client.get(fields, wait=0)).problem(401)
    # The token does not allow this scope and this topic.
    (await client.send("x", headers=bearer(token))).problem(403)
    (await client.get(bearer(token), topic="b", wait=0)).problem(403)
    assert (await client.get(bearer(token), wait=0)).status == 200
    samples = (await gateway.metrics()).samples
    counted = {
        labels: value
        for (name, labels), value in samples.items()
        if name == "drawbridge_requests_unauthenticated_total"
    }
    assert {labels: value for labels, value in counted.items() if value} == {
        f'reason="{reason}"': len(group) for reason, group in refusals.items()
    }
    assert (await gateway.metrics())["drawbridge_requests_forbidden_total"] == 2


# ------------------------------------------------------------------------------------------------- Client certificates


RULES = """[
  {name: "dns:billing.example", scopes: [send]},
  {name: "uri:spiffe://example/readers/*", scopes: [receive], topics: ["a*"]},
]"""


@pytest.fixture
def certified(https_for, authority):
    async def certified(mode="optional", **settings):
        return await https_for(
            LISTENERS_TLS_CLIENT_CA=authority.path,
            LISTENERS_TLS_CLIENT_CERTIFICATES=mode,
            AUTHENTICATION_CERTIFICATES=RULES,
            **settings,
        )

    return certified


async def statuses(gateway, context):
    """The statuses of a POST and of a poll on one connection."""
    stream = await connect(gateway, context)
    try:
        post = await exchange(stream, "/v1/messages", "Content-Type: text/plain", method="POST", body=b"x")
        return post[0], (await exchange(stream, "/v1/messages?wait=0"))[0]
    finally:
        stream[1].close()


@pytest.mark.parametrize("mode", ["optional", "required"])
async def test_only_a_valid_certificate_with_a_name_of_a_rule_is_a_credential(
    certified, upstream, authority, tmp_path, mode
):
    gateway = await certified(mode)
    other = CertificateAuthority(tmp_path, "another CA")

    def issued(*names, by=authority, **options):
        return trusting(authority, client=by.issue(*names, for_clients=True, **options))

    assert await statuses(gateway, issued("DNS:billing.example")) == (202, 403)
    assert await statuses(gateway, issued("DNS:x.example", "DNS:Billing.Example")) == (202, 403)
    assert await statuses(gateway, issued("URI:spiffe://example/readers/7")) == (403, 200)
    for names, common_name in [
        (("DNS:other.example",), "billing.example"),
        (("DNS:sub.billing.example",), "a"),
        (("URI:spiffe://example/readers",), "a"),
        (("URI:dns:billing.example",), "a"),
        ((), "billing.example"),
    ]:
        assert await statuses(gateway, issued(*names, common_name=common_name)) == (401, 401)
    for context in [
        issued("DNS:billing.example", by=other),
        issued("DNS:billing.example", days=1, starts_in=-3),
        issued("DNS:billing.example", self_signed=True),
        trusting(authority, client=authority.issue("DNS:billing.example")),
    ]:
        with pytest.raises((OSError, EOFError)):
            await statuses(gateway, context)
    assert await upstream.has_received(2) == ["x", "x"]
    counted = (await gateway.metrics()).samples
    assert counted["drawbridge_requests_unauthenticated_total", 'reason="unknown-certificate"'] == 10


async def test_held_requests_end_when_their_certificate_expires(certified, authority):
    gateway = await certified()
    # Certificates begin an hour ago.
    client = authority.issue("URI:spiffe://example/readers/7", for_clients=True, days=(3600 + 4) / 86_400)
    context = trusting(authority, client=client)
    streams = [await connect(gateway, context) for _ in range(2)]
    poll = asyncio.create_task(exchange(streams[0], "/v1/messages?wait=50"))
    await eventually(lambda: is_held(gateway, 1), what="the poll is held")
    ((status, body),) = await ended([poll])
    assert (status, json.loads(body)["messages"]) == (200, [])
    # The connections stay open, but every request on them is refused.
    for stream in streams:

        async def is_refused(stream=stream):
            status, body = await exchange(stream, "/v1/messages?wait=0")
            return status == 401 and "expired" in json.loads(body)["detail"]

        await eventually(is_refused, what="the certificate is refused")
        stream[1].close()

    # OpenSSL compares whole seconds, so it accepts the certificate for up to a second more than the gateway.
    async def has_no_handshake():
        try:
            await statuses(gateway, context)
        except (OSError, EOFError):
            return True
        return False

    await eventually(has_no_handshake, what="the handshake with the certificate fails")
