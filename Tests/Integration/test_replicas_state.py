"""The session's document at several gateways on one Redis, the webhooks of the holder, and reloads of settings."""

import asyncio
import contextlib
import json
import signal

import pytest_asyncio
from standardwebhooks.webhooks import WebhookVerificationError

from harness.receiver import Receiver, new_secret, webhook
from harness.redis import RedisServer
from harness.waiting import eventually


@pytest_asyncio.fixture
async def database(start, tmp_path):
    # This policy causes a warning, but the server has no memory limit, so it never evicts.
    server = await start(RedisServer(tmp_path))
    await server.client.config_set("maxmemory-policy", "allkeys-lru")
    return server


@pytest_asyncio.fixture
async def pair(gateway_for, database, upstream):
    """`await pair(webhook, …)`: two gateways. The first gateway is the holder of the session."""

    def configuration(*webhooks, **settings):
        return json.dumps(
            {
                "upstream": {"url": upstream.url},
                "store": {
                    "engine": "redis",
                    "prefix": "state",
                    "url": f"redis://127.0.0.1:{database.port}",
                    "lease": "2s",
                },
                "listeners": {"peers": "127.0.0.1:0"},
                "webhooks": list(webhooks),
                **settings,
            }
        )

    async def pair(*webhooks, **settings):
        config = configuration(*webhooks, **settings)
        first = await gateway_for(None, config=config)
        await _state(first, "ready")
        return first, await gateway_for(None, config=config)

    pair.configuration = configuration
    return pair


async def _state(gateway, *states):
    """The document of the session, once it has one of these states."""

    async def has_state():
        response = await gateway.client().request("GET", "/v1/session")
        assert response.status == 200, response.body
        return response.json if response.json["state"] in states else None

    return await eventually(has_state, what=f"the session is {states}")


async def test_each_gateway_reports_the_holder_or_its_absence(pair, upstream):
    first, second = await pair()
    document = await _state(second, "ready")
    here = (await _state(first, "ready"))["replica"]
    replica = document["replica"]
    assert here["holder"] == {**replica["holder"], "here": True}
    assert replica["holder"]["gateway"] == here["gateway"] != replica["gateway"]
    assert replica["holder"]["address"] == ":".join(map(str, first.address("peers")))
    assert (here["current"], here["lag_seconds"], here["store"]["state"]) == (True, 0, "working")
    assert replica["term"] == here["term"]
    await upstream.push("a")

    async def is_late():
        replica = (await second.client().session())["replica"]
        return replica if replica["current"] and replica["lag_seconds"] is not None else None

    assert 0 <= (await eventually(is_late, what="the push is readable"))["lag_seconds"] < 10
    listed = (await second.client().request("GET", "/v1/sessions")).json["sessions"]
    assert [(each["state"], each["queue"]) for each in listed] == [("elsewhere", None)]
    page = await second.manage("/", headers={"Accept": "application/json"})
    assert page.json["gateway"] == {"id": replica["gateway"], "held_sessions": 0}
    metrics = await second.metrics()
    assert (metrics["drawbridge_store_up"], metrics["drawbridge_session_desired"]) == (1, 0)
    assert metrics.samples["drawbridge_store_script_seconds_count", 'script="heartbeat"'] > 0

    await first.kill()
    # First the holder does not respond, and then the session has no holder.
    alone = await _state(second, "elsewhere", "no-holder")
    assert (alone["replica"]["holder"] is None) == (alone["state"] == "no-holder")
    assert (alone["pushes"]["received"], alone["queue"], alone["desired"]) == (1, None, None)
    later = await _state(second, "ready")
    assert later["replica"]["holder"]["here"]
    assert later["replica"]["term"] > replica["term"]
    await second.logs(lambda record: "maxmemory-policy" in record["message"], what="it warns of eviction")


async def test_webhooks_continue_at_the_next_holder(pair, start, upstream):
    receiver = await start(Receiver())
    first, second = await pair(webhook(receiver))
    await _state(second, "ready")
    await upstream.push("a", "b")
    await receiver.has(2)

    async def is_settled():
        return (await first.metrics())["drawbridge_webhook_lag_messages"] == 0

    await eventually(is_settled, what="the position is stored")
    await first.kill()
    await _state(second, "ready")
    await upstream.push("c")
    await receiver.has(3)
    # The last push may be delivered twice, since the former holder may not have stored its delivery.
    assert (receiver.deliveries[0].data, receiver.deliveries[-1].data) == ("a", "c")


