"""Calls: `POST /v1/call` responds with the reply of the upstream, even if replies are late or many clients call."""

import asyncio
import collections
import json
import random
import re
import shlex
import signal
import uuid

import pytest
from jsonrpc import Dispatcher, JSONRPCResponseManager
from websockets.exceptions import ConnectionClosed

from harness.conventions import ConventionUpstream
from harness.gateway import PROJECT, Gateway
from harness.waiting import eventually

JSONRPC = {"DRAWBRIDGE_UPSTREAM_CORRELATION": "jsonrpc"}


class Calculator:
    """An upstream that replies in the way that each request names: `now`, `late`, `doubled`, `missing`, `shapeless`."""

    def __init__(self):
        self.requests = []
        self.late = []

    async def __call__(self, conversation):
        pending = []
        try:
            async with asyncio.TaskGroup() as replies:
                while True:
                    request = json.loads(await conversation.hear())
                    self.requests.append(request)
                    pending.append(request)
                    if len(pending) == 1:
                        replies.create_task(self._reply(conversation, pending))
        except* ConnectionClosed:
            pass

    async def _reply(self, conversation, pending):
        """Replies to the requests of one burst, in random order."""
        for _ in range(5):
            await asyncio.sleep(0)
        burst = pending.copy()
        pending.clear()
        random.shuffle(burst)
        for request in burst:
            await self._treat(conversation, request)

    async def _treat(self, conversation, request):
        number, how = request["params"]
        reply = json.dumps({"jsonrpc": "2.0", "result": number * 2, "id": request["id"]})
        match how:
            case "now":
                await conversation.say(reply)
            case "doubled":
                await conversation.say(reply, reply)
            case "shapeless":
                await conversation.say(json.dumps({"id": request["id"], "method": "it is a request"}))
            case "late":
                self.late.append((conversation, reply))


def request(number, how="now", **more):
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "double", "params": [number, how], **more})


async def call(client, body, **parameters):
    return await client.request(
        "POST",
        f"{client.root}/call",
        params=parameters,
        data=body,
        headers={"Content-Type": "application/json"},
    )


async def calls(gateway):
    return (await gateway.metrics())["drawbridge_calls"]


async def outcomes(gateway):
    samples = (await gateway.metrics()).samples
    return {
        labels.removeprefix('outcome="').removesuffix('"'): value
        for (name, labels), value in samples.items()
        if name == "drawbridge_calls_total" and value
    }


async def is_over(gateway):
    return await calls(gateway) == 0


@pytest.fixture
def calculator(start, gateway_for):
    async def calculator(converse=None, **options):
        converse = converse or Calculator()
        upstream = await start(ConventionUpstream(converse))
        env = {**JSONRPC, **options.pop("env", {})}
        return await gateway_for(upstream, env=env, **options), converse, upstream

    return calculator


async def test_200_concurrent_calls_each_get_their_own_outcome(calculator):
    gateway, upstream, _ = await calculator()
    client = gateway.client()
    here = await client.here()
    kinds = ["now"] * 5 + ["doubled", "missing", "shapeless", "late"]
    plan = [(number, kinds[number % len(kinds)]) for number in range(400)]
    random.shuffle(plan)

    async def one(number, how):
        # Many clients use the same id: 1, 1.0 or "1".
        token = [1, 1.0, "1", f"client {number}"][number % 4]
        body = json.dumps({"jsonrpc": "2.0", "method": "double", "params": [number, how], "id": token})
        wait = "60s" if how in ("now", "doubled") else "3s"
        response = await call(client, body, wait=wait)
        if how in ("now", "doubled"):
            assert response.status == 200, response.body
            assert response.json == {"jsonrpc": "2.0", "result": number * 2, "id": token}
            assert type(response.json["id"]) is type(token)
            return None
        problem = response.problem(504)
        assert problem["type"] == "/errors/reply-timeout"
        return (how, number, token, response.headers["Location"])

    async def worker():
        # At most 200 calls run at a time.
        return [await one(*plan.pop()) for _ in range(2)]

    finished = await asyncio.gather(*(worker() for _ in range(200)))
    unanswered = [each for pair in finished for each in pair if each]
    # The upstream never received an id twice, and never received an id of a client.
    seen = [each["id"] for each in upstream.requests]
    assert len(set(seen)) == 400
    assert all(isinstance(each, str) or each > 10**12 for each in seen)

    # The late replies arrive now. The deliveries of their requests show them.
    for conversation, reply in upstream.late:
        await conversation.say(reply)
    for how, number, token, location in unanswered:
        if how == "late":

            async def has_reply(location=location):
                return (await client.request("GET", location)).json.get("reply")

            reply = await eventually(has_reply, what="the delivery shows the late reply")
            assert reply == {"jsonrpc": "2.0", "result": number * 2, "id": token}
        else:
            assert "reply" not in (await client.request("GET", location)).json

    # Messages for which no call waits are pushes: the second of two replies, and messages that are not replies.
    counts = collections.Counter(how for _, how in ((n, kinds[n % len(kinds)]) for n in range(400)))
    pushes, _ = await client.collect(counts["doubled"] + counts["shapeless"], here)
    assert sorted("method" if "method" in each else "reply" for each in pushes) == sorted(
        ["reply"] * counts["doubled"] + ["method"] * counts["shapeless"]
    )
    assert await is_over(gateway)
    timed_out = counts["missing"] + counts["shapeless"] + counts["late"]
    assert await outcomes(gateway) == {"replied": 400 - timed_out, "timed-out": timed_out}


