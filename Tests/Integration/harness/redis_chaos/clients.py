"""Clients of all gateways at once. Their accounts record everything that they see, and are judged at the end."""

import asyncio
import collections
import contextlib
import json
import math
import time
from datetime import datetime

import aiohttp

from ..client import Response
from ..streams import LineParser
from ..waiting import eventually
from .judge import Loss, position

_GONE = (aiohttp.ClientError, ConnectionError, OSError, TimeoutError, asyncio.IncompleteReadError)
#: A request to a stopped gateway gets no response. After this time, the client repeats it at another gateway.
_PATIENCE = aiohttp.ClientTimeout(total=10)
#: Seconds. The next holder ends a lease earlier by the time that storing it took (docs/consumers.md).
_STORING = 0.1
FINAL = {"confirmed", "expired", "replaced", "rejected", "unknown"}
#: Permitted problems of requests while gateways and Redis fail, with their status. Any other problem is a fault.
_UNAVAILABLE = {(503, "holder-unavailable")}
_NOT_STORED = {(503, "store-failed"), *_UNAVAILABLE}
_UNKNOWN = {(502, "outcome-unknown")}
PROBLEMS = {
    "post": _NOT_STORED | _UNKNOWN,
    "delivery": _NOT_STORED,
    "read": set(),
    "stream": set(),
    "create": _NOT_STORED | _UNKNOWN,
    "receive": _NOT_STORED | _UNKNOWN,
    "settle": _NOT_STORED | _UNKNOWN | {(409, "lease-lost")},
}


class Clients:
    """Sends requests to gateways that are chosen at random."""

    def __init__(self, replicas, chance):
        self._replicas = replicas
        self._chance = chance
        self.is_over = False
        #: The number of results for each operation. A result is a status and a problem; `none` means no response.
        self.results = collections.Counter()
        self.faults = []

    async def choose(self):
        await eventually(lambda: self._replicas.running, what="a gateway runs")
        return self._chance.choice(self._replicas.running)

    async def request(self, operation, method, path, *, also=(), member=None, **options):
        """The response of a random gateway, or None without a response. `also` permits further problems."""
        member = member or await self.choose()
        try:
            response = await member.client().request(method, path, timeout=_PATIENCE, **options)
        except (*_GONE, RuntimeError):
            self.results[operation, "none", ""] += 1
            await asyncio.sleep(0.02)
            return None
        self.note(
            operation, response.status, kind_of(response) if response.status >= 300 else "", response.body, also=also
        )
        return response

    def note(self, operation, status, kind, body, *, also=()):
        self.results[operation, status, kind] += 1
        if status >= 300 and (status, kind) not in PROBLEMS[operation] | set(also):
            self.faults.append(f"{operation} got {status}: {body[:300]}")

    def succeeded(self, operation):
        """The numbers of successful requests and of all requests."""
        mine = {key: count for key, count in self.results.items() if key[0] == operation}
        return sum(count for key, count in mine.items() if key[1] in (200, 202)), sum(mine.values())


def kind_of(response):
    """The last part of a problem's type."""
    with contextlib.suppress(ValueError, KeyError):
        return response.json["type"].rpartition("#")[2].rpartition("/")[2]
    return "none"


