"""Readers of pushes: polls, streams, and a reader whose position the gateway keeps. A missing push must be in a gap."""

import asyncio
import contextlib

from ..client import Batch
from ..raw import reset
from ..streams import RawStream

NAME = "pushes"


def number_of(id):
    """The number of a push, by its id."""
    # The id of a position after a gap ends with `g`.
    return int(id.partition(".")[2].removesuffix("g"))


class Pushes:
    """The account of all pushes. Each reader must see the same content under the same id."""

    #: More pushes than any reader can be behind.
    _REMEMBERED = 50_000

    def __init__(self, name=NAME):
        #: The name of the account in reports of faults.
        self.name = name
        self.context = None
        self.upstream = None
        self._seen = {}
        #: Pushes that a disturbed hand-over may deliver twice or out of order, which the contract permits.
        self._disturbed = []
        self.read = self.gaps = self.missed = self.lost = self.cut = 0

    def __str__(self):
        return (
            f"{self.upstream.pushed} pushed, {self.read} read by all readers, {self.gaps} gaps reported "
            f"with {self.missed} dropped by retention and {self.lost} lost with a connection; {self.cut} readers cut"
        )

    async def run(self, context, rate):
        """Sends pushes in bursts."""
        random = context.random("pushes")
        pace = context.pace(rate)
        while not context.is_over:
            for _ in range(random.choice((1, 1, 1, 1, 10))):
                await pace.step()
                self.upstream.push()

    def disturb(self, first, last):
        self._disturbed.append((first, last))

    def is_disturbed(self, number):
        return any(first <= number <= last for first, last in self._disturbed)

    def check(self, reader, id, payload):
        """The number of a push, or None for another message of the upstream."""
        number = payload.get("n") if isinstance(payload, dict) else None
        before = self._seen.setdefault(id, number)
        if before != number:
            self.context.faults.add(self.name, f"{reader}: {id} is push {number}, and was push {before} before")
        if len(self._seen) > self._REMEMBERED:
            for old in list(self._seen)[: self._REMEMBERED // 2]:
                del self._seen[old]
        return number


class Continuity:
    """The view of one reader: ids and numbers of pushes rise by one, unless there is a gap."""

    def __init__(self, name, account):
        self.name = name
        self._account = account
        self._id = None
        self._number = None
        self._reasons = set()
        self._missed = 0
        #: Losses since the last push with a number.
        self._lost = set()
        self.events = []

    @property
    def number(self):
        return self._number

    def start(self, cursor):
        """Reads from this position on. Earlier pushes may be missing."""
        self._id = number_of(cursor)

    def _fault(self, text):
        self._account.context.faults.add(self._account.name, f"{self.name}: {text}", self.events[-12:])

    def _note(self, event):
        self.events.append((self._account.context.now, event))
        del self.events[:-24]

    def gap(self, gap):
        if not gap:
            return
        self._note(f"gap {gap}")
        self._account.gaps += 1
        self._reasons |= set(gap.get("reasons") or [gap["reason"]])
        self._missed += gap["missed"] or 0
        if unexpected := self._reasons - {"retention", "upstream"}:
            self._fault(f"a gap has the reasons {unexpected}, although the gateway was not restarted")

    def messages(self, messages):
        for message in messages:
            self.message(message["id"], message.get("data"))

    def message(self, id, payload):
        self._account.read += 1
        sequence = number_of(id)
        number = self._account.check(self.name, id, payload)
        if self._id is not None:
            self._judge_id(sequence)
        self._id = sequence
        self._lost |= self._reasons
        self._reasons, self._missed = set(), 0
        if number is None:
            return
        if self._number is not None:
            self._judge_number(number)
        self._number = number
        self._lost = set()

    def _judge_id(self, sequence):
        dropped = sequence - self._id - 1
        if dropped < 0:
            self._fault(f"push {sequence} came after {self._id}")
        elif dropped != self._missed:
            self._fault(f"{dropped} pushes before {sequence} were skipped, and the gaps report {self._missed}")
        self._account.missed += max(0, dropped)

    def _judge_number(self, number):
        before = self._number
        if number <= before:
            if not self._account.is_disturbed(number):
                self._fault(f"number {number} came after {before}")
        elif number > before + 1:
            if "retention" in self._lost:
                return
            if "upstream" in self._lost:
                self._account.lost += number - before - 1
            elif not self._account.is_disturbed(number):
                self._fault(f"numbers {before + 1} to {number - 1} are missing, and no gap is reported")


async def poll(context, account, index):
    """Polls with various limits, and sometimes aborts a poll. The first reader is so slow that it loses pushes."""
    name = f"poll {index}"
    random = context.random(name)
    reader = Continuity(name, account)
    is_slow = index == 0
    cursor = (await context.client.poll(cursor="latest", wait=0)).cursor
    reader.start(cursor)
    pace = context.pace(1 if is_slow else 20)
    while not context.is_over:
        await pace.step()
        asked = context.client.get(cursor=cursor, wait=2, limit=20 if is_slow else random.choice((1, 10, 100, 1000)))
        if random.random() < 0.05:
            account.cut += 1
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asked, random.uniform(0, 0.05))
            continue
        batch = Batch.of(await asked)
        reader.gap(batch.gap)
        reader.messages(batch.messages)
        cursor = batch.cursor
    return reader, cursor


