"""Socket.IO upstreams with a store: the state that the next process continues, and the state that it must not use."""

import asyncio
import errno
import json

import pytest

from harness.conventions import ConventionUpstream
from harness.disk_faults import SYNC, WRITE, FaultyDisk
from harness.socketio import Plays, Reader, RecoveringServer, configuration, forever
from harness.store import storing
from harness.waiting import eventually

KEPT = {"Content-Type": "application/json", "TTL": "3600"}


@pytest.fixture
def disk(tmp_path, store_path):
    return FaultyDisk(tmp_path, store_path.parent)


@pytest.fixture
def stored(gateway_for, store_path):
    """`await stored(config)`: a gateway with the store of this test. The previous gateway must have ended."""

    async def stored(config, *, ready=True, env=None, **settings):
        env = {**storing(store_path, **settings), **(env or {})}
        return await gateway_for(None, config=json.dumps(config), ready=ready, env=env)

    return stored


@pytest.fixture
def played(start):
    """`await played(play, …)`: a server with one script per connection, and the configuration of a gateway for it."""

    async def played(*plays, **socketio):
        plays = Plays(*plays)
        server = await start(ConventionUpstream(plays))
        upstream = {"kind": "socketio", "url": server.url, "socketio": socketio}
        return plays, server, {"upstream": {**upstream, "reconnect": {"base": "20ms", "maximum": "100ms"}}}

    return played


async def post(client, *, path="messages", **envelope):
    return await client.request("POST", f"/v1/{path}", data=json.dumps(envelope), headers=KEPT)


async def delivery(client, response):
    return (await client.request("GET", response.headers["Location"])).json


async def join(plays, conversation, *, pid=None):
    await plays.connect(conversation)
    await conversation.say("40" + json.dumps({"sid": "x", **({"pid": pid} if pid else {})}))


class Numbers:
    """Reads the numbers of `counted` from several gateways, and records how many came before each gap."""

    def __init__(self):
        self.cursor, self.seen, self.gaps, self.ids = "earliest", [], [], []

    async def has(self, client, count):
        async def read():
            response = await client.request(
                "GET", "/v1/messages", params={"cursor": self.cursor, "wait": "0", "limit": "1000"}
            )
            batch = response.json
            self.cursor = batch["cursor"]
            if batch["gap"]:
                self.gaps.append((len(self.seen), batch["gap"]))
            self.seen += [message["data"][0] for message in batch["messages"]]
            self.ids += [message["id"] for message in batch["messages"]]
            return len(self.seen) >= count

        await eventually(read, what=f"{count} numbers")


async def could_not_connect(gateway):
    return "proxy" in ((await gateway.client().session())["last_failure"] or "")


@pytest.mark.parametrize("recovers", [True, False], ids=["recovery", "no-recovery"])
async def test_events_during_a_restart_are_recovered_or_reported_as_a_gap(start, stored, recovers):
    """The gateway is killed twice while the server emits: first before it could connect again, and then once more."""
    server = await start(RecoveringServer(recovers=recovers))
    config = configuration(server, namespaces=["/", "/admin"])
    gateway = await stored(config)
    numbers = Numbers()
    assert (await post(gateway.client(), event="count", args=[1], namespace="/admin")).status == 202
    await numbers.has(gateway.client(), 1)
    assert (await post(gateway.client(), event="count", args=[400])).status == 202
    await numbers.has(gateway.client(), 5)
    await gateway.kill()
    # This gateway cannot connect, so it does not know yet whether events are missing. Another URL would be another
    # client, which does not resume.
    unreachable = configuration(server, namespaces=["/", "/admin"])
    unreachable["upstream"]["proxy"] = "http://127.0.0.1:1"
    gateway = await stored(unreachable, ready=False)
    await numbers.has(gateway.client(), 5)
    await eventually(lambda: could_not_connect(gateway), what="the gateway has tried to connect")
    await gateway.kill()
    gateway = await stored(config)
    if recovers:
        await numbers.has(gateway.client(), 401)
        assert numbers.gaps == []
        assert numbers.seen == [0, *range(400)]
    else:
        assert (await post(gateway.client(), event="count", args=[1])).status == 202
        await numbers.has(gateway.client(), len(numbers.seen) + 1)
        assert {gap["reason"] for _, gap in numbers.gaps} == {"upstream"}
        assert server.of("recovered") == []
    assert len(set(numbers.ids)) == len(numbers.ids)


async def test_a_forgotten_state_is_a_gap_before_the_first_new_event(played, stored):
    async def first(plays, conversation):
        await join(plays, conversation, pid="p")
        await conversation.say('42["one","o1"]')
        await forever(conversation)

    async def second(plays, conversation):
        await join(plays, conversation, pid="q")
        await conversation.say('42["two","o2"]')
        await forever(conversation)

    plays, server, config = await played(first, second)
    gateway = await stored(config)
    reader = Reader(gateway.client())
    await reader.has("one")
    await gateway.kill()
    gateway = await stored(config)
    reader.client = gateway.client()
    await reader.has("one", "gap", "two")
    assert plays.connects == ["40", '40{"pid":"p","offset":"o1"}']
    # From now on, the state to restore is the state of the second connection.
    await gateway.kill()
    gateway = await stored(config)
    assert plays.connects[2] == '40{"pid":"q","offset":"o2"}'
    assert server.failures == []


