"""Several sessions in one gateway. Each has its own upstream, queue and pushes, and none hinders another."""

import asyncio
import signal

import pytest_asyncio

from harness.upstream import Upstream
from harness.waiting import eventually


def configuration(sessions, *, default=None, extra=""):
    """The configuration of `sessions`, which contains the upstream of each session by its name."""
    lines = [f"upstream: {{url: '{default.url}'}}"] if default else []
    lines.append("sessions:")
    lines += [f"  {name}: {{upstream: {{url: '{upstream.url}'}}}}" for name, upstream in sessions.items()]
    return "\n".join(lines) + "\n" + extra


async def is_in(client, state):
    return (await client.session())["state"] == state


async def become_ready(gateway, *names):
    for name in names:
        client = gateway.client(session=name)
        await eventually(lambda client=client: is_in(client, "ready"), what=f"session {name} is ready")


@pytest_asyncio.fixture
async def three(start, gateway_for):
    """A gateway with the sessions default, market and orders, and their upstreams."""
    upstreams = {name: await start(Upstream()) for name in ("default", "market", "orders")}
    named = {name: upstream for name, upstream in upstreams.items() if name != "default"}
    gateway = await gateway_for(None, config=configuration(named, default=upstreams["default"]))
    await become_ready(gateway, *upstreams)
    return gateway, upstreams


async def test_each_session_sends_to_its_own_upstream_and_keeps_its_own_pushes(three):
    gateway, upstreams = three
    for name, upstream in upstreams.items():
        client = gateway.client(session=name)
        here = await client.here()
        accepted = await client.accepted(f"to {name}")
        assert accepted["session"] == name
        assert await upstream.has_received(1) == [f"to {name}"]
        await upstream.push(f"from {name}")
        assert (await client.collect(1, here))[0] == [f"from {name}"]
    assert [upstream.received for upstream in upstreams.values()] == [["to default"], ["to market"], ["to orders"]]


async def test_paths_without_a_name_belong_to_the_default_session(three):
    gateway, upstreams = three
    client = gateway.client()
    accepted = await client.accepted("hello")
    await upstreams["default"].has_received(1)
    named = gateway.client(session="default")
    assert (await named.session())["session"] == "default"
    delivery = await client.request("GET", f"/v1/sessions/default/deliveries/{accepted['id']}")
    assert delivery.json["id"] == accepted["id"]


async def test_a_delivery_belongs_to_its_session(three):
    gateway, _upstreams = three
    market = gateway.client(session="market")
    response = await market.send("an order")
    assert response.status == 202
    location = response.headers["Location"]
    assert location == f"/v1/sessions/market/deliveries/{response.json['id']}"
    assert (await market.request("GET", location)).json["session"] == "market"
    for path in (f"/v1/deliveries/{response.json['id']}", f"/v1/sessions/orders/deliveries/{response.json['id']}"):
        (await market.request("GET", path)).problem(404)


async def test_a_cursor_of_another_session_is_a_gap(three):
    gateway, upstreams = three
    market, orders = gateway.client(session="market"), gateway.client(session="orders")
    await upstreams["market"].push("one", "two", "three")
    await upstreams["orders"].push("other")
    _, cursor = await market.collect(3, "earliest")
    await orders.collect(1, "earliest")
    batch = await orders.poll(cursor=cursor, wait=0)
    assert batch.gap is not None
    assert batch.payloads == ["other"]


async def test_polls_are_woken_by_their_own_session_only(three):
    gateway, upstreams = three
    clients = {name: gateway.client(session=name) for name in upstreams}
    cursors = {name: await client.here() for name, client in clients.items()}
    polls = {name: asyncio.create_task(clients[name].poll(cursor=cursors[name], wait=50)) for name in clients}

    async def all_are_held():
        return (await gateway.metrics())["drawbridge_polls_held"] == 3

    await eventually(all_are_held, what="three polls are held")
    await upstreams["orders"].push("news")
    assert (await polls["orders"]).payloads == ["news"]
    assert (await gateway.metrics())["drawbridge_polls_held"] == 2
    await upstreams["market"].push("prices")
    await upstreams["default"].push("rest")
    assert (await polls["market"]).payloads == ["prices"]
    assert (await polls["default"]).payloads == ["rest"]


