"""Several URLs of one upstream, sessions on demand, and the configured meaning of close codes."""

import asyncio
import datetime
import email.utils

from harness.upstream import Upstream
from harness.waiting import eventually

FAST = {
    "DRAWBRIDGE_UPSTREAM_RECONNECT_MINIMUM": "1ms",
    "DRAWBRIDGE_UPSTREAM_RECONNECT_BASE": "10ms",
    "DRAWBRIDGE_UPSTREAM_RECONNECT_MAXIMUM": "20ms",
    "DRAWBRIDGE_UPSTREAM_RECONNECT_QUICK_REDIAL": "10ms",
}


async def two_upstreams(start):
    return await start(Upstream()), await start(Upstream())


async def test_the_next_url_is_used_when_the_first_fails(start, gateway_for):
    first, second = await two_upstreams(start)
    await first.kill()
    gateway = await gateway_for(first, env={**FAST, "DRAWBRIDGE_UPSTREAM_FALLBACK_URLS": second.url})
    client = gateway.client()
    assert (await client.session())["upstream"] == second.url
    await client.accepted("to the second")
    assert await second.has_received(1) == ["to the second"]


async def test_a_reconnect_uses_the_first_url_once_the_fallback_was_healthy(start, gateway_for):
    first, second = await two_upstreams(start)
    await first.kill()
    env = {
        **FAST,
        "DRAWBRIDGE_UPSTREAM_FALLBACK_URLS": second.url,
        "DRAWBRIDGE_UPSTREAM_FAIL_BACK_AFTER": "0s",
    }
    await gateway_for(first, env=env)
    await eventually(lambda: second.connected, what="the second is connected")
    await first.start()
    second.reset_connections()
    await eventually(lambda: first.connected, what="the first is connected again")


async def test_round_robin_uses_each_url_in_turn(start, gateway_for):
    first, second = await two_upstreams(start)
    env = {
        **FAST,
        "DRAWBRIDGE_UPSTREAM_FALLBACK_URLS": second.url,
        "DRAWBRIDGE_UPSTREAM_URL_ORDER": "round-robin",
        "DRAWBRIDGE_UPSTREAM_RECONNECT_RESET_AFTER": "0s",
    }
    await gateway_for(first, env=env)
    for turn in range(3):
        await eventually(lambda: first.connected, what=f"the first is connected in turn {turn}")
        first.reset_connections()
        await eventually(lambda: second.connected, what=f"the second is connected in turn {turn}")
        second.reset_connections()


async def test_an_on_demand_session_connects_for_a_post_and_goes_idle(start, gateway_for):
    upstream = await start(Upstream())
    env = {"DRAWBRIDGE_UPSTREAM_ON_DEMAND": "true", "DRAWBRIDGE_UPSTREAM_IDLE_AFTER": "200ms"}
    gateway = await gateway_for(upstream, env=env, ready=False)
    client = gateway.client()
    await eventually(lambda: is_in(client, "idle"), what="the session is idle")
    assert upstream.requests == []
    for turn in (1, 2):
        await client.accepted(f"message {turn}")
        await upstream.has_received(turn)
        await eventually(lambda: is_in(client, "idle"), what="the session is idle again")
        assert len(upstream.requests) == turn
    causes = [entry["cause"] for entry in (await client.session())["history"]]
    assert causes.count("demand") == 2
    assert causes.count("unused") == 2


async def test_an_operator_connects_an_on_demand_session_that_is_idle(start, gateway_for):
    upstream = await start(Upstream())
    client = (await gateway_for(upstream, env={"DRAWBRIDGE_UPSTREAM_ON_DEMAND": "true"}, ready=False)).client()
    await eventually(lambda: is_in(client, "idle"), what="the session is idle")
    for desired, state in (("up", "ready"), ("down", "stopped"), ("up", "ready")):
        await client.request("PATCH", "/v1/session", json={"desired": desired})
        await eventually(lambda state=state: is_in(client, state), what=f"the session is {state} after {desired!r}")


async def test_an_on_demand_session_that_is_idle_is_ready_for_traffic(start, gateway_for):
    upstream = await start(Upstream())
    env = {"DRAWBRIDGE_UPSTREAM_ON_DEMAND": "true"}
    gateway = await gateway_for(upstream, env=env)
    assert (await gateway.client().session())["state"] == "idle"
    await upstream.kill()
    await gateway.client().accepted("cannot be sent")

    async def is_unready():
        return (await gateway.manage("/readyz")).status == 503

    await eventually(is_unready, what="an upstream that is away makes it unready")


async def test_ttl_zero_opens_an_on_demand_session(start, gateway_for):
    upstream = await start(Upstream())
    client = (await gateway_for(upstream, env={"DRAWBRIDGE_UPSTREAM_ON_DEMAND": "true"}, ready=False)).client()
    await eventually(lambda: is_in(client, "idle"), what="the session is idle")
    response = await client.send("too early", headers={"TTL": "0"})
    response.problem(503)
    assert response.headers["Retry-After"] == "1"
    await eventually(lambda: is_in(client, "ready"), what="the session is ready without another message")
    await client.accepted("in time", headers={"TTL": "0"})
    assert await upstream.has_received(1) == ["in time"]