async def test_the_call_of_a_disconnected_client_ends(calculator):
    gateway, upstream, _ = await calculator()
    client = gateway.client()
    here = await client.here()
    waiting = [asyncio.create_task(call(client, request(n, "late"), wait="50s")) for n in range(20)]
    await eventually(lambda: len(upstream.late) == 20, what="the upstream has the requests")
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await eventually(lambda: is_over(gateway), what="no call is left")
    assert await outcomes(gateway) == {"abandoned": 20}
    # Replies to calls that have ended are pushes.
    for conversation, reply in upstream.late:
        await conversation.say(reply)
    assert len((await client.collect(20, here))[0]) == 20


async def test_a_lost_connection_ends_the_calls_that_it_carried(calculator):
    gateway, upstream, server = await calculator()
    client = gateway.client()
    carried = [asyncio.create_task(call(client, request(n, "late"), wait="50s")) for n in range(20)]
    await eventually(lambda: len(upstream.late) == 20, what="the upstream has the requests")
    server.reset_connections()
    for each in carried:
        response = await each
        assert response.problem(502)["type"] == "/errors/upstream-closed"
        assert response.headers["Location"].startswith("/v1/deliveries/d-")
    assert await is_over(gateway)
    # The next connection serves the next call.
    assert (await call(client, request(5), wait="50s")).json["result"] == 10
    assert await outcomes(gateway) == {"upstream-closed": 20, "replied": 1}


async def test_calls_that_wait_for_a_connection_are_sent_in_time_or_never(calculator):
    gateway, upstream, server = await calculator()
    client = gateway.client()
    await server.stop()
    await eventually(lambda: is_down(client), what="the connection is gone")
    given_up = await call(client, request(1), wait="200ms")
    assert given_up.problem(503)["type"] == "/errors/upstream-down"
    assert "Retry-After" in given_up.headers
    patient = asyncio.create_task(call(client, request(2), wait="50s"))
    await eventually(lambda: counts(gateway, 1), what="the call waits")
    await server.start()
    assert (await patient).json["result"] == 4
    assert [each["params"][0] for each in upstream.requests] == [2]


async def test_a_queued_request_whose_client_has_left_is_never_sent(calculator):
    gateway, upstream, server = await calculator()
    client = gateway.client()
    await server.stop()
    await eventually(lambda: is_down(client), what="the connection is gone")
    leaving = asyncio.create_task(call(client, request(1), wait="50s", ttl="50s"))
    await eventually(lambda: counts(gateway, 1), what="the call waits")
    patient = asyncio.create_task(call(client, request(2), wait="50s", ttl="50s"))
    await eventually(lambda: counts(gateway, 2), what="both calls wait")
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    await eventually(lambda: counts(gateway, 1), what="the call has ended")
    await server.start()
    assert (await patient).json["result"] == 4
    assert [each["params"][0] for each in upstream.requests] == [2]
    assert await outcomes(gateway) == {"abandoned": 1, "replied": 1}


