"""A Socket.IO server with three namespaces is killed again and again, with and without connection state recovery.

`DRAWBRIDGE_SOCKETIO_KILLS` sets the number of kills. It is 10 in `make test`, with 3 kills of each real server.
"""

import json
import os
import signal
from collections import Counter

import pytest

from harness.socketio import RecoveringServer, SocketIOServer, configuration
from harness.waiting import eventually

KILLS = int(os.environ.get("DRAWBRIDGE_SOCKETIO_KILLS", "10"))
NAMESPACES = ["/", "/admin", "/saas"]
# A real server takes a second to start.
REAL_KILLS = KILLS if KILLS > 10 else 3
EVENTS = 20
# A kill takes some seconds on a busy machine.
pytestmark = pytest.mark.timeout(120 + 10 * KILLS)
FINAL = {"confirmed", "written", "expired", "replaced", "rejected", "unknown"}


class Reader:
    """Reads all pushes, and notes each gap with the number of pushes before it."""

    def __init__(self, client):
        self.client = client
        self.cursor = "earliest"
        self.messages = []
        self.gaps = []

    async def read(self):
        """Reads up to the next gap. If a batch reports a gap, the gap is before the batch's first message."""
        response = await self.client.request(
            "GET", "/v1/messages", params={"cursor": self.cursor, "wait": "0", "limit": "1000"}
        )
        batch = response.json
        self.cursor = batch["cursor"]
        if batch["gap"]:
            self.gaps.append(len(self.messages))
        self.messages += batch["messages"]
        return batch

    async def has(self, condition, what):
        async def check():
            await self.read()
            return condition(self)

        await eventually(check, what=what, within=60)

    def holes(self, namespace):
        """The positions of each pair of neighbouring messages between which events of the namespace are missing."""
        places = [place for place, m in enumerate(self.messages) if m["namespace"] == namespace]
        numbers = self.numbers(namespace)
        return [
            (places[index], places[index + 1])
            for index in range(len(places) - 1)
            if numbers[index + 1] != numbers[index] + 1
        ]

    def numbers(self, namespace):
        return [m["data"][0] for m in self.messages if m["namespace"] == namespace and m["topic"] == "counted"]


async def post(client, namespace, event, *args):
    response = await client.request(
        "POST",
        "/v1/messages",
        data=json.dumps({"event": event, "args": args, "namespace": namespace}),
        headers={"Content-Type": "application/json"},
    )
    assert response.status == 202, response.body
    return response.headers["Location"]


@pytest.mark.parametrize("recovers", [True, False], ids=["recovery", "no-recovery"])
async def test_namespaces_are_joined_before_the_first_event_after_a_kill(
    start, gateway_for, tmp_path, recovers, measured
):
    """Namespaces that are lost or never joined after a reconnect (socket.io-client-swift #744, #837, #626)."""
    server = await start(RecoveringServer(recovers=recovers, state=str(tmp_path / "state")))
    config = configuration(server, namespaces=NAMESPACES)
    # The upstream is back at once, so a longer wait would only take time.
    config["upstream"]["reconnect"] = {"base": "20ms", "maximum": "100ms"}
    gateway = await gateway_for(None, config=json.dumps(config))
    client = gateway.client()
    reader = Reader(client)
    locations = [await post(client, namespace, "count", 1) for namespace in NAMESPACES]
    notes = {}
    await reader.has(lambda r: all(r.numbers(n) == [0] for n in NAMESPACES), "the first events")

    for kill in range(KILLS):
        locations += [await post(client, namespace, "count", EVENTS) for namespace in NAMESPACES]
        # The server must die while it sends.
        if not recovers:
            # Two gaps without a message in between are one gap.
            await reader.has(lambda r, kills=kill: len(r.gaps) == kills, "the gap of the last kill")
        before = len(reader.messages) if recovers or not kill else reader.gaps[-1]
        await reader.has(lambda r, least=before + kill % 10: len(r.messages) > least, "some events")
        await server.kill()
        for namespace in NAMESPACES:
            notes[await post(client, namespace, "note", kill)] = [namespace, "note", [kill]]
        locations += list(notes)[-3:]
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
            return len(reader.gaps) == KILLS
        return all(numbers == sorted(set(numbers)) for numbers in map(reader.numbers, NAMESPACES))

    await reader.has(is_complete, "the last events")
    for location, note in notes.items():
        check_effect(states[location], server.of("event").count(note))
    # Each time, the namespace was joined before the first event.
    assert server.of("too early") == []
    await server.first("connect", "/saas", KILLS + 1)
    for namespace in NAMESPACES:
        numbers = reader.numbers(namespace)
        assert numbers == sorted(set(numbers)), "nothing twice, and in order"
        if recovers:
            # All events from before each kill have arrived, without a hole.
            assert numbers == list(range(len(numbers)))
    if recovers:
        assert reader.gaps == []
        await server.first("recovered", count=3 * KILLS)
    else:
        assert server.of("recovered") == []
        # Each kill has caused a gap, and each place where events are missing has a gap.
        assert len(reader.gaps) == KILLS
        for namespace in NAMESPACES:
            for before, after in reader.holes(namespace):
                assert any(before < gap <= after for gap in reader.gaps), (before, after, reader.gaps)
    measured(figures(KILLS, reader, states, server))


