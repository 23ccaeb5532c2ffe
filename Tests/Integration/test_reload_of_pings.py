"""A reload disables WebSocket pings and enables them again, and with them the confirmation of messages."""

import json
import signal

import pytest
from websockets.asyncio.server import ServerConnection
from websockets.frames import OP_PING, Frame

from harness.conventions import ConventionUpstream
from harness.socketio import OPEN, forever
from harness.waiting import eventually


class PingCounter(ServerConnection):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.pings = 0

    def process_event(self, event):
        if isinstance(event, Frame) and event.opcode is OP_PING:
            self.pings += 1
        super().process_event(event)


async def joined(conversation):
    await conversation.say(OPEN)
    await conversation.hear()
    await conversation.say('40{"sid":"x"}')
    await forever(conversation)


@pytest.mark.parametrize("kind", ["websocket", "socketio"])
async def test_messages_are_confirmed_only_while_pings_are_on(start, gateway_for, kind):
    is_plain = kind == "websocket"
    upstream = await start(ConventionUpstream(forever if is_plain else joined, create_connection=PingCounter))

    def config(ping):
        return json.dumps({"upstream": {"kind": kind, "url": upstream.url, "heartbeat": {"ping": ping}}})

    gateway = await gateway_for(None, config=config(True))
    client = gateway.client()

    async def post(until):
        query = f"until={until}" + ("" if is_plain else "&event=note")
        return await client.request("POST", f"/v1/messages?{query}", data="x")

    async def state(response):
        return (await client.request("GET", response.headers["Location"])).json["state"]

    async def reload(ping, connection):
        """Reloads, and returns when the connection with this number has got a message."""
        gateway.rewrite(config(ping))
        gateway.signal(signal.SIGHUP)
        await upstream.has_conversations(connection)
        heard = upstream.conversations[connection - 1].heard

        async def sends():
            await post("written")
            return any("x" in message for message in heard)

        await eventually(sends, what=f"connection {connection} sends")

    confirmed = await post("confirmed")
    assert await state(confirmed) == "confirmed"
    assert upstream.last.connection.pings > 0

    await reload(False, 2)
    refused = await post("confirmed")
    assert "heartbeat.ping" in refused.problem(400)["detail"]
    written = await post("written")
    assert await state(written) == "written"
    assert (await gateway.metrics())["drawbridge_outbound_unconfirmed"] == 0
    second = upstream.last.connection
    upstream.reset_connections()
    await upstream.has_conversations(3)
    await gateway.ready()
    assert await state(written) == "written", "it was final"
    assert second.pings == 0

    await reload(True, 4)
    assert await state(await post("confirmed")) == "confirmed"
    assert await state(written) == "written"
    assert (await gateway.metrics())["drawbridge_outbound_unconfirmed"] == 0
