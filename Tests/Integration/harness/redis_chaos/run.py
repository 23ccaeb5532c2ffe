"""Three gateways on Redis, and clients of all of them, while gateways, servers, networks and clocks fail.

A run asserts:

1. The id of a push means the same push at each gateway. At the end all gateways have the same log of ids and gaps. The
   last push is the newest push at each gateway within 1 s, plus 2 s of slack.
2. Without a gap between them, two deliveries to a reader have consecutive numbers, and are consecutive pushes of one
   connection. Numbers decrease only at a gap `store` or `restart`.
3. Each push of the final log is delivered to each reader. A push that some readers saw and that is not in the log is
   at a gap `store` of each other reader.
4. No gateway has a connection, or writes to it, for more than 0.5 s after another gateway has opened the next. A
   stopped gateway with a connection closes it within 0.5 s after it continues, and does not write before.
5. An accepted message has one id and one final state, which does not change, except that `confirmed` may become
   `unknown`. At the end each gateway reports the same state. A confirmed message has arrived. An expired, replaced or
   rejected message has not arrived, and neither has a message whose requests all got 409 or 503. No message arrives
   twice.
6. No push has two live leases for more than 0.1 s, and no push comes again after its acknowledgement got 200. Each push
   of the log is leased. Live leases from before a step of a gateway's clock, or from before a restart of the only
   server, are not compared with later leases. No leases are compared while the clocks of the gateways differ.
7. If nothing else fails, the next connection is open within a tenure and 0.3 s after a crash, and within 0.5 s after a
   release, each with 2 s of slack. Within 90 s after the last fault all servers are replicas of one primary, and within
   10 s more the session works at each gateway. Within 90 s a POST with a key succeeds and the state of a message is
   final.
8. Requests get only the problems in `PROBLEMS`.
9. A run has a take-over, a release and, with Sentinels, a failover, each while everything else works. A run of 120 s or
   more has each kind of fault, a step of a clock and a gap. At least half of its POSTs and polls succeed, and on
   average two POSTs and one poll per second.

If WAIT is for all replicas, nothing is lost that clients saw or that was acknowledged: the log has each such push, all
messages and the consumer are known (no 404), a label has one id, and an acknowledgement stays. For the other kinds of
runs docs/scaling.md and docs/replicas.md promise less:

- WAIT for fewer replicas: a write may be lost if another server becomes the primary without it, although a replica has
  confirmed the write, and if the holder is lost before it can write it again. The histories of the servers show which
  writes these are (`histories.py`). Any other loss is a fault.
- One server, which may restart with an old file: data may be lost at any time. Number 3 is still asserted.
- Sentinels without WAIT: data may be lost at any time, and the session may have two holders. Of number 4, only the end
  of each connection is asserted. Messages may arrive twice and change their states, and pushes may have two leases.
  Instead of number 3, a push of the log that a reader lacks is before a gap `store` of this reader, and the readers of
  one gateway may see pushes that other readers do not see.
"""

import asyncio
import collections
import itertools
import random
import shutil
import time
from dataclasses import dataclass, field

from ..clock import ShiftedClock
from ..replicas import LEASE, Databases, Replica, Replicas
from ..waiting import eventually
from .clients import Clients, Posts, Reader, Workers
from .faults import Faults
from .histories import Histories, LostWrites, watch
from .judge import Losses, Promises, Pushes, judge_connections, judge_content, judge_logs, judge_readers
from .upstream import OwnedUpstream

_READERS = 3
_LANES = 4
_WORKERS = 2
#: Seconds from the last push until each gateway must have it.
_CONVERGENCE = 3.0
# Retention by age would drop pushes at a step of the clock, since some gateways have times from before the step, and
# some have times from Redis.
_KEPT = {"delivery": {"messages": 1_000_000, "bytes": "1GiB", "age": "1000h"}}
# With the default settings, a gateway would write only pings to its connection.
_QUICK = {
    "DRAWBRIDGE_UPSTREAM_RECONNECT_BASE": "20ms",
    "DRAWBRIDGE_UPSTREAM_RECONNECT_MAXIMUM": "200ms",
    "DRAWBRIDGE_UPSTREAM_HEARTBEAT_INTERVAL": "300ms",
}


@dataclass
class Verdict:
    """The results of a run. `faults` must be empty."""

    seed: int
    done: collections.Counter
    states: collections.Counter
    counts: dict
    #: The number of each result, for each operation.
    results: collections.Counter
    faults: list = field(default_factory=list)

    def __str__(self):
        done = ", ".join(f"{count} {kind}" for kind, count in sorted(self.done.items()) if count)
        states = ", ".join(f"{count} {state}" for state, count in sorted(self.states.items()))
        counts = ", ".join(f"{count} {name}" for name, count in self.counts.items())
        return f"seed {self.seed}; {done}; messages: {states}; {counts}; {len(self.faults)} faults"


