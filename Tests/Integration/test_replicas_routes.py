"""Every gateway serves every route of a session whose holder is another gateway. The next holder continues all state.

Requests go to a gateway that is not the holder. Then the holder ends, and a third gateway is asked for the state.
"""

import asyncio
import collections
import json

import pytest

from harness.client import Batch
from harness.conventions import ConventionUpstream
from harness.frames import PING, FramePeer, FrameServer
from harness.numbered import ContinuedStream
from harness.replicas import CALM_LEASE, LEASE
from harness.socketio import Plays, RecoveringServer
from harness.streams import FORMATS, RawStream
from harness.waiting import eventually

CALLS = {"upstream": {"correlation": "jsonrpc"}}


class Trio:
    """Three gateways: the holder, `front`, which gets the requests, and `third`."""

    def __init__(self, replicas, holder, front, third):
        self.replicas = replicas
        self.holder, self.front, self.third = holder, front, third

    async def take_over(self, way="kill"):
        """Ends the holder, and waits until another gateway is the holder. Returns the next holder."""
        await (self.holder.kill() if way == "kill" else self.holder.drain())
        return await self.next_holder()

    async def next_holder(self):
        """Waits until both other gateways know the next holder. Otherwise, a call to the last holder would get 502."""
        self.holder = await self.replicas.holder(of=[self.front, self.third])
        for member in (self.front, self.third):

            async def is_served(member=member):
                document = await member.client().session()
                holder = document["replica"]["holder"]
                is_here = member is self.holder
                return document["state"] not in ("elsewhere", "no-holder") and holder and holder["here"] == is_here

            await eventually(is_served, what="the gateway knows the next holder")
        return self.holder

    @property
    def follower(self):
        """The gateway that is not the holder after the take-over."""
        return self.front if self.holder is self.third else self.third


@pytest.fixture
def trio_for(replicas_for):
    """`await trio_for(…)`: three gateways and their roles."""

    async def trio_for(**options):
        replicas = await replicas_for(**{"lease": LEASE, **options})
        return Trio(replicas, await replicas.holder(), *await replicas.followers())

    return trio_for


async def ask(member, method, path, *, status=200, **options):
    """Sends a request. Returns the body of its response, which must have the status `status`."""
    response = await member.client().request(method, f"/v1/{path}", **options)
    assert response.status == status, (method, path, response.status, response.body)
    return response.json


async def state(member, id, wait=30):
    """The state and reason of a delivery, once they are final."""
    delivery = await ask(member, "GET", f"deliveries/{id}?wait={wait}s")
    return delivery["state"], delivery["reason"]


async def session(member, **expected):
    """The document of the session, once it has these values."""

    async def has_them():
        document = await member.client().session()
        return document if expected.items() <= document.items() else None

    return await eventually(has_them, what=f"the session has {expected}")


async def collect(member, cursor, last, query=""):
    """The numbers of the pushes after the cursor up to `last`, with the reasons of gaps, and the cursor at the end."""
    seen = []
    while last not in seen:
        batch = Batch.of(await member.client().request("GET", f"/v1/messages?cursor={cursor}&wait=10s&{query}"))
        seen += [batch.gap["reason"]] if batch.gap else []
        seen += [message["data"]["n"] for message in batch.messages]
        cursor = batch.cursor
    return seen, cursor


# ---------------------------------------------------------------------------------------------------------- The session


@pytest.mark.parametrize("way", ["kill", "drain"])
async def test_a_session_that_was_closed_stays_closed_at_the_next_holder(trio_for, recorder, way):
    trio = await trio_for(lease=LEASE if way == "kill" else CALM_LEASE)
    closed = await ask(trio.front, "PATCH", "session", json={"desired": "down"})
    assert closed["desired"] == "down"
    await eventually(lambda: recorder.connected == 0, what="the connection is closed")
    id = (await trio.front.client().accepted("queued", headers={"TTL": "600"}))["id"]
    await trio.take_over(way)
    for member in (trio.third, trio.front):
        document = await session(member, desired="down", state="stopped")
        assert document["queue"]["messages"] == 1
        assert document["replica"]["holder"]["here"] == (member is trio.holder)
    before = asyncio.get_running_loop().time()
    opened = await ask(trio.follower, "PATCH", "session", json={"desired": "up"})
    assert opened["desired"] == "up"
    assert await state(trio.third, id) == ("confirmed", None)
    # The next holder connected because of this request, not earlier.
    assert [connection.opened > before for connection in recorder.connections] == [False, True]
    assert recorder.received == ["queued"]