async def test_a_held_poll_opens_an_on_demand_session_and_keeps_it_open(start, gateway_for):
    upstream = await start(Upstream())
    env = {"DRAWBRIDGE_UPSTREAM_ON_DEMAND": "true", "DRAWBRIDGE_UPSTREAM_IDLE_AFTER": "100ms"}
    client = (await gateway_for(upstream, env=env, ready=False)).client()
    await eventually(lambda: is_in(client, "idle"), what="the session is idle")
    poll = asyncio.create_task(client.poll(cursor="earliest", wait=55))

    async def has_lasted():
        session = await client.session()
        return session["state"] == "ready" and session["seconds_in_state"] > 1

    await eventually(has_lasted, what="the session is open ten times as long as it may be idle")
    await upstream.push("news")
    assert (await poll).payloads == ["news"]
    assert len(upstream.requests) == 1
    await eventually(lambda: is_in(client, "idle"), what="the session is idle again")


async def test_a_queue_with_a_rate_keeps_an_on_demand_session_open(start, gateway_for):
    upstream = await start(Upstream())
    env = {
        "DRAWBRIDGE_UPSTREAM_ON_DEMAND": "true",
        "DRAWBRIDGE_UPSTREAM_IDLE_AFTER": "700ms",
        "DRAWBRIDGE_UPSTREAM_QUEUE_RATE": "1",
    }
    client = (await gateway_for(upstream, env=env, ready=False)).client()
    sent = [f"message {number}" for number in range(4)]
    for message in sent:
        await client.accepted(message)
    assert await upstream.has_received(4) == sent
    await eventually(lambda: is_in(client, "idle"), what="the session is idle")
    assert len(upstream.requests) == 1, "it was not closed while messages waited for their turn"
    assert (await client.session())["messages"]["confirmed"] == 4


async def test_an_on_demand_session_without_messages_stops_connecting(start, gateway_for):
    upstream = await start(Upstream())
    await upstream.kill()
    env = {**FAST, "DRAWBRIDGE_UPSTREAM_ON_DEMAND": "true", "DRAWBRIDGE_UPSTREAM_IDLE_AFTER": "100ms"}
    client = (await gateway_for(upstream, env=env, ready=False)).client()
    receipt = await client.accepted("too late", headers={"TTL": "1"})

    async def is_expired():
        return (await client.request("GET", f"/v1/deliveries/{receipt['id']}")).json["state"] == "expired"

    await eventually(is_expired, what="the message expired")
    await eventually(lambda: is_in(client, "idle"), what="the session is idle again")
    session = await client.session()
    assert session["history"][-1]["cause"] == "unused"
    assert session["next_attempt_in_seconds"] is None
    await upstream.start()
    await client.accepted("in time")
    assert await upstream.has_received(1) == ["in time"]


async def test_the_next_url_is_used_during_retry_after_of_the_first(start, gateway_for):
    asked = []

    def refuse(connection, request):
        asked.append(request.path)
        response = connection.respond(503, "maintenance\n")
        response.headers["Retry-After"] = email.utils.format_datetime(
            datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=30), usegmt=True
        )
        return response

    first = await start(Upstream(process_request=refuse))
    second = await start(Upstream())
    gateway = await gateway_for(first, env={**FAST, "DRAWBRIDGE_UPSTREAM_FALLBACK_URLS": second.url})
    client = gateway.client()
    for turn in range(3):
        await eventually(lambda: second.connected, what=f"the second is connected in turn {turn}")
        second.reset_connections()
        await eventually(lambda turn=turn: len(second.requests) == turn + 2, what="and again")
    assert len(asked) == 1, "the first is left alone"
    session = await client.session()
    assert session["upstream"] == second.url
    refused = next(entry for entry in session["history"] if entry["status"])
    assert refused["status"] == 503
    assert refused["next_attempt_in_seconds"] < 1
    # The log shows which of the two URLs has refused.
    failure = await gateway.logs(lambda record: record.get("status") == 503, what="the refusal")
    assert failure["url"] == first.url


async def test_a_close_code_configured_as_stop_stops_the_session(start, gateway_for):
    upstream = await start(Upstream())
    env = {**FAST, "DRAWBRIDGE_UPSTREAM_CLOSE_CODES": "4000-4009: stop"}
    gateway = await gateway_for(upstream, env=env)
    await eventually(lambda: upstream.connected, what="it is connected")
    await upstream.stop(code=4001, reason="go away")
    client = gateway.client()
    await eventually(lambda: is_in(client, "parked"), what="the session is parked")
    session = await client.session()
    assert session["next_attempt_in_seconds"] is None
    assert "4001: go away" in session["last_failure"]


async def test_the_number_of_attempts_is_limited_if_configured(start, gateway_for):
    upstream = await start(Upstream())
    await upstream.kill()
    env = {**FAST, "DRAWBRIDGE_UPSTREAM_RECONNECT_MAXIMUM_ATTEMPTS": "3"}
    gateway = await gateway_for(upstream, env=env, ready=False)
    client = gateway.client()
    await eventually(lambda: is_in(client, "parked"), what="the session gave up")
    assert (await client.session())["failed_attempts"] == 3


async def is_in(client, state):
    return (await client.session())["state"] == state
