"""Messages that wait for the upstream, and the effects of the settings in `upstream.queue`."""

import itertools
import os
import time
from datetime import datetime

import pytest

from harness.credentials import with_tokens
from harness.gateway import run
from harness.tokens import bearer
from harness.upstream import Upstream
from harness.waiting import eventually

# The heartbeat must not give up an upstream that does not read.
PATIENT = {"DRAWBRIDGE_UPSTREAM_HEARTBEAT_INTERVAL": "1h", "DRAWBRIDGE_UPSTREAM_HEARTBEAT_TIMEOUT": "1h"}


async def _is_down(client):
    return (await client.session())["state"] != "ready"


async def _state(client, told):
    response = await client.request("GET", f"/v1/deliveries/{told['id']}")
    assert response.status == 200, response.body
    return response.json["state"]


async def _becomes(client, told, state):
    async def has_become():
        return await _state(client, told) == state

    await eventually(has_become, what=f"{told['id']} becomes {state}")


async def _before_a_dead_upstream(gateway_for, upstream, **env):
    gateway = await gateway_for(
        upstream, env={f"DRAWBRIDGE_UPSTREAM_QUEUE_{name.upper()}": value for name, value in env.items()}
    )
    await upstream.kill()
    client = gateway.client()
    await eventually(lambda: _is_down(client), what="the gateway notices")
    return gateway, client


async def test_the_last_message_of_a_replacement_key_arrives_and_the_others_are_replaced(gateway_for, upstream):
    gateway, client = await _before_a_dead_upstream(gateway_for, upstream)
    prices = [await client.accepted(f"price {i}", headers={"Topic": "price"}) for i in range(3)]
    other = await client.accepted("another topic", headers={"Topic": "volume"})
    newest = await client.accepted("price 3", headers={"Topic": "price"})
    assert [await _state(client, told) for told in prices] == ["replaced"] * 3
    await upstream.start()
    assert await upstream.has_received(2) == ["another topic", "price 3"]
    await _becomes(client, other, "confirmed")
    await _becomes(client, newest, "confirmed")
    metrics = await gateway.metrics()
    for state, count in (("queued", 5), ("replaced", 3), ("confirmed", 2), ("unknown", 0)):
        assert metrics.samples["drawbridge_outbound_messages_total", f'state="{state}"'] == count
    page = (await gateway.manage("/")).body.decode()
    assert "2 confirmed" in page
    assert "3 replaced" in page


async def test_a_full_queue_drops_the_oldest_if_configured(gateway_for, upstream):
    _, client = await _before_a_dead_upstream(gateway_for, upstream, overflow="drop-oldest", messages="3")
    told = [await client.accepted(f"reading {i}") for i in range(5)]
    assert [await _state(client, each) for each in told] == ["rejected"] * 2 + ["queued"] * 3
    await upstream.start()
    assert await upstream.has_received(3) == ["reading 2", "reading 3", "reading 4"]
    await _becomes(client, told[4], "confirmed")


async def test_a_message_expires_at_its_deadline(gateway_for, upstream):
    _, client = await _before_a_dead_upstream(gateway_for, upstream, ttl="50ms")
    await _becomes(client, await client.accepted("too late"), "expired")


def _losses(gateway):
    """The number of lost messages that the log reports."""
    lines = [record for record in gateway.records if record["message"].startswith("messages were lost")]
    return {state: sum(line[state] for line in lines) for state in ("expired", "rejected", "unknown")}


async def test_messages_that_end_undelivered_are_counted_in_the_log(gateway_for, upstream):
    gateway, client = await _before_a_dead_upstream(gateway_for, upstream, ttl="2s", messages="100")
    for number in range(20):
        await client.accepted(f"reading {number}", headers={"Topic": "reading"})
    last = [await client.accepted(f"order {number}") for number in range(20)]
    await _becomes(client, last[-1], "expired")

    def all_are_told():
        return _losses(gateway) == {"expired": 21, "rejected": 0, "unknown": 0}

    await eventually(all_are_told, what="the log reports every message that expired, and none that was replaced")
    times = [datetime.fromisoformat(line["time"]) for line in gateway.records if "expired" in line]
    assert all((after - before).total_seconds() > 0.99 for before, after in itertools.pairwise(times))
    line = next(record for record in gateway.records if "expired" in record)
    assert line["level"] == "warning"
    assert line["last_failure"]


async def test_messages_that_a_full_queue_drops_are_counted_in_the_log(gateway_for, upstream):
    gateway, client = await _before_a_dead_upstream(gateway_for, upstream, overflow="drop-oldest", messages="1")
    for number in range(5):
        await client.accepted(f"reading {number}")
    await eventually(lambda: _losses(gateway)["rejected"] == 4, what="the log reports those that were dropped")