async def test_a_stream_of_the_session_names_the_next_holder(trio_for):
    trio = await trio_for()
    ids = {member: (await member.client().session())["replica"]["gateway"] for member in trio.replicas}

    def names(member):
        def last(stream):
            events = [event.json for event in stream.events if event.type == "session"]
            replica = events[-1]["replica"] if events else None
            # Whether the last event shows `member` as the holder. None or false if there is no event or no holder.
            return replica and replica["holder"] and replica["holder"]["gateway"] == ids[member]

        return last

    streams = {
        member: await RawStream.open(member.address, "events=session", format=format)
        for member, format in zip((trio.front, trio.third), FORMATS, strict=True)
    }
    for stream in streams.values():
        await stream.until(names(trio.holder))
    following = await trio.take_over()
    # The next holder has ended its stream, because its session was replaced.
    await streams[trio.follower].until(names(following))
    while await streams[following].read():
        pass
    async with asyncio.timeout(30):
        again = await RawStream.open(following.address, "events=session")
        await again.until(names(following))
    event = next(event.json for event in reversed(again.events) if event.type == "session")
    assert event["replica"]["holder"]["here"]
    for stream in (*streams.values(), again):
        stream.close()


async def test_the_only_reader_of_an_idle_session_is_at_a_follower(trio_for, recorder):
    trio = await trio_for(settings={"upstream": {"on_demand": True, "idle_after": "100ms"}})
    for number in (1, 2):
        reader = trio.front if number == 1 else trio.follower
        await session(trio.holder, state="idle")
        assert len(recorder.connections) == number - 1
        cursor = await reader.client().here()
        poll = asyncio.create_task(collect(reader, cursor, number))
        await recorder.opens(number - 1)
        assert await recorder.push_one() == number
        seen, _ = await poll
        assert seen[-1] == number
        if number == 1:
            await trio.take_over()
    assert len(recorder.connections) == 2


# -------------------------------------------------------------------------------------------------------------- Sending


def cut(upstream):
    for peer in list(upstream.peers):
        peer.reset()


async def test_a_queued_message_keeps_its_ttl_and_topic_at_the_next_holder(trio_for, recorder):
    trio = await trio_for()
    client = trio.front.client()
    # The upstream ignores opening handshakes. It keeps listening, so that no other server gets its port.
    recorder.is_mute = True
    cut(recorder)
    await eventually(lambda: recorder.connected == 0, what="the connection has ended")

    async def send(text, ttl=600, topic=None):
        headers = {"TTL": str(ttl), **({"Topic": topic} if topic else {})}
        return (await client.accepted(text, headers=headers))["id"]

    late = await send("late", ttl=1)
    assert await state(trio.front, late) == ("expired", "ttl")
    first, second = await send("first", topic="price"), await send("second", topic="price")
    assert await state(trio.front, first) == ("replaced", None)
    other = await send("other", topic="volume")
    later = await send("later", ttl=5)
    # These requests wait while there is no holder.
    until = asyncio.create_task(
        ask(trio.front, "POST", "messages?until=confirmed&wait=50s&ttl=600", data="until", headers={})
    )
    waits = [asyncio.create_task(state(member, second, 50)) for member in (trio.front, trio.third)]

    async def are_queued():
        return (await trio.third.client().session())["queue"]["messages"] == 4

    await eventually(are_queued, what="all messages are queued")
    await trio.take_over()
    assert await state(trio.third, later) == ("expired", "ttl")
    assert await state(trio.third, late) == ("expired", "ttl")
    assert await state(trio.third, first) == ("replaced", None)
    # This message replaces a message that the last holder accepted.
    third = (await trio.follower.client().accepted("third", headers={"TTL": "600", "Topic": "price"}))["id"]
    for wait in waits:
        assert await wait == ("replaced", None)
    assert not until.done()
    recorder.is_mute = False
    cut(recorder)
    assert (await until)["state"] == "confirmed"
    for id in (third, other):
        assert await state(trio.third, id) == ("confirmed", None)
    assert sorted(recorder.received) == ["other", "third", "until"]
    # This time the upstream is connected.
    done = await ask(trio.follower, "POST", "messages?until=confirmed&wait=30s", data="at once")
    assert done["state"] == "confirmed"
    assert recorder.received[-1] == "at once"


async def test_a_call_at_a_killed_holder_gets_502_and_the_next_call_its_reply(trio_for, recorder):
    def respond(text):
        request = json.loads(text)
        if request["method"] != "add":
            return None
        return json.dumps({"jsonrpc": "2.0", "result": sum(request["params"]), "id": request["id"]})

    recorder.respond = respond
    trio = await trio_for(settings=CALLS)

    def call(member, method, *params):
        body = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
        return member.client().request("POST", "/v1/call?wait=30s", json=body)

    pending = asyncio.create_task(call(trio.front, "silence"))
    await recorder.has_received(1)
    await trio.holder.kill()
    assert (await pending).problem(502)["type"] == "/errors/outcome-unknown"
    await trio.next_holder()
    responses = await asyncio.gather(call(trio.follower, "add", 1, 2), call(trio.third, "add", 3, 4))
    assert [response.json.get("result") for response in responses] == [3, 7]
    methods = collections.Counter(json.loads(text)["method"] for text in recorder.received)
    assert methods == {"silence": 1, "add": 2}


