"""Clients of all gateways at once. What they see goes to their accounts, which are judged at the end."""

import asyncio
import collections
import contextlib
import json
import time

import aiohttp

from ..streams import LineParser
from ..waiting import eventually

_GONE = (aiohttp.ClientError, ConnectionError, OSError, TimeoutError, asyncio.IncompleteReadError)
#: A request to a gateway that was stopped has no response. Clients give up and repeat it elsewhere.
_PATIENCE = aiohttp.ClientTimeout(total=10)
FINAL = {"confirmed", "expired", "replaced", "rejected", "unknown"}


class Clients:
    """Sends requests to gateways that are chosen at random."""

    def __init__(self, replicas, chance):
        self._replicas = replicas
        self._chance = chance
        self.is_over = False
        self.statuses = collections.Counter()

    async def choose(self):
        await eventually(lambda: self._replicas.running, what="a gateway runs")
        return self._chance.choice(self._replicas.running)

    async def request(self, method, path, **options):
        """The response of one of the gateways; None if there is none."""
        replica = await self.choose()
        try:
            answer = await replica.client().request(method, path, timeout=_PATIENCE, **options)
        except (*_GONE, RuntimeError):
            self.statuses["none"] += 1
            await asyncio.sleep(0.02)
            return None
        self.statuses[answer.status] += 1
        return answer


def kind_of(answer):
    """The last part of the type of a problem."""
    with contextlib.suppress(ValueError, KeyError):
        return answer.json["type"].rpartition("#")[2].rpartition("/")[2]
    return "none"


def position(id):
    """The term and the number of a push."""
    _, term, number = id.split(".")
    return int(term), int(number)


class Posts:
    """Messages, each with a label. Some are repeated with an `Idempotency-Key` until they are accepted."""

    def __init__(self, clients, upstream, chance, interval, *, forgets=False):
        #: Whether Redis may lose what it has confirmed. Then a delivery may not be known any more.
        self._forgets = forgets
        self._clients = clients
        self._upstream = upstream
        self._chance = chance
        self._interval = interval
        #: The ids of accepted messages by label, and the labels of those that were refused without doubt.
        self.accepted = {}
        self.refused = {}
        self.unclear = set()
        self.states = {}
        self.faults = []
        self.forgotten = 0
        self._ids = {}
        self._pending = collections.deque()
        self._posting = 0

    async def post(self, lane):
        """Until the end. Every other lane uses keys."""
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
        """Whether it was accepted."""
        headers = {"Content-Type": "text/plain", **fields}
        answer = await self._clients.request("POST", "/v1/messages", data=label.encode(), headers=headers)
        if answer is None or answer.status == 502:
            self.unclear.add(label)
            return False
        if answer.status in (200, 202):
            id = answer.json["id"]
            if self._ids.setdefault(id, label) != label:
                self.faults.append(f"{id} was given to {self._ids[id]} and {label}")
            if self.accepted.setdefault(label, id) != id:
                self.faults.append(f"{label} has the ids {self.accepted[label]} and {id}")
            self._pending.append(id)
            return True
        # 409: the first request of this key has no response yet.
        if answer.status not in (409, 410, 503):
            self.faults.append(f"{label} got {answer.status}: {answer.body[:200]}")
        self.refused[label] = kind_of(answer)
        return False

    async def judge(self):
        """Reads the state of each message until it is final, from any gateway."""
        while self._pending or self._posting:
            if not self._pending:
                await asyncio.sleep(0.01)
                continue
            id = self._pending.popleft()
            before, state = self.states.get(id), await self._final(id)
            if before not in (None, state):
                self._note_change(id, before, state)
            self.states[id] = state
            # Some are read again later.
            if before is None and self._chance.random() < 0.2 and not self._clients.is_over:
                asyncio.get_running_loop().call_later(self._chance.uniform(0, 5), self._pending.append, id)

    def _note_change(self, id, before, state):
        # A confirmation is stored after the fact.
        if (before, state) == ("confirmed", "unknown") or state == "forgotten":
            self.forgotten += 1
        else:
            self.faults.append(f"{id} was {before} and became {state}")

    async def _final(self, id):
        deadline = time.monotonic() + 90
        state = None
        while time.monotonic() < deadline:
            answer = await self._clients.request("GET", f"/v1/deliveries/{id}")
            if answer is not None and answer.status == 404 and self._forgets:
                return "forgotten"
            if answer is not None and answer.status not in (200, 502, 503):
                self.faults.append(f"{id} got {answer.status}: {answer.body[:200]}")
                return "lost"
            if answer is not None and answer.status == 200:
                state = answer.json["state"]
                if state in FINAL:
                    return state
            await asyncio.sleep(0.02)
        self.faults.append(f"{id} is {state} for 90 s")
        return state

    def compare(self, may_repeat):
        """Compares the states with what the upstream has received."""
        arrived = collections.Counter(self._upstream.received)
        for label, id in self.accepted.items():
            state, count = self.states.get(id), arrived[label]
            if state == "confirmed" and count == 0:
                self.faults.append(f"{label} ({id}) was confirmed and never arrived")
            if state in ("expired", "replaced", "rejected") and count:
                self.faults.append(f"{label} ({id}) is {state} and arrived")
            if state is None:
                self.faults.append(f"{label} ({id}) has no state")
        if not may_repeat:
            self.faults += [f"{label} arrived {count} times" for label, count in arrived.items() if count > 1]
        clear = self.refused.keys() - self.accepted.keys() - self.unclear
        self.refused_and_arrived = collections.Counter(self.refused[label] for label in clear if arrived[label])


