"""Processes that the program under test has started."""

import contextlib
import os
import signal
from pathlib import Path


def descendants(pid):
    """The identifiers of the processes below this process, the nearest first."""
    found = [pid]
    for parent in found:
        # A process that ends now has no children any more.
        with contextlib.suppress(OSError):
            for children in Path(f"/proc/{parent}/task").glob("*/children"):
                found += map(int, children.read_text().split())
    return found[1:]


def kill_all(pids):
    """Sends SIGKILL to the processes that still run."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
