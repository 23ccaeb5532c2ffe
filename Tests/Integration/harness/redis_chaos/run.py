"""Three gateways on Redis, and clients of all of them, while gateways, servers and networks fail.

What is asserted:

1. An id of a push stands for the same push everywhere, and at the end all gateways have the same log.
2. Without a gap between them, two deliveries have consecutive numbers, and are consecutive pushes of one connection.
3. Each push of the final log is delivered to each reader. One that others have seen and that is not in it lies at a
   reader's gap `store`. Where WAIT confirms what is stored, there is none.
4. No gateway has its connection, or writes to it, after another one has opened the next.
5. Each message that was accepted gets one final state, which agrees with what the upstream received, and is sent once.
6. No push has two live leases.
7. The next connection is open in time, and 10 s after the last fault the session works at each gateway.
"""

import asyncio
import collections
import itertools
import random
import time
from dataclasses import dataclass, field

from ..clock import ShiftedClock
from ..recorder import RecordingUpstream
from ..replicas import LEASE, Databases, Replica, Replicas
from ..waiting import eventually
from .clients import Clients, Posts, Reader, Workers, position
from .faults import Faults

_READERS = 3
_LANES = 4
_WORKERS = 2
#: Seconds. A frame that was sent before may be read a little later than the next connection opens.
_WRITE_SLACK = 0.5
# Steps of the clock are no reason to drop pushes, some of which gateways have from before and some from Redis.
_KEPT = {"delivery": {"messages": 1_000_000, "bytes": "1GiB", "age": "1000h"}}
# Pings are what a gateway without the store would write.
_QUICK = {
    "DRAWBRIDGE_UPSTREAM_RECONNECT_BASE": "20ms",
    "DRAWBRIDGE_UPSTREAM_RECONNECT_MAXIMUM": "200ms",
    "DRAWBRIDGE_UPSTREAM_HEARTBEAT_INTERVAL": "300ms",
}


@dataclass
class Verdict:
    """What a run has shown. `faults` must be empty."""

    seed: int
    done: collections.Counter
    states: collections.Counter
    counts: dict
    faults: list = field(default_factory=list)

    def __str__(self):
        done = ", ".join(f"{count} {kind}" for kind, count in sorted(self.done.items()) if count)
        states = ", ".join(f"{count} {state}" for state, count in sorted(self.states.items()))
        counts = ", ".join(f"{count} {name}" for name, count in self.counts.items())
        return f"seed {self.seed}; {done}; messages: {states}; {counts}; {len(self.faults)} faults"


