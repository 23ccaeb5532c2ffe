"""Kills a gateway with a store again and again under load, and compares what its clients and its upstream saw."""

import asyncio
import collections
import contextlib
import json
import random
from dataclasses import dataclass, field

import aiohttp

from .consumer_kills import KEYS, ConsumerRun
from .gateway import Gateway
from .upstream import Upstream

_FINAL = {"confirmed", "expired", "replaced", "rejected", "unknown"}
_READERS = 3
#: The number of clients that post, and also of clients that check.
_LANES = 4
_GONE = (aiohttp.ClientError, ConnectionError, OSError, TimeoutError, asyncio.IncompleteReadError)


def settings(path, sync="interval", redeliver="never"):
    """Settings with a store at `path`, and so much retention that no reader loses a push."""
    return {
        "DRAWBRIDGE_STORE_ENGINE": "sqlite",
        "DRAWBRIDGE_STORE_PATH": str(path),
        "DRAWBRIDGE_STORE_SYNC": sync,
        "DRAWBRIDGE_UPSTREAM_QUEUE_REDELIVER": redeliver,
        "DRAWBRIDGE_UPSTREAM_QUEUE_MESSAGES": "100000",
        "DRAWBRIDGE_DELIVERY_MESSAGES": "1000000",
        "DRAWBRIDGE_UPSTREAM_RECONNECT_BASE": "2ms",
        "DRAWBRIDGE_UPSTREAM_RECONNECT_MAXIMUM": "20ms",
    }


@dataclass
class Verdict:
    """The results of a run. `faults` must be empty."""

    kills: int
    accepted: int
    states: collections.Counter
    #: Messages that were `confirmed` before a kill and `unknown` after it. A state is stored only after it was reached.
    forgotten: int
    read: int
    gaps: int
    deliveries: int = 0
    faults: list = field(default_factory=list)

    def __str__(self):
        states = ", ".join(f"{count} {state}" for state, count in sorted(self.states.items()))
        return (
            f"{self.kills} kills; {self.accepted} messages: {states}; {self.forgotten} confirmations forgotten; "
            f"{self.read} pushes read by each of {_READERS} readers, {self.gaps} gaps; "
            f"{self.deliveries} deliveries to workers; {len(self.faults)} faults"
        )


class _Numbers(Upstream):
    """Pushes ascending numbers to every connected client."""

    def __init__(self):
        super().__init__()
        self.sent = 0
        self._task = None

    async def start(self):
        await super().start()
        self._task = asyncio.create_task(self._push())
        return self

    async def _push(self):
        while True:
            await asyncio.sleep(0.002)
            for connection in list(self._open):
                self.sent += 1
                with contextlib.suppress(Exception):
                    await connection.send(json.dumps({"n": self.sent, "key": self.sent % KEYS}))

    async def stop(self, *arguments, **options):
        if self._task:
            self._task.cancel()
        await super().stop(*arguments, **options)


