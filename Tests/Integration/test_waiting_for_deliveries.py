"""`GET /v1/deliveries/{id}?wait=` is held until the state of the message is final."""

import asyncio

import pytest

from harness.waiting import eventually


async def _lose_upstream(client, upstream):
    await upstream.kill()

    async def is_lost():
        return (await client.session())["state"] != "ready"

    await eventually(is_lost, what="the gateway notices")


async def _wait_for(client, accepted, wait):
    return await client.request("GET", f"/v1/deliveries/{accepted['id']}?wait={wait}")


async def test_a_request_waits_until_its_delivery_is_confirmed(gateway_for, upstream):
    client = (await gateway_for(upstream)).client()
    await _lose_upstream(client, upstream)
    accepted = await client.accepted("late")
    waiting = asyncio.create_task(_wait_for(client, accepted, "50s"))
    # A second wait ends while the first wait continues. The first is already held by then, or will be soon.
    assert (await _wait_for(client, accepted, "50ms")).json["state"] == "queued"
    assert not waiting.done()
    await upstream.start()
    response = await waiting
    assert response.status == 200
    time = response.json["time"]
    assert response.json == {
        "id": accepted["id"],
        "state": "confirmed",
        "session": "default",
        "reason": None,
        "time": time,
    }
    # The document of the delivery does not change.
    assert (await _wait_for(client, accepted, "0")).json["time"] == time


async def test_a_request_waits_until_its_delivery_expires(gateway_for, upstream):
    client = (await gateway_for(upstream)).client()
    await _lose_upstream(client, upstream)
    accepted = await client.accepted("short", headers={"TTL": "1"})
    delivery = (await _wait_for(client, accepted, "50s")).json
    assert (delivery["state"], delivery["reason"]) == ("expired", "ttl")


async def test_many_requests_can_wait_for_one_delivery(gateway_for, upstream):
    client = (await gateway_for(upstream)).client()
    await _lose_upstream(client, upstream)
    accepted = await client.accepted("late")
    waits = [asyncio.create_task(_wait_for(client, accepted, "50s")) for _ in range(20)]
    await upstream.start()
    responses = await asyncio.gather(*waits)
    assert {response.json["state"] for response in responses} == {"confirmed"}


async def test_the_wait_ends_at_its_maximum(gateway_for, upstream):
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_DELIVERY_MAXIMUM_WAIT": "50ms"})
    client = gateway.client()
    await _lose_upstream(client, upstream)
    accepted = await client.accepted("late")
    assert (await _wait_for(client, accepted, "50s")).json["state"] == "queued"


@pytest.mark.parametrize("query", ["wait=x", "wait=1&wait=2", "colour=red"])
async def test_another_parameter_is_refused(client, query):
    accepted = await client.accepted("a")
    (await client.request("GET", f"/v1/deliveries/{accepted['id']}?{query}")).problem(400)


@pytest.mark.parametrize("state", ["written", "confirmed"])
async def test_a_post_waits_for_the_state_of_its_message(client, state):
    response = await client.request("POST", f"/v1/messages?until={state}&wait=50s", data=b"a")
    assert response.status == 200
    assert response.json["state"] in ("written", "confirmed")
    assert state == "written" or response.json["state"] == "confirmed"


async def test_a_batch_waits_for_all_its_messages(client):
    response = await client.request(
        "POST",
        "/v1/messages?until=confirmed&wait=50s",
        data=b"1\n2\n3\n",
        headers={"Content-Type": "application/x-ndjson"},
    )
    assert response.status == 200
    assert [result["state"] for result in response.json["results"]] == ["confirmed"] * 3


async def test_a_post_that_waits_outlasts_an_outage(gateway_for, upstream):
    client = (await gateway_for(upstream)).client()
    await _lose_upstream(client, upstream)
    waits = [
        asyncio.create_task(client.request("POST", f"/v1/messages?until={state}&wait=50s", data=b"late"))
        for state in ("written", "confirmed")
    ]
    # This request ends while the others continue.
    early = await client.request("POST", "/v1/messages?until=written&wait=50ms", data=b"early")
    assert (early.status, early.json["state"]) == (202, "queued")
    assert not any(wait.done() for wait in waits)
    await upstream.start()
    assert {(await wait).status for wait in waits} == {200}


async def test_a_waiting_post_gets_a_response_when_the_gateway_stops(gateway_for, upstream):
    gateway = await gateway_for(upstream)
    client = gateway.client()
    await _lose_upstream(client, upstream)
    waiting = asyncio.create_task(client.request("POST", "/v1/messages?until=confirmed&wait=50s", data=b"late"))

    async def is_queued():
        return (await client.session())["queue"]["messages"] == 1

    await eventually(is_queued, what="the message is queued")
    gateway.process.terminate()
    response = await waiting
    assert response.status in (200, 202)
    assert response.json["state"] in ("queued", "rejected")
