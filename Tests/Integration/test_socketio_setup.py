"""Socket.IO connections that end before the session is ready, or that are replaced."""

import asyncio
import json
import signal

import pytest

from harness.conventions import ConventionUpstream
from harness.socketio import Plays, Reader, forever
from harness.waiting import eventually

TWO = ["/", "/admin"]


@pytest.fixture
def played(start, gateway_for):
    async def played(*plays, ready=False, upstream=None, **socketio):
        plays = Plays(*plays)
        server = await start(ConventionUpstream(plays))
        config = {
            "upstream": {
                "kind": "socketio",
                "url": server.url,
                "reconnect": {"base": "20ms", "maximum": "100ms"},
                "socketio": socketio,
                **(upstream or {}),
            }
        }
        gateway = await gateway_for(None, config=json.dumps(config), ready=ready)
        return plays, server, gateway, config

    return played


async def post(client, **envelope):
    return await client.request(
        "POST", "/v1/messages", data=json.dumps(envelope), headers={"Content-Type": "application/json"}
    )


async def test_missed_events_are_recovered_once_after_two_losses(played):
    """The official server sends missed events before its response to CONNECT."""
    may_end = [asyncio.Event(), asyncio.Event()]

    async def first(plays, conversation):
        await plays.connect(conversation)
        await conversation.say('40{"sid":"a","pid":"p"}', '42["one",1,"o1"]')
        await may_end[0].wait()

    async def second(plays, conversation):
        await plays.connect(conversation)
        await conversation.say('42["two",2,"o2"]', '42["three",3,"o3"]', '40{"sid":"b","pid":"p"}')
        await may_end[1].wait()

    async def third(plays, conversation):
        await plays.connect(conversation)
        await conversation.say('40{"sid":"c","pid":"p"}', '42["four",4,"o4"]')
        await forever(conversation)

    plays, _, gateway, _ = await played(first, second, third)
    reader = Reader(gateway.client())
    await reader.has("one")
    may_end[0].set()
    await reader.has("one", "two", "three")
    may_end[1].set()
    await reader.has("one", "two", "three", "four")
    assert plays.connects == ["40", '40{"pid":"p","offset":"o1"}', '40{"pid":"p","offset":"o3"}']


async def test_a_failed_recovery_is_requested_once(played):
    may_end = asyncio.Event()

    async def first(plays, conversation):
        await plays.connect(conversation)
        await conversation.say('40{"sid":"a","pid":"p"}', '42["one",1,"o1"]')
        await may_end.wait()

    async def second(plays, conversation):
        await plays.connect(conversation)
        await conversation.say('42["two","o2"]', "4x")
        await forever(conversation)

    async def third(plays, conversation):
        await plays.connect(conversation)
        await conversation.say('40{"sid":"c","pid":"q"}', '42["three","o3"]')
        await forever(conversation)

    plays, _, gateway, _ = await played(first, second, third)
    reader = Reader(gateway.client())
    await reader.has("one")
    may_end.set()
    await reader.has("one", "gap", "three")
    assert plays.connects == ["40", '40{"pid":"p","offset":"o1"}', "40"]


@pytest.mark.parametrize("recovers", [True, False])
async def test_the_state_of_a_connection_that_ends_during_its_setup_is_recovered(played, recovers):
    """The connection's events were passed on, and must not come again. If later events are missing, there is a gap."""
    may_end = asyncio.Event()

    async def first(plays, conversation):
        await plays.join(
            conversation,
            ['40{"sid":"a","pid":"p"}'],
            ['40/admin,{"sid":"a","pid":"r"}', '42["one","o1"]', '42/admin,["two","o2"]'],
        )
        await may_end.wait()

    async def second(plays, conversation):
        await plays.connect(conversation)
        if recovers:
            await conversation.say('40{"sid":"b","pid":"p"}', '42["three","o3"]')
        else:
            await conversation.say('40{"sid":"b"}', '42["three"]')
        # The connection ends without a response for the second namespace.
        await plays.connect(conversation)

    async def third(plays, conversation):
        await plays.join(
            conversation, ['40{"sid":"c","pid":"p"}'], ['40/admin,{"sid":"c","pid":"r"}', '42["four","o4"]']
        )
        await forever(conversation)

    plays, _, gateway, _ = await played(first, second, third, namespaces=TWO)
    reader = Reader(gateway.client())
    await reader.has("one", "two")
    may_end.set()
    if recovers:
        await reader.has("one", "two", "three", "four")
        assert plays.connects[4] == '40{"pid":"p","offset":"o3"}'
    else:
        await reader.has("one", "two", "gap", "three", "gap", "four")
        assert plays.connects[4] == "40"
    assert plays.connects[2] == '40{"pid":"p","offset":"o1"}'