class _Silent(FramePeer):
    def received(self, opcode, payload):
        self.server.received.append(payload.decode())

    def obey(self, opcode, payload):
        if opcode != PING or not self.server.is_silent:
            super().obey(opcode, payload)


class SilentUpstream(FrameServer):
    """An upstream that ignores pings while it is silent, so that it confirms nothing."""

    def __init__(self):
        super().__init__(_Silent)
        self.is_silent = False
        self.received = []


async def test_unconfirmed_messages_are_sent_again_by_the_next_holder(trio_for, start):
    upstream = await start(SilentUpstream())
    trio = await trio_for(settings={"upstream": {"url": upstream.url, "queue": {"redeliver": "unconfirmed"}}})
    before = (await trio.front.client().accepted("before"))["id"]
    assert await state(trio.third, before) == ("confirmed", None)
    upstream.is_silent = True
    texts = [f"message {number}" for number in range(5)]
    ids = [(await trio.front.client().accepted(text))["id"] for text in texts]
    await eventually(lambda: len(upstream.received) == 6, what="the upstream has all of them")
    await trio.holder.kill()
    # This must happen before the next holder connects, since that holder would repeat messages that a silent connection
    # does not confirm.
    upstream.is_silent = False
    await trio.next_holder()
    for id in ids:
        assert await state(trio.third, id) == ("confirmed", None)
    received = collections.Counter(upstream.received)
    assert [received[text] for text in texts] == [2] * 5
    # Both times, the messages arrived in order.
    assert [text for text in upstream.received if text in texts] == 2 * texts
    # The state is stored after the confirmation, so this message may also have been sent again.
    assert await state(trio.front, before) == ("confirmed", None)
    assert received["before"] in (1, 2)


# ------------------------------------------------------------------------------------------------------------ Receiving


async def test_topics_are_selected_at_a_follower_before_and_after_a_take_over(trio_for, recorder):
    trio = await trio_for(settings={"upstream": {"topic": {"pointer": "/key"}}})
    topics = {"3", *map(str, (1, *range(10, 20)))}

    def selected(first, last):
        # Push n has the key n modulo 20.
        return [number for number in range(first, last + 1) if str(number % 20) in topics]

    query = "topic=3&topic=1*"
    cursor = await trio.front.client().here()
    streams = [await ContinuedStream(trio.front, cursor, query=query, format=format).open() for format in FORMATS]
    recorder.push(33)
    seen, cursor = await collect(trio.front, cursor, 33, query)
    assert seen == selected(1, 33)
    for stream in streams:
        assert await stream.until(33) == selected(1, 33)
    await trio.take_over()
    await recorder.push_one()
    recorder.push(19)
    # The reader continues where the poll at the other gateway ended.
    seen, _ = await collect(trio.third, cursor, 53, query)
    assert seen == ["upstream", *selected(34, 53)]
    for stream in streams:
        assert await stream.until(53) == [*selected(1, 33), "upstream", *selected(34, 53)]
        stream.close()


# ------------------------------------------------------------------------------------------------------------ Consumers


async def receive(member, consumer, count, **parameters):
    """The next `count` messages of a consumer."""
    messages = []
    query = "&".join(f"{name}={value}" for name, value in {"wait": "30s", **parameters}.items())
    while len(messages) < count:
        path = f"consumers/{consumer}/receive?limit={count - len(messages)}&{query}"
        messages += (await ask(member, "POST", path))["messages"]
    return messages


def settle(member, consumer, **leases):
    return ask(member, "POST", f"consumers/{consumer}/settle", json=leases)


def numbers(messages):
    return [message["data"]["n"] for message in messages]