async def test_a_queued_request_waits_until_the_operator_opens_the_session(calculator):
    gateway, upstream, _ = await calculator()
    client = gateway.client()
    await client.request("PATCH", "/v1/session", json={"desired": "down"})
    await eventually(lambda: is_down(client), what="the session is down")
    waiting = asyncio.create_task(call(client, request(1), wait="50s", ttl="50s"))
    await eventually(lambda: counts(gateway, 1), what="the call waits")
    assert not upstream.requests
    await client.request("PATCH", "/v1/session", json={"desired": "up"})
    assert (await waiting).json["result"] == 2


async def test_a_queued_call_ends_when_the_gateway_stops(calculator):
    limits = {"DRAWBRIDGE_SHUTDOWN_DRAIN": "300ms", "DRAWBRIDGE_SHUTDOWN_FLUSH": "300ms"}
    gateway, upstream, server = await calculator(env=limits)
    client = gateway.client()
    await server.stop()
    await eventually(lambda: is_down(client), what="the connection is gone")
    waiting = asyncio.create_task(call(client, request(1), wait="50s", ttl="50s"))
    await eventually(lambda: counts(gateway, 1), what="the call waits")
    gateway.signal(signal.SIGTERM)
    assert (await waiting).problem(410)["type"] == "/errors/session-closed"
    assert await gateway.exit_status() == 0
    assert not upstream.requests


async def is_down(client):
    return (await client.session())["state"] != "ready"


async def counts(gateway, count):
    return await calls(gateway) == count


async def test_calls_end_when_an_operator_closes_the_session(calculator):
    gateway, upstream, _ = await calculator()
    client = gateway.client()
    waiting = asyncio.create_task(call(client, request(1, "late"), wait="50s"))
    await eventually(lambda: upstream.late, what="the upstream has the request")
    await client.request("PATCH", "/v1/session", json={"desired": "down"})
    assert (await waiting).problem(502)["type"] == "/errors/upstream-closed"


async def test_calls_in_flight_finish_before_the_gateway_stops(calculator):
    gateway, upstream, server = await calculator()
    client = gateway.client()
    waiting = asyncio.create_task(call(client, request(1, "late"), wait="50s"))
    await eventually(lambda: upstream.late, what="the upstream has the request")
    gateway.signal(signal.SIGTERM)
    await eventually(lambda: refuses(gateway), what="the gateway accepts no more connections")
    conversation, reply = upstream.late.pop()
    await conversation.say(reply)
    assert (await waiting).json["result"] == 2
    assert await gateway.exit_status() == 0
    assert server.last.connection.close_code == 1001


async def refuses(gateway):
    try:
        _, writer = await asyncio.open_connection(*gateway.address())
    except OSError:
        return True
    writer.close()
    return False


@pytest.mark.parametrize("limit", ["0s", "300ms"])
async def test_a_call_without_a_reply_delays_the_shutdown_only_up_to_its_limits(calculator, limit):
    limits = {"DRAWBRIDGE_SHUTDOWN_DRAIN": limit, "DRAWBRIDGE_SHUTDOWN_FLUSH": limit}
    gateway, upstream, _ = await calculator(env=limits)
    waiting = asyncio.create_task(call(gateway.client(), request(1, "late"), wait="50s"))
    await eventually(lambda: upstream.late, what="the upstream has the request")
    gateway.signal(signal.SIGTERM)
    assert (await waiting).problem(502)["type"] == "/errors/upstream-closed"
    assert await gateway.exit_status() == 0


async def test_a_reply_on_the_replaced_connection_is_received(calculator):
    gateway, upstream, server = await calculator(env={"DRAWBRIDGE_UPSTREAM_OVERLAP": "60s"})
    client = gateway.client()
    waiting = asyncio.create_task(call(client, request(1, "late"), wait="50s"))
    await eventually(lambda: upstream.late, what="the upstream has the request")
    gateway.signal(signal.SIGHUP)
    await server.has_conversations(2)
    await eventually(lambda: sends_on_the_second(client), what="the new connection sends")
    # The upstream replies on both connections, like servers that send everything to every client.
    conversation, reply = upstream.late.pop()
    await conversation.say(reply)
    await server.last.say(reply)
    assert (await waiting).json["result"] == 2
    assert (await call(client, request(2))).json["result"] == 4
    assert len(server.last.heard) == 1