class ChaosRun:
    """`seconds` of faults. With Sentinels, two replicas and WAIT; else one server that may restart with old content."""

    def __init__(self, seconds, seed, folder, *, sentinels=True, replicas=1, gateways=3, interval=0.01):
        self._seconds = seconds
        self._seed = seed
        self._folder = folder
        self._has_sentinels = sentinels
        self._redis_replicas = replicas
        self._gateways = gateways
        #: Seconds between pushes, and between the messages of a client.
        self._interval = interval
        self._random = random.Random(seed)
        self._faults = []
        self._contents = {}

    def _chance(self):
        return random.Random(self._random.random())

    async def run(self, progress=lambda text: None):
        self._upstream = RecordingUpstream()
        await self._upstream.start()
        clock = ShiftedClock(self._folder)
        environment = clock.environment
        if self._has_sentinels:
            # Kept by each server, so that one that restarts before the Sentinels have noticed is not empty.
            kept = ("--appendonly", "yes", "--appendfsync", "no")
            databases = Databases(
                self._folder,
                replicas=self._redis_replicas,
                sentinels=3,
                options=kept,
                environment=environment,
                wait_replicas=self._redis_replicas,
            )
        else:
            databases = Databases(self._folder, environment=environment)
        members = [
            Replica(number, self._folder, self._upstream, databases, settings=_KEPT, env={**_QUICK, **environment})
            for number in range(self._gateways)
        ]
        self._replicas = Replicas(members, databases, self._upstream)
        started = []
        try:
            for each in (databases, *members):
                started.append(each)
                await each.start()
            await self._replicas.ready()
            verdict = await self._run_started(clock, progress)
            for member in members:
                # Ends in order, which is checked.
                await member.stop()
            return verdict
        finally:
            for each in reversed(started):
                if each is not databases:
                    await each.abandon()
            await databases.stop()
            await self._upstream.stop()

    async def _run_started(self, clock, progress):
        clients = Clients(self._replicas, self._chance())
        forgets = not self._has_sentinels
        posts = Posts(clients, self._upstream, self._chance(), 4 * self._interval, forgets=forgets)
        readers = [Reader(number, clients, self._chance(), self._contents, self._faults) for number in range(_READERS)]
        workers = Workers(clients, self._chance(), forgets=forgets)
        await workers.create()
        faults = Faults(self._replicas, self._chance(), clock, lease=LEASE, stepped=workers.forget_leases)
        self._upstream.push_often(self._interval)
        self._goal = None
        running = [asyncio.create_task(posts.post(lane)) for lane in range(_LANES)]
        judging = [asyncio.create_task(posts.judge()) for _ in range(_LANES)]
        reading = [asyncio.create_task(reader.read(self._has_all)) for reader in readers]
        running += [asyncio.create_task(workers.work()) for _ in range(_WORKERS)]
        tasks = running + judging + reading
        began = time.monotonic()

        def note(text):
            counts = f"{len(posts.accepted)} messages, {self._upstream.pushed} pushes"
            count = len(self._faults) + len(posts.faults) + len(workers.faults) + len(faults.faults)
            progress(f"{time.monotonic() - began:5.0f} s: {counts}, {count} faults; {text}")

        failing = asyncio.create_task(faults.run(self._seconds, note))
        try:
            await _watch(failing, tasks)
            note("all faults are over")
            faults.heal()
            await self._settle()
            await asyncio.sleep(1)
            self._upstream.end_pushes()
            clients.is_over = True
            # The end of the log, whatever was pushed to a connection that was lost.
            await asyncio.sleep(0.5)
            self._goal = await self._last_push()
            await asyncio.wait_for(asyncio.gather(*tasks), 150)
        finally:
            for task in (failing, *tasks):
                task.cancel()
            await asyncio.gather(failing, *tasks, return_exceptions=True)
        log = await self._compare_logs()
        await workers.finish({self._contents_of(id)[2] for id in log})
        posts.compare(may_repeat=False)
        self._compare_readers(readers, log)
        self._judge_connections(faults)
        return self._verdict(posts, readers, workers, faults, log, clients)

    def _contents_of(self, id):
        return self._contents.get(id, (0, 0, 0))

    def _has_all(self, reader):
        return self._goal is not None and reader.newest >= self._goal

    async def _settle(self):
        """The session works at each gateway 10 s after the last fault. Sentinels take as long to repair Redis."""
        await eventually(self._replicas.databases.are_whole, within=90, what="Redis is whole again")
        began = time.monotonic()
        attempts = itertools.count()

        async def works():
            for member in self._replicas.running:
                answer = await member.client().send(f"settled-{next(attempts)}")
                if answer.status != 202:
                    return False
            return len(self._upstream.open_connections) == 1

        await eventually(works, within=90, what="the session works at each gateway")
        self._settled = time.monotonic() - began
        if self._settled > 10:
            self._faults.append(f"the session works {self._settled:.1f} s after the last fault")

    async def _last_push(self):
        """`n` of the newest push in the log."""
        batch = await self._replicas[0].client().poll(last=1, wait=0)
        return batch.messages[-1]["data"]["n"]

    async def _compare_logs(self):
        """The log, as each gateway has it: ids and gaps."""
        logs = []
        for member in self._replicas:
            log, cursor, client = [], "earliest", member.client()
            while True:
                batch = await client.poll(cursor=cursor, wait=0, limit=1000)
                if batch.gap:
                    log.append(tuple(sorted(batch.gap.get("reasons") or [batch.gap["reason"]])))
                for message in batch.messages:
                    log.append(message["id"])
                    content = tuple(message["data"][name] for name in "ckn")
                    if self._contents.setdefault(message["id"], content) != content:
                        self._faults.append(f"{message['id']} is {content} at gateway {member.number}")
                cursor = batch.cursor
                if not batch.more and not batch.messages:
                    break
            logs.append(log)
        for number, log in enumerate(logs[1:], 1):
            if log != logs[0]:
                place = next((i for i, pair in enumerate(zip(log, logs[0], strict=False)) if pair[0] != pair[1]), "end")
                ends = [(each[:2], each[-2:]) for each in (logs[0], log)]
                self._faults.append(
                    f"the logs of gateways 0 and {number} differ at {place}: {len(logs[0])}, {len(log)}; {ends}"
                )
        return [entry for entry in logs[0] if isinstance(entry, str)]

    def _compare_readers(self, readers, log):
        final = set(log)
        revealed = set(self._contents) - final
        self._revealed = len(revealed)
        if revealed and self._has_sentinels:
            self._faults.append(f"{len(revealed)} pushes were seen and are not in the log: {sorted(revealed)[:5]}")
        for reader in readers:
            if missing := final - reader.ids:
                self._faults.append(
                    f"reader {reader.number} lacks {len(missing)} pushes of the log: {sorted(missing)[:5]}"
                )
            for id in revealed - reader.ids:
                if not _lies_at_a_gap(id, reader.seen):
                    self._faults.append(f"reader {reader.number} lacks {id}, which others saw, without a gap")

    def _judge_connections(self, faults):
        connections = self._upstream.connections
        for connection, following in itertools.pairwise(connections):
            late = [at for at, _ in connection.writes if at > following.opened + _WRITE_SLACK]
            if late:
                self._faults.append(
                    f"connection {connection.number} was written to {late[0] - following.opened:.2f} s "
                    f"after number {following.number} was opened"
                )
            # Only a gateway that is stopped cannot close it in time.
            thaws = [end for start, end in faults.freezes if start < following.opened <= end]
            latest = max([following.opened, *thaws]) + _WRITE_SLACK
            if connection.closed is None or connection.closed > latest:
                self._faults.append(f"connections {connection.number} and {following.number} were open side by side")

    def _verdict(self, posts, readers, workers, faults, log, clients):
        counts = {
            "pushes": self._upstream.pushed,
            "in the log": len(log),
            "lost after they were seen": self._revealed,
            "gaps": sum(kind == "gap" for kind, _ in readers[0].seen),
            "leases": workers.deliveries,
            "acknowledged": len(workers.acknowledged),
            "refused": len(posts.refused),
            "unclear": len(posts.unclear),
            "confirmations forgotten": posts.forgotten,
            "connections": len(self._upstream.connections),
            "s until all work": round(self._settled, 1),
            "s after a crash at most": round(max(faults.crashes, default=0), 2),
            "s after a release at most": round(max(faults.drains, default=0), 2),
        }
        if posts.refused_and_arrived:
            self._faults.append(f"refused messages arrived: {dict(posts.refused_and_arrived)}")
        all_faults = self._faults + posts.faults + workers.faults + faults.faults
        return Verdict(self._seed, faults.done, collections.Counter(posts.states.values()), counts, all_faults)


async def _watch(main, others):
    """Waits for `main`. An error of another one is raised at once."""
    while not main.done():
        done, _ = await asyncio.wait([main, *others], timeout=0.5, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        if done - {main}:
            others = [task for task in others if not task.done()]
    main.result()


def _lies_at_a_gap(id, seen):
    """Whether the reader has a gap `store` where the push would be."""
    term, number = position(id)
    counter = term >> 32
    last, reasons = None, frozenset()
    for kind, value in seen:
        if kind == "gap":
            reasons |= value
            continue
        if reasons & {"store", "restart"} and (last is None or last[1] < number) and kind >> 32 > counter:
            return True
        last, reasons = (kind, value), frozenset()
    return False