class Posts:
    """Messages, each with a label. Some are repeated with an `Idempotency-Key` until they are accepted."""

    def __init__(self, clients, upstream, chance, interval, promises, losses):
        self._promises = promises
        self._losses = losses
        self._clients = clients
        self._upstream = upstream
        self._chance = chance
        self._interval = interval
        #: The ids of accepted messages by label, and the labels of messages that were certainly refused.
        self.accepted = {}
        self.refused = {}
        self.unclear = set()
        #: The time of the first response with this id.
        self._times = {}
        #: The time of the first request with this label.
        self._begins = {}
        self.states = {}
        self.faults = []
        self.forgotten = 0
        self._ids = {}
        self._pending = collections.deque()
        self._posting = 0

    async def post(self, lane):
        """Posts until the run is over. Every second lane uses keys."""
        self._posting += 1
        number = 0
        while not self._clients.is_over:
            number += 1
            label = f"{lane}-{number}"
            await (self._insist(label) if lane % 2 else self._try(label, {}))
            await asyncio.sleep(self._chance.uniform(0, 2 * self._interval))
        self._posting -= 1

    async def _insist(self, label):
        deadline = time.monotonic() + 90
        while not await self._try(label, {"Idempotency-Key": label}):
            if time.monotonic() > deadline:
                self.faults.append(f"{label} is refused for 90 s")
                return
            await asyncio.sleep(0.05)

    async def _try(self, label, fields):
        """Whether the message was accepted."""
        self._begins.setdefault(label, time.monotonic())
        headers = {"Content-Type": "text/plain", **fields}
        # The first request with this key may still wait for its response.
        also = {(409, "idempotency-key-in-progress")} if fields else ()
        response = await self._clients.request(
            "post", "POST", "/v1/messages", data=label.encode(), headers=headers, also=also
        )
        if response is None or response.status == 502:
            self.unclear.add(label)
            return False
        if response.status in (200, 202):
            self.note_accepted(label, response.json["id"], time.monotonic())
            self._pending.append(response.json["id"])
            return True
        self.refused[label] = kind_of(response)
        return False

    def note_accepted(self, label, id, at):
        self._times.setdefault(id, at)
        if self._ids.setdefault(id, label) != label:
            self.faults.append(f"{id} was given to {self._ids[id]} and {label}")
        if (first := self.accepted.setdefault(label, id)) != id:
            # Redis may have lost the first id with its key.
            self._losses.note(self._since(first), self._times[first], f"{label} has the ids {first} and {id}")

    def _since(self, id):
        """The time at which the message was first requested."""
        return self._begins.get(self._ids[id], self._times[id])

    async def judge(self):
        """Reads the state of each message until it is final, from any gateway."""
        while self._pending or self._posting:
            if not self._pending:
                await asyncio.sleep(0.01)
                continue
            id = self._pending.popleft()
            before = self.states.get(id)
            self.note_state(id, await self._final(id))
            # Some messages are read again later.
            if before is None and self._chance.random() < 0.2 and not self._clients.is_over:
                asyncio.get_running_loop().call_later(self._chance.uniform(0, 5), self._pending.append, id)

    def note_state(self, id, state):
        before = self.states.get(id)
        self.states[id] = state
        if before in (None, state):
            return
        # The gateway confirms a message before it stores that state.
        if (before, state) == ("confirmed", "unknown"):
            self.forgotten += 1
        # If there were two holders at once, both may have had the message. `forgotten` counts as a loss.
        elif self._promises.has_one_holder and "forgotten" not in (before, state):
            self.faults.append(f"{id} was {before} and became {state}")

    async def _final(self, id, member=None):
        deadline = time.monotonic() + 90
        state = None
        while time.monotonic() < deadline:
            response = await self._clients.request(
                "delivery", "GET", f"/v1/deliveries/{id}", member=member, also={(404, "not-found")}
            )
            if response is not None and response.status == 404:
                self._losses.note(self._since(id), self._times[id], f"{id} was accepted and is not known")
                return "forgotten"
            if response is not None and response.status == 200:
                state = response.json["state"]
                if state in FINAL:
                    return state
            await asyncio.sleep(0.02)
        self.faults.append(f"{id} is {state} for 90 s")
        return state

    async def read_again(self, members):
        """The state of each message at each gateway, after the last fault."""
        left = collections.deque(self.accepted.values())

        async def work():
            while left:
                id = left.popleft()
                states = [await self._final(id, member) for member in members]
                if len(set(states)) > 1:
                    self.faults.append(f"{id} has the states {states} at the gateways")
                self.note_state(id, states[0])

        await asyncio.gather(*(work() for _ in range(8)))

    def _history(self, label):
        """The ids of the message with their states, and each connection on which the message arrived, with the time."""
        ids = [id for id, other in self._ids.items() if other == label]
        named = [f"{id} accepted at {self._times[id]:.3f}, {self.states.get(id)}" for id in ids]
        arrivals = [
            f"on connection {connection.number} at {at:.3f}"
            for connection in self._upstream.connections
            for at, text in connection.writes
            if text == label
        ]
        return "; ".join([*named, *arrivals])

    def compare(self):
        """Compares the states with what the upstream has received."""
        arrived = collections.Counter(self._upstream.received)
        ids = collections.Counter(self._ids.values())
        ends = [connection.closed for connection in self._upstream.connections if connection.closed is not None]
        for id, label in self._ids.items():
            state, count = self.states.get(id), arrived[label]
            if state == "confirmed" and count == 0:
                self.faults.append(f"{label} ({id}) was confirmed and never arrived")
            # With two ids, the other one may have arrived.
            if state in ("expired", "replaced", "rejected") and count and ids[label] == 1:
                self.faults.append(f"{label} ({id}) is {state} and arrived")
            # A message is unknown only because a connection has ended since it was posted.
            begin = self._begins.get(label, self._times[id])
            if state == "unknown" and count == 0 and not any(end >= begin for end in ends):
                self.faults.append(f"{label} ({id}) is unknown and never arrived, and no connection has ended since")
            if state is None and id == self.accepted[label]:
                self.faults.append(f"{label} ({id}) has no state")
        for label, count in arrived.items():
            if count > 1 and self._promises.has_one_holder:
                self.faults.append(f"{label} arrived {count} times: {self._history(label)}")
        clear = self.refused.keys() - self.accepted.keys() - self.unclear
        self.faults += [f"{label} got {self.refused[label]} and arrived" for label in sorted(clear) if arrived[label]]