# -- Ids of the upstream ----------------------------------------------------------------------------------------------


SEQUENCE = """
upstream:
  correlation: {protocol: jsonrpc, ids: sequence}
  overlap: 60s
  on_open:
    - send: '{"id":${sequence},"params":[0,"now"],"step":1}'
      expect: {json: {/id: 1}}
    - send: '{"id":${sequence},"params":[0,"missing"],"step":2}'
  heartbeat: {client: {message: '{"id":${sequence},"params":[0,"missing"],"beat":${counter}}', interval: 200ms}}
"""


async def test_an_upstream_that_counts_gets_every_number_once_in_order(start, gateway_for):
    upstream = Calculator()
    server = await start(ConventionUpstream(upstream))
    gateway = await gateway_for(server, config=SEQUENCE)
    client = gateway.client()

    async def one(number):
        response = await call(client, request(7, params=[number, "now"]), wait="60s")
        assert response.json == {"jsonrpc": "2.0", "result": number * 2, "id": 7}
        # The upstream has received the request under the number of `Gateway-Call-Id`.
        asked = next(
            each
            for each in map(json.loads, server.last.heard)
            if str(each["id"]) == response.headers["Gateway-Call-Id"]
        )
        assert asked == {"jsonrpc": "2.0", "id": asked["id"], "method": "double", "params": [number, "now"]}
        assert "/v1/deliveries/" in response.headers["Location"]
        await client.accepted(json.dumps({"id": 3, "params": [number, "missing"]}))
        await client.accepted(json.dumps({"id": f"text {number}", "params": [number, "missing"]}))

    async def counted():
        """Checks the numbers on the last connection. Returns the number of heartbeats."""
        heard = [json.loads(message) for message in server.last.heard]
        numbers = [message["id"] for message in heard if isinstance(message["id"], int)]
        assert numbers == list(range(1, len(numbers) + 1))
        return sum("beat" in message for message in heard)

    await asyncio.gather(*(one(number) for number in range(200)))
    await eventually(counted, what="a heartbeat has a number")
    server.reset_connections()
    await server.has_conversations(2)
    await asyncio.gather(*(one(number) for number in range(50)))
    await eventually(counted, what="a heartbeat has a number on the second connection")
    assert len(server.conversations) == 2
    assert await outcomes(gateway) == {"replied": 250}
    missing = await call(client, request(1, "missing"), wait="100ms")
    assert missing.problem(504)["type"] == "/errors/reply-timeout"
    last = next(each for each in map(json.loads, reversed(server.last.heard)) if "method" in each)
    assert missing.headers["Gateway-Call-Id"] == str(last["id"])
    # A request that was not sent has no number.
    await server.stop()
    server.reset_connections()
    await eventually(lambda: is_down(client), what="the connection is gone")
    refused = await call(client, request(1, "missing"), wait="0")
    assert refused.problem(503)["type"] == "/errors/upstream-down"
    assert "Gateway-Call-Id" not in refused.headers


async def test_equal_replies_on_two_connections_are_of_two_calls(start, gateway_for):
    upstream = Calculator()
    server = await start(ConventionUpstream(upstream))
    gateway = await gateway_for(server, config=SEQUENCE.partition("  on_open")[0])
    client = gateway.client()
    older = asyncio.create_task(call(client, request("old", params=[4, "late"]), wait="50s"))
    await eventually(lambda: upstream.late, what="the upstream has the first request")
    gateway.signal(signal.SIGHUP)
    await server.has_conversations(2)
    await eventually(lambda: sends_on_the_second(client), what="the new connection sends")
    newer = asyncio.create_task(call(client, request("new", params=[4, "late"]), wait="50s"))
    await eventually(lambda: len(upstream.late) == 2, what="the upstream has the second request")
    (first, reply), (second, same) = upstream.late
    assert (reply, first is second) == (same, False)
    await second.say(same)
    assert (await newer).json == {"jsonrpc": "2.0", "result": 8, "id": "new"}
    await first.say(reply)
    assert (await older).json == {"jsonrpc": "2.0", "result": 8, "id": "old"}


