"""Pushes while the upstream dies again and again. Readers must get a gap wherever they miss a push."""

import asyncio
import contextlib
import random
from dataclasses import dataclass, field

from .client import Batch
from .mortal_upstream import MortalUpstream

_READERS = 4


@dataclass
class PushVerdict:
    deaths: dict
    sent: int
    read: int
    gaps: int
    missed: int
    aborted: int
    faults: list = field(default_factory=list)

    def __str__(self):
        return (
            f"{sum(self.deaths.values())} deaths; {self.sent} pushes sent, {self.read} read by each of {_READERS} "
            f"readers, {self.missed} lost with a connection, all within {self.gaps} reported gaps; "
            f"{self.aborted} polls aborted; {len(self.faults)} faults"
        )


class _Reader:
    """A client that polls, and sometimes closes its connection during a poll."""

    def __init__(self, random):
        self.random = random
        self.numbers = []
        # The positions of gaps: each is before the number with this index in `numbers`.
        self.gaps = set()
        self.faults = []
        self.aborted = 0

    async def read(self, client, cursor, goal):
        """Reads until the push with the number `goal()`, or a later push, has arrived."""
        while goal() is None or not self.numbers or self.numbers[-1] < goal():
            poll = client.get(cursor=cursor, wait=5, limit=self.random.choice((1, 10, 100)))
            if self.random.random() < 0.1:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(poll, self.random.uniform(0, 0.02))
                self.aborted += 1
                continue
            batch = Batch.of(await poll)
            if batch.gap:
                self.gaps.add(len(self.numbers))
                if batch.gap["reason"] != "upstream" or batch.gap["missed"] is not None:
                    self.faults.append(f"not the gap that was to be expected: {batch.gap}")
            self.numbers += batch.payloads
            cursor = batch.cursor

    def cut(self, last):
        """Forgets everything after the push `last`."""
        self.numbers = [number for number in self.numbers if number <= last]
        self.gaps = {index for index in self.gaps if index < len(self.numbers)}

    def judge(self):
        """Checks that the numbers rise, and that there is a gap wherever a number is missing."""
        for index in range(1, len(self.numbers)):
            before, number = self.numbers[index - 1 : index + 1]
            if number <= before:
                self.faults.append(f"{number} came behind {before}")
            elif number > before + 1 and index not in self.gaps:
                self.faults.append(f"{before + 1} to {number - 1} are missing, and no gap was reported")
        return self.faults


class PushRun:
    """One gateway, one upstream that pushes numbers and dies `deaths` times, and some readers."""

    def __init__(self, deaths, seed):
        self._random = random.Random(seed)
        self.upstream = MortalUpstream(random.Random(seed + 1), deaths, push=self._start_pushing)
        self._tasks = set()
        self._sent = 0
        # Set after the last death. Readers continue to this number or a later number.
        self._goal = None
        self._is_over = False

    def _start_pushing(self, peer):
        task = asyncio.create_task(self._push(peer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _push(self, peer):
        while peer.is_alive and not self._is_over:
            for _ in range(self._random.choice((1, 1, 5, 50)) if self._goal is None else 1):
                self._sent += 1
                peer.send(str(self._sent).encode())
            await asyncio.sleep(self._random.uniform(0, 0.01))
            if self._goal is None and self.upstream.killed >= self.upstream.deaths and peer.is_alive:
                self._goal = self._sent

    async def run(self, gateway, *, progress=None):
        client = gateway.client()
        cursor = (await client.poll(cursor="earliest", wait=0)).cursor
        readers = [_Reader(random.Random(self._random.random())) for _ in range(_READERS)]
        reading = [asyncio.create_task(reader.read(client, cursor, lambda: self._goal)) for reader in readers]
        reported = 0
        while not all(task.done() for task in reading):
            done, _ = await asyncio.wait(reading, timeout=0.5, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
            if progress and self.upstream.killed - reported >= 100:
                reported = self.upstream.killed
                progress(f"{reported} of {self.upstream.deaths} deaths, {self._sent} pushes")
        self._is_over = True
        last = min(reader.numbers[-1] for reader in readers)
        for reader in readers:
            reader.cut(last)
        faults = [fault for reader in readers for fault in reader.judge()]
        first = readers[0]
        for reader in readers[1:]:
            if reader.numbers != first.numbers or reader.gaps != first.gaps:
                faults.append("two readers did not get the same")
        return PushVerdict(
            deaths=self.upstream.died,
            sent=self._sent,
            read=len(first.numbers),
            gaps=len(first.gaps),
            missed=last - len(first.numbers),
            aborted=sum(reader.aborted for reader in readers),
            faults=faults,
        )