async def test_the_response_says_how_long_a_message_waits(gateway_for, upstream):
    await upstream.kill()
    env = {
        "DRAWBRIDGE_UPSTREAM_RECONNECT_STRATEGY": "fixed",
        "DRAWBRIDGE_UPSTREAM_RECONNECT_BASE": "10m",
        "DRAWBRIDGE_UPSTREAM_QUEUE_MESSAGES": "2",
    }
    gateway = await gateway_for(upstream, ready=False, env=env)
    client = gateway.client()

    async def waits():
        return (await client.session())["state"] == "backoff"

    await eventually(waits, what="the first attempt failed")
    assert 500 < (await client.accepted("waits"))["next_attempt_in_seconds"] <= 600
    batch = await client.send("first\nsecond", type="application/x-ndjson")
    assert batch.status == 207
    assert 500 < batch.json["results"][0]["next_attempt_in_seconds"] <= 600
    for headers in ({}, {"TTL": "0"}):
        response = await client.send("refused", headers=headers)
        response.problem(503)
        assert 500 < int(response.headers["Retry-After"]) <= 600
    await upstream.start()
    await client.request("PATCH", "/v1/session", data='{"desired":"up"}', headers={"Content-Type": "application/json"})
    await gateway.ready()
    assert "next_attempt_in_seconds" not in await client.accepted("sent")


async def test_the_rate_delays_the_queue_and_not_the_heartbeats(gateway_for, upstream):
    gateway = await gateway_for(
        upstream,
        env={
            "DRAWBRIDGE_UPSTREAM_QUEUE_RATE": "1",
            "DRAWBRIDGE_UPSTREAM_QUEUE_RATE_INTERVAL": "1h",
            "DRAWBRIDGE_UPSTREAM_QUEUE_BURST": "2",
            "DRAWBRIDGE_UPSTREAM_QUEUE_TTL": "1h",
            "DRAWBRIDGE_UPSTREAM_HEARTBEAT_CLIENT_MESSAGE": "beat",
            "DRAWBRIDGE_UPSTREAM_HEARTBEAT_CLIENT_INTERVAL": "20ms",
            "DRAWBRIDGE_SHUTDOWN_FLUSH": "0s",
        },
    )
    client = gateway.client()
    for number in range(5):
        await client.accepted(f"message {number}")
    await eventually(lambda: upstream.received.count("beat") >= 5, what="heartbeats overtake what waits")
    assert [text for text in upstream.received if text != "beat"] == ["message 0", "message 1"]
    assert (await client.session())["queue"]["messages"] == 3


async def test_the_rate_is_not_exceeded(gateway_for, upstream):
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_UPSTREAM_QUEUE_RATE": "50"})
    started = time.monotonic()
    client = gateway.client()
    sent = [f"message {i}" for i in range(20)]
    for message in sent:
        await client.accepted(message)
    assert await upstream.has_received(20) == sent
    # The first message is sent at once, and each further message a fiftieth of a second later. It may take longer, but
    # not less.
    assert time.monotonic() - started >= 19 / 50 - 0.01


async def _stop_reading(upstream, client):
    """Posts until messages stay queued because the upstream does not read."""
    upstream.pause_reading()

    async def is_full():
        await client.accepted(os.urandom(30_000).hex(), headers={"TTL": "3600"})
        # The kernel may have a little more room later. These messages exceed this room.
        return (await client.session())["queue"]["messages"] >= 30

    await eventually(is_full, within=60, what="messages wait")


@pytest.mark.parametrize("scheme", ["ws", "wss"])
async def test_a_message_that_the_kernel_does_not_take_in_time_is_not_sent(start, gateway_for, request, scheme):
    certificate = request.getfixturevalue("certificate") if scheme == "wss" else None
    upstream = await start(Upstream(certificate=certificate))
    trust = ["--ca-file", request.getfixturevalue("authority").path] if certificate else []
    client = (await gateway_for(upstream, *trust, env=PATIENT)).client()
    upstream.pause_reading()
    # Each message begins with the last bytes of the previous message, so that compression refers to them.
    common = os.urandom(500).hex()
    posted = {}

    # A message whose sending has begun must be completed. With TLS, this also applies to all messages in the same
    # record of 16 KiB. Each message has at least 4 KB.
    may_be_begun = 1 if scheme == "ws" else 5

    async def expires():
        lines = [common + os.urandom(4_000).hex() + common for _ in range(40)]
        response = await client.send("\n".join(lines), type="application/x-ndjson", headers={"TTL": "1"})
        told = response.json["results"]
        posted.update(zip((each["id"] for each in told), lines, strict=True))

        async def states():
            return [await _state(client, each) for each in told]

        async def have_left():
            return (await states()).count("queued") <= may_be_begun

        await eventually(have_left, what="the messages of a batch are sent or expire, wherever they wait")
        return "expired" in await states()

    await eventually(expires, within=60, what="the kernel takes a part of a batch")
    upstream.resume_reading()
    last = await client.accepted("the last")
    await _becomes(client, last, "confirmed")
    states = {name: await _state(client, {"id": name}) for name in posted}
    assert set(states.values()) == {"confirmed", "expired"}
    assert upstream.received == [text for name, text in posted.items() if states[name] == "confirmed"] + ["the last"]