async def test_a_session_without_upstream_does_not_stop_the_others(three):
    gateway, upstreams = three
    market, orders = gateway.client(session="market"), gateway.client(session="orders")
    await upstreams["market"].kill()
    await eventually(lambda: is_in(market, "backoff"), what="the session market has lost its upstream")
    waiting = await market.accepted("waits", headers={"TTL": "300"})
    await orders.accepted("goes")
    assert await upstreams["orders"].has_received(1) == ["goes"]
    # The other sessions are available.
    assert (await gateway.manage("/readyz")).status == 200
    await upstreams["market"].start()
    assert await upstreams["market"].has_received(1) == ["waits"]
    assert waiting["session"] == "market"


async def test_a_session_is_closed_and_opened_alone(three):
    gateway, upstreams = three
    market = gateway.client(session="market")
    response = await market.request(
        "PATCH", "/v1/sessions/market", data='{"desired":"down"}', headers={"Content-Type": "application/json"}
    )
    assert response.status == 200
    await eventually(lambda: upstreams["market"].closes == [(1000, "")], what="the upstream was closed with 1000")
    assert upstreams["default"].connected == upstreams["orders"].connected == 1


async def test_the_list_and_the_metrics_name_every_session(three):
    gateway, upstreams = three
    response = await gateway.client().request("GET", "/v1/sessions")
    assert response.status == 200
    assert [session["session"] for session in response.json["sessions"]] == ["default", "market", "orders"]
    assert all(session["state"] == "ready" for session in response.json["sessions"])
    await gateway.client(session="market").accepted("one")
    await upstreams["market"].has_received(1)
    samples = (await gateway.metrics()).samples
    for name in ("market", "orders"):
        assert samples["drawbridge_session_ready", f'session="{name}"'] == 1
    page = (await gateway.status_page()).text
    assert "market" in page
    assert "orders" in page


async def test_an_unknown_session_is_not_found(three):
    gateway, _ = three
    client = gateway.client(session="nobody")
    for path in ("", "/messages", "/deliveries/d-1.1"):
        problem = (await client.request("GET", client.root + path)).problem(404)
        assert "nobody" in problem["detail"]
    assert (await client.send("lost")).status == 404


async def test_without_a_default_session_its_paths_list_the_sessions(start, gateway_for):
    upstream = await start(Upstream())
    gateway = await gateway_for(None, config=configuration({"market": upstream}))
    await become_ready(gateway, "market")
    client = gateway.client()
    for path in ("/v1/messages", "/v1/session", "/v1/sessions/default/messages"):
        problem = (await client.request("GET", path)).problem(404)
        assert "market" in problem["detail"]
    await gateway.client(session="market").accepted("hello")
    assert await upstream.has_received(1) == ["hello"]


async def test_a_reload_moves_one_session_to_another_upstream(start, gateway_for, three):
    gateway, upstreams = three
    other = await start(Upstream())
    named = {"market": other, "orders": upstreams["orders"]}
    before = await gateway.client(session="orders").session()
    gateway.rewrite(configuration(named, default=upstreams["default"]))
    gateway.signal(signal.SIGHUP)
    await eventually(lambda: other.connected == 1, what="the session market connects to its new upstream")
    await eventually(lambda: upstreams["market"].connected == 0, what="and leaves the old one")
    market = gateway.client(session="market")
    await market.accepted("here")
    assert await other.has_received(1) == ["here"]
    after = await gateway.client(session="orders").session()
    assert after["state"] == "ready"
    assert after["session"] == before["session"]


async def test_a_reload_reports_that_added_and_removed_sessions_need_a_restart(three):
    gateway, upstreams = three
    named = {"market": upstreams["market"], "added": upstreams["orders"]}
    gateway.rewrite(configuration(named, default=upstreams["default"]))
    gateway.signal(signal.SIGHUP)
    record = await gateway.logs(lambda record: "restart" in record["message"], what="that some changes need a restart")
    assert "added" in str(record)
    assert "orders" in str(record)
    orders = gateway.client(session="orders")
    # The session continues. It may be in a hand-over to a connection with certificates that were read again.
    await eventually(lambda: is_in(orders, "ready"), what="the session orders is ready")


async def test_the_shutdown_flushes_and_closes_every_session(three):
    gateway, upstreams = three
    for upstream in upstreams.values():
        upstream.pause_reading()
    for name in upstreams:
        await gateway.client(session=name).accepted(f"last to {name}")
    for upstream in upstreams.values():
        upstream.resume_reading()
    await gateway.stop()
    for name, upstream in upstreams.items():
        assert upstream.received == [f"last to {name}"]
        assert upstream.closes == [(1001, "")], name
