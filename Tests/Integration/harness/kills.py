"""Posts under load while the upstream dies again and again, and checks the gateway's statement about each message."""

import asyncio
import collections
import json
import random
import time
from dataclasses import dataclass, field

from .mortal_upstream import MortalUpstream
from .waiting import eventually

FINAL = {"confirmed", "expired", "replaced", "rejected", "unknown"}

_LANES = 4
# Maximum number of messages without a final state at any moment. The number is so large that at each death some
# messages are queued, some are being sent and some are unconfirmed. The last batch may exceed it.
_OUTSTANDING = 200
_TTL = 60

# A gateway that notices a silent upstream within a fraction of a second, and reconnects at once.
SETTINGS = {
    "DRAWBRIDGE_UPSTREAM_HEARTBEAT_INTERVAL": "50ms",
    "DRAWBRIDGE_UPSTREAM_HEARTBEAT_TIMEOUT": "150ms",
    "DRAWBRIDGE_UPSTREAM_RECONNECT_MINIMUM": "1ms",
    "DRAWBRIDGE_UPSTREAM_RECONNECT_BASE": "2ms",
    "DRAWBRIDGE_UPSTREAM_RECONNECT_MAXIMUM": "10ms",
    "DRAWBRIDGE_UPSTREAM_DIALS_PER_SECOND": "1000",
    "DRAWBRIDGE_UPSTREAM_DIALS_BURST": "1000",
    "DRAWBRIDGE_UPSTREAM_QUEUE_TTL": f"{_TTL}s",
}


def settings(redeliver):
    """With `unconfirmed`, the gateway sends a message until it arrives or expires, so no message may be missing."""
    return {
        **SETTINGS,
        "DRAWBRIDGE_UPSTREAM_QUEUE_REDELIVER": redeliver,
        "DRAWBRIDGE_UPSTREAM_QUEUE_MAX_ATTEMPTS": "255" if redeliver == "unconfirmed" else "3",
    }


def push_settings():
    """The gateway keeps so many pushes that no reader loses a push because of retention."""
    return {**SETTINGS, "DRAWBRIDGE_DELIVERY_MESSAGES": "1000000"}


@dataclass
class Message:
    """One message that was accepted."""

    label: str
    sequence: int
    ttl: int | None
    topic: str | None
    posted: float
    state: str = "queued"
    final_at: float = 0.0


@dataclass
class Verdict:
    """The results of a run. `faults` must be empty."""

    deaths: dict
    states: collections.Counter
    refused: int
    doubled: int
    faults: list = field(default_factory=list)

    def __str__(self):
        states = ", ".join(f"{count} {state}" for state, count in sorted(self.states.items()))
        ways = ", ".join(f"{count} {way}" for way, count in self.deaths.items())
        return (
            f"{sum(self.deaths.values())} deaths ({ways}); {sum(self.states.values())} messages: {states}; "
            f"{self.refused} refused, {self.doubled} delivered more than once; {len(self.faults)} faults"
        )


#: The gateway closes a connection after `http.requests_per_connection`.
_REQUESTS_PER_CONNECTION = 50_000


class Receipts:
    """Requests the states of messages, many on one connection."""

    def __init__(self, address, fields=""):
        self._address = address
        # Header fields of each request, with their line breaks.
        self._fields = fields

    async def __aenter__(self):
        await self._connect()
        return self

    async def _connect(self):
        self._reader, self._writer = await asyncio.open_connection(*self._address)
        self._asked = 0

    async def __aexit__(self, *_):
        self._writer.close()

    async def states(self, ids):
        ids = list(ids)
        responses = []
        for start in range(0, len(ids), 32):
            chunk = ids[start : start + 32]
            if self._asked + len(chunk) > _REQUESTS_PER_CONNECTION:
                self._writer.close()
                await self._connect()
            self._asked += len(chunk)
            for id in chunk:
                self._writer.write(f"GET /v1/deliveries/{id} HTTP/1.1\r\nHost: x\r\n{self._fields}\r\n".encode())
            for id in chunk:
                response = await self._response()
                assert response["id"] == id, (id, response)
                responses.append(response["state"])
        return responses

    async def _response(self):
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
        body = await self._reader.readexactly(length)
        assert head.startswith(b"http/1.1 200"), (head, body)
        return json.loads(body)