async def test_webhooks_continue_after_an_orderly_release_with_what_was_not_delivered(pair, start, upstream):
    is_released = False

    def respond(n, delivery):
        return 503 if delivery.data == "b" and not is_released else 204

    receiver = await start(Receiver(respond))
    first, second = await pair(webhook(receiver, retries=["500ms"] * 20, concurrency=2))
    await _state(second, "ready")
    await upstream.push("a", "b", "c")
    await eventually(lambda: {"a", "c"} <= set(receiver.payloads), what="the others are delivered")
    await eventually(lambda: receiver.payloads.count("b") >= 2, what="one of them is tried again")
    await first.stop()
    is_released = True
    tried = receiver.payloads.count("b")
    await _state(second, "ready")
    await upstream.push("d")

    async def is_settled():
        consumer = (await second.client().request("GET", "/v1/consumers/hook")).json
        return consumer if "d" in receiver.payloads and consumer["lag"] == consumer["leases"] == 0 else None

    consumer = await eventually(is_settled, what="everything is delivered")
    assert consumer["dead"]["messages"] == 0
    assert receiver.payloads.count("b") == tried + 1
    # The holder stored its deliveries when it released the session.
    assert [receiver.payloads.count(each) for each in "acd"] == [1, 1, 1]


async def test_a_suspended_holder_begins_no_request_of_a_webhook(gateway_for, pair, start, upstream):
    # Each gateway has a secret of its own, so each request shows its sender.
    secrets = {"first": new_secret(), "second": new_secret()}
    is_stopped = asyncio.Event()
    begun = {"first": [], "second": []}

    async def respond(n, delivery):
        for sender, secret in secrets.items():
            with contextlib.suppress(WebhookVerificationError):
                delivery.is_signed_with(secret)
                begun[sender].append(delivery.data)
                if sender == "first":
                    await is_stopped.wait()
        return 204

    receiver = await start(Receiver(respond))
    hooks = {
        sender: [webhook(receiver, name=f"hook{n}", secrets=[secret], concurrency=2) for n in range(4)]
        for sender, secret in secrets.items()
    }
    first = await gateway_for(None, config=pair.configuration(*hooks["first"]))
    await _state(first, "ready")
    second = await gateway_for(None, config=pair.configuration(*hooks["second"]))
    await _state(second, "ready")
    pushes = list(range(40))
    await upstream.push(*map(str, pushes))
    await eventually(lambda: len(begun["first"]) == 8, what="the receiver has a request for each place")

    async def are_stored():
        return len((await second.client().poll(cursor="earliest", wait=0)).messages) == len(pushes)

    await eventually(are_stored, what="all pushes are stored")
    first.signal(signal.SIGSTOP)
    await eventually(lambda: len(begun["second"]) >= 4 * len(pushes), within=30, what="the next holder delivers")
    # The responses arrive before the gateway continues, and would make room for other requests.
    is_stopped.set()
    await upstream.push("more")
    await eventually(lambda: begun["second"].count("more") == 4, what="the next holder delivers")
    before = list(begun["first"])
    first.signal(signal.SIGCONT)

    async def has_lost_it():
        holder = (await first.client().session())["replica"]["holder"]
        return holder is not None and not holder["here"]

    await eventually(has_lost_it, what="it knows the next holder")
    await upstream.push("last")
    await eventually(lambda: begun["second"].count("last") == 4, what="the next holder delivers")
    assert begun["first"] == before
    assert set(begun["second"]) == {*pushes, "more", "last"}


async def test_a_reload_is_in_effect_at_the_next_holder(pair, start, upstream):
    receiver = await start(Receiver())
    first, second = await pair()
    await _state(second, "ready")
    config = pair.configuration(webhook(receiver), delivery={"messages": 2})
    for gateway in (first, second):
        gateway.rewrite(config)
        gateway.signal(signal.SIGHUP)
        await gateway.logs(lambda record: record["message"] == "configuration reloaded", what="it is reloaded")
    await upstream.push("a", "b", "c")
    await receiver.has(3)
    for gateway in (first, second):

        async def has_dropped(gateway=gateway):
            listed = (await gateway.client().request("GET", "/v1/sessions")).json["sessions"]
            return listed[0]["pushes"]["retained"] == 2

        await eventually(has_dropped, what="the copy has the new limit")
    await first.kill()
    await _state(second, "ready")
    await upstream.push("d")
    await receiver.has(4)
    assert (await second.client().session())["pushes"]["retained"] == 2