class ChaosRun:
    """A run with `seconds` of faults after the first faults.

    With Sentinels there are `replicas`, and WAIT requires `waits` of them. Without Sentinels there is one server.
    """

    def __init__(self, seconds, seed, folder, *, sentinels=True, replicas=1, waits=1, gateways=3, interval=0.01):
        self._seconds = seconds
        self._seed = seed
        self._folder = folder
        self._has_sentinels = sentinels
        self._redis_replicas = replicas
        self._waits = waits
        self._gateways = gateways
        #: Seconds between pushes, and between the messages of a client.
        self._interval = interval
        self._random = random.Random(seed)
        self._promises = Promises.of(sentinels=sentinels, replicas=replicas, waits=waits)
        self._losses = Losses(self._promises)
        self._histories = Histories()
        self._faults = []
        self._replicas = None

    def _chance(self):
        return random.Random(self._random.random())

    async def run(self, progress=lambda text: None):
        self._upstream = OwnedUpstream()
        self._pushes = Pushes(self._upstream.push_times)
        await self._upstream.start()
        built = ShiftedClock(self._folder)
        clocks = {}

        def clock_of(what, name):
            clocks[what] = built.beside(self._folder / "clocks" / name)
            return clocks[what].environment

        if self._has_sentinels:
            # Each server keeps its data, so that a restart before the Sentinels notice it does not empty the server.
            kept = ("--appendonly", "yes", "--appendfsync", "no")
            databases = Databases(
                self._folder, replicas=self._redis_replicas, sentinels=3, options=kept, wait_replicas=self._waits
            )
        else:
            databases = Databases(self._folder)
        # The Sentinels do not get such a clock, because they do nothing for 30 s after a step.
        for server in databases.servers:
            server._environment = clock_of(server, f"server-{server.port}")
        members = []
        for number in range(self._gateways):
            member = Replica(number, self._folder, self._upstream, databases, settings=_KEPT)
            member._env = {**_QUICK, **clock_of(member, f"gateway-{number}")}
            members.append(member)
        self._upstream.members = members
        self._replicas = Replicas(members, databases, self._upstream)
        started = []
        try:
            for each in (databases, *members):
                started.append(each)
                await each.start()
            await self._replicas.ready()
            verdict = await self._run_started(clocks, progress)
            for member in members:
                # stop() checks that the gateway ends in order.
                await member.stop()
            return verdict
        finally:
            for each in reversed(started):
                if each is not databases:
                    await each.abandon()
            await databases.stop()
            await self._upstream.stop()

    async def _run_started(self, clocks, progress):
        clients = Clients(self._replicas, self._chance())
        given = (self._promises, self._losses)
        posts = Posts(clients, self._upstream, self._chance(), 4 * self._interval, *given)
        readers = [Reader(number, clients, self._chance(), self._pushes) for number in range(_READERS)]
        workers = Workers(clients, self._chance(), *given)
        await workers.create()
        faults = Faults(self._replicas, self._chance(), clocks, lease=LEASE, stepped=workers.forget_leases)
        self._upstream.push_often(self._interval)
        self._goal = None
        running = [asyncio.create_task(posts.post(lane)) for lane in range(_LANES)]
        judging = [asyncio.create_task(posts.judge()) for _ in range(_LANES)]
        reading = [asyncio.create_task(reader.read(self._has_all)) for reader in readers]
        running += [asyncio.create_task(workers.work()) for _ in range(_WORKERS)]
        tasks = running + judging + reading
        watching = asyncio.create_task(watch(self._replicas.databases.servers, self._histories))
        began = time.monotonic()

        def note(text):
            counts = f"{len(posts.accepted)} messages, {self._upstream.pushed} pushes"
            accounts = (self, clients, posts, workers, faults, *readers)
            count = sum(len(each._faults if each is self else each.faults) for each in accounts)
            progress(f"{time.monotonic() - began:5.0f} s: {counts}, {count} faults; {text}")

        async def fail():
            await faults.begin(note)
            await faults.run(self._seconds, note)

        failing = asyncio.create_task(fail())
        try:
            await _watch(failing, [watching, *tasks])
            note("all faults are over")
            faults.heal()
            await self._settle()
            await asyncio.sleep(1)
            self._upstream.end_pushes()
            clients.is_over = True
            self._goal = await self._converge()
            await asyncio.wait_for(asyncio.gather(*tasks), 150)
        finally:
            for task in (failing, watching, *tasks):
                task.cancel()
            await asyncio.gather(failing, watching, *tasks, return_exceptions=True)
        logs = [await self._log_of(member) for member in self._replicas]
        self._faults += judge_logs(logs)
        log = [entry for entry in logs[0] if isinstance(entry, str)]
        await workers.finish({self._pushes.number(id) for id in log})
        await posts.read_again(self._replicas.members)
        posts.compare()
        self._faults += judge_readers(readers, self._pushes, log, self._promises, self._losses)
        connections = self._upstream.connections
        self._faults += judge_connections(connections, self._upstream.owners, faults.freezes, self._promises)
        return self._verdict(posts, readers, workers, faults, log, clients)

    def keep_logs(self, folder):
        """Copies the logs of servers and gateways."""
        folder.mkdir(parents=True, exist_ok=True)
        for log in self._folder.glob("*.log"):
            shutil.copy(log, folder)
        for member in self._replicas or ():
            lines = itertools.chain.from_iterable([*gateway.log, ""] for gateway in member.gateways)
            (folder / f"gateway-{member.number}.log").write_text("\n".join(lines))

    def _has_all(self, reader):
        return self._goal is not None and reader.newest >= self._goal

    async def _settle(self):
        """The session must work at each gateway within 10 s. Before that, the Sentinels may repair Redis."""
        await eventually(self._replicas.databases.are_whole, within=90, what="Redis is whole again")
        began = time.monotonic()
        attempts = itertools.count()

        async def works():
            for member in self._replicas.running:
                response = await member.client().send(f"settled-{next(attempts)}")
                if response.status != 202:
                    return False
            return len(self._upstream.open_connections) == 1

        await eventually(works, within=90, what="the session works at each gateway")
        self._settled = time.monotonic() - began
        if self._settled > 10:
            self._faults.append(f"the session works {self._settled:.1f} s after the last fault")

    async def _converge(self):
        """Waits until each gateway has the last push, and returns its number. There must be one connection by now."""
        last, began = self._upstream.pushed, time.monotonic()

        async def have_it():
            for member in self._replicas:
                messages = (await member.client().poll(last=1, wait=0)).messages
                if not messages or messages[-1]["data"]["n"] != last:
                    return False
            return True

        await eventually(have_it, within=30, what="each gateway has the last push")
        self._converged = time.monotonic() - began
        if self._converged > _CONVERGENCE:
            self._faults.append(f"the last push was at each gateway after {self._converged:.1f} s")
        return last

    async def _log_of(self, member):
        """The log at this gateway: ids, and the reasons of gaps."""
        log, cursor = [], "earliest"
        while True:
            batch = await member.client().poll(cursor=cursor, wait=0, limit=1000)
            if batch.gap:
                log.append(tuple(sorted(batch.gap.get("reasons") or [batch.gap["reason"]])))
            for message in batch.messages:
                log.append(message["id"])
                content = tuple(message["data"][name] for name in "ckn")
                if other := self._pushes.note(message["id"], content, time.monotonic()):
                    self._faults.append(f"{message['id']} is {content} at gateway {member.number}, and {other}")
            cursor = batch.cursor
            if not batch.more and not batch.messages:
                return log

    def _verdict(self, posts, readers, workers, faults, log, clients):
        gaps = [sum(kind == "gap" for kind, _ in reader.seen) for reader in readers]
        lost = LostWrites(self._histories.losses(), self._upstream.connections, LEASE)
        counts = {
            "pushes": self._upstream.pushed,
            "in the log": len(log),
            "seen and not in the log": len(self._pushes.contents.keys() - set(log)),
            "gaps": gaps[0],
            "leases": workers.deliveries,
            "acknowledged": len(workers.acknowledged),
            "refused": len(posts.refused),
            "unclear": len(posts.unclear),
            "confirmations forgotten": posts.forgotten,
            "late leases": workers.late,
            "losses": len(self._losses),
            "intervals that Redis has lost": len(lost.intervals),
            "connections": len(self._upstream.connections),
            "s until all work": round(self._settled, 1),
            "s until all had the last push": round(self._converged, 2),
            "s after a crash at most": round(max(faults.crashes, default=0), 2),
            "s after a release at most": round(max(faults.drains, default=0), 2),
        }
        self._faults += judge_content(
            self._seconds,
            never_done=faults.never_done,
            crashes=len(faults.crashes),
            releases=len(faults.drains),
            steps=sum(faults.done[kind] for kind in ("step_all", "step_gateway", "step_server")),
            gaps=max(gaps),
            posts=clients.succeeded("post"),
            reads=clients.succeeded("read"),
        )
        all_faults = self._faults + self._losses.faults(lost.may_lack)
        for each in (clients, posts, workers, faults, *readers):
            all_faults += each.faults
        states = collections.Counter(posts.states.values())
        return Verdict(self._seed, faults.done, states, counts, clients.results, all_faults)


async def _watch(main, others):
    """Waits for `main`. An error of another task is raised at once."""
    while not main.done():
        done, _ = await asyncio.wait([main, *others], timeout=0.5, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        if done - {main}:
            others = [task for task in others if not task.done()]
    main.result()