async def test_queued_events_keep_their_envelopes(played, stored):
    """The envelope of an event is its namespace, attachments, key and TTL. No connection has taken the event yet."""

    async def deaf(plays, conversation):
        await forever(conversation)

    async def second(plays, conversation):
        await join(plays, conversation)
        await plays.connect(conversation)
        await conversation.say('40/admin,{"sid":"y"}')
        await forever(conversation)

    _plays, server, config = await played(deaf, second, namespaces=["/", "/admin"])
    config["upstream"]["queue"] = {"ttl": "1h"}
    gateway = await stored(config, ready=False)
    await server.has_conversations(1)
    client = gateway.client()
    envelope = {
        "event": "b",
        "args": [{"_placeholder": True, "num": 0}],
        "attachments": ["AQID"],
        "namespace": "/admin",
    }
    keyed = {**KEPT, "Idempotency-Key": "k"}
    binary = await client.request("POST", "/v1/messages", data=json.dumps(envelope), headers=keyed)
    lines = "\n".join(json.dumps({"event": "line", "args": [number]}) for number in range(2))
    batch = await client.request(
        "POST", "/v1/messages", data=lines, headers={**KEPT, "Content-Type": "application/x-ndjson"}
    )
    assert (binary.status, batch.status) == (202, 202)
    call = asyncio.create_task(post(client, path="call", event="ask", args=[]))
    await eventually(lambda: has_queued(gateway, 4), what="the call is queued")
    await gateway.kill()
    await asyncio.gather(call, return_exceptions=True)

    gateway = await stored(config)
    heard = await server.has_heard(6)
    assert heard[2:] == [
        '451-/admin,["b",{"_placeholder": true, "num": 0}]',
        b"\x01\x02\x03",
        '42["line",0]',
        '42["line",1]',
    ]
    client = gateway.client()
    again = await client.request("POST", "/v1/messages", data=json.dumps(envelope), headers=keyed)
    assert (again.headers["Idempotency-Replayed"], again.json["id"]) == ("true", binary.json["id"])
    await eventually(lambda: is_confirmed(client, binary), what="the event is confirmed")
    # No client waits for the acknowledgement any more, so the gateway does not send the call.
    assert len(server.last.heard) == 6


async def has_queued(gateway, count):
    return (await gateway.client().session())["queue"]["messages"] == count


async def is_confirmed(client, response):
    return (await delivery(client, response))["state"] == "confirmed"


async def test_ids_and_tokens_of_another_process_are_not_used_again(played, stored):
    async def play(plays, conversation):
        await join(plays, conversation)
        await conversation.say('427["question"]')
        while True:
            number, _, _ = (await conversation.hear()).removeprefix("42").partition("[")
            ids.append(int(number))
            await conversation.say(f"43{number}[]")

    ids = []
    _, server, config = await played(play, acks="client")
    gateway = await stored(config)
    client = gateway.client()
    assert (await post(client, path="call", event="ask")).status == 200
    token = (await client.poll(cursor="earliest")).messages[0]["ack"]
    await gateway.kill()
    gateway = await stored(config)
    client = gateway.client()
    assert (await post(client, ack=token)).problem(410)["type"] == "/errors/acknowledgement-gone"
    assert (await post(client, path="call", event="ask")).status == 200
    assert ids[1] > ids[0]
    # The gap of the restart ends the first poll.
    rest = await client.poll(cursor=(await client.poll(cursor="earliest")).cursor, wait=10)
    assert (rest.gap["reason"], len(rest.messages)) == ("upstream", 1)
    assert rest.messages[0]["ack"] != token
    assert server.failures == []


async def has_pushes(client, count):
    return len((await client.poll(cursor="earliest", wait=0)).messages) == count


@pytest.mark.parametrize("fault", ["stalls", "fails"])
async def test_an_event_is_acknowledged_once_it_is_stored(played, stored, disk, fault):
    may_ask, may_prove = asyncio.Event(), asyncio.Event()
    heard = []

    async def play(plays, conversation):
        await join(plays, conversation)
        await may_ask.wait()
        await conversation.say('427["question"]')
        await may_prove.wait()
        # The gateway reads in order. If it had acknowledged the event, the acknowledgement would arrive first.
        await conversation.say("2probe")
        while True:
            heard.append(await conversation.hear())

    _, _, config = await played(play)
    gateway = await stored(config, env=disk.environment, sync="always")
    client = gateway.client()
    if fault == "stalls":
        disk.stall()
        may_ask.set()
        await eventually(lambda: disk.stalls > 0, what="the disk stalls")
        assert (await client.poll(cursor="earliest", wait=0)).messages == []
    else:
        disk.fail(WRITE | SYNC, errno.EIO)
        may_ask.set()
        # Clients get pushes even while the store does not work.
        await eventually(lambda: has_pushes(client, 1), what="the question is shown")
    may_prove.set()
    await eventually(lambda: heard, what="the pong")
    assert heard == ["3probe"]
    disk.heal()
    await eventually(lambda: len(heard) > 1, what="the acknowledgement")
    assert heard == ["3probe", "437[]"]
    assert await has_pushes(client, 1)