class Reader:
    """One client that polls or streams, at a different gateway each time, with its last cursor."""

    def __init__(self, number, clients, chance, pushes):
        self.number = number
        self._clients = clients
        self._chance = chance
        #: The account that all readers use.
        self._pushes = pushes
        self.faults = []
        #: Deliveries in order, as `(term, number)`, and the reasons of gaps before them, as `("gap", reasons)`.
        self.seen = []
        self.ids = set()
        self.newest = 0
        self._last = None
        self._gap = frozenset()
        self._cursor = "earliest"
        self.times = 0

    def _fault(self, text):
        self.faults.append(f"reader {self.number}: {text}")

    async def read(self, has_all):
        while not has_all(self):
            if self._chance.random() < 0.2:
                await self._stream()
            else:
                await self._poll()

    @property
    def _also(self):
        """Further permitted problems.

        A gateway that has not read the session cannot give a position to a client without a position.
        """
        return _UNAVAILABLE if self._cursor == "earliest" else ()

    async def _poll(self):
        # At the end, the waits are short, since a further push may not come.
        wait = self._chance.choice((0, 0.1, 1, 2))
        limit = self._chance.choice((1, 10, 100, 1000))
        query = {"cursor": self._cursor, "wait": f"{int(wait * 1000)}ms", "limit": str(limit)}
        response = await self._clients.request("read", "GET", "/v1/messages", params=query, also=self._also)
        if response is None:
            return
        if response.status != 200:
            await asyncio.sleep(0.05)
            return
        batch = response.json
        if batch["gap"]:
            self.note_gap(batch["gap"])
        for message in batch["messages"]:
            self.note(message)
        self._cursor = batch["cursor"]
        if not wait and not batch["messages"]:
            await asyncio.sleep(0.05)

    async def _stream(self):
        replica = await self._clients.choose()
        parser = LineParser()
        query = {"stream": "1", "cursor": self._cursor}
        end = time.monotonic() + self._chance.uniform(0.1, 2)
        try:
            async with replica.client()._http.get(
                "/v1/messages", params=query, headers={"Accept": "application/x-ndjson"}
            ) as response:
                if response.status != 200:
                    refusal = Response(response.status, response.headers, await response.read())
                    self._clients.note("stream", refusal.status, kind_of(refusal), refusal.body, also=self._also)
                    return
                self._clients.note("stream", 200, "", b"")
                while (left := end - time.monotonic()) > 0:
                    data = await asyncio.wait_for(response.content.readany(), left)
                    if not data:
                        break
                    for event in parser.feed(data):
                        if event.type == "gap":
                            self.note_gap(event.json)
                        elif event.type == "message":
                            self.note(event.json)
        except (*_GONE, RuntimeError):
            pass
        finally:
            self._cursor = parser.last_id or self._cursor

    def note_gap(self, gap):
        reasons = frozenset(gap.get("reasons") or [gap["reason"]])
        self._gap |= reasons
        self.seen.append(("gap", reasons))

    def note(self, message):
        id, data = message["id"], message["data"]
        data = json.loads(data) if isinstance(data, str) else data
        term, number = position(id)
        content = (data["c"], data["k"], data["n"])
        if (other := self._pushes.note(id, content, time.monotonic())) is not None:
            self._fault(f"{id} is {other} and {content}")
        if self._last and not self._gap:
            last_number, (connection, count, _) = self._last
            if number != last_number + 1:
                self._fault(f"{id} follows number {last_number} without a gap")
            elif connection != content[0]:
                self._fault(f"{id} {content} follows {self._last[1]} of another connection without a gap")
            elif content[1] != count + 1:
                self._fault(f"{id} {content} follows {self._last[1]} without a gap")
        elif self._last and not self._gap & {"store", "restart"} and number <= self._last[0]:
            self._fault(f"{id} follows number {self._last[0]}")
        self._gap = frozenset()
        self._last = (number, content)
        self.seen.append((term, number))
        self.ids.add(id)
        self.newest = max(self.newest, content[2])
        self.times += 1