async def test_errors_with_the_id_elsewhere_and_acknowledgements_before_the_reply(start, gateway_for):
    async def converse(conversation):
        while True:
            kind, number, how = json.loads(await conversation.hear())
            assert isinstance(number, str)
            if how == "error":
                await conversation.say(json.dumps([8, kind, number, {}, "wamp.error.x"]))
            else:
                ack = json.dumps([50, number, {"ack": True}])
                await conversation.say(ack, ack)
                if how == "result":
                    await conversation.say(json.dumps([50, number, {}, [1]]))

    config = """upstream: {correlation: {request: /1, ids: string, ignore: {json_has: /2/ack}, reply: [
      {pointer: /1, match: {json: {/0: 50}}}, {pointer: /2, match: {json: {/0: 8}}}]}}"""
    upstream = await start(ConventionUpstream(converse))
    gateway = await gateway_for(upstream, config=config)
    client = gateway.client()
    assert (await call(client, '[48,7,"error"]')).json == [8, 48, 7, {}, "wamp.error.x"]
    assert (await call(client, '[48,7,"result"]')).json == [50, 7, {}, [1]]
    # An acknowledgement that does not have the id of a call is a push.
    await client.accepted('[48,"own","ack"]')
    payloads, _ = await client.collect(2, "earliest")
    assert payloads == [[50, "own", {"ack": True}]] * 2


@pytest.mark.parametrize(
    ("before", "after"), [("keep-type", "sequence"), ("sequence", "string"), ("string", "keep-type")]
)
async def test_a_reload_may_change_the_ids_while_calls_wait(start, gateway_for, tmp_path, before, after):
    def config(ids):
        return f"upstream: {{overlap: 60s, correlation: {{protocol: jsonrpc, ids: {ids}}}}}\n"

    upstream = Calculator()
    server = await start(ConventionUpstream(upstream))
    gateway = await gateway_for(server, config=config(before))
    client = gateway.client()
    sent = asyncio.create_task(call(client, request(1, "late"), wait="50s"))
    await eventually(lambda: upstream.late, what="the upstream has the request")
    gateway.rewrite(config(after))
    gateway.signal(signal.SIGHUP)
    await server.has_conversations(2)
    await eventually(lambda: sends_on_the_second(client), what="the new connection sends")
    assert (await call(client, request(2))).json == {"jsonrpc": "2.0", "result": 4, "id": 2}
    conversation, reply = upstream.late.pop()
    await conversation.say(reply)
    assert (await sent).json == {"jsonrpc": "2.0", "result": 2, "id": 1}
    kinds = [type(each["id"]) for each in upstream.requests]
    assert kinds == [str if ids == "string" else int for ids in (before, after)]


async def test_a_late_reply_on_the_replaced_connection_is_received(calculator):
    gateway, upstream, server = await calculator(env={"DRAWBRIDGE_UPSTREAM_OVERLAP": "60s"})
    client = gateway.client()
    response = await call(client, request(1, "late"), wait="500ms")
    assert response.problem(504)["type"] == "/errors/reply-timeout"
    await eventually(lambda: upstream.late, what="the upstream has the request")
    gateway.signal(signal.SIGHUP)
    await server.has_conversations(2)
    await eventually(lambda: sends_on_the_second(client), what="the new connection sends")
    conversation, reply = upstream.late.pop()
    await conversation.say(reply)

    async def has_reply():
        return (await client.request("GET", response.headers["Location"])).json.get("reply")

    assert (await eventually(has_reply, what="the delivery shows the late reply"))["result"] == 2


async def test_a_queued_call_is_sent_once_and_a_withdrawn_call_never(calculator):
    # After the first message, the gateway may send no other message for a while, so calls are queued during the
    # hand-over.
    gateway, _, server = await calculator(
        env={"DRAWBRIDGE_UPSTREAM_QUEUE_RATE": "1", "DRAWBRIDGE_UPSTREAM_QUEUE_RATE_INTERVAL": "4s"}
    )
    client = gateway.client()
    assert (await call(client, request(0))).json["result"] == 0
    leaving = asyncio.create_task(call(client, request(1), wait="50s"))
    await eventually(lambda: counts(gateway, 1), what="the first call waits")
    patient = asyncio.create_task(call(client, request(2), wait="50s"))
    await eventually(lambda: counts(gateway, 2), what="both calls wait")
    gateway.signal(signal.SIGHUP)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    assert (await patient).json["result"] == 4
    assert await sends_on_the_second(client)
    numbers = [[json.loads(each)["params"][0] for each in one.heard] for one in server.conversations]
    assert numbers == [[0], [2]]


