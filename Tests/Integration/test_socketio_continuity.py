"""Gaps of readers of Socket.IO events, and the state that a server restores."""

import asyncio
import json
import signal

from websockets.datastructures import Headers
from websockets.http11 import Response

from harness.conventions import ConventionUpstream
from harness.scripted import emit, opening
from harness.socketio import Plays, Reader, forever
from harness.waiting import eventually

ADMIN = ["/", {"name": "/admin", "required": False}]


async def reload(gateway, server, **changes):
    config = server.configuration
    config["upstream"].update(changes)
    gateway.rewrite(json.dumps(config))
    gateway.signal(signal.SIGHUP)


async def namespace_is(client, index, state):
    async def is_state():
        return (await client.session())["namespaces"][index]["state"] == state

    await eventually(is_state, what=f"the namespace is {state}")


# -- Namespaces -------------------------------------------------------------------------------------------------------


async def test_a_namespace_that_a_hand_over_joins_again_has_a_gap(scripted):
    may_end = asyncio.Event()

    async def first(plays, conversation):
        await plays.join(conversation, ['40{"sid":"a"}'], ['40/admin,{"sid":"a"}', '42/admin,["one"]'])
        await may_end.wait()
        await conversation.say("41/admin,", '42["two"]')
        await forever(conversation)

    async def second(plays, conversation):
        await plays.join(conversation, ['40{"sid":"b"}'], ['40/admin,{"sid":"b"}', '42/admin,["nine"]'])
        await forever(conversation)

    server, gateway, client = await scripted(Plays(first, second), namespaces=ADMIN)
    reader = Reader(client)
    await reader.has("one")
    may_end.set()
    await reader.has("one", "two")
    await namespace_is(client, 1, "disconnected")
    await reload(gateway, server, headers={"X-New": "1"})
    await reader.has("one", "two", "gap", "nine")
    # At the next hand-over, the namespace is already joined.
    await reload(gateway, server, headers={"X-New": "2"})
    await reader.has("one", "two", "gap", "nine", "nine")
    assert reader.seen == ["one", "two", "gap", "nine", "nine"]


async def test_a_namespace_that_was_refused_after_an_outage_has_a_gap_when_it_is_joined(scripted):
    """The server has restored the state of the other namespaces, so the outage itself causes no gap."""
    may_end = asyncio.Event()

    async def first(plays, conversation):
        await plays.join(
            conversation,
            ['40{"sid":"a","pid":"p"}'],
            ['40/admin,{"sid":"a","pid":"r"}', '42["one","o1"]', '42/admin,["two","o2"]'],
        )
        await may_end.wait()

    async def second(plays, conversation):
        await plays.join(
            conversation, ['40{"sid":"b","pid":"p"}'], ['44/admin,{"message":"expired"}', '42["three","o3"]']
        )
        await forever(conversation)

    async def third(plays, conversation):
        await plays.join(
            conversation, ['40{"sid":"c","pid":"q"}'], ['40/admin,{"sid":"c","pid":"s"}', '42/admin,["four","o4"]']
        )
        await forever(conversation)

    plays = Plays(first, second, third)
    server, gateway, client = await scripted(
        plays, namespaces=ADMIN, upstream={"reconnect": {"base": "20ms", "maximum": "100ms"}}
    )
    reader = Reader(client)
    await reader.has("one", "two")
    may_end.set()
    await reader.has("one", "two", "three")
    await namespace_is(client, 1, "refused")
    await reload(gateway, server, headers={"X-New": "1"})
    await reader.has("one", "two", "three", "gap", "four")
    assert reader.seen == ["one", "two", "three", "gap", "four"]
    assert plays.connects[2:4] == ['40{"pid":"p","offset":"o1"}', '40/admin,{"pid":"r","offset":"o2"}']
    assert plays.connects[4:] == ["40", "40/admin,"]


