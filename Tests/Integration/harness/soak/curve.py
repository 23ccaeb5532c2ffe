"""The resources of the gateway over time: they must not grow."""

import asyncio
import csv
import statistics
from dataclasses import astuple, dataclass, fields
from pathlib import Path

NAME = "resources"

#: The permitted growth between the second and the last quarter of a run. Memory may grow by a share, and by buffers
#: that are not always full. Descriptors and threads may grow by the requests of one moment.
_GROWTH = {"heap": (0.05, 2 << 20), "rss": (0.10, 6 << 20), "descriptors": (0.25, 10), "threads": (0, 1)}

_BARS = "▁▂▃▄▅▆▇█"


@dataclass
class Sample:
    seconds: float
    #: Bytes in use, as the allocator rounds them. 0 without a counter.
    heap: int
    #: Bytes of anonymous memory.
    rss: int
    descriptors: int
    threads: int
    #: Sessions that clients have created and that are still open.
    sessions: int


class Curve:
    def __init__(self, context, heap=None):
        self._context = context
        self._heap = heap
        self.samples = []

    async def run(self, interval):
        while not self._context.is_over:
            await self.take()
            await asyncio.sleep(interval)

    async def take(self):
        gateway = self._context.gateway
        metrics = await gateway.metrics()
        self.samples.append(
            Sample(
                round(self._context.now, 1),
                self._heap.read().bytes if self._heap else 0,
                gateway.memory(),
                gateway.descriptors(),
                len(list(Path(f"/proc/{gateway.process.pid}/task").iterdir())),
                # The metric exists only after the first such session.
                int(metrics.samples.get(("drawbridge_created_sessions", ""), 0)),
            )
        )

    def _quarter(self, index, name):
        count = len(self.samples)
        part = self.samples[count * index // 4 : count * (index + 1) // 4]
        return statistics.median(getattr(sample, name) for sample in part)

    def judge(self):
        """Compares the last quarter with the second quarter. In the first quarter, buffers still fill."""
        if len(self.samples) < 8:
            self._context.faults.add(NAME, f"only {len(self.samples)} samples were taken")
            return
        for name, (part, allowance) in _GROWTH.items():
            before, after = self._quarter(1, name), self._quarter(3, name)
            if after > before * (1 + part) + allowance:
                self._context.faults.add(NAME, f"{name} grew from {before:,.0f} to {after:,.0f}")

    def __str__(self):
        last = self.samples[-1]
        return (
            f"heap {last.heap / 2**20:.1f} MiB, memory {last.rss / 2**20:.1f} MiB, "
            f"{last.descriptors} descriptors, {last.threads} threads, {last.sessions} sessions"
        )

    def lines(self, width=60):
        """A small curve of each figure, from 0 to its maximum."""
        for name in [*_GROWTH, "sessions"]:
            values = [getattr(sample, name) for sample in self.samples]
            if not any(values):
                continue
            groups = [values[len(values) * i // width : len(values) * (i + 1) // width] for i in range(width)]
            medians = [statistics.median(group) for group in groups if group]
            top = max(medians)
            bars = "".join(_BARS[int(value / top * (len(_BARS) - 1))] for value in medians)
            unit, divisor = (" MiB", 2**20) if name in ("heap", "rss") else ("", 1)
            quarters = " ".join(f"{self._quarter(index, name) / divisor:,.1f}" for index in range(4))
            yield f"{name:>11} {bars} quarters {quarters}{unit}"

    def write(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(field.name for field in fields(Sample))
            writer.writerows(astuple(sample) for sample in self.samples)