async def test_a_request_whose_reply_has_arrived_is_not_sent_again(calculator):
    gateway, upstream, server = await calculator(
        env={
            "DRAWBRIDGE_UPSTREAM_QUEUE_REDELIVER": "unconfirmed",
            # Only replies confirm messages here, because the gateway sends no ping before the connection is lost.
            "DRAWBRIDGE_UPSTREAM_QUEUE_CONFIRM_DELAY": "10s",
            "DRAWBRIDGE_UPSTREAM_QUEUE_CONFIRM_MESSAGES": "1000",
        }
    )
    client = gateway.client()
    waiting = asyncio.create_task(call(client, request(1, "late"), wait="50s"))
    await eventually(lambda: len(upstream.late) == 1, what="the upstream has the request")
    assert (await call(client, request(2))).json["result"] == 4
    server.reset_connections()
    # The request without a reply is sent again.
    await eventually(lambda: len(upstream.late) == 2, what="the upstream has the request again")
    conversation, reply = upstream.late.pop()
    await conversation.say(reply)
    assert (await waiting).json["result"] == 2
    assert (await call(client, request(3))).json["result"] == 6
    assert [each["params"][0] for each in upstream.requests] == [1, 2, 1, 3]


async def sends_on_the_second(client):
    return (await client.session())["generation"] >= 2 and (await client.session())["state"] == "ready"


async def test_an_on_demand_session_stays_connected_for_a_call(calculator):
    gateway, upstream, server = await calculator(
        ready=False,
        env={"DRAWBRIDGE_UPSTREAM_ON_DEMAND": "true", "DRAWBRIDGE_UPSTREAM_IDLE_AFTER": "100ms"},
    )
    client = gateway.client()
    waiting = asyncio.create_task(call(client, request(1, "late"), wait="50s"))
    await eventually(lambda: upstream.late, what="the upstream has the request")
    # This takes several times the idle time. If the connection were idle, it would end.
    for _ in range(5):
        await client.poll(wait="100ms", cursor="latest")
    conversation, reply = upstream.late.pop()
    await conversation.say(reply)
    assert (await waiting).json["result"] == 2
    assert len(server.conversations) == 1


# -- JSON-RPC by a server that has no code in common with the gateway ----------------------------------------------


def rpc_server(dispatcher):
    async def converse(conversation):
        while True:
            response = JSONRPCResponseManager.handle(await conversation.hear(), dispatcher)
            if response is not None:
                await conversation.say(response.json)

    return converse


async def test_the_profile_calls_a_real_json_rpc_server(start):
    dispatcher = Dispatcher({"subtract": lambda minuend, subtrahend: minuend - subtrahend})

    upstream = await start(ConventionUpstream(rpc_server(dispatcher)))
    profile = PROJECT / "config" / "profiles" / "json-rpc.yaml"
    gateway = await start(Gateway("--config", profile, "--upstream", upstream.url))
    await gateway.ready()
    client = gateway.client()

    def rpc(method, **more):
        return json.dumps({"jsonrpc": "2.0", "method": method, **more})

    named = rpc("subtract", params={"minuend": 42, "subtrahend": 23}, id="a")
    assert (await call(client, named)).json == {"jsonrpc": "2.0", "result": 19, "id": "a"}
    responses = await asyncio.gather(*(call(client, rpc("subtract", params=[n, 1], id=1)) for n in range(100)))
    assert [response.json for response in responses] == [
        {"jsonrpc": "2.0", "result": n - 1, "id": 1} for n in range(100)
    ]
    missing = (await call(client, rpc("nothing", id=7))).json
    assert (missing["id"], missing["error"]["code"]) == (7, -32601)
    # A notification gets no reply, and a batch would get several.
    assert (await call(client, rpc("subtract", params=[1, 2]))).problem(422)["type"] == "/errors/invalid-document"
    batch = f"[{named},{named}]"
    assert "call of its own" in (await call(client, batch)).problem(422)["detail"]
    # Messages that are not calls are forwarded unchanged, and their replies are pushes.
    here = await client.here()
    await client.accepted(rpc("subtract", params=[3, 1], id=7))
    assert (await client.collect(1, here))[0] == [{"jsonrpc": "2.0", "result": 2, "id": 7}]


