"""The view of an operator on a session, and the possible changes: GET and PATCH /v1/session."""

import re
import signal

import pytest

from harness.raw import frame, linger, read_frame, says, upgrade
from harness.upstream import Upstream
from harness.waiting import eventually


async def patch(client, body, type="application/json"):
    headers = {"Content-Type": type} if type else {}
    return await client.request("PATCH", "/v1/session", data=body, headers=headers)


async def is_in(client, state):
    return (await client.session())["state"] == state


async def test_down_closes_the_session_and_up_opens_it(upstream, gateway, client):
    response = await patch(client, '{"desired":"down"}')
    assert response.status == 200
    assert response.json["desired"] == "down"
    await eventually(lambda: is_in(client, "stopped"), what="the session is stopped")
    await eventually(lambda: upstream.closes == [(1000, "")], what="and the upstream got the close frame")
    waiting = await client.accepted("waits")

    response = await patch(client, ' { "desired" : "up" } ', "application/merge-patch+json")
    assert response.json["desired"] == "up"
    assert await upstream.has_received(1) == ["waits"]
    assert waiting["state"] == "queued"


async def test_every_type_of_a_change_that_a_refusal_names_is_accepted(client):
    refused = await patch(client, '{"desired":"up"}', "text/plain")
    assert refused.status == 415
    names = re.findall(r"application/[a-z+.-]+[a-z]", refused.json["detail"])
    assert len(names) == 4
    for name in names:
        assert (await patch(client, '{"desired":"up"}', name)).status == 200


async def test_the_gap_of_a_closed_session_is_after_its_last_push(gateway_for, raw_upstream):
    """The upstream sends until it has read the close frame. Pushes that it would send later are missing."""

    async def behave(reader, writer):
        await upgrade(reader, writer)
        writer.write(frame(1, b"before"))
        while True:
            opcode, payload = await read_frame(reader)
            if opcode == 9:
                writer.write(frame(10, payload))
            elif opcode == 8:
                writer.write(frame(1, b"last") + frame(8, payload))
                return

    gateway = await gateway_for(await raw_upstream(behave))
    client = gateway.client()
    for desired, state in (("down", "stopped"), ("up", "ready")):
        await patch(client, f'{{"desired":"{desired}"}}')
        await eventually(lambda state=state: is_in(client, state), what=f"the session is {state}")
    first = await client.poll(cursor="earliest", wait=20, limit=2)
    assert (first.payloads, first.gap) == (["before", "last"], None)
    second = await client.poll(cursor=first.cursor, wait=20)
    assert (second.payloads, second.gap["reason"]) == (["before"], "upstream")


async def test_the_gap_of_a_connection_that_the_upstream_closes_is_reported_at_once(gateway_for, raw_upstream):
    """The upstream sends nothing after its close frame, but does not end the TCP connection for a long time."""

    async def behave(reader, writer):
        await upgrade(reader, writer)
        while True:
            opcode, payload = await read_frame(reader)
            if opcode == 9:
                writer.write(frame(10, payload))
            elif opcode == 1:
                writer.write(frame(1, b"last") + frame(8, b"\x03\xe9"))

    upstream = await raw_upstream(behave)
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_UPSTREAM_TIMEOUTS_CLOSING": "60s"})
    client = gateway.client()
    await client.accepted("go")
    first = await client.poll(cursor="earliest", wait=20)
    assert (first.payloads, first.gap) == (["last"], None)
    second = await client.poll(cursor=first.cursor, wait=20)
    assert (second.payloads, second.gap and second.gap["reason"]) == ([], "upstream")
    assert await is_in(client, "closing")
    await upstream.kill()


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
    await eventually(lambda: is_in(client, "backoff"), what="the first attempt failed")
    session = await client.session()
    assert session["next_attempt_in_seconds"] > 500
    await upstream.start()
    await patch(client, '{"desired":"up"}')
    await gateway.ready()