class KillRun:
    """A run with one gateway and one mortal upstream, which dies `deaths` times under load."""

    def __init__(self, deaths, seed, redeliver):
        self._random = random.Random(seed)
        self._redeliver = redeliver
        self.upstream = MortalUpstream(random.Random(seed + 1), deaths)
        self._messages = {}
        # Ids of messages without a known final state.
        self._pending = set()
        self._refused = set()
        self._faults = []

    # -- Posting ----------------------------------------------------------------------------------------------------

    @property
    def _is_done(self):
        return self.upstream.killed >= self.upstream.deaths

    async def _post_all(self, client):
        await asyncio.gather(*(self._post_lane(client, lane) for lane in range(_LANES)))
        # A message must arrive after the last death. Otherwise, a gateway that gave up would pass. The gateway may
        # still write the first message to a connection whose death it has not noticed. That message is then rightly
        # `unknown`.
        confirmed = False
        deadline = time.monotonic() + 2 * _TTL
        number = 0
        while not confirmed:
            assert time.monotonic() < deadline, "no message is confirmed after all the deaths"
            before = set(self._messages)
            await self._post(client, [f"last-{number}"])
            number += 1
            last = self._messages.keys() - before
            await eventually(lambda last=last: not last & self._pending, within=2 * _TTL, what="the last one is final")
            confirmed = any(self._messages[id].state == "confirmed" for id in last)

    async def _post_lane(self, client, lane):
        number = 0
        while not self._is_done:
            count = self._random.choice((1, 1, 1, 5, 30))
            labels = [f"{lane}-{number + i}" for i in range(count)]
            number += count
            if not await self._post(client, labels) or len(self._pending) > _OUTSTANDING:
                await eventually(
                    lambda: len(self._pending) <= _OUTSTANDING // 2 or self._is_done,
                    within=2 * _TTL,
                    what="messages that are outstanding become final",
                )

    async def _post(self, client, labels):
        """Whether all messages were accepted."""
        headers = {}
        ttl = self._random.choice((None, None, None, None, None, 0, 1))
        if ttl is not None:
            headers["TTL"] = str(ttl)
        # Only single messages get a topic. In a batch, each message except the last would be replaced at once.
        topic = self._random.choice("xyz") if len(labels) == 1 and self._random.random() < 0.1 else None
        if topic:
            headers["Topic"] = topic
        # Some messages are so large that the upstream may die while they are being sent.
        padding = "." * (300_000 if len(labels) == 1 and self._random.random() < 0.05 else self._random.randrange(200))
        posted = time.monotonic()
        body = "\n".join(f"{label} {padding}" for label in labels)
        kind = "text/plain" if len(labels) == 1 else "application/x-ndjson"
        response = await client.send(body, type=kind, headers=headers)
        if response.status == 503:
            self._refused.update(labels)
            return False
        assert response.status in (202, 207), (response.status, response.body[:500])
        results = [response.json] if len(labels) == 1 else response.json["results"]
        for label, result in zip(labels, results, strict=True):
            if "id" not in result:
                assert result["status"] == 503, result
                self._refused.add(label)
                continue
            sequence = int(result["id"].partition(".")[2])
            self._messages[result["id"]] = Message(label, sequence, ttl, topic, posted)
            self._pending.add(result["id"])
        return response.status == 202

    # -- Reading states ----------------------------------------------------------------------------------------------

    async def _ask_until_final(self, address, is_posting):
        """Records the final state of every message. The gateway remembers the last 65,536 messages."""
        async with Receipts(address) as receipts:
            while is_posting() or self._pending:
                asked = list(self._pending)
                for id, state in zip(asked, await receipts.states(asked), strict=True):
                    message = self._messages[id]
                    message.state = state
                    message.final_at = time.monotonic()
                    if state in FINAL:
                        self._pending.remove(id)
                await asyncio.sleep(0.01)
            # A final state must not change.
            newest = list(self._messages)[-60_000:]
            for id, state in zip(newest, await receipts.states(newest), strict=True):
                if state != self._messages[id].state:
                    self._faults.append(f"{id} was {self._messages[id].state} and became {state}")

    # -- Running and judging ----------------------------------------------------------------------------------------

    async def run(self, gateway, *, progress=None):
        client = gateway.client()
        posting = asyncio.create_task(self._post_all(client))
        asking = asyncio.create_task(self._ask_until_final(gateway.address(), lambda: not posting.done()))
        reported = 0
        while not posting.done():
            done, _ = await asyncio.wait([posting, asking], timeout=0.5, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            if progress and self.upstream.killed - reported >= 100:
                reported = self.upstream.killed
                progress(f"{reported} of {self.upstream.deaths} deaths, {len(self._messages)} messages")
        await asyncio.wait_for(asking, 2 * _TTL)
        await self._judge_totals(client)
        self._judge_messages()
        states = collections.Counter(message.state for message in self._messages.values())
        doubled = sum(count > 1 for count in self._counts.values())
        return Verdict(self.upstream.died, states, len(self._refused), doubled, self._faults)

    async def _judge_totals(self, client):
        """Compares the counters with the states that were read."""
        accepted = len(self._messages)

        async def settled():
            totals = (await client.session())["messages"]
            return totals if sum(totals[state] for state in FINAL) == accepted else None

        totals = await eventually(settled, what="the totals of final states are all that was accepted")
        states = collections.Counter(message.state for message in self._messages.values())
        for state in FINAL:
            if totals[state] != states[state]:
                self._faults.append(f"{totals[state]} {state} were counted, and {states[state]} reported one by one")

    def _judge_messages(self):
        arrived = [payload.split(b" ")[0].decode() for payload in self.upstream.received]
        self._counts = collections.Counter(arrived)
        known = {message.label: message for message in self._messages.values()}
        for label in self._counts.keys() - known.keys():
            self._faults.append(f"{label} arrived and was never accepted")
        for message in known.values():
            if fault := self._fault(message, self._counts[message.label]):
                self._faults.append(f"{message}: {fault}")
        # The first arrivals must be in the order in which the gateway accepted the messages.
        last = 0
        for label in dict.fromkeys(arrived):
            sequence = known[label].sequence if label in known else last
            if sequence < last:
                self._faults.append(f"{label} (number {sequence}) came behind number {last}")
            last = sequence

    def _fault(self, message, count):
        if message.state not in FINAL:
            return "has no final state"
        if message.state == "confirmed" and count == 0:
            return "was confirmed and never arrived"
        if message.state in ("expired", "replaced") and count:
            return "arrived nevertheless"
        if self._redeliver == "never":
            if count > 1:
                return f"arrived {count} times"
            if message.state == "rejected" and count:
                return "arrived nevertheless"
        elif message.ttl is None and message.topic is None and message.state != "confirmed":
            waited = message.final_at - message.posted
            if waited < _TTL:
                return f"was given up after {waited:.1f} s, before it expired"
        return None
