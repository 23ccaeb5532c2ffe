"""WebSocket services of other projects behind the gateway: one journey that each must pass.

A subclass of `Service` says how the service starts, what a call is, and how it is made to push a number. `journey` does
the rest: login, call, topics, a restart of the service, a hand-over, and kill -9 of the gateway.
"""

import json

from .gateway import Gateway
from .program import Program
from .waiting import eventually


class Service(Program):
    """A service that listens on loopback, and what a client of the gateway does with it."""

    #: What the report calls the service.
    title = ""
    #: A built-in profile, or None. `configuration` is added to it.
    profile = None
    #: The topic of the pushes, or None if the protocol has no topics.
    topic = None

    @property
    def configuration(self):
        """Settings as in drawbridge.yaml, without the URL."""
        return {}

    @property
    def environment_of_gateway(self):
        return {}

    @property
    def url(self):
        """None if the profile or `configuration` has the URL."""
        return f"ws://127.0.0.1:{self.port}/"

    async def version(self):
        raise NotImplementedError

    #: Whether the service is at the same URL after a restart.
    restarts = True

    #: Whether the service sends old messages again after a new connection.
    repeats = False

    #: Messages that a client posts once, to subscribe.
    subscribe = ()

    #: The body of a call that a client makes once, to subscribe.
    subscribing_call = None

    #: The body of a call, which is JSON, or None if the protocol has no calls.
    call = None

    def replied(self, response):
        """Whether this JSON value is the right response to `call`."""
        raise NotImplementedError

    async def push(self, number):
        """Makes the service push a number to the gateway, by a client of its own."""
        raise NotImplementedError

    def number(self, payload):
        """The number in a push, or None for other pushes."""
        raise NotImplementedError


class Journey:
    """What a service is taken through. `run` returns what was done, in a line."""

    def __init__(self, service, start, folder):
        self.service = service
        self._start = start
        self._folder = folder
        self._last = 0
        #: What was done.
        self.steps = []

    async def run(self):
        service = await self._start(self.service)
        await self._new_gateway()
        self.steps.append("login")
        for message in service.subscribe:
            await self.client.accepted(message)
        if service.subscribing_call:
            await self._post_call(service.subscribing_call)
        await self._exchange("receive")
        await self._call("call")
        await self._topics()
        if service.restarts:
            before = await self._connections()
            await service.stop()
            await service.start()
            await self._connected(before + 1)
            await self._exchange("restart of the server")
            await self._call()
        before = await self._connections()
        self.gateway.signal(1)
        await self._connected(before + 1)
        await self._exchange("hand-over")
        await self.gateway.kill()
        await self._new_gateway()
        await self._exchange("kill -9 of the gateway")
        await self._call()
        return f"{service.title} {await service.version()}: {', '.join(self.steps)}"

    async def _new_gateway(self):
        service = self.service
        settings = {"store": {"engine": "sqlite", "path": str(self._folder / "drawbridge.db")}, **service.configuration}
        arguments = ("--profile", service.profile) if service.profile else ()
        self.gateway = Gateway(
            *arguments,
            *(("--upstream", service.url) if service.url else ()),
            config=json.dumps(settings),
            env=service.environment_of_gateway,
            folder=self._folder,
        )
        await self._start(self.gateway)
        await self.gateway.ready()
        self.client = self.gateway.client()

    async def _connections(self):
        return (await self.client.session())["connections"]

    async def _connected(self, count):
        async def is_ready():
            session = await self.client.session()
            return session["state"] == "ready" and session["connections"] >= count

        await eventually(is_ready, what=f"connection {count} to {self.service.title} is ready")

    async def _exchange(self, step):
        """The service pushes two more numbers. All numbers so far have arrived once, in order."""
        for _ in range(2):
            self._last += 1
            await self.service.push(self._last)
            await eventually(self._is_complete, what=f"{step}: the log ends with number {self._last}")
        self.steps.append(step)

    async def numbers(self, **parameters):
        payloads, batch = [], await self.client.poll(cursor="earliest", wait=0, limit=1000, **parameters)
        # A gap, such as the one after a restart of the service, ends a batch.
        while batch.payloads or batch.more:
            payloads += batch.payloads
            batch = await self.client.poll(cursor=batch.cursor, wait=0, limit=1000, **parameters)
        return [number for number in map(self.service.number, payloads) if number is not None]

    async def _is_complete(self):
        numbers = await self.numbers()
        if self.service.repeats:
            numbers = sorted(set(numbers))
        assert numbers == list(range(1, len(numbers) + 1)), numbers
        return len(numbers) == self._last

    async def _topics(self):
        if self.service.topic:
            assert await self.numbers(topic=self.service.topic) == await self.numbers()
            assert await self.numbers(topic="some.other") == []
            self.steps.append("topics")

    async def _post_call(self, body):
        headers = {"Content-Type": "application/json"}
        response = await self.client.request("POST", "/v1/call", params={"wait": "30s"}, data=body, headers=headers)
        assert response.status == 200, (response.status, response.body)
        return response

    async def _call(self, step=None):
        if self.service.call is None:
            return
        response = await self._post_call(self.service.call)
        assert self.service.replied(response.json), response.body
        if step:
            self.steps.append(step)