class StoreKillRun:
    """One store, one upstream, `kills` gateways that are killed, and a last gateway that ends in order."""

    def __init__(self, kills, seed, folder, env):
        self._kills = kills
        self._random = random.Random(seed)
        self._folder = folder
        self._env = env
        self.upstream = _Numbers()
        self._gateway = None
        self._up = asyncio.Event()
        self._done = False
        self._posted = False
        # The number of gateways so far.
        self._generation = 0
        # Messages whose final state is not known yet.
        self._open = collections.deque()
        # Messages whose state is read again after the next kill: their ids, their states and the gateway that reported
        # them.
        self._seen = collections.deque()
        self._states = {}
        self._forgotten = 0
        # The number up to which readers read, set when all messages are posted.
        self._goal = 0
        self._accepted = {}
        self._ids = {}
        self._faults = []
        self._content = {}
        self._gaps = 0
        self._read = [0] * _READERS
        self._consumers = ConsumerRun(self._request, self._random)

    async def _request(self, method, path, **options):
        await self._up.wait()
        try:
            return await self._client(self._gateway).request(method, path, **options)
        except _GONE:
            return None

    async def _start(self):
        self._gateway = Gateway("--upstream", self.upstream.url, folder=self._folder, env=self._env)
        await self._gateway.start()
        self._generation += 1
        self._up.set()

    async def _post(self, lane):
        number = 0
        while not self._done:
            await self._up.wait()
            label = f"{lane}-{number}"
            number += 1
            gateway = self._gateway
            try:
                response = (
                    await gateway.client().send(label) if number == 1 else await self._client(gateway).send(label)
                )
            except _GONE:
                await asyncio.sleep(0.005)
                continue
            if response.status == 202:
                # Leaves processor time for the clients that check.
                await asyncio.sleep(0.004)
                id = response.json["id"]
                if id in self._ids:
                    self._faults.append(f"{id} was given to {self._ids[id]} and {label}")
                self._ids[id] = label
                self._accepted[label] = id
                self._open.append(id)
            elif response.status not in (503, 410):
                self._faults.append(f"{label} got {response.status}")

    def _client(self, gateway):
        if getattr(gateway, "kill_client", None) is None:
            gateway.kill_client = gateway.client()
        return gateway.kill_client

    async def _follow(self, reader):
        cursor, last = "earliest", 0
        # The log may end with a gap, before a message that has not arrived yet.
        gap = None
        while True:
            await self._up.wait()
            gateway = self._gateway
            try:
                response = await self._client(gateway).get(
                    cursor=cursor, wait=1, limit=self._random.choice((1, 10, 100))
                )
            except _GONE:
                await asyncio.sleep(0.005)
                continue
            if response.status != 200:
                self._faults.append(f"a poll from {cursor} got {response.status}: {response.body[:200]}")
                return
            batch = response.json
            cursor = batch["cursor"]
            self._gaps += batch["gap"] is not None
            gap = gap or batch["gap"]
            for message in batch["messages"]:
                number = message["data"]["n"]
                if self._content.setdefault(message["id"], number) != number:
                    self._faults.append(f"{message['id']} is {self._content[message['id']]} and {number}")
                if number <= last:
                    self._faults.append(f"reader {reader}: {number} came behind {last}")
                elif number > last + 1 and gap is None and last:
                    self._faults.append(f"reader {reader}: {last + 1} to {number - 1} are missing without a gap")
                gap, last = None, number
            self._read[reader] = last
            if self._done and last >= self._goal:
                return

    async def run(self, progress=None):
        await self._start()
        await self._consumers.create()
        consuming = [asyncio.create_task(self._consumers.work(lambda: self._done)) for _ in range(4)]
        consuming.append(asyncio.create_task(self._consumers.read(self._has_read)))
        posting = [asyncio.create_task(self._post(lane)) for lane in range(_LANES)]
        reading = [asyncio.create_task(self._follow(reader)) for reader in range(_READERS)]
        judging = [asyncio.create_task(self._judge()) for _ in range(_LANES)]
        for kill in range(self._kills):
            await asyncio.sleep(self._random.uniform(0.05, 0.4))
            self._up.clear()
            await self._gateway.kill()
            for client in self._gateway._clients:
                await client.close()
            await self._start()
            if progress and kill % 50 == 49:
                counts = f"{len(self._accepted)} messages, {self.upstream.sent} pushes"
                progress(f"{kill + 1} kills, {counts}, {len(self._faults)} faults")
        await self._gateway.ready()
        await asyncio.sleep(0.3)
        self._goal = self.upstream.sent
        self._done = True
        await asyncio.gather(*posting)
        self._posted = True
        await asyncio.wait_for(asyncio.gather(*reading, *judging, *consuming), 120)
        self._compare()
        await self._consumers.judge({number for number in self._content.values() if number <= self._goal})
        await self._gateway.stop()
        states = collections.Counter(self._states.values())
        faults = self._faults + self._consumers.faults
        deliveries = self._consumers.deliveries
        return Verdict(
            self._kills, len(self._accepted), states, self._forgotten, min(self._read), self._gaps, deliveries, faults
        )

    def _has_read(self):
        return self._done and self._consumers.has_read(self._goal)

    async def _judge(self):
        """Reads the state of each message until it is final, and once more after the next kill."""
        while self._open or self._seen or not self._posted:
            if self._seen and self._seen[0][2] < self._generation:
                id, before, _ = self._seen.popleft()
            elif self._open:
                id, before = self._open.popleft(), None
            elif self._posted:
                # No gateway has been killed since then.
                return
            else:
                await asyncio.sleep(0.01)
                continue
            state, generation = await self._final(id)
            if before is None:
                self._seen.append((id, state, generation))
            elif (before, state) == ("confirmed", "unknown"):
                self._forgotten += 1
            elif before != state:
                self._faults.append(f"{id} was {before}, and {state} after a kill")
            self._states[id] = state

    async def _final(self, id):
        deadline = asyncio.get_running_loop().time() + 60
        while True:
            await self._up.wait()
            generation = self._generation
            try:
                response = await self._client(self._gateway).request("GET", f"/v1/deliveries/{id}")
            except _GONE:
                await asyncio.sleep(0.005)
                continue
            if response.status != 200:
                self._faults.append(f"{id} got {response.status}")
                return "lost", generation
            if response.json["state"] in _FINAL:
                return response.json["state"], generation
            if asyncio.get_running_loop().time() > deadline:
                self._faults.append(f"{id} is {response.json['state']} for a minute")
                return response.json["state"], generation
            await asyncio.sleep(0.01)

    def _compare(self):
        """Compares the states with what the upstream has received."""
        arrived = collections.Counter(self.upstream.received)
        for label, id in self._accepted.items():
            state, count = self._states.get(id), arrived[label]
            if state == "confirmed" and count == 0:
                self._faults.append(f"{id} was confirmed and never arrived")
            if state in ("expired", "replaced", "rejected") and count:
                self._faults.append(f"{id} is {state} and arrived")
            if state is None:
                self._faults.append(f"{id} has no final state")
        if self._env["DRAWBRIDGE_UPSTREAM_QUEUE_REDELIVER"] == "never":
            self._faults += [f"{label} arrived {count} times" for label, count in arrived.items() if count > 1]
