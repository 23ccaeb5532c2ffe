"""Three gateways that share a session on Redis: each serves every route, and one has the upstream connection."""

import asyncio
import json
import time

import aiohttp
import pytest

from harness.numbered import ContinuedStream, read_to
from harness.replicas import CALM_LEASE
from harness.streams import FORMATS
from harness.waiting import eventually

#: Additional seconds for a busy machine.
SLACK = 1.5
#: The default duration of a tenure in seconds. A busy machine would reach the deadline of a shorter tenure.
LEASE = 5
FINAL = {"confirmed", "expired", "replaced", "rejected", "unknown"}


async def pushed(client, cursor):
    """The numbers of the next pushes. A held request ends early when the gateway learns of a new holder."""
    while not (batch := await client.poll(cursor=cursor, wait=30)).messages:
        cursor = batch.cursor
    return [message["data"]["n"] for message in batch.messages]


async def final(client, id):
    """The state of a delivery, as soon as it is final."""

    async def state():
        response = await client.request("GET", f"/v1/deliveries/{id}")
        assert response.status == 200, response.body
        return response.json["state"] if response.json["state"] in FINAL else None

    return await eventually(state, what=f"{id} has a final state")


async def test_a_message_is_sent_once_and_known_at_every_gateway(replicas_for, recorder):
    replicas = await replicas_for()
    ids = {}
    for member in replicas:
        ids[f"from {member.number}"] = (await member.client().accepted(f"from {member.number}"))["id"]
    for member in replicas:
        for id in ids.values():
            assert await final(member.client(), id) == "confirmed"
    # The same key at each gateway results in one message.
    responses = [await member.client().send("key", headers={"Idempotency-Key": "k"}) for member in replicas]
    assert [response.status for response in responses] in ([202, 202, 202], [202, 202, 200], [202, 200, 200])
    assert len({response.json["id"] for response in responses}) == 1
    batch = await replicas[2].client().send("a\nb", type="application/x-ndjson")
    assert batch.status == 202
    assert await final(replicas[0].client(), batch.json["results"][1]["id"]) == "confirmed"
    assert sorted(recorder.received) == sorted([*ids, "key", "a", "b"])
    assert len(recorder.connections) == 1
    sessions = [(await member.client().session())["state"] for member in replicas]
    assert sessions == ["ready"] * 3


async def test_a_cursor_is_valid_at_every_gateway(replicas_for, recorder):
    replicas = await replicas_for()
    cursor = await replicas[0].client().here()
    for turn in range(6):
        expected = [await recorder.push_one() for _ in range(5)]
        batch_reader = replicas[turn % 3].client()
        assert await read_to(batch_reader, cursor, expected[-1]) == expected
        cursor = (await replicas[turn % 3].client().poll(cursor=cursor, wait=10)).cursor

    async def are_equal():
        # A busy gateway may be late.
        logs = [await member.client().poll(cursor="earliest", wait=0) for member in replicas]
        documents = [(log.messages, log.cursor) for log in logs]
        return len(documents[0][0]) == 30 and documents == [documents[0]] * 3

    await eventually(are_equal, what="all gateways have the same pushes")


async def test_a_push_ends_held_polls_at_every_gateway(replicas_for, recorder):
    replicas = await replicas_for()
    cursor = await replicas[0].client().here()
    polls = [asyncio.create_task(pushed(member.client(), cursor)) for member in replicas]
    streams = [await ContinuedStream(member, cursor, format=format).open() for member in replicas for format in FORMATS]
    number = await recorder.push_one()
    for poll in polls:
        assert await poll == [number]
    for stream in streams:
        assert await stream.until(number) == [number]
        stream.close()


async def test_pushes_are_divided_among_workers_of_all_gateways(replicas_for, recorder):
    replicas = await replicas_for()
    first, second, third = (member.client() for member in replicas)
    created = await first.request("PUT", "/v1/consumers/w", json={"share": True, "visibility": "60s"})
    assert created.status == 201, created.body
    pushed = {await recorder.push_one() for _ in range(30)}
    seen = []
    while len(seen) < len(pushed):
        for client in (second, third, first):
            response = await client.request("POST", "/v1/consumers/w/receive?limit=4&wait=100ms")
            assert response.status == 200, response.body
            leases = {message["lease"]: message["data"]["n"] for message in response.json["messages"]}
            seen += leases.values()
            if leases:
                settled = await third.request("POST", "/v1/consumers/w/settle", json={"ack": list(leases)})
                assert settled.status == 200, settled.body
    assert sorted(seen) == sorted(pushed)
    # The worker's receive waits at one gateway.
    waiting = asyncio.create_task(second.request("POST", "/v1/consumers/w/receive?wait=30s"))
    number = await recorder.push_one()
    assert [message["data"]["n"] for message in (await waiting).json["messages"]] == [number]
    assert (await first.request("GET", "/v1/consumers/w")).json["leases"] == 1
    # A consumer has one reader at a time, even if the second reader is at another gateway.
    assert (await third.request("PUT", "/v1/consumers/r", json={})).status == 201
    held = asyncio.create_task(first.request("POST", "/v1/consumers/r/receive?wait=30s"))

    async def supersedes():
        await second.request("POST", "/v1/consumers/r/receive?wait=0s")
        return held.done()

    await eventually(supersedes, what="a later receive takes over")
    (await held).problem(409)
    assert (await second.request("DELETE", "/v1/consumers/r")).status == 204
    assert (await first.request("GET", "/v1/consumers/r")).status == 404


