"""Processor time that other processes use on the benchmark's cores during a run. A run without much of it is quiet."""

import os
import time
from pathlib import Path

from .processes import Cores, Process

#: A run is quiet if other processes use less than this share of the server's cores, and of the load's cores.
QUIET = 0.05

_TICKS = os.sysconf("SC_CLK_TCK")


class Interference:
    """The share of other processes on the cores of the server and of the load, since the creation of this object.

    Their time is the elapsed time, minus idle time, minus the time of the benchmark's own programs. It includes the
    time that the hypervisor gives to other machines.
    """

    def __init__(self, cores: Cores):
        self.halves = (cores.server, cores.load)
        self.own = os.sched_getaffinity(0)
        self.begin = time.monotonic()
        self.before = [self._free(half) for half in self.halves]

    def share(self) -> float:
        """The share of other processes so far, from 0 to 1: the larger share of the two halves."""
        elapsed = max(time.monotonic() - self.begin, 1 / _TICKS)
        shares = []
        for half, before in zip(self.halves, self.before, strict=True):
            free = self._free(half) - before
            shares.append(1 - free / (elapsed * len(half)))
        return max(0.0, *shares)

    def _free(self, half) -> float:
        """Seconds in which these cores were idle or worked for the benchmark."""
        seconds = _idle(half) + _softirqs(half) + Process.cpu_on(half)
        # The harness is pinned to the cores of the load.
        return seconds + (time.process_time() if self.own == set(half) else 0)


def _idle(cores) -> float:
    total = 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in cores:
            # The fields `idle` and `iowait`.
            total += int(fields[3]) + int(fields[4])
    return total / _TICKS


_softirq_threads: dict[int, Path | None] = {}


def _softirqs(cores) -> float:
    """Time of the kernel threads that process packets. Packets on the loopback interface belong to the benchmark."""
    total = 0
    if not _softirq_threads:
        for path in Path("/proc").glob("[0-9]*/comm"):
            try:
                name = path.read_text().strip()
            except OSError:
                continue
            if name.startswith("ksoftirqd/"):
                _softirq_threads[int(name.split("/")[1])] = path.parent / "schedstat"
        # Some containers do not show these threads. This entry records that the search is over.
        _softirq_threads.setdefault(-1, None)
    for core in cores:
        path = _softirq_threads.get(core)
        if path is not None:
            total += int(path.read_text().split()[0])
    return total / 1e9