class Workers:
    """Clients among which the pushes are divided. Each request goes to a random gateway."""

    _PATH = "/v1/consumers/workers"

    def __init__(self, clients, chance, promises, losses):
        self._clients = clients
        self._chance = chance
        self._promises = promises
        self._losses = losses
        self._visibility = 3
        self.faults = []
        #: The times at which the acknowledgement of a push was sent and got 200, by the push's number. Also the numbers
        #: of all pushes for which an acknowledgement was sent.
        self.acknowledged = {}
        self.sent = set()
        # Gateways with different clocks end each other's leases early or late. Meanwhile, leases are not checked.
        self._clocks_differ, self._shift = False, 0
        self._created = (time.monotonic(), time.monotonic())
        #: Incremented when earlier leases become invalid for the check.
        self._period = 0
        #: The time until which only one worker may have the push. A lease begins after its request was sent.
        self._live = {}
        self.deliveries = 0
        #: The number of leases that had ended when their response arrived, since a gateway was stopped.
        self.late = 0

    async def create(self):
        settings = {"share": True, "start": "earliest", "visibility": f"{self._visibility}s", "max_deliveries": 1000}

        async def put():
            response = await self._clients.request("create", "PUT", self._PATH, json=settings)
            return response if response is not None and response.status in (200, 201) else None

        began = time.monotonic()
        await eventually(put, within=60, what="the consumer is created")
        self._created = (began, time.monotonic())

    async def _receive(self, wait, limit):
        began, period = time.monotonic(), self._period
        query = {"wait": f"{wait}ms", "limit": str(limit)}
        response = await self._clients.request(
            "receive", "POST", self._PATH + "/receive", params=query, also={(404, "not-found")}
        )
        if response is None:
            return []
        if response.status != 200:
            if response.status == 404:
                await self._create_again()
            await asyncio.sleep(0.05)
            return []
        for message in response.json["messages"]:
            named = f"{message['lease']} until {message['expires']}"
            left = datetime.fromisoformat(message["expires"]).timestamp() - self._shift - time.time()
            self.note_lease(message["data"]["n"], named, began, time.monotonic(), period, left)
        return response.json["messages"]

    async def _create_again(self):
        self._losses.note(*self._created, "the consumer is not known")
        await self.create()

    def note_lease(self, number, lease, began, now, period=0, left=math.inf):
        """Records a lease that was requested at `began`, and arrived at `now`, `left` seconds before its end."""
        self.deliveries += 1
        is_comparable = not self._clocks_differ and period == self._period
        if is_comparable and left <= _STORING:
            self.late += 1
            return
        if number in self.acknowledged:
            sent, at = self.acknowledged[number]
            if is_comparable or began > at:
                self._losses.note(sent, at, f"{number} came again after its acknowledgement got 200")
        if not is_comparable:
            return
        until, other, requested, since = self._live.get(number, (0, lease, 0, 0))
        if now < until and lease != other and self._promises.has_one_holder:
            text = f"{number} has the leases {other} and {lease}, received at {since:.3f} and at {now:.3f}"
            if self._promises.loss is Loss.BEHIND:
                self._losses.note(requested, since, text)
            else:
                self.faults.append(text)
        self._live[number] = (began + self._visibility - _STORING, lease, began, now)

    async def _acknowledge(self, messages):
        numbers = {message["lease"]: message["data"]["n"] for message in messages}
        for number in numbers.values():
            self._live.pop(number, None)
        self.sent.update(numbers.values())
        began = time.monotonic()
        response = await self._clients.request(
            "settle", "POST", self._PATH + "/settle", json={"ack": list(numbers)}, also={(404, "not-found")}
        )
        if response is not None and response.status == 404:
            await self._create_again()
        if response is None or response.status not in (200, 207):
            return
        for result, number in zip(response.json["results"], numbers.values(), strict=True):
            if result["status"] == 200:
                self.acknowledged.setdefault(number, (began, time.monotonic()))

    def forget_leases(self, clocks_differ=False, shift=0):
        """Called after a step of a clock, since the next holder restores the ends of leases from the time of day.

        `shift` is the shift of the clocks of all gateways, unless they differ.
        """
        self._clocks_differ, self._shift = clocks_differ, shift
        self._period += 1
        self._live.clear()

    async def work(self):
        while not self._clients.is_over:
            messages = await self._receive(200, self._chance.choice((1, 5, 20, 100)))
            chosen = [message for message in messages if self._chance.random() < 0.9]
            if chosen:
                await self._acknowledge(chosen)
            else:
                await asyncio.sleep(0.02)

    async def finish(self, pushed):
        """Handles the remaining pushes. `pushed` contains the numbers in the log."""
        progress = time.monotonic()
        while not pushed <= self.sent and time.monotonic() < progress + 20:
            if messages := await self._receive(500, 1000):
                await self._acknowledge(messages)
                progress = time.monotonic()
        if left := pushed - self.sent:
            self.faults.append(f"no worker got {sorted(left)[:10]}, {len(left)} in all")