def check_effect(state, count):
    """Checks how many times the server has received an event whose final state is `state`."""
    if state == "confirmed":
        assert count == 1
    elif state == "unknown":
        assert count <= 1
    else:
        assert count == 0, state


def figures(kills, reader, states, server):
    return (
        f"{kills} kills, {len(server.of('connect'))} namespaces joined, {len(reader.messages)} events, "
        f"{len(reader.gaps)} gaps, messages: {dict(Counter(states.values()))}"
    )


@pytest.mark.parametrize("version", [4, 3], ids=["engine4", "engine3"])
async def test_kills_of_a_real_server_under_load_lose_nothing_silently(start, gateway_for, version, measured):
    """python-socketio drops events for a namespace that is not joined, so it saw events only after the join."""
    server = await start(SocketIOServer(version))
    config = configuration(server, namespaces=NAMESPACES)
    config["upstream"]["reconnect"] = {"base": "20ms", "maximum": "100ms"}
    client = (await gateway_for(None, config=json.dumps(config))).client()
    reader = Reader(client)
    states = {}
    notes = {}
    for kill in range(REAL_KILLS):
        for namespace in NAMESPACES:
            states[await post(client, namespace, "count", EVENTS)] = None
        before = len(reader.messages)
        await reader.has(lambda r, least=before + kill % 10: len(r.messages) > least, "some events")
        await server.kill()
        for namespace in NAMESPACES:
            notes[await post(client, namespace, "note", kill)] = [namespace, [kill]]
        await server.start()
        expected = 3 * (kill + 1)
        await eventually(lambda expected=expected: len(server.of("note")) >= expected, what="the session works again")

    async def settled():
        for location in [*states, *notes]:
            if states.get(location) not in FINAL - {"written"}:
                states[location] = (await client.request("GET", location)).json["state"]
        return all(state in FINAL - {"written"} for state in states.values())

    await eventually(settled, what="each message has its state", within=60)
    # Events that were queued while the server was down have arrived, in order within each namespace.
    for namespace in NAMESPACES:
        assert [note for note in server.of("note") if note[0] == namespace] == [
            note for note in notes.values() if note[0] == namespace
        ]
    for location, note in notes.items():
        check_effect(states[location], server.of("note").count(note))
        # The next kill may have come before the confirmation.
        assert states[location] in ("confirmed", "unknown")
    assert await server.first("connect", "/saas", REAL_KILLS + 1) == server.of("connect", "/saas")
    await reader.read()
    assert 1 <= len(reader.gaps) <= REAL_KILLS
    measured(figures(REAL_KILLS, reader, states, server))


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
    _, again = await server.first("connect", count=2)
    assert again[1].keys() == {"pid", "offset"}
    await post(client, "/", "count", 1)
    await reader.has(lambda r: len(r.messages) == 2, "the event after it")
    assert reader.gaps == [1]


async def test_a_hand_over_does_not_request_the_state(start, gateway_for, tmp_path):
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
    _, successor = await server.first("connect", count=2)
    assert successor == ["/", {}]
    await eventually(lambda: server.of("closed"), what="the old connection ends")
    await post(client, "/", "count", 3)
    await reader.has(lambda r: len(r.messages) == 6, "all events, each once")
    assert reader.gaps == []
    assert reader.numbers("/") == [0, 1, 2, 3, 4, 5]
