"""Random choices and the pace of a run."""

import asyncio
import collections
import random
import time


class Pace:
    """Allows `rate` steps per second. Unused steps are lost, so a delay on a busy machine leads to no flood."""

    def __init__(self, rate, burst=5):
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._last = time.monotonic()

    async def step(self):
        now = time.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._last) * self._rate)
        self._last = now
        self._tokens -= 1
        if self._tokens < 0:
            await asyncio.sleep(-self._tokens / self._rate)


class Faults:
    """The faults of each account. Each fault has the history of its message, if it has one."""

    #: As many as a person reads.
    KEPT = 10

    def __init__(self):
        self.counts = {}
        self.texts = {}
        #: Called for each fault whose text is kept, so that a long run prints it at once.
        self.report = lambda text: None
        #: The disruptions with their times. Each history contains the last disruptions.
        self.disruptions = collections.deque(maxlen=5)

    def add(self, account, text, history=()):
        self.counts[account] = self.counts.get(account, 0) + 1
        kept = self.texts.setdefault(account, [])
        if len(kept) < self.KEPT:
            events = sorted([*history, *self.disruptions])
            kept.append("\n    ".join([text, *(f"{at:10.3f} {event}" for at, event in events)]))
            self.report(f"FAULT {account}: {text}")


class Context:
    """The objects that all loads use: the gateway, the seed, the clock of the run, and the faults."""

    def __init__(self, gateway, token, seed, rate):
        self.gateway = gateway
        #: The client of all loads without their own principals, and the header fields of its requests.
        self.client = gateway.client(headers={"Authorization": f"Bearer {token}"})
        self.fields = f"Authorization: Bearer {token}\r\n"
        self.seed = seed
        self.rate = rate
        self.faults = Faults()
        self.is_over = False
        self._start = time.monotonic()

    def random(self, name):
        """A random generator for this load. It does not depend on the timing of other loads."""
        return random.Random(f"{self.seed} {name}")

    def pace(self, rate):
        return Pace(rate * self.rate)

    def disrupted(self, what):
        self.faults.disruptions.append((self.now, f"*** {what}"))

    @property
    def now(self):
        """Seconds since the start."""
        return time.monotonic() - self._start