async def test_up_connects_before_the_end_of_retry_after(raw_upstream, gateway_for):
    responses = iter([b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3600\r\nContent-Length: 0\r\n\r\n"])

    async def behave(reader, writer):
        if refusal := next(responses, None):
            await says(refusal)(reader, writer)
        else:
            await upgrade(reader, writer)
            await linger(reader)

    gateway = await gateway_for(await raw_upstream(behave), ready=False)
    client = gateway.client()
    await eventually(lambda: is_in(client, "backoff"), what="the host asked to be left alone")
    assert (await client.session())["next_attempt_in_seconds"] > 3500
    await patch(client, '{"desired":"up"}')
    await gateway.ready()


async def test_a_closed_connection_is_one_failure_in_every_report(upstream, gateway_for):
    env = {"DRAWBRIDGE_UPSTREAM_CLOSE_CODES": "1000: stop"}
    gateway = await gateway_for(upstream, env=env)
    client = gateway.client()
    assert (await gateway.metrics())["drawbridge_session_desired"] == 1
    await eventually(lambda: upstream.connected, what="it is connected")
    await upstream.stop(1000, "good night")
    await eventually(lambda: is_in(client, "parked"), what="the session is parked")
    session = await client.session()
    assert session["last_failure"] == "the upstream closed the connection with 1000: good night"
    assert [entry["to"] for entry in session["history"]][-2:] == ["closing", "parked"]
    metrics = await gateway.metrics()
    assert metrics["drawbridge_session_failures_total"] == 1
    assert metrics.samples["drawbridge_session_transitions_total", 'state="parked"'] == 1
    await gateway.logs(lambda record: record.get("to") == "parked", what="the end")
    warnings = [record for record in gateway.records if record["level"] == "warning"]
    assert [(record["url"], record["to"]) for record in warnings] == [(upstream.url, "closing")]
    page = (await gateway.manage("/")).body.decode()
    assert "\nsession      parked\n" in page
    assert "closed the connection with 1000: good night (" in page
    await patch(client, '{"desired":"down"}')
    await eventually(lambda: is_in(client, "stopped"), what="the session is stopped")
    assert (await gateway.metrics())["drawbridge_session_desired"] == 0
    assert "\nsession      stopped, requested by an operator\n" in (await gateway.manage("/")).body.decode()


async def test_a_silent_connection_is_reported_and_the_round_trip_is_exact(start, gateway_for, raw_upstream):
    pings = []

    async def behave(reader, writer):
        await upgrade(reader, writer)
        pings.append(await read_frame(reader))
        writer.write(frame(10, pings[0][1]))
        await writer.drain()
        await reader.read()

    env = {"DRAWBRIDGE_UPSTREAM_HEARTBEAT_INTERVAL": "50ms", "DRAWBRIDGE_UPSTREAM_HEARTBEAT_TIMEOUT": "2s"}
    gateway = await gateway_for(await raw_upstream(behave), env=env)
    client = gateway.client()

    async def has_failed():
        session = await client.session()
        return session if session["last_failure"] else None

    session = await eventually(has_failed, what="silence is noticed")
    assert "the upstream sent nothing within" in session["last_failure"]
    lost = next(entry for entry in session["history"] if entry["cause"] == "silence")
    assert lost["from"] == "suspect"
    assert 0 < lost["round_trip_seconds"] < 2


@pytest.mark.parametrize("when", ["connecting", "backing off", "during a hand-over"])
async def test_down_and_up_work_at_any_moment(start, gateway_for, raw_upstream, when):
    upstream = await start(Upstream())
    accepted = []

    async def never_respond(reader, writer):
        accepted.append(writer)
        await reader.read()

    silent = await raw_upstream(never_respond)
    config = "upstream:\n  url: {}\n"
    first = {"connecting": silent.url, "backing off": "ws://127.0.0.1:1/", "during a hand-over": upstream.url}[when]
    gateway = await gateway_for(None, config=config.format(first), ready=when == "during a hand-over")
    client = gateway.client()
    if when == "during a hand-over":
        gateway.rewrite(config.format(silent.url))
        gateway.signal(signal.SIGHUP)
    state = {"connecting": "upgrading", "backing off": "backoff", "during a hand-over": "replacing"}[when]
    await eventually(lambda: is_in(client, state), what=f"the session is {state}")
    assert (await patch(client, '{"desired":"down"}')).json["desired"] == "down"
    await eventually(lambda: is_in(client, "stopped"), what="the session is stopped")
    session = await client.session()
    assert session["next_attempt_in_seconds"] is None
    await eventually(lambda: upstream.connected == 0, what="nothing is connected")
    count = session["generation"]
    # Only a request of the operator may open the session again.
    gateway.rewrite(config.format(upstream.url))
    gateway.signal(signal.SIGHUP)
    await eventually(lambda: '"changed":true' in gateway.output.splitlines()[-1].replace(" ", ""), what="a reload")
    session = await client.session()
    assert (session["state"], session["generation"]) == ("stopped", count)
    await patch(client, '{"desired":"up"}')
    await gateway.ready()
    await client.accepted("hello")
    await eventually(lambda: upstream.received == ["hello"], what="the message arrives")


async def test_the_session_document_matches_its_schema(gateway, client):
    text = (await client.request("GET", "/openapi.yaml")).body.decode()

    def described(schema):
        section = text[text.index(f"\n    {schema}:\n") + 1 :]
        section = section[section.index("properties:\n") :]
        section = section[: re.search(r"^    \w+:$", section, re.MULTILINE).start()]
        return set(re.findall(r"^        (\w+):", section, re.MULTILINE))

    session = await client.session()
    # Only a Socket.IO upstream has namespaces, only one of several gateways has `replica`, and only a session with
    # `upstream.capture` has captures.
    assert set(session) == described("Session") - {"namespaces", "replica", "captures"}
    assert set(session["history"][0]) == described("SessionTransition")


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
async def test_invalid_documents_are_refused_without_effect(gateway, client, body):
    response = await patch(client, body)
    assert response.status == 422
    assert response.json["type"].endswith("/invalid-document")
    assert (await client.session())["desired"] == "up"


async def test_a_document_of_another_type_or_size_is_refused(gateway, client):
    assert (await patch(client, "desired: down", "application/yaml")).status == 415
    # HTTP libraries and curl send these types by default.
    for type in ("application/octet-stream", "application/x-www-form-urlencoded"):
        assert (await patch(client, '{"desired":"up"}', type)).status == 200
    assert (await patch(client, '{"desired":"down"' + " " * 5000 + "}")).status == 413
    assert (await client.session())["desired"] == "up"


async def test_the_history_has_phase_status_round_trip_and_next_attempt(upstream, gateway, client):
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
