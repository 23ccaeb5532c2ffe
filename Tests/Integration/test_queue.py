"""What waits for the upstream, and what the settings of `upstream.queue` make of it."""

import os
import time

import pytest

from harness.gateway import run
from harness.upstream import Upstream
from harness.waiting import eventually


async def _is_down(client):
    return (await client.session())["state"] != "ready"


async def _state(client, told):
    answer = await client.request("GET", f"/v1/deliveries/{told['id']}")
    assert answer.status == 200, answer.body
    return answer.json["state"]


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


async def test_of_one_topic_the_last_value_arrives_and_the_others_are_accounted_for(gateway_for, upstream):
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


async def test_a_full_queue_drops_the_oldest_where_that_is_wanted(gateway_for, upstream):
    _, client = await _before_a_dead_upstream(gateway_for, upstream, overflow="drop-oldest", messages="3")
    told = [await client.accepted(f"reading {i}") for i in range(5)]
    assert [await _state(client, each) for each in told] == ["rejected"] * 2 + ["queued"] * 3
    await upstream.start()
    assert await upstream.has_received(3) == ["reading 2", "reading 3", "reading 4"]
    await _becomes(client, told[4], "confirmed")


async def test_a_message_that_may_not_wait_longer_is_expired_in_time(gateway_for, upstream):
    _, client = await _before_a_dead_upstream(gateway_for, upstream, ttl="50ms")
    await _becomes(client, await client.accepted("too late"), "expired")


async def test_the_pace_holds_the_queue_and_not_the_heartbeats(gateway_for, upstream):
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


async def test_the_pace_is_kept(gateway_for, upstream):
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_UPSTREAM_QUEUE_RATE": "50"})
    started = time.monotonic()
    client = gateway.client()
    sent = [f"message {i}" for i in range(20)]
    for message in sent:
        await client.accepted(message)
    assert await upstream.has_received(20) == sent
    # The first goes at once, each of the others a fiftieth of a second later. It may take longer, and never less.
    assert time.monotonic() - started >= 19 / 50 - 0.01


async def _stop_reading(upstream, client, *, ttl):
    """Posts until messages wait because the upstream reads nothing; what was posted, by id."""
    upstream.pause_reading()
    posted = {}

    async def is_full():
        # Half as long when compressed: two messages of hexadecimal digits have next to nothing in common.
        text = f"{len(posted)} {os.urandom(16_384).hex()}"
        posted[(await client.accepted(text, headers={"TTL": str(ttl)}))["id"]] = text
        return (await client.session())["queue"]["messages"] >= 8

    await eventually(is_full, within=30, what="messages wait")
    return posted


@pytest.mark.parametrize("scheme", ["ws", "wss"])
async def test_a_message_that_the_kernel_does_not_take_in_time_is_not_sent(start, gateway_for, request, scheme):
    certificate = request.getfixturevalue("certificate") if scheme == "wss" else None
    upstream = await start(Upstream(certificate=certificate))
    trust = ["--ca-file", request.getfixturevalue("authority").path] if certificate else []
    client = (await gateway_for(upstream, *trust)).client()
    posted = await _stop_reading(upstream, client, ttl=1)

    async def left():
        return (await client.session())["queue"]["messages"]

    # One is begun and must go on. With TLS another may be in the record that is encrypted.
    async def has_expired():
        return await left() <= 2

    await eventually(has_expired, what="what is not begun expires")
    upstream.resume_reading()
    last = await client.accepted("the last")
    await _becomes(client, last, "confirmed")
    states = {name: await _state(client, {"id": name}) for name in posted}
    assert set(states.values()) == {"confirmed", "expired"}
    assert upstream.received == [posted[name] for name in posted if states[name] == "confirmed"] + ["the last"]


async def test_now_or_never_is_refused_while_the_upstream_does_not_read(gateway_for, upstream):
    client = (await gateway_for(upstream)).client()
    await _stop_reading(upstream, client, ttl=600)
    problem = (await client.send("now", headers={"TTL": "0"})).problem(503)
    assert "does not read" in problem["detail"]
    upstream.resume_reading()

    async def is_sent():
        return (await client.send("now", headers={"TTL": "0"})).status == 202

    await eventually(is_sent, what="it is accepted again")
    await eventually(lambda: upstream.received[-1:] == ["now"], what="and sent")


async def test_now_or_never_is_refused_where_the_pace_says_later(gateway_for, upstream):
    env = {"DRAWBRIDGE_UPSTREAM_QUEUE_RATE": "1", "DRAWBRIDGE_UPSTREAM_QUEUE_RATE_INTERVAL": "1h"}
    client = (await gateway_for(upstream, env=env)).client()
    await client.accepted("first", headers={"TTL": "0"})
    answer = await client.send("second", headers={"TTL": "0"})
    assert "upstream.queue.rate" in answer.problem(503)["detail"]
    assert 3500 < int(answer.headers["Retry-After"]) <= 3600


async def test_without_confirmations_written_is_the_end(gateway_for, upstream):
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
