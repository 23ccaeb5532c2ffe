"""What an operator sees of the session, and says to it: GET and PATCH /v1/session."""

import pytest

from harness.waiting import eventually


async def patch(client, body, type="application/json"):
    headers = {"Content-Type": type} if type else {}
    return await client.request("PATCH", "/v1/session", data=body, headers=headers)


async def is_in(client, state):
    return (await client.session())["state"] == state


async def test_down_closes_the_session_and_up_opens_it(upstream, gateway, client):
    answer = await patch(client, '{"desired":"down"}')
    assert answer.status == 200
    assert answer.json["desired"] == "down"
    await eventually(lambda: is_in(client, "stopped"), what="the session is stopped")
    assert upstream.closes == [(1000, "")]
    waiting = await client.accepted("waits")

    answer = await patch(client, ' { "desired" : "up" } ', "application/merge-patch+json")
    assert answer.json["desired"] == "up"
    assert await upstream.has_received(1) == ["waits"]
    assert waiting["state"] == "queued"


async def test_a_lost_connection_never_reopens_a_session_that_is_down(upstream, gateway, client):
    await patch(client, '{"desired":"down"}')
    await eventually(lambda: is_in(client, "stopped"), what="the session is stopped")
    await upstream.kill()
    await upstream.start()
    await patch(client, '{"desired":"down"}')
    assert (await client.session())["state"] == "stopped"
    assert len(upstream.requests) == 1


async def test_up_ends_a_wait_at_once(upstream, gateway_for):
    env = {"DRAWBRIDGE_UPSTREAM_RECONNECT_STRATEGY": "fixed", "DRAWBRIDGE_UPSTREAM_RECONNECT_BASE": "10m"}
    await upstream.kill()
    gateway = await gateway_for(upstream, ready=False, env=env)
    client = gateway.client()
    await eventually(lambda: is_in(client, "backoff"), what="the first dial failed")
    session = await client.session()
    assert session["next_attempt_in_seconds"] > 500
    await upstream.start()
    await patch(client, '{"desired":"up"}')
    await gateway.ready()


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "{}",
        "[]",
        "null",
        '{"desired":"sideways"}',
        '{"desired":null}',
        '{"desired":"up","also":1}',
        '{"desired":"up","desired":"down"}',
        '{"desire":"up"}',
        b'{"desired":"\xff"}',
    ],
)
async def test_other_documents_are_refused_and_change_nothing(gateway, client, body):
    answer = await patch(client, body)
    assert answer.status == 422
    assert answer.json["type"].endswith("#invalid-document")
    assert (await client.session())["desired"] == "up"


async def test_a_document_of_another_type_or_size_is_refused(gateway, client):
    assert (await patch(client, "desired: down", "application/yaml")).status == 415
    assert (await patch(client, '{"desired":"down"' + " " * 5000 + "}")).status == 413
    assert (await client.session())["desired"] == "up"


async def test_the_history_tells_of_phase_status_round_trip_and_next_attempt(upstream, gateway, client):
    await upstream.kill()

    async def has_failed():
        return [entry for entry in (await client.session())["history"] if entry["phase"]]

    await eventually(has_failed, what="a redial failed")
    session = await client.session()
    sequences = [entry["sequence"] for entry in session["history"]]
    assert sequences == list(range(1, len(sequences) + 1))
    failed = (await has_failed())[-1]
    assert failed["phase"] == "connecting"
    assert failed["to"] == "backoff"
    assert failed["next_attempt_in_seconds"] is not None
    assert all({"round_trip_seconds", "status"} <= entry.keys() for entry in session["history"])
    metrics = await gateway.metrics()
    assert metrics.samples["drawbridge_session_transitions_total", 'state="backoff"'] >= 1