async def test_a_call_through_each_gateway_gets_its_own_reply(replicas_for, recorder):
    def respond(text):
        request = json.loads(text)
        return json.dumps({"jsonrpc": "2.0", "result": request["params"][0] * 2, "id": request["id"]})

    recorder.respond = respond
    replicas = await replicas_for(settings={"upstream": {"url": recorder.url, "correlation": "jsonrpc"}})

    async def call(member, number):
        body = {"jsonrpc": "2.0", "id": number, "method": "double", "params": [number]}
        response = await member.client().request("POST", "/v1/call", json=body)
        assert response.status == 200, response.body
        assert response.json["id"] == number
        return response.json["result"]

    results = await asyncio.gather(*(call(member, number) for number in range(20) for member in replicas))
    assert results == [2 * number for number in range(20) for _ in replicas]


class Posting:
    """Posts at gateways that the test does not disturb, and records the results."""

    def __init__(self, clients, name="m"):
        self._name = name
        self._clients = clients
        self.accepted = {}
        self.failed = []
        self._task = asyncio.create_task(self._run())

    async def _run(self):
        number = 0
        while True:
            number += 1
            client = self._clients[number % len(self._clients)]
            response = await client.send(f"{self._name}{number}")
            if response.status == 202:
                self.accepted[f"{self._name}{number}"] = response.json["id"]
            else:
                self.failed.append((response.status, response.body))
            await asyncio.sleep(0.005)

    async def end(self):
        if self._task.done():
            self._task.result()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def assert_served(posting, members):
    """Checks that no message was refused, unless one of these gateways lost Redis because the machine was too busy."""
    if sum([(await member.gateway.metrics())["drawbridge_store_failures_total"] for member in members]):
        assert {status for status, _ in posting.failed} <= {503}, posting.failed
        assert all(b"store-failed" in body for _, body in posting.failed), posting.failed
    else:
        assert posting.failed == []


async def judge(posting, replicas, recorder):
    """Checks that each accepted message has one final state that fits the upstream, and arrived at most once."""
    states = {}
    for label, id in posting.accepted.items():
        states[label] = await final(replicas.running[len(states) % len(replicas.running)].client(), id)
    received = recorder.received
    assert len(received) == len(set(received)), "a message was sent twice"
    assert {label for label, state in states.items() if state == "confirmed"} <= set(received)
    assert set(states.values()) <= {"confirmed", "unknown"}
    return states


@pytest.mark.parametrize("way", ["kill", "freeze"])
async def test_a_killed_holder_is_replaced_without_silent_loss(replicas_for, recorder, measured, way):
    replicas = await replicas_for(lease=LEASE)
    holder = await replicas.holder()
    others = await replicas.followers()
    cursor = await others[0].client().here()
    recorder.push_often(0.01)
    posting = Posting([member.client() for member in others])
    await eventually(lambda: len(posting.accepted) >= 20, what="messages are accepted")
    began = time.monotonic()
    await holder.kill() if way == "kill" else holder.freeze()
    taken = await replicas.taken_over(began, 1)
    accepted = len(posting.accepted)
    await eventually(lambda: len(posting.accepted) > accepted + 20, what="messages are accepted again")
    first, second = recorder.connections[:2]
    if way == "freeze":
        holder.thaw()
        await eventually(lambda: first.closed is not None, what="the old holder closes its connection")
    await posting.end()
    recorder.end_pushes()
    last = await recorder.push_one()
    logs = [await read_to(member.client(), cursor, last) for member in replicas.running]
    assert logs == [logs[0]] * len(logs)
    assert [entry for entry in logs[0] if isinstance(entry, str)] == ["upstream"]
    at = logs[0].index("upstream")
    # Before the gap are all pushes from the beginning in order, and after it all pushes of the new connection.
    assert all(logs[0][i] + 1 == logs[0][i + 1] for i in range(at - 1))
    assert len(logs[0]) - at - 1 == second.pushed
    # A stopped gateway must have written nothing after the next gateway connected.
    assert [at for at, _ in first.writes if at > second.opened] == []
    states = await judge(posting, replicas, recorder)
    await assert_served(posting, others)
    assert len(recorder.connections) == 2
    measured(
        f"{taken:.2f} s until the next connection, with a lease of {LEASE} s; {len(states)} messages, "
        f"{list(states.values()).count('unknown')} unknown"
    )
    assert taken < LEASE + 0.3 + SLACK


