"""Disruptions of a run: the upstream is restarted, stalled or closed, and the gateway is reloaded."""

import asyncio
import signal

from ..waiting import eventually
from .sessions import IDLE

NAME = "session"

_CONFIG = """
log: {{access: '{access}'}}
upstream:
  url: '{url}'
  correlation: jsonrpc
  headers: ['X-Version: {version}']
  overlap: 1s
  heartbeat: {{interval: 1s, timeout: 1s}}
  reconnect: {{minimum: 10ms, base: 50ms, maximum: 300ms}}
  dials: {{per_second: 100, burst: 100}}
  queue: {{ttl: 60s, messages: 4096}}
delivery: {{messages: 3000}}
authentication: {{tokens: '{tokens}'}}
created_sessions: {{idle_after: {idle}s}}
profiles:
  room:
    variables: {{room: {{pattern: '[a-z0-9]{{1,32}}'}}}}
    addresses: {{allow: [127.0.0.1]}}
    upstream:
      url: '{url}{{room}}'
      overlap: 1s
      heartbeat: {{interval: 1s, timeout: 1s}}
      reconnect: {{minimum: 10ms, base: 50ms, maximum: 300ms}}
      queue: {{ttl: 5s}}
    delivery: {{messages: 30}}
shutdown: {{drain: 3s, flush: 3s}}
"""


class Disruptions:
    def __init__(self, upstream, pushes, sessions, tokens):
        self.context = None
        self._upstream = upstream
        self._pushes = pushes
        self._sessions = sessions
        #: The path of the tokens' file.
        self._tokens = tokens
        self._version = 1
        self._access = "off"
        self.done = {}

    def __str__(self):
        return ", ".join(f"{count} {kind}" for kind, count in sorted(self.done.items()))

    def config(self):
        return _CONFIG.format(
            url=self._upstream.url, version=self._version, access=self._access, tokens=self._tokens, idle=IDLE
        )

    async def run(self, context, pause):
        self.context = context
        random = context.random("disruptions")
        kinds = [
            (self._reset, 4),
            (self._close, 2),
            (self._restart, 3),
            (self._hang, 2),
            (self._reload, 4),
            (self._reload_in_vain, 1),
            (self._reload_and_reset, 1),
            (self._operate, 1),
        ]
        while not context.is_over:
            await asyncio.sleep(random.uniform(0.5, 1.5) * pause)
            (kind,) = random.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])
            if context.is_over:
                break
            name = kind.__name__.strip("_").replace("_", " ")
            self.done[name] = self.done.get(name, 0) + 1
            context.disrupted(name)
            await kind(random)
            await self.recover(name)
            context.disrupted(f"recovered from {name}")

    async def recover(self, name):
        """Waits until the session is ready again."""
        try:
            await eventually(self._is_ready, within=30, what=f"the session is ready after {name}")
        except AssertionError as error:
            self.context.faults.add(NAME, str(error))

    async def _is_ready(self):
        return (await self.context.client.session())["state"] == "ready"

    # -- The upstream -----------------------------------------------------------------------------------------------

    async def _reset(self, random):
        self._upstream.reset()

    async def _close(self, random):
        self._upstream.close(random.choice((1001, 1011, 1012)))

    async def _restart(self, random):
        await self._upstream.stop()
        await asyncio.sleep(random.uniform(0.2, 3))
        await self._upstream.start()

    async def _hang(self, random):
        """The connection stops in both directions. A new connection gets no response either."""
        self._upstream.is_mute = random.random() < 0.5
        self._upstream.hang()
        await asyncio.sleep(random.uniform(0.5, 4))
        self._upstream.is_mute = False
        self._upstream.reset()

    # -- The operator -----------------------------------------------------------------------------------------------

    async def _reload(self, random):
        """Reloads with a new header, which replaces the connection, with a new access log, or without a change."""
        change = random.choice(("header", "header", "access", "nothing"))
        if change == "header":
            self._version += 1
        elif change == "access":
            self._access = "errors" if self._access == "off" else "off"
        self.context.gateway.rewrite(self.config())
        self.context.gateway.signal(signal.SIGHUP)
        await asyncio.sleep(random.uniform(0, 2))

    async def _reload_in_vain(self, random):
        self.context.gateway.rewrite("upstream: {url: 'http://127.0.0.1:1/'}\n")
        self.context.gateway.signal(signal.SIGHUP)
        await asyncio.sleep(0.5)
        self.context.gateway.rewrite(self.config())

    async def _reload_and_reset(self, random):
        """The upstream is lost during a hand-over. Pushes from this time may come twice or out of order."""
        first = self._upstream.pushed - 100
        await self._reload(random)
        await asyncio.sleep(random.uniform(0, 0.5))
        self._upstream.reset()
        self._sessions.disturb()
        await self.recover("a reload")
        self._sessions.disturb()
        self._pushes.disturb(first, self._upstream.pushed + 100)

    async def _operate(self, random):
        client = self.context.client
        await client.request("PATCH", "/v1/session", json={"desired": "down"})
        await asyncio.sleep(random.uniform(0, 1))
        await client.request("PATCH", "/v1/session", json={"desired": "up"})