class Reader:
    """One client that polls or streams, each time at another gateway, with the cursor of the last one."""

    def __init__(self, number, clients, chance, contents, faults):
        self.number = number
        self._clients = clients
        self._chance = chance
        #: What each id stands for, of all readers.
        self._contents = contents
        self._faults = faults
        #: Deliveries in order, and before them the reasons of gaps: `("gap", reasons)` or `(term, number)`.
        self.seen = []
        self.ids = set()
        self.newest = 0
        self._last = None
        self._gap = frozenset()
        self._cursor = "earliest"
        self.times = 0

    def _fault(self, text):
        self._faults.append(f"reader {self.number}: {text}")

    async def read(self, has_all):
        while not has_all(self):
            if self._chance.random() < 0.2:
                await self._stream()
            else:
                await self._poll()

    async def _poll(self):
        # Short at the end, when readers wait for a push that may not come.
        wait = self._chance.choice((0, 0.1, 1, 2))
        limit = self._chance.choice((1, 10, 100, 1000))
        query = {"cursor": self._cursor, "wait": f"{int(wait * 1000)}ms", "limit": str(limit)}
        answer = await self._clients.request("GET", "/v1/messages", params=query)
        if answer is None:
            return
        if answer.status != 200:
            if answer.status not in (502, 503):
                self._fault(f"a poll from {self._cursor} got {answer.status}: {answer.body[:200]}")
            await asyncio.sleep(0.05)
            return
        batch = answer.json
        if batch["gap"]:
            self._note_gap(batch["gap"])
        for message in batch["messages"]:
            self._note(message)
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
                    return
                while (left := end - time.monotonic()) > 0:
                    data = await asyncio.wait_for(response.content.readany(), left)
                    if not data:
                        break
                    for event in parser.feed(data):
                        if event.type == "gap":
                            self._note_gap(event.json)
                        elif event.type == "message":
                            self._note(event.json)
        except (*_GONE, RuntimeError):
            pass
        finally:
            self._cursor = parser.last_id or self._cursor

    def _note_gap(self, gap):
        reasons = frozenset(gap.get("reasons") or [gap["reason"]])
        self._gap |= reasons
        self.seen.append(("gap", reasons))

    def _note(self, message):
        id, data = message["id"], message["data"]
        data = json.loads(data) if isinstance(data, str) else data
        term, number = position(id)
        content = (data["c"], data["k"], data["n"])
        if self._contents.setdefault(id, content) != content:
            self._fault(f"{id} is {self._contents[id]} and {content}")
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
    """Clients that share the pushes, each at another gateway each time."""

    _PATH = "/v1/consumers/workers"

    def __init__(self, clients, chance, *, forgets=False):
        self._clients = clients
        self._chance = chance
        #: Whether Redis may lose what it has confirmed.
        self._forgets = forgets
        self._visibility = 3
        self.faults = []
        #: Numbers of pushes whose acknowledgement got 200, and that were sent to be acknowledged.
        self.acknowledged = set()
        self.sent = set()
        #: Until when nobody else may have the push: its lease began after the request was sent.
        self._live = {}
        self.deliveries = 0

    async def create(self):
        settings = {"share": True, "start": "earliest", "visibility": f"{self._visibility}s", "max_deliveries": 1000}

        async def put():
            answer = await self._clients.request("PUT", self._PATH, json=settings)
            return answer if answer is not None and answer.status not in (502, 503) else None

        answer = await eventually(put, within=60, what="the consumer is created")
        assert answer.status in (200, 201), answer.body

    async def _receive(self, wait, limit):
        began = time.monotonic()
        query = {"wait": f"{wait}ms", "limit": str(limit)}
        answer = await self._clients.request("POST", self._PATH + "/receive", params=query)
        if answer is None:
            return []
        if answer.status != 200:
            if answer.status not in (502, 503) and not (self._forgets and answer.status == 404):
                self.faults.append(f"a receive got {answer.status}: {answer.body[:200]}")
            await asyncio.sleep(0.05)
            if answer.status == 404:
                await self.create()
            return []
        now = time.monotonic()
        for message in answer.json["messages"]:
            number = message["data"]["n"]
            until, lease = self._live.get(number, (0, None))
            if now < until and lease != message["lease"]:
                self.faults.append(f"{number} has the leases {lease} and {message['lease']}")
            if number in self.acknowledged and not self._forgets:
                self.faults.append(f"{number} came again after its acknowledgement got 200")
            self._live[number] = (began + self._visibility, message["lease"])
            self.deliveries += 1
        return answer.json["messages"]

    async def _acknowledge(self, messages):
        numbers = {message["lease"]: message["data"]["n"] for message in messages}
        for number in numbers.values():
            self._live.pop(number, None)
        self.sent.update(numbers.values())
        answer = await self._clients.request("POST", self._PATH + "/settle", json={"ack": list(numbers)})
        if answer is None or answer.status in (409, 502, 503):
            return
        if answer.status not in (200, 207):
            if not (self._forgets and answer.status == 404):
                self.faults.append(f"a settlement got {answer.status}: {answer.body[:200]}")
            return
        for result, number in zip(answer.json["results"], numbers.values(), strict=True):
            if result["status"] == 200:
                self.acknowledged.add(number)

    def forget_leases(self):
        """After a step of the clock: the next holder restores leases with their ends in the time of day."""
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
        """Handles what is left. `pushed`: the numbers in the log."""
        progress = time.monotonic()
        while not pushed <= self.sent and time.monotonic() < progress + 20:
            if messages := await self._receive(500, 1000):
                await self._acknowledge(messages)
                progress = time.monotonic()
        if left := pushed - self.sent:
            self.faults.append(f"no worker got {sorted(left)[:10]}, {len(left)} in all")