async def test_a_holder_that_stops_cleanly_is_replaced_at_once(replicas_for, recorder, measured):
    replicas = await replicas_for()
    cursor = await replicas[0].client().here()
    recorder.push_often(0.005)
    times = []
    # Two holders end, one after another. The last gateway has no successor.
    for count in (1, 2):
        holder = await replicas.holder()
        others = await replicas.followers()
        posting = Posting([member.client() for member in others], f"{count}-")
        await eventually(lambda posting=posting: len(posting.accepted) >= 20, what="messages are accepted")
        began = time.monotonic()
        await holder.drain()
        times.append(await replicas.taken_over(recorder.connections[count - 1].closed or began, count))
        accepted = len(posting.accepted)
        await eventually(lambda posting=posting, accepted=accepted: len(posting.accepted) > accepted + 20)
        await posting.end()
        await assert_served(posting, others)
        states = await judge(posting, replicas, recorder)
        assert set(states.values()) == {"confirmed"}
    recorder.end_pushes()
    last = await recorder.push_one()
    log = await read_to(replicas.running[0].client(), cursor, last)
    seen = [entry for entry in log if not isinstance(entry, str)]
    # The log contains each push that was sent on a connection before it was closed.
    assert all(connection.was_closed_in_order for connection in recorder.connections[:2])
    assert len(seen) == recorder.pushed - seen[0] + 1 == last - seen[0] + 1
    measured(f"{', '.join(f'{time:.2f}' for time in times)} s without a connection")
    assert max(times) < 0.5 + SLACK


@pytest.mark.parametrize("way", ["drain", "kill", "freeze"])
async def test_a_receive_that_waits_continues_at_the_next_holder(replicas_for, recorder, way):
    # The next holder must wait for the end of a tenure that nobody releases.
    replicas = await replicas_for(lease=CALM_LEASE if way == "drain" else LEASE)
    holder = await replicas.holder()
    others = await replicas.followers()
    for member in replicas:
        created = await member.client().request("PUT", f"/v1/consumers/c{member.number}", json={"share": True})
        assert created.status == 201, created.body

    def receive(member):
        path = f"/v1/consumers/c{member.number}/receive?wait=50s"
        return asyncio.create_task(member.client().request("POST", path))

    async def hold(member, count):
        async def holds():
            return (await member.gateway.metrics())["drawbridge_receives_held"] == count

        await eventually(holds, what=f"{count} receives wait")

    waits = {member: receive(member) for member in replicas}
    await hold(holder, len(waits))
    if way == "drain":
        holder.gateway.signal()
        # The holder's own client gets the messages that exist.
        assert (await waits.pop(holder)).json["messages"] == []
        # A second signal would end the shutdown at once.
        await holder.gateway.exit_status()
        await holder.drain()
    elif way == "kill":
        await holder.kill()
        with pytest.raises(aiohttp.ClientError):
            await waits.pop(holder)
    else:
        holder.freeze()
    following = await replicas.holder(of=others)
    if way != "drain":
        # The lost holder may have leased pushes to these requests, so their outcome is unknown.
        for member in others:
            (await waits.pop(member)).problem(502)
    if way == "freeze":
        holder.thaw()
    for waiting in waits.values():
        # The request continues at the next holder. Its gap says that pushes may be missing.
        response = await asyncio.wait_for(waiting, 20)
        assert response.status == 200, response.body
        assert (response.status, response.json["gap"]["reason"]) == (200, "upstream")
    # Clients of the other gateways get the gap, too.
    for member in others if way != "drain" else []:
        assert (await receive(member)).json["gap"]["reason"] == "upstream"
    waits = {member: receive(member) for member in replicas.running}
    await hold(following, len(waits))
    number = await recorder.push_one()
    for member, waiting in waits.items():
        response = await asyncio.wait_for(waiting, 10)
        assert response.status == 200, response.body
        (message,) = response.json["messages"]
        assert message["data"]["n"] == number
        path = f"/v1/consumers/c{member.number}"
        settled = await member.client().request("POST", f"{path}/settle", json={"ack": [message["lease"]]})
        assert settled.status == 200, settled.body
        assert (await others[0].client().request("GET", path)).json["leases"] == 0
