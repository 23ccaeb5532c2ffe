"""A run: all loads at once, with disruptions, and the accounts at the end."""

import asyncio
import contextlib
import hashlib
import secrets
from pathlib import Path

from aiohttp import ClientError

from ..gateway import Gateway
from ..heap import HeapCounter
from ..waiting import eventually
from . import calls, consumers, curve, disruptions, reads, sessions
from .calls import Calls
from .clients import Aborts
from .consumers import Workers
from .curve import Curve
from .disruptions import Disruptions
from .pace import Context
from .posts import Posts
from .reads import Pushes
from .sessions import Sessions
from .upstream import SoakUpstream

#: Requests, pushes or new sessions per second. With these rates, the clients and the upstream, which are in Python, use
#: half a core.
_RATES = {"posts": 25, "calls": 15, "pushes": 60, "workers": 40, "aborts": 5, "sessions": 2}


class SoakRun:
    """A run with one gateway, one upstream, and clients of all kinds for some time."""

    def __init__(self, seconds, seed, folder, *, rate=1.0, counts_heap=True):
        self.seconds = seconds
        self.seed = seed
        self._folder = Path(folder)
        self._rate = rate
        self._heap = HeapCounter(folder) if counts_heap else None
        self.posts, self.calls, self.pushes = Posts(), Calls(), Pushes()
        self.workers, self.aborts = Workers(), Aborts()
        self.sessions = Sessions()
        self.upstream = SoakUpstream(self.posts, self.calls, self.sessions)
        tokens = self._folder / "tokens"
        self.disruptions = Disruptions(self.upstream, self.pushes, self.sessions, tokens)
        self._token = secrets.token_urlsafe(16)
        self._write_tokens(tokens)
        self.pushes.upstream = self.sessions.upstream = self.upstream
        self.curve = None
        self.context = None

    def _write_tokens(self, path):
        owners = [(f"owner{index}", token, "send,receive") for index, token in enumerate(self.sessions.tokens)]
        path.write_text(
            "".join(
                f"{name} sha256:{hashlib.sha256(token.encode()).hexdigest()} scopes={scopes}\n"
                for name, token, scopes in [("all", self._token, "send,receive,call,admin"), *owners]
            )
        )

    async def run(self, progress=lambda text: None, *, every=10.0):
        """Runs. Returns the names of the accounts, their results and their faults."""
        await self.upstream.start()
        env = self._heap.environment if self._heap else None
        gateway = Gateway(config=self.disruptions.config(), folder=self._folder, env=env)
        try:
            await gateway.start()
            await gateway.ready()
            self.context = Context(gateway, self._token, self.seed, self._rate)
            self.context.faults.report = progress
            self.curve = Curve(self.context, self._heap)
            self.pushes.context = self.context
            try:
                await self._all(progress, every)
                self.curve.judge()
            except (AssertionError, OSError, EOFError, ClientError) as error:
                text = f"the run ended after {self.context.now:.0f} s: {error!r}"
                if (status := gateway.process.returncode) is not None:
                    text += f"; the gateway has ended with status {status}:\n{gateway.output[-4000:]}"
                self.context.faults.add(disruptions.NAME, text)
        finally:
            # stop() checks that the gateway exits with status 0 and has logged no crash.
            await gateway.stop()
            await self.upstream.stop()
        return self.accounts()

    async def _all(self, progress, every):
        context = self.context
        # Buffers and caches need some seconds to fill, and a disruption needs some seconds to recover.
        pause = min(4.0, self.seconds / 20)
        readers = [reads.poll(context, self.pushes, index) for index in range(4)]
        readers += [
            reads.stream(context, self.pushes, index, format) for index, format in enumerate(("events", "lines") * 2)
        ]
        readers.append(reads.take_over(context, self.pushes))
        reading = [asyncio.create_task(reader) for reader in readers]
        loads = [
            self.posts.run(context, _RATES["posts"]),
            self.calls.run(context, _RATES["calls"]),
            self.pushes.run(context, _RATES["pushes"]),
            self.workers.run(context, _RATES["workers"]),
            self.aborts.run(context, _RATES["aborts"]),
            self.sessions.run(context, _RATES["sessions"]),
            self.disruptions.run(context, pause),
            self.curve.run(max(0.5, min(5.0, self.seconds / 100))),
        ]
        tasks = reading + [asyncio.create_task(load) for load in loads]
        try:
            await self._watch(tasks, progress, every)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=5)
        await self._finish([task.result() for task in reading])

    async def _watch(self, tasks, progress, every):
        """Waits until all loads have ended. The first failure ends the run."""
        context = self.context
        reported = 0.0
        pending = set(tasks)
        while pending:
            done, pending = await asyncio.wait(pending, timeout=0.5, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
            if context.now >= self.seconds:
                context.is_over = True
            if context.now - reported >= every and not context.is_over:
                reported = context.now
                progress(self.progress())
            assert context.now < self.seconds + 180, f"the loads do not end: {[task.get_coro() for task in pending]}"

    async def _finish(self, readers):
        """After the loads, waits until everything that they began has ended."""
        context = self.context
        await self.disruptions.recover("the last disruption")
        # The first push may be received while the old connection is still open.
        for _ in range(3):
            self.upstream.push()
        await reads.finish(context, self.pushes, readers, self.upstream.pushed)
        await self.workers.finish()
        await self.calls.finish()
        await self.sessions.finish()
        totals = (await context.client.session())["messages"]
        for state in ("confirmed", "expired", "replaced", "rejected", "unknown"):
            if totals[state] < self.posts.states[state]:
                context.faults.add(
                    self.posts.NAME, f"{self.posts.states[state]} are {state}, and the gateway counts {totals[state]}"
                )
        await self._is_idle()

    async def _is_idle(self):
        """Checks that no request is held, no stream or call is open, and the queue is empty."""

        async def idle():
            samples = await self.context.gateway.metrics()
            names = ("polls_held", "receives_held", "streams_open", "calls", "queue_messages")
            return all(samples[f"drawbridge_{name}"] == 0 for name in names)

        with contextlib.suppress(AssertionError):
            await eventually(idle, within=30, what="nothing is held")
            return
        self.context.faults.add(curve.NAME, "requests, streams or messages are left at the end")

    def progress(self):
        context = self.context
        faults = sum(context.faults.counts.values())
        return (
            f"{context.now:6.0f} s: {sum(self.posts.states.values())} messages ({self.posts.unsettled} under way), "
            f"{self.upstream.pushed} pushes, {sum(self.calls.outcomes.values())} calls, "
            f"{self.workers.handled} handled, {self.sessions.created} sessions, "
            f"{sum(self.disruptions.done.values())} disruptions, "
            f"{faults} faults; {self.curve}"
        )

    def accounts(self):
        texts = {
            self.posts.NAME: str(self.posts),
            reads.NAME: str(self.pushes),
            consumers.NAME: str(self.workers),
            calls.NAME: str(self.calls),
            sessions.NAME: str(self.sessions),
            disruptions.NAME: f"{self.upstream.connections} connections; {self.disruptions}; {self.aborts}",
            curve.NAME: str(self.curve),
        }
        faults = self.context.faults
        return [(name, text, faults.counts.get(name, 0), faults.texts.get(name, [])) for name, text in texts.items()]