async def test_every_event_is_acknowledged_even_if_many_wait_for_the_disk(played, stored, disk):
    """With more than 4,096 waiting acknowledgements, the gateway does not read until some of them are stored."""
    may_ask = asyncio.Event()
    heard = []

    async def play(plays, conversation):
        await join(plays, conversation)
        await may_ask.wait()
        for number in range(10_000):
            await conversation.say(f'42{number}["question"]')
        while True:
            heard.append(await conversation.hear())

    _, server, config = await played(play)
    gateway = await stored(config, env=disk.environment, sync="always")
    disk.stall()
    may_ask.set()
    await eventually(lambda: disk.stalls > 0, what="the disk stalls")

    async def has_read():
        return (await gateway.metrics())["drawbridge_upstream_messages_total"] >= 4_096

    await eventually(has_read, what="many events are read")
    disk.heal()
    await eventually(lambda: len(heard) == 10_000, what="all acknowledgements")
    assert heard == [f"43{number}[]" for number in range(10_000)]
    assert len(server.conversations) == 1


async def test_no_event_of_a_namespace_that_has_ended_is_acknowledged(played, stored, disk):
    """The official server ends a connection on which a message for an ended namespace arrives."""
    may_ask, may_go_on = asyncio.Event(), asyncio.Event()
    heard = []

    async def play(plays, conversation):
        await join(plays, conversation)
        await plays.connect(conversation)
        await conversation.say('40/admin,{"sid":"y"}')
        await may_ask.wait()
        await conversation.say('42/admin,7["question"]', "41/admin,")
        await may_go_on.wait()
        await conversation.say('428["another"]')
        while True:
            heard.append(await conversation.hear())

    _, server, config = await played(play, namespaces=["/", {"name": "/admin", "required": False}])
    gateway = await stored(config, env=disk.environment, sync="always")
    client = gateway.client()
    disk.stall()
    may_ask.set()
    await eventually(lambda: disk.stalls > 0, what="the disk stalls")

    async def has_ended():
        return (await client.session())["namespaces"][1]["state"] == "disconnected"

    await eventually(has_ended, what="the namespace ends")
    disk.heal()
    may_go_on.set()
    await eventually(lambda: heard, what="an acknowledgement")
    assert heard == ["438[]"]
    assert len(server.conversations) == 1


@pytest.mark.parametrize("first", ["websocket", "socketio"])
async def test_a_session_of_another_kind_drops_stored_socketio_data(played, stored, start, upstream, first):
    async def play(plays, conversation):
        await join(plays, conversation, pid="p")
        await conversation.say('42["one","o1"]')
        await forever(conversation)

    _, server, events = await played(play)
    plain = {"upstream": {"url": upstream.url}}
    before, after = (plain, events) if first == "websocket" else (events, plain)
    gateway = await stored(before)
    client = gateway.client()
    if first == "websocket":
        await upstream.push('"one"')
    await eventually(lambda: has_pushes(client, 1), what="the push")
    cursor = (await client.poll(cursor="earliest")).cursor
    await (upstream.kill() if first == "websocket" else server.stop())
    body = {"data": "queued"} if first == "websocket" else {"data": '{"event":"queued"}'}
    await eventually(lambda: is_down(gateway), what="the upstream is down")
    queued = await client.request("POST", "/v1/messages", headers=KEPT, **body)
    assert queued.status == 202
    await gateway.kill()

    gateway = await stored(after)
    client = gateway.client()
    assert next(m["type"] for m in (await client.poll(cursor="earliest")).messages) in ("json", "event")
    assert (await client.poll(cursor=cursor, wait=0)).gap["reason"] == "upstream"
    end = await delivery(client, queued)
    assert (end["state"], end["reason"]) == ("rejected", "gateway-restart")
    await gateway.logs(
        lambda record: "of another kind" in record["message"] and record["messages"] == 1, what="the change of the kind"
    )
    sent = await client.request("POST", "/v1/messages", data='{"event":"new"}', headers=KEPT)
    if first == "websocket":
        assert (await server.has_heard(2))[1] == '42["new"]'
    else:
        assert await upstream.has_received(1) == ['{"event":"new"}']
    await eventually(lambda: is_confirmed(client, sent), what="the new message is confirmed")
    # The log reports the failure only once.
    await gateway.kill()
    gateway = await stored(after)
    assert not any("of another kind" in record["message"] for record in gateway.records)


async def is_down(gateway):
    return (await gateway.client().session())["state"] != "ready"