async def test_dead_letters_and_leases_are_shared_by_every_gateway(trio_for, recorder):
    trio = await trio_for()
    front = trio.front
    for consumer in ("retried", "removed"):
        await ask(front, "PUT", f"consumers/{consumer}", status=201, json={"share": True, "visibility": "4s"})
    for _ in range(4):
        await recorder.push_one()
    taken = await receive(front, "retried", 4)
    assert numbers(taken) == [1, 2, 3, 4]
    one, two, extended, kept = (message["lease"] for message in taken)
    # The new leases last longer than the test.
    await ask(front, "PUT", "consumers/retried", json={"share": True, "visibility": "10m"})
    await settle(front, "retried", reject=[one, two], extend=[extended])
    dead = await ask(front, "GET", "consumers/retried/dead")
    assert [(each["data"]["n"], each["reason"]) for each in dead["messages"]] == [(1, "rejected"), (2, "rejected")]
    taken = await receive(front, "removed", 2)
    await settle(front, "removed", reject=[taken[0]["lease"]], ack=[taken[1]["lease"]])
    assert (await ask(front, "DELETE", "consumers/removed/dead")) == {"removed": 1}
    await trio.take_over()
    third = trio.third
    assert await ask(third, "GET", "consumers/retried/dead") == dead
    assert (await ask(third, "GET", "consumers/removed/dead"))["messages"] == []
    # A lease that was not extended ends at the same time as without the take-over.
    (again,) = await receive(third, "retried", 1)
    assert (again["data"]["n"], again["deliveries"]) == (4, 2)
    late = await front.client().request("POST", "/v1/consumers/retried/settle", json={"ack": [kept]})
    assert late.problem(409)["type"] == "/errors/lease-lost"
    await settle(third, "retried", ack=[extended, again["lease"]])
    assert await ask(trio.follower, "POST", "consumers/retried/dead/retry") == {"retried": 2}
    retried = await receive(front, "retried", 2)
    assert numbers(retried) == [1, 2]
    await settle(third, "retried", ack=[message["lease"] for message in retried])
    for member in (front, third):
        consumer = await ask(member, "GET", "consumers/retried")
        assert (consumer["leases"], consumer["lag"], consumer["dead"]["messages"]) == (0, 0, 0)
    # The other consumer continues as well.
    assert numbers(await receive(trio.follower, "removed", 2)) == [3, 4]


# ----------------------------------------------------------------------------------------------------------- Socket.IO


def events(server, **settings):
    """The settings of a session with a Socket.IO server."""
    return {"upstream": {"kind": "socketio", "url": server.url, "socketio": settings}}


async def test_a_socketio_session_continues_at_the_next_holder(trio_for, start):
    server = await start(RecoveringServer(recovers=True))
    trio = await trio_for(settings=events(server, namespaces=["/"]))
    cursor = await trio.third.client().here()
    seen = []

    async def read(member, count):
        nonlocal cursor
        while len(seen) < count:
            batch = await member.client().poll(cursor=cursor, wait=10, limit=1000)
            seen.extend(["gap"] if batch.gap else [])
            seen.extend(message["data"][0] for message in batch.messages)
            cursor = batch.cursor

    async def send(member, count):
        await ask(member, "POST", "messages", status=202, json={"event": "count", "args": [count]})

    async def add(member, *args):
        return (await ask(member, "POST", "call?wait=30s", json={"event": "sum", "args": args}))["args"]

    await send(trio.front, 5)
    await read(trio.third, 5)
    assert await add(trio.front, 1, 2) == [3]
    # The server emits many of these events while no gateway is connected.
    await send(trio.front, 400)
    await read(trio.third, 10)
    await trio.take_over()
    await read(trio.third, 405)
    assert await server.first("recovered")
    assert seen == list(range(405))
    assert await add(trio.follower, 3, 4) == [7]
    await send(trio.follower, 1)
    await read(trio.front, 406)
    assert seen[405:] == [405]


async def test_a_client_acknowledges_an_event_at_another_gateway_until_its_connection_ends(trio_for, start):
    async def play(plays, conversation):
        await plays.connect(conversation)
        await conversation.say('40{"sid":"x"}', '427["question"]')
        while True:
            heard.append((plays.count, await conversation.hear()))

    heard = []
    server = await start(ConventionUpstream(Plays(play)))
    trio = await trio_for(settings=events(server, acks="client"))

    cursor = "earliest"

    async def next_token():
        """The token from the gateway that does not get the acknowledgements. Repeats a poll that ends with a gap."""
        nonlocal cursor
        messages = []
        while not messages:
            batch = await trio.third.client().poll(cursor=cursor, wait=10)
            messages, cursor = batch.messages, batch.cursor
        (message,) = messages
        return message["ack"]

    gone = await next_token()
    await ask(trio.front, "POST", "messages", status=202, json={"ack": gone, "args": ["one"]})
    await eventually(lambda: heard == [(1, '437["one"]')], what="the first acknowledgement")
    await trio.take_over()
    token = await next_token()
    response = await trio.front.client().request("POST", "/v1/messages", json={"ack": gone, "args": ["late"]})
    assert response.problem(410)["type"] == "/errors/acknowledgement-gone"
    await ask(trio.front, "POST", "messages", status=202, json={"ack": token, "args": ["two"]})
    await eventually(lambda: heard[1:] == [(2, '437["two"]')], what="the second acknowledgement")
