"""Captured values and acknowledgements of a session that moves to another gateway."""

import asyncio
import contextlib
import json

import pytest_asyncio
from websockets.exceptions import ConnectionClosed

from harness.conventions import ConventionUpstream
from harness.redis import RedisServer
from harness.waiting import eventually


class Service:
    """A service that numbers its messages, and sends each of them until it is acknowledged. It has one session, which a
    client resumes with the session's id."""

    def __init__(self):
        self.last = 0
        self.waiting = []
        self.acknowledged = []
        self.logins = []
        self.current = None

    async def __call__(self, conversation):
        login = await conversation.hear()
        self.logins.append(login)
        await conversation.say("resumed" if login == "resume s1" else '{"welcome":true,"session":"s1"}')
        self.current = conversation
        for number in list(self.waiting):
            await conversation.say(json.dumps({"id": number}))
        while True:
            number = json.loads(await conversation.hear())["ack"]
            self.acknowledged.append(number)
            if number in self.waiting:
                self.waiting.remove(number)

    async def push(self):
        self.last += 1
        self.waiting.append(self.last)
        # A connection may end at any time. The next connection gets all waiting messages.
        with contextlib.suppress(ConnectionClosed):
            if self.current:
                await self.current.say(json.dumps({"id": self.last}))


@pytest_asyncio.fixture
async def database(start, tmp_path):
    return await start(RedisServer(tmp_path))


def configuration(upstream, database):
    return json.dumps(
        {
            "upstream": {
                "url": upstream.url,
                "reconnect": {"base": "2ms", "maximum": "20ms"},
                "capture": {"session": {"pointer": "/session", "keep": True}},
                "on_open": [
                    {
                        "if_captured": "session",
                        "send": "resume ${capture:session}",
                        "expect": "resumed",
                        "resumed": "resumed",
                    },
                    {"unless_captured": "session", "send": "login", "expect": {"json": {"/welcome": "true"}}},
                ],
                "acknowledge": {"match": {"json_has": "/id"}, "send": '{"ack":${raw:/id}}', "when": "stored"},
            },
            "store": {
                "engine": "redis",
                "prefix": "captures",
                "url": f"redis://127.0.0.1:{database.port}",
                "lease": "2s",
            },
            "listeners": {"peers": "127.0.0.1:0"},
        }
    )


async def test_the_next_holder_resumes_and_has_each_acknowledged_push(gateway_for, start, database):
    service = Service()
    upstream = await start(ConventionUpstream(service))
    config = configuration(upstream, database)
    holder, other = await gateway_for(None, config=config), None
    await holder.ready()
    rounds = 3
    for goal in (200 * (number + 1) for number in range(rounds)):
        other = await gateway_for(None, config=config, ready=False)
        while service.last < goal:
            await service.push()
        await eventually(lambda goal=goal: len(set(service.acknowledged)) > goal - 100, what="most are acknowledged")
        logins = len(service.logins)
        await holder.kill()
        # Nobody has these pushes yet.
        for _ in range(10):
            await service.push()
        await eventually(lambda logins=logins: len(service.logins) > logins, within=30, what="the next holder")
        holder = other
    await eventually(lambda: not service.waiting, within=30, what="all messages are acknowledged")
    assert service.logins == ["login"] + ["resume s1"] * rounds
    assert set(service.acknowledged) == set(range(1, service.last + 1))
    numbers, gaps, cursor = [], [], "earliest"
    while set(numbers) != set(service.acknowledged):
        batch = await asyncio.wait_for(holder.client().poll(cursor=cursor, wait=10), 20)
        gaps += [batch.gap["reason"]] if batch.gap else []
        numbers += [payload["id"] for payload in batch.payloads if "id" in payload]
        cursor = batch.cursor
    # The service has resumed, so no push is missing.
    assert gaps == []