async def stream(context, account, index, format):
    """Reads a stream for some seconds, is cut off, and resumes at its position."""
    name = f"stream {index} ({format})"
    random = context.random(name)
    reader = Continuity(name, account)
    cursor = (await context.client.poll(cursor="latest", wait=0)).cursor
    reader.start(cursor)
    while not context.is_over:
        query, last_id = (f"cursor={cursor}", None) if format == "lines" else ("", cursor)
        opened = await RawStream.open(
            context.gateway.address(), query, format=format, last_id=last_id, fields=context.fields
        )
        end = context.now + random.uniform(0.05, 10)
        while context.now < end and not context.is_over:
            try:
                data = await opened.read(random.choice((100, 65_536)), within=1)
            except TimeoutError:
                continue
            _take(reader, opened)
            if not data:
                break
        # The next stream begins with the event that was incomplete.
        cursor = opened.parser.last_id or cursor
        account.cut += 1
        reset(opened.writer) if random.random() < 0.5 else opened.close()
    return reader, cursor


def _take(reader, stream):
    for event in stream.events:
        record = event.json
        if event.type == "gap":
            reader.gap(record)
        elif event.type == "message":
            reader.message(record["id"], record.get("data"))
    stream.events.clear()


async def take_over(context, account):
    """A consumer for one reader, which another reader sometimes replaces. Each acknowledges the pushes that it read."""
    name = "reader"
    random = context.random(name)
    reader = Continuity(name, account)
    client = context.client
    response = await client.request("PUT", f"/v1/consumers/{name}", json={"start": "latest"})
    assert response.status == 201, response.body
    cursor = response.json["position"]
    reader.start(cursor)
    pace = context.pace(10)

    def receive():
        query = {"wait": "2", "limit": str(random.choice((1, 10, 100))), "ack": cursor}
        return asyncio.create_task(client.request("POST", f"/v1/consumers/{name}/receive", params=query))

    while not context.is_over:
        await pace.step()
        receives = [receive()]
        if random.random() < 0.1:
            await asyncio.sleep(random.uniform(0, 0.05))
            receives.append(receive())
        responses = await asyncio.gather(*receives)
        batches = [response for response in responses if response.status == 200]
        # The gateway may see either request as the later request, which takes over.
        assert batches
        assert all(each.status == 200 or each.problem(409)["type"] == "/errors/superseded" for each in responses)
        # All batches begin after the same position.
        batch = Batch.of(batches[-1])
        reader.gap(batch.gap)
        reader.messages(batch.messages)
        cursor = batch.cursor
    return reader, cursor


async def finish(context, account, readers, goal):
    """All readers read to the end, and must then have seen the last push."""
    for reader, cursor in readers:
        while reader.number is None or reader.number < goal:
            batch = await context.client.poll(cursor=cursor, wait=5, limit=1000)
            if not batch.messages and not batch.gap:
                context.faults.add(NAME, f"{reader.name}: push {goal} does not come", reader.events[-12:])
                break
            reader.gap(batch.gap)
            reader.messages(batch.messages)
            cursor = batch.cursor