async def test_an_event_before_the_connect_response_can_complete_the_setup(played):
    async def play(plays, conversation):
        await plays.connect(conversation)
        await conversation.say('42["hello"]', '42["authenticated"]', '40{"sid":"a"}')
        await forever(conversation)

    on_open = [{"expect": {"json": {"/0": "authenticated"}}}]
    _, _, gateway, _ = await played(play, upstream={"on_open": on_open}, ready=True)
    await Reader(gateway.client()).has("hello")


async def test_a_setup_message_for_a_refused_namespace_is_skipped(played):
    async def play(plays, conversation):
        await plays.join(conversation, ['40{"sid":"a"}'], ['44/admin,{"message":"no"}'])
        await forever(conversation)

    on_open = [
        {"send": '{"event":"login","namespace":"/admin"}', "expect": {"json": {"/0": "welcome"}}},
        {"send": '{"event":"hello"}'},
    ]
    _, server, _, _ = await played(
        play, upstream={"on_open": on_open}, namespaces=["/", {"name": "/admin", "required": False}], ready=True
    )
    assert (await server.has_heard(3))[2] == '42["hello"]'


async def test_the_gap_is_after_the_last_event_of_the_old_connection(played):
    """A close packet of Engine.IO is not a close frame, so events after it are passed on."""

    async def first(plays, conversation):
        await plays.connect(conversation)
        await conversation.say('40{"sid":"a"}', '42["one"]', "1", '42["two"]')
        await conversation.connection.wait_closed()

    async def second(plays, conversation):
        await plays.connect(conversation)
        await conversation.say('40{"sid":"b"}', '42["three"]')
        await forever(conversation)

    _, _, gateway, _ = await played(first, second)
    await Reader(gateway.client()).has("one", "two", "gap", "three")


async def test_a_successor_that_is_being_set_up_does_not_continue_its_predecessor(played):
    """The successor has not requested the state, so events between the two connections are missing."""
    has_ended = asyncio.Event()
    has_joined = asyncio.Event()

    async def first(plays, conversation):
        await plays.connect(conversation)
        await conversation.say('40{"sid":"a","pid":"p"}', '42["go"]', '42["one","o1"]')
        await has_joined.wait()
        await conversation.say("1")
        await conversation.connection.wait_closed()
        has_ended.set()

    async def second(plays, conversation):
        await plays.connect(conversation)
        await conversation.say('40{"sid":"b","pid":"q"}', "2")
        assert await conversation.hear() == "3"
        has_joined.set()
        await has_ended.wait()
        await conversation.say('42["go"]', '42["two","o2"]')
        await forever(conversation)

    on_open = [{"expect": {"json": {"/0": "go"}}}]
    plays, _, gateway, config = await played(first, second, ready=True, upstream={"on_open": on_open})
    reader = Reader(gateway.client())
    await reader.has("one")
    config["upstream"]["headers"] = {"X-New": "1"}
    gateway.rewrite(json.dumps(config))
    gateway.signal(signal.SIGHUP)
    await reader.has("one", "gap", "two")
    assert plays.connects == ["40", "40"]


async def test_an_acknowledgement_ends_with_the_hand_over(played):
    async def play(plays, conversation):
        await plays.connect(conversation)
        await conversation.say('40{"sid":"a"}')
        if plays.count == 1:
            await conversation.say('427["question"]')
        await forever(conversation)

    _, server, gateway, config = await played(play, acks="client", ready=True)
    client = gateway.client()
    reader = Reader(client)
    await reader.has("question")
    response = await client.request("GET", "/v1/messages", params={"cursor": "earliest", "wait": "0"})
    token = response.json["messages"][0]["ack"]
    config["upstream"]["headers"] = {"X-New": "1"}
    gateway.rewrite(json.dumps(config))
    gateway.signal(signal.SIGHUP)
    await server.has_conversations(2)

    async def moved():
        await post(client, event="moved")
        return any(isinstance(m, str) and "moved" in m for m in server.last.heard)

    await eventually(moved, what="the successor sends")
    (await post(client, ack=token, args=["yes"])).problem(410)


async def test_a_namespace_that_only_the_successor_has_is_not_connected(played):
    """If the gateway accepted a message to the new namespace, it would lose the message at once."""

    async def play(plays, conversation):
        message = await plays.connect(conversation)
        await conversation.say('40{"sid":"a"}')
        while message:
            message = await conversation.hear()
            if message.startswith("40/new"):
                await conversation.say('44/new,{"message":"no"}')

    plays, _, gateway, config = await played(play, ready=True)
    client = gateway.client()
    (await post(client, event="x", namespace="/new")).problem(422)
    config["upstream"]["socketio"]["namespaces"] = ["/", "/new"]
    gateway.rewrite(json.dumps(config))
    gateway.signal(signal.SIGHUP)
    await eventually(lambda: plays.count >= 2, what="the successor connects")
    response = await post(client, event="x", namespace="/new")
    assert "connecting" in response.problem(503)["detail"]