# -- Limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.xdist_group("load")
async def test_4096_calls_wait_and_the_next_is_refused(calculator):
    gateway, upstream, _ = await calculator(
        env={"DRAWBRIDGE_UPSTREAM_QUEUE_MESSAGES": "5000", "DRAWBRIDGE_UPSTREAM_QUEUE_BYTES": "64MiB"}
    )
    client = gateway.client()
    waiting = [asyncio.create_task(call(client, request(n, "late"), wait="55s")) for n in range(4096)]
    await eventually(lambda: counts(gateway, 4096), what="all calls wait", within=60)
    refused = await call(client, request(1))
    assert refused.problem(503)["type"] == "/errors/too-many-calls"
    assert refused.headers["Retry-After"] == "1"
    sent = 0
    while sent < 4096:
        await eventually(lambda: upstream.late, what="the upstream has more requests")
        while upstream.late:
            conversation, reply = upstream.late.pop(random.randrange(len(upstream.late)))
            await conversation.say(reply)
            sent += 1
    responses = await asyncio.gather(*waiting)
    assert [response.json["result"] for response in responses] == [n * 2 for n in range(4096)]
    assert await is_over(gateway)


async def test_the_first_example_of_the_page_works(start, curl):
    section = (PROJECT / "docs/calls.md").read_text().partition("\n## ")[0]
    serve, line = re.search(r"```\n(.*?)```", section, re.DOTALL)[1].splitlines()
    shown = re.search(r"^`(\{.*\})`", section, re.MULTILINE)[1]
    dispatcher = Dispatcher({"eth_blockNumber": lambda: json.loads(shown)["result"]})
    upstream = await start(ConventionUpstream(rpc_server(dispatcher)))
    words = shlex.split(serve)
    assert words[1:3] == ["serve", "--profile"]
    gateway = await start(Gateway("--profile", words[3], "--upstream", upstream.url))
    await gateway.ready()
    line = line.replace("localhost:8080", "{}:{}".format(*gateway.address()))
    command = [curl, "-sS", *shlex.split(line)[1:]]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await asyncio.wait_for(process.communicate(), 30)
    assert json.loads(out) == json.loads(shown)


async def test_a_subscription_that_is_sent_again_has_a_number_only_if_it_was_a_call(start, tmp_path):
    async def converse(conversation):
        while True:
            message = json.loads(await conversation.hear())
            await conversation.say(json.dumps({"id": message["id"], "ok": True}))

    async def heard():
        return [json.loads(message)["id"] for message in await server.has_heard(2)]

    server = await start(ConventionUpstream(converse))
    config = {
        "upstream": {
            "url": server.url,
            "correlation": {"request": "/id", "reply": "/id", "ids": "sequence", "match": {"json_has": "/ok"}},
            "subscriptions": {"add": {"match": {"json": {"/op": "subscribe"}}, "key": "/channel"}},
        },
        "store": {"engine": "sqlite", "path": str(tmp_path / "store.db")},
    }
    gateway = await start(Gateway(config=json.dumps(config), folder=tmp_path))
    await gateway.ready()
    client = gateway.client()
    # The client's own id has the form of an id of the gateway.
    own = str(uuid.uuid4())
    await client.accepted(json.dumps({"id": own, "op": "subscribe", "channel": "a"}))
    await call(client, json.dumps({"id": "x", "op": "subscribe", "channel": "b"}))
    assert await heard() == [own, 1]
    server.reset_connections()
    await server.has_conversations(2)
    assert await heard() == [own, 1]
    await gateway.stop()
    gateway = await start(Gateway(config=json.dumps(config), folder=tmp_path))
    await server.has_conversations(3)
    assert await heard() == [own, 1]