async def test_heartbeats_of_version_three_begin_during_the_setup(scripted):
    """A server of version 3 ends a connection without heartbeats, even while an optional namespace does not respond."""
    may_respond = asyncio.Event()
    beats = []

    async def script(conversation):
        await conversation.say(opening(3, pingInterval=200, pingTimeout=60000), "40")
        while True:
            message = await conversation.hear()
            if message == "2":
                beats.append(message)
                await conversation.say("3")
            if len(beats) == 3:
                await may_respond.wait()
                await conversation.say("40/slow,")

    server, gateway, client = await scripted(
        script,
        version=3,
        ready=False,
        namespaces=["/", {"name": "/slow", "required": False}],
        upstream={"timeouts": {"on_open": "10m"}},
    )
    await eventually(lambda: len(beats) >= 3, what="three heartbeats")
    assert (await client.session())["state"] == "opening"
    may_respond.set()
    await gateway.ready()
    assert len(server.conversations) == 1


# -- Requests for the state
# ---------------------------------------------------------------------------------------------


def states(pid, event):
    async def play(plays, conversation):
        await plays.connect(conversation)
        await conversation.say(f'40{{"sid":"a","pid":"{pid}"}}', f'42["{event}","o-{event}"]')
        await forever(conversation)

    return play


async def test_the_id_of_the_state_is_not_sent_to_another_origin(start, scripted):
    """A client that presents the private id of a connection gets its state, so another origin must not get the id."""
    other_plays = Plays(states("q", "two"))
    other = await start(ConventionUpstream(other_plays))
    redirects = []

    def process_request(_connection, _request):
        return Response(302, "Found", Headers(Location=other.url)) if redirects else None

    server, _, client = await scripted(
        Plays(states("p", "one")),
        options={"process_request": process_request},
        upstream={"reconnect": {"base": "20ms", "maximum": "100ms"}},
    )
    reader = Reader(client)
    await reader.has("one")
    redirects.append(True)
    server.reset_connections()
    await reader.has("one", "gap", "two")
    assert other_plays.connects == ["40"]


async def test_other_credentials_do_not_get_the_state(scripted):
    plays = Plays(states("p", "one"), states("q", "two"))
    server, gateway, client = await scripted(plays, namespaces=[{"name": "/", "auth": '{"token":"1"}'}])
    reader = Reader(client)
    await reader.has("one")
    await set_desired(client, "down")
    await reload(gateway, server, socketio={"namespaces": [{"name": "/", "auth": '{"token":"2"}'}]})
    await gateway.logs(lambda record: record["message"] == "configuration reloaded", what="the reload")
    await set_desired(client, "up")
    await reader.has("one", "gap", "two")
    assert plays.connects == ['40{"token":"1"}', '40{"token":"2"}']


async def set_desired(client, desired):
    await client.request(
        "PATCH", "/v1/session", data=json.dumps({"desired": desired}), headers={"Content-Type": "application/json"}
    )
    state = "stopped" if desired == "down" else "ready"

    async def is_state():
        return (await client.session())["state"] == state

    await eventually(is_state, what=f"the session is {state}")


# -- Acknowledgements -------------------------------------------------------------------------------------------------


async def test_an_acknowledgement_for_a_disconnected_client_is_counted(scripted):
    may_respond = asyncio.Event()

    async def script(conversation):
        await conversation.say(opening(4, pingInterval=60000, pingTimeout=60000))
        await conversation.hear()
        await conversation.say('40{"sid":"x"}')
        message = await conversation.hear()
        assert message == '421["ask"]'
        await may_respond.wait()
        await conversation.say("431[]")
        await forever(conversation)

    server, gateway, client = await scripted(script)
    call = asyncio.create_task(emit(client, "ask", path="call"))
    await server.has_heard(2)
    call.cancel()

    async def is_gone():
        return (await gateway.metrics())["drawbridge_calls"] == 0

    await eventually(is_gone, what="the call is abandoned")
    may_respond.set()

    async def is_counted():
        return (await gateway.metrics())["drawbridge_upstream_ignored_packets_total"] == 1

    await eventually(is_counted, what="the acknowledgement is ignored")
    assert server.failures == []
