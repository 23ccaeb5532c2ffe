"""A scripted Socket.IO server, and helpers for the clients of its tests. The fixture `scripted` starts both."""

import json

from .waiting import eventually

OPEN = {
    4: {"sid": "s", "upgrades": [], "pingInterval": 300, "pingTimeout": 200, "maxPayload": 1000000},
    3: {"sid": "s", "upgrades": [], "pingInterval": 300, "pingTimeout": 200},
}


def opening(version, **changes):
    return "0" + json.dumps({**OPEN[version], **changes})


QUIET = {"pingInterval": 60000, "pingTimeout": 60000}


class Script:
    """A server that opens, joins every namespace that the client requests, and then runs the test's script."""

    def __init__(self, play=None, *, version=4, **changes):
        self.play = play
        self.version = version
        self.changes = changes or QUIET
        self.connects = []

    async def __call__(self, conversation):
        await conversation.say(opening(self.version, **self.changes))
        if self.version == 3:
            await conversation.say("40")
        else:
            self.connects.append(await conversation.hear())
            await conversation.say('40{"sid":"x"}')
        if self.play:
            await self.play(conversation)
        while True:
            await conversation.hear()


async def failure(client, part):
    async def last():
        text = (await client.request("GET", "/v1/session")).json["last_failure"]
        return text if text and part in text else None

    return await eventually(last, what=f"the failure names {part!r}")


async def emit(client, event, *args, path="messages", **members):
    return await client.request(
        "POST",
        f"/v1/{path}",
        data=json.dumps({"event": event, "args": args, **members}),
        headers={"Content-Type": "application/json"},
    )


async def pushes(client, count):
    async def read():
        response = await client.request(
            "GET", "/v1/messages", params={"cursor": "earliest", "wait": "0", "limit": "5000"}
        )
        messages = response.json["messages"]
        return [messages] if len(messages) >= count else None

    return (await eventually(read, what=f"{count} pushes"))[0]