async def test_ttl_zero_is_refused_while_the_upstream_does_not_read(gateway_for, upstream):
    client = (await gateway_for(upstream, env=PATIENT)).client()
    await _stop_reading(upstream, client)
    problem = (await client.send("now", headers={"TTL": "0"})).problem(503)
    assert "has not read" in problem["detail"]
    upstream.resume_reading()

    async def is_sent():
        return (await client.send("now", headers={"TTL": "0"})).status == 202

    await eventually(is_sent, what="it is accepted again")
    await eventually(lambda: upstream.received[-1:] == ["now"], what="and sent")


async def test_ttl_zero_is_refused_when_the_rate_is_exhausted(gateway_for, upstream):
    env = {"DRAWBRIDGE_UPSTREAM_QUEUE_RATE": "1", "DRAWBRIDGE_UPSTREAM_QUEUE_RATE_INTERVAL": "1h"}
    client = (await gateway_for(upstream, env=env)).client()
    await client.accepted("first", headers={"TTL": "0"})
    response = await client.send("second", headers={"TTL": "0"})
    assert "upstream.queue.rate" in response.problem(503)["detail"]
    assert 3500 < int(response.headers["Retry-After"]) <= 3600


async def test_without_confirmations_written_is_final(gateway_for, upstream):
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_UPSTREAM_QUEUE_CONFIRM": "false"})
    client = gateway.client()
    told = await client.accepted("hello")
    await upstream.has_received(1)
    await _becomes(client, told, "written")
    upstream.reset_connections()
    await eventually(lambda: _is_down(client), what="the gateway notices")
    assert await _state(client, told) == "written"


async def test_settings_that_contradict_each_other_are_refused():
    for environment, key in (
        ({"QUEUE_REDELIVER": "unconfirmed", "QUEUE_CONFIRM": "false"}, "upstream.queue.redeliver"),
        ({"QUEUE_REDELIVER": "unconfirmed", "HEARTBEAT_PING": "false"}, "upstream.queue.redeliver"),
        ({"QUEUE_HIGH_WATER": "64KiB", "QUEUE_LOW_WATER": "65KiB"}, "upstream.queue.low_water"),
    ):
        env = {f"DRAWBRIDGE_UPSTREAM_{name}": value for name, value in environment.items()}
        status, _, err = await run("serve", "--upstream", "ws://127.0.0.1:1/", "--listen", "127.0.0.1:0", env=env)
        assert status == 78, err
        assert key in err


async def test_a_message_too_large_for_the_upstream_is_sent_once(gateway_for, start):
    small = await start(Upstream(compression=None, max_size=100_000))
    gateway = await gateway_for(small, env={"DRAWBRIDGE_UPSTREAM_QUEUE_REDELIVER": "unconfirmed"})
    client = gateway.client()
    too_large = await client.accepted("x" * 1_000_000)
    fine = await client.accepted("fine")
    await _becomes(client, fine, "confirmed")
    assert await _state(client, too_large) == "rejected"
    assert set(small.received) == {"fine"}
    assert (await client.session())["connections"] == 2


async def test_one_principal_cannot_fill_the_queue_for_others(gateway_for, upstream, tokens):
    heavy, light = (bearer(tokens.add(name, scopes="send,receive")) for name in ("heavy", "light"))
    env = {**with_tokens(tokens), "DRAWBRIDGE_UPSTREAM_QUEUE_MESSAGES": "64"}
    gateway = await gateway_for(upstream, env=env)
    client = gateway.client()
    await upstream.kill()

    async def is_down():
        return (await client.request("GET", "/v1/session", headers=light)).json["state"] != "ready"

    await eventually(is_down, what="the gateway notices")
    for number in range(64):
        await client.accepted(f"heavy {number}", headers=heavy)
    refused = await client.send("one more", headers=heavy)
    assert "less than 1)" in refused.problem(503)["detail"]
    told = await client.accepted("light", headers=light)
    await upstream.start()
    assert (await upstream.has_received(65))[-1] == "light"
    assert (await client.request("GET", f"/v1/deliveries/{told['id']}", headers=light)).status == 200
