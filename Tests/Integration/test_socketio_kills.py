"""A Socket.IO server with three namespaces is killed again and again, with and without connection state recovery.

`DRAWBRIDGE_SOCKETIO_KILLS` says how often: 10 times in `make test`.
"""

import asyncio
import json
import os
import signal

import pytest

from harness.socketio import RecoveringServer, configuration
from harness.waiting import eventually

KILLS = int(os.environ.get("DRAWBRIDGE_SOCKETIO_KILLS", "10"))
NAMESPACES = ["/", "/admin", "/saas"]
EVENTS = 20
FINAL = {"confirmed", "written", "expired", "replaced", "rejected", "unknown"}


class Reader:
    """Reads all pushes, and notes each gap with the number of pushes before it."""

    def __init__(self, client):
        self.client = client
        self.cursor = "earliest"
        self.messages = []
        self.gaps = []

    async def read(self):
        answer = await self.client.request(
            "GET", "/v1/messages", params={"cursor": self.cursor, "wait": "0", "limit": "1000"}
        )
        batch = answer.json
        self.cursor = batch["cursor"]
        if batch["gap"]:
            self.gaps.append(
                (len(self.messages), batch["gap"]["reasons"] if "reasons" in batch["gap"] else batch["gap"])
            )
        self.messages += batch["messages"]
        return batch

    async def has(self, condition, what):
        async def check():
            await self.read()
            return condition(self)

        await eventually(check, what=what, within=60)

    def numbers(self, namespace):
        return [m["data"][0] for m in self.messages if m["namespace"] == namespace and m["topic"] == "counted"]


async def post(client, namespace, event, *args):
    answer = await client.request(
        "POST",
        "/v1/messages",
        data=json.dumps({"event": event, "args": args, "namespace": namespace}),
        headers={"Content-Type": "application/json"},
    )
    assert answer.status == 202, answer.body
    return answer.headers["Location"]


@pytest.mark.parametrize("recovers", [True, False], ids=["recovery", "no-recovery"])
async def test_namespaces_joined_before_the_first_event_after_kills(start, gateway_for, tmp_path, recovers):
    """Namespaces that are lost or never joined after a reconnect (socket.io-client-swift #744, #837, #626)."""
    server = await start(RecoveringServer(recovers=recovers, state=str(tmp_path / "state")))
    config = configuration(server, namespaces=NAMESPACES)
    # The upstream is back at once, so a wait would only be idle time.
    config["upstream"]["reconnect"] = {"base": "20ms", "maximum": "100ms"}
    gateway = await gateway_for(None, config=json.dumps(config))
    client = gateway.client()
    reader = Reader(client)
    locations = [await post(client, namespace, "count", 1) for namespace in NAMESPACES]
    await reader.has(lambda r: all(r.numbers(n) == [0] for n in NAMESPACES), "the first events")

    for kill in range(KILLS):
        locations += [await post(client, namespace, "count", EVENTS) for namespace in NAMESPACES]
        # It dies while it sends.
        before = len(reader.messages)
        await reader.has(lambda r, least=before + kill % 10: len(r.messages) > least, "some events")
        await server.kill()
        locations += [await post(client, namespace, "note", kill) for namespace in NAMESPACES]
        await server.start()
        await gateway.ready()
        expected = 3 * (kill + 1)
        await eventually(lambda expected=expected: len(server.of("event")) >= expected, what="the session works again")

    locations += [await post(client, namespace, "count", 1) for namespace in NAMESPACES]
    states = {}

    async def settled():
        for location in locations:
            if states.get(location) not in FINAL - {"written"}:
                states[location] = (await client.request("GET", location)).json["state"]
        return all(state in FINAL - {"written"} for state in states.values())

    await eventually(settled, what="each message has its state", within=60)
    assert states[locations[-1]] == "confirmed"

    def is_complete(reader):
        if not recovers:
            return all(reader.numbers(n) for n in NAMESPACES) and reader.numbers("/")[-1] > 0
        return all(numbers == sorted(set(numbers)) for numbers in map(reader.numbers, NAMESPACES))

    await asyncio.sleep(0)
    await reader.has(is_complete, "the last events")
    # Joined before the first event, each time.
    assert server.of("too early") == []
    assert len(server.of("connect", "/saas")) >= KILLS + 1
    for namespace in NAMESPACES:
        numbers = reader.numbers(namespace)
        assert numbers == sorted(set(numbers)), "nothing twice, and in order"
        if recovers:
            # What was emitted before each kill is there, without a hole.
            assert numbers == list(range(len(numbers)))
    if recovers:
        assert reader.gaps == []
        assert len(server.of("recovered")) >= 3 * KILLS
    else:
        assert reader.gaps
        assert server.of("recovered") == []


async def test_a_session_that_is_not_restored_has_a_gap_before_the_first_new_event(start, gateway_for, tmp_path):
    state = tmp_path / "state"
    server = await start(RecoveringServer(recovers=True, state=str(state)))
    gateway = await gateway_for(None, config=json.dumps(configuration(server)))
    client = gateway.client()
    reader = Reader(client)
    await post(client, "/", "count", 1)
    await reader.has(lambda r: len(r.messages) == 1, "the first event")
    await server.kill()
    state.unlink()
    await server.start()
    await eventually(lambda: len(server.of("connect")) == 2, what="the session connects again")
    assert server.of("connect")[1][1].keys() == {"pid", "offset"}
    await post(client, "/", "count", 1)
    await reader.has(lambda r: len(r.messages) == 2, "the event after it")
    assert [position for position, _ in reader.gaps] == [1]


async def test_a_hand_over_does_not_claim_the_state(start, gateway_for, tmp_path):
    server = await start(RecoveringServer(recovers=True))
    config = configuration(server)
    gateway = await gateway_for(None, config=json.dumps(config))
    client = gateway.client()
    reader = Reader(client)
    await post(client, "/", "count", 3)
    await reader.has(lambda r: len(r.messages) == 3, "the first events")
    config["upstream"]["headers"] = {"X-New": "1"}
    gateway.rewrite(json.dumps(config))
    gateway.signal(signal.SIGHUP)
    await eventually(lambda: len(server.of("connect")) == 2, what="the successor joins")
    assert server.of("connect")[1] == ["/", {}]
    await eventually(lambda: server.of("closed"), what="the old connection ends")
    await post(client, "/", "count", 3)
    await reader.has(lambda r: len(r.messages) == 6, "all events, each once")
    assert reader.gaps == []
    assert reader.numbers("/") == [0, 1, 2, 3, 4, 5]
